//! The Jobs that change the schema, and the keys by which a live one is recognised.

use glance_api::Glance;
use glance_api::defaults;
use glance_api::glance::GlanceSpec;
use glance_api::keys::annotations::{POD_SPEC_HASH, RETRY_JOB, SCHEMA_KEY};
use serde_json::{Value, json};

use crate::glance::workload::containers::{image, restricted};
use crate::glance::workload::volumes::CONFIG_DIR;
use crate::glance::workload::{Identity, environment, labels, pod, volumes};
use crate::hash::sha256_hex;
use crate::names::{self, PhaseJob};
use crate::release::Release;

/// On a migration Job: everything whose change is a reason to try a failed Job again.
pub const RETRY_KEY: &str = "cobaltcore.c5c3.io/retry-key";
/// On a migration Job: hash of the database connection that it began with.
pub const CONNECTION_KEY: &str = "cobaltcore.c5c3.io/connection-key";
/// On a migration Job: the `MariaDB` and the `Database` it ran in, by their UIDs. Beside the other keys, since a Job from
/// before this one, or of another operator, does not have it.
pub const DATABASE_KEY: &str = "cobaltcore.c5c3.io/database-uid";
/// On a migration Job: what else tells one schema from another, in words. Beside the other keys for the same reason.
pub const ORIGIN_KEY: &str = "cobaltcore.c5c3.io/schema-origin";
/// On a migration Job: how many Jobs of the same retry key there have been, this one included.
pub const ATTEMPT: &str = "cobaltcore.c5c3.io/attempt";

/// Pods per Job: the first and four more.
const BACKOFF_LIMIT: u32 = 4;
/// The port that is not worth a word.
const USUAL_PORT: i32 = 3306;
/// Where the image keeps its metadata definitions; it ships no `/etc/glance`.
const METADEFS: &str = "/var/lib/openstack/etc/glance/metadefs";

/// What a Job does to the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration<'a> {
    /// Brings the schema of the installed release up to date, in one go.
    Sync,
    /// One phase of the upgrade from one release to the next.
    Phase {
        /// The phase.
        phase: PhaseJob,
        /// `status.installedRelease`.
        installed: &'a str,
        /// `status.targetRelease`.
        target: &'a str,
    },
}

/// What earlier steps hand to a migration.
#[derive(Clone, Copy, Debug)]
pub struct JobInputs<'a> {
    /// Name of the `ConfigMap` with the rendered config.
    pub config_map: &'a str,
    /// Digest of the DSN.
    pub dsn_digest: &'a str,
    /// Which database this is, where we made it: one of the same name may be another one.
    pub database: Option<&'a str>,
}

/// A migration Job as it should be, and the keys a live one is compared by.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationJob {
    object: Value,
    keys: Keys,
    database: Option<String>,
    takes_over: bool,
}

/// The keys, each an annotation. What makes a Job run again depends on how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The whole pod template.
    pub template: String,
    /// What decides the schema alone. A new `ConfigMap` is no reason to repeat a Job that
    /// succeeded.
    pub schema: String,
    /// The template, the database connection and the user's button.
    pub retry: String,
    /// The database connection alone.
    pub connection: String,
    /// What decides the schema as well and `schema` does not name, which has to outlive versions of this operator.
    pub origin: String,
}

/// The Job for `migration`.
pub fn migration_job(
    glance: &Glance,
    id: Identity<'_>,
    migration: Migration<'_>,
    inputs: JobInputs<'_>,
) -> MigrationJob {
    let spec = &glance.spec;
    let command = migration.command();
    let template = json!({
        // A label key of its own, for the network policy and for nobody else: see `labels`.
        "metadata": { "labels": labels::migration(id.name) },
        "spec": {
            "restartPolicy": "Never",
            "securityContext": pod::pod_security(),
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "containers": [{
                "name": migration.container(),
                "image": image(&spec.image),
                "command": command,
                "env": environment::migration(id.name),
                "volumeMounts": volumes::manage_mounts(spec),
                "securityContext": restricted(),
            }],
            "volumes": volumes::manage(spec, inputs.config_map),
        },
    });

    let template_key = sha256_hex(format!("{template}\n{}", migration.transition()));
    let button = glance
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(RETRY_JOB))
        .map_or("", String::as_str);
    let keys = Keys {
        retry: sha256_hex(format!("{template_key}\n{}\n{button}", inputs.dsn_digest)),
        connection: sha256_hex(inputs.dsn_digest),
        schema: schema_key(spec, id, migration, &command),
        origin: origin(spec, migration),
        template: template_key,
    };
    let mut object = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": migration.job_name(id.name),
            "namespace": id.namespace,
            "annotations": {
                (POD_SPEC_HASH): keys.template,
                (SCHEMA_KEY): keys.schema,
                (RETRY_KEY): keys.retry,
                (CONNECTION_KEY): keys.connection,
                (ORIGIN_KEY): keys.origin,
                (ATTEMPT): "1",
            },
        },
        // Neither a deadline, since a migration takes as long as there are rows, nor a time to
        // live: the finished Job is the record of the schema.
        "spec": { "backoffLimit": BACKOFF_LIMIT, "template": template },
    });
    if let Some(database) = inputs.database {
        object["metadata"]["annotations"][DATABASE_KEY] = json!(database);
    }
    MigrationJob {
        object,
        keys,
        database: inputs.database.map(str::to_owned),
        takes_over: migration == Migration::Sync,
    }
}

/// Plain lines rather than a serialised object: the key has to outlive versions of this operator.
fn schema_key(
    spec: &GlanceSpec,
    id: Identity<'_>,
    migration: Migration<'_>,
    command: &[String],
) -> String {
    let mut lines = vec![image(&spec.image)];
    lines.extend_from_slice(command);
    lines.push(database_host(spec, id.namespace));
    lines.push(spec.database.database.clone());
    if let Some((tls, _)) = defaults::database_tls(&spec.database) {
        lines.push(tls.ca_bundle_secret_ref.name.clone());
        lines.extend(
            tls.client_cert_secret_ref
                .iter()
                .map(|secret| secret.name.clone()),
        );
    }
    lines.push(migration.transition());
    sha256_hex(lines.join("\n"))
}

/// What the schema key does not name.
fn origin(spec: &GlanceSpec, migration: Migration<'_>) -> String {
    let release = moving_release(spec).filter(|_| migration == Migration::Sync);
    let words: Vec<_> = port(spec).into_iter().chain(release).collect();
    words.join(", ")
}

/// The port of a server that is not ours, unless it is the usual one: behind another port is another database.
fn port(spec: &GlanceSpec) -> Option<String> {
    let port = defaults::database_port(&spec.database);
    let is_told = spec.database.cluster_ref.is_none() && port != USUAL_PORT;
    is_told.then(|| format!("port {port}"))
}

/// The release, where the image does not tell: a tag such as `latest` is the same before and after an upgrade.
fn moving_release(spec: &GlanceSpec) -> Option<String> {
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let tells = |tag: &String| tag.parse::<Release>().is_ok();
    if is_set(&spec.image.digest) || spec.image.tag.as_ref().is_some_and(tells) {
        return None;
    }
    let release = &spec.open_stack_release;
    // A patch is no other release.
    let release = release
        .parse()
        .map_or_else(|_| release.clone(), |release: Release| release.to_string());
    Some(format!("release {release}"))
}

/// The host of the database, as the DSN has it.
fn database_host(spec: &GlanceSpec, namespace: &str) -> String {
    match &spec.database.cluster_ref {
        Some(cluster) => names::service_host(&cluster.name, namespace),
        None => spec.database.host.clone().unwrap_or_default(),
    }
}

/// Why no migration may run: the image is of another release than the schema it would be recorded
/// as.
///
/// Only a tag that reads as a release can say so; a digest, or a tag such as `latest`, is trusted.
/// A binary of the wrong release finds its own schema in place, succeeds, and a release nobody runs
/// gets recorded.
pub fn image_release_mismatch(spec: &GlanceSpec) -> Option<String> {
    let tag = spec.image.tag.as_deref().filter(|tag| !tag.is_empty())?;
    let wanted = &spec.open_stack_release;
    let (of_image, of_spec): (Release, Release) = (tag.parse().ok()?, wanted.parse().ok()?);
    (of_image != of_spec).then(|| {
        format!(
            "spec.image.tag {tag:?} names OpenStack release {of_image} but spec.openStackRelease is {wanted:?}; \
             bump spec.image in lockstep with spec.openStackRelease"
        )
    })
}

// === impl Migration ===

impl Migration<'_> {
    /// The name of the Job for the Glance called `name`.
    pub fn job_name(self, name: &str) -> String {
        match self {
            Self::Sync => names::db_sync_job(name),
            Self::Phase { phase, .. } => names::phase_job(name, phase),
        }
    }

    /// The name of the container; the ending of the Job's name.
    pub fn container(self) -> &'static str {
        match self {
            Self::Sync => "db-sync",
            Self::Phase { phase, .. } => phase.as_str(),
        }
    }

    fn command(self) -> Vec<String> {
        let phase = match self {
            Self::Sync => {
                let script = format!(
                    "glance-manage --config-dir {CONFIG_DIR} db sync && \
                     glance-manage --config-dir {CONFIG_DIR} db load_metadefs --path {METADEFS}"
                );
                return ["/bin/sh", "-eu", "-c", &script]
                    .map(str::to_owned)
                    .to_vec();
            }
            Self::Phase { phase, .. } => phase.word(),
        };
        ["glance-manage", "--config-dir", CONFIG_DIR, "db", phase]
            .map(str::to_owned)
            .to_vec()
    }

    /// Which upgrade a phase belongs to. Part of its keys, so that a Job left over from an earlier
    /// upgrade with the same image tag does not pass for this one's.
    fn transition(self) -> String {
        match self {
            Self::Sync => String::new(),
            Self::Phase {
                installed, target, ..
            } => format!("{installed} -> {target}"),
        }
    }
}

// === impl MigrationJob ===

impl MigrationJob {
    /// The object to create, as the given attempt at the same retry key; the first is 1.
    pub fn object(&self, attempt: u32) -> Value {
        let mut object = self.object.clone();
        object["metadata"]["annotations"][ATTEMPT] = json!(attempt.to_string());
        object
    }

    /// The name of the Job.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The keys of the Job.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Which database it is for, where that is known.
    pub(super) fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// Whether a finished Job without our keys may count as this one. A phase is cheap to repeat
    /// and not to skip, so only the sync takes over what another operator finished.
    pub(super) fn takes_over(&self) -> bool {
        self.takes_over
    }

    /// Image and command of the container.
    pub(super) fn work(&self) -> (&Value, &Value) {
        work(&self.object)
    }
}

/// Image and command of a Job's container.
pub(super) fn work(job: &Value) -> (&Value, &Value) {
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    (&container["image"], &container["command"])
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use rstest::rstest;

    use super::*;
    use crate::glance::specimen;

    const INPUTS: JobInputs<'_> = JobInputs {
        config_map: "pictures-config-0a1b2c3d",
        dsn_digest: "d1",
        database: None,
    };
    const EXPAND: Migration<'_> = Migration::Phase {
        phase: PhaseJob::Expand,
        installed: "2025.2",
        target: "2026.1",
    };

    fn job(glance: &Glance, migration: Migration<'_>, inputs: JobInputs<'_>) -> MigrationJob {
        migration_job(glance, Identity::of(glance), migration, inputs)
    }

    #[rstest]
    #[case("sync-least", specimen::eventlet(), Migration::Sync)]
    #[case("sync-everything", specimen::everything(), Migration::Sync)]
    #[case("expand", specimen::uwsgi(), EXPAND)]
    fn the_job(#[case] name: &str, #[case] glance: Glance, #[case] migration: Migration<'_>) {
        let object = job(&glance, migration, INPUTS).object(1);
        specimen::assert_is::<Job>(&object);
        insta::assert_snapshot!(format!("job-{name}"), specimen::text(&object));
    }

    #[test]
    fn phases_have_their_own_jobs_and_no_shell() {
        let glance = specimen::uwsgi();
        for (phase, name, word) in [
            (PhaseJob::Expand, "pictures-db-expand", "expand"),
            (PhaseJob::Migrate, "pictures-db-migrate", "migrate"),
            (PhaseJob::Contract, "pictures-db-contract", "contract"),
        ] {
            let job = job(
                &glance,
                Migration::Phase {
                    phase,
                    installed: "2025.2",
                    target: "2026.1",
                },
                INPUTS,
            );
            assert_eq!(job.name(), name);
            assert_eq!(
                *job.work().1,
                json!([
                    "glance-manage",
                    "--config-dir",
                    "/etc/glance/glance-api.conf.d/",
                    "db",
                    word
                ])
            );
        }
    }

    #[test]
    fn a_new_config_is_no_reason_to_repeat_a_finished_migration() {
        let glance = specimen::eventlet();
        let before = job(&glance, Migration::Sync, INPUTS);
        let after = job(
            &glance,
            Migration::Sync,
            JobInputs {
                config_map: "pictures-config-ffffffff",
                ..INPUTS
            },
        );
        assert_eq!(before.keys().schema, after.keys().schema);
        assert_ne!(before.keys().template, after.keys().template);
        assert_ne!(before.keys().retry, after.keys().retry);
    }

    #[rstest]
    #[case::image(json!({ "image": { "tag": "2025.2-p1" } }))]
    #[case::host(json!({ "database": { "host": "other.example.com" } }))]
    #[case::schema(json!({ "database": { "database": "other" } }))]
    #[case::tls(json!({ "database": { "tls": { "caBundleSecretRef": { "name": "ca" } } } }))]
    fn what_decides_the_schema_is_a_reason_to_repeat_it(#[case] patch: Value) {
        let keys = |patch: &Value| {
            job(&specimen::with(patch), Migration::Sync, INPUTS)
                .keys()
                .clone()
        };
        assert_ne!(keys(&json!({})).schema, keys(&patch).schema);
    }

    #[rstest]
    #[case::port(json!({ "database": { "port": 3307 } }), "port 3307")]
    #[case::moving(json!({ "image": { "tag": "latest" } }), "release 2025.2")]
    fn what_earlier_versions_did_not_look_at_leaves_their_key_as_it_was(
        #[case] patch: Value,
        #[case] origin: &str,
    ) {
        let keys = |patch: &Value| {
            job(&specimen::with(patch), Migration::Sync, INPUTS)
                .keys()
                .clone()
        };
        let told = keys(&patch);
        assert_eq!(told.origin, origin);
        assert_eq!(keys(&json!({})).origin, "");
        let image = json!({ "image": patch["image"] });
        let other = if patch["image"].is_null() {
            keys(&json!({}))
        } else {
            keys(&image)
        };
        assert_eq!(told.schema, other.schema);
    }

    #[test]
    fn the_schema_key_outlives_versions_of_the_operator() {
        // A change here runs every finished db-sync again after an update.
        assert_eq!(
            job(&specimen::eventlet(), Migration::Sync, INPUTS)
                .keys()
                .schema,
            "92e5c6abc60d1c5f95b9ebd56d9e2787310ce401938570287d2f7bc4069d3a5b"
        );
    }

    #[test]
    fn an_upgrade_under_a_tag_that_moves_is_a_reason_to_sync_and_under_one_that_tells_is_none() {
        let origin = |image: Value, release: &str| {
            let patch = json!({ "image": image, "openStackRelease": release });
            let glance = specimen::with(&patch);
            job(&glance, Migration::Sync, INPUTS).keys().origin.clone()
        };
        let moving = json!({ "tag": "latest" });
        assert_ne!(origin(moving.clone(), "2025.2"), origin(moving, "2026.1"));
        for told in [
            json!({ "tag": "2025.2-p1" }),
            json!({ "tag": null, "digest": "sha256:ab" }),
        ] {
            assert_eq!(origin(told.clone(), "2025.2"), origin(told, "2026.1"));
        }
    }

    #[test]
    fn the_usual_port_and_that_of_a_managed_server_are_no_reason_to_repeat_a_sync() {
        let origin = |database: Value| {
            let glance = specimen::with(&json!({ "database": database }));
            job(&glance, Migration::Sync, INPUTS).keys().origin.clone()
        };
        assert_eq!(origin(json!({})), origin(json!({ "port": 3306 })));
        let managed =
            |port: u16| json!({ "host": null, "clusterRef": { "name": "db" }, "port": port });
        assert_eq!(origin(managed(3306)), origin(managed(3307)));
    }

    #[test]
    fn a_rotated_password_or_the_button_retries_and_repeats_nothing() {
        let mut glance = specimen::eventlet();
        let before = job(&glance, Migration::Sync, INPUTS);
        let rotated = job(
            &glance,
            Migration::Sync,
            JobInputs {
                dsn_digest: "d2",
                ..INPUTS
            },
        );
        glance.metadata.annotations = Some([(RETRY_JOB.to_owned(), "please".to_owned())].into());
        let pressed = job(&glance, Migration::Sync, INPUTS);
        for other in [&rotated, &pressed] {
            assert_eq!(before.keys().schema, other.keys().schema);
            assert_eq!(before.keys().template, other.keys().template);
            assert_ne!(before.keys().retry, other.keys().retry);
        }
        assert_ne!(before.keys().connection, rotated.keys().connection);
        assert_eq!(before.keys().connection, pressed.keys().connection);
    }

    #[test]
    fn a_phase_left_over_from_another_upgrade_is_another_job() {
        let glance = specimen::uwsgi();
        let this = job(&glance, EXPAND, INPUTS);
        let other = Migration::Phase {
            phase: PhaseJob::Expand,
            installed: "2025.1",
            target: "2025.2",
        };
        let other = job(&glance, other, INPUTS);
        assert_ne!(this.keys().schema, other.keys().schema);
        assert_ne!(this.keys().template, other.keys().template);
    }

    #[test]
    fn a_further_attempt_is_counted_on_the_job() {
        let job = job(&specimen::eventlet(), Migration::Sync, INPUTS);
        assert_eq!(job.object(3)["metadata"]["annotations"][ATTEMPT], "3");
        assert_eq!(job.object(1)["spec"], job.object(3)["spec"]);
    }

    #[rstest]
    #[case::same("2025.2", "2025.2", None)]
    #[case::patch("2025.2-p1", "2025.2", None)]
    #[case::moving("latest", "2025.2", None)]
    #[case::unreadable("2025.1", "queens", None)]
    #[case::other(
        "2025.1-p3",
        "2025.2",
        Some(
            "spec.image.tag \"2025.1-p3\" names OpenStack release 2025.1 but spec.openStackRelease is \"2025.2\"; \
         bump spec.image in lockstep with spec.openStackRelease"
        )
    )]
    fn an_image_of_another_release_migrates_nothing(
        #[case] tag: &str,
        #[case] release: &str,
        #[case] expected: Option<&str>,
    ) {
        let spec =
            specimen::with(&json!({ "openStackRelease": release, "image": { "tag": tag } })).spec;
        assert_eq!(image_release_mismatch(&spec).as_deref(), expected);
    }

    #[test]
    fn a_digest_is_trusted() {
        assert_eq!(image_release_mismatch(&specimen::everything().spec), None);
    }
}
