//! The doctor: finds what is planted, and what he prints cures it, pasted as it stands.

use anyhow::{Context as _, Result, anyhow, ensure};
use e2e::{
    assets::Neighbour,
    bed::run,
    cluster::Cluster,
    commands::Commands,
    expect::eventually,
    fleet::Fleet,
    kinds,
    patience::seconds,
    registration::{ACCOUNT, LABEL},
    site::Site,
};
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use crate::commands::register_as;

/// The context of the target.
const CONTEXT: &str = "edge-2";
const TARGET: (&str, &str) = ("clusters.openstack.c5c3.io/v1alpha1", "TargetCluster");
const ROLE: (&str, &str) = ("rbac.authorization.k8s.io/v1", "Role");

/// A registered cluster that falls ill, again and again.
struct Patient<'f> {
    /// A name that no other test's Glances are placed on.
    name: &'static str,
    site: Site<'f>,
    user: Commands,
    edge: &'f Cluster,
}

// === impl Patient ===

impl Patient<'_> {
    /// What the doctor says of a check: its result and its remedy.
    async fn examined(&self, check: &str) -> Result<Value> {
        let args = [
            "doctor",
            self.name,
            "--target-context",
            CONTEXT,
            "-o",
            "json",
        ];
        let output = self.user.clusters(&args).await?;
        let report = output.json()?;
        let checks = report["items"][0]["checks"].as_array().cloned();
        let checks = checks.unwrap_or_default();
        let of_name = |c: &&Value| c["check"] == check;
        let bad = |c: &&Value| c["result"] == "failed" || c["result"] == "warning";
        // The exit code says whether there is anything to do.
        let findings = checks.iter().filter(bad).count();
        ensure!((output.code == 0) == (findings == 0), "{output}");
        let found = checks.iter().filter(of_name).find(bad);
        let found = found.or_else(|| checks.iter().find(of_name));
        Ok(found.cloned().unwrap_or_default())
    }

    /// Plants something, has it found and cured.
    async fn suffers(
        &self,
        check: &str,
        words: &str,
        plant: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        plant().await?;
        // A server may remember a token for some seconds after it was revoked.
        let found = eventually(seconds(30), &format!("{check} to be found"), async || {
            let found = self.examined(check).await?;
            let detail = found["detail"].as_str().unwrap_or_default();
            let ill = found["result"] == "failed" || found["result"] == "warning";
            if ill && detail.contains(words) {
                Ok(found)
            } else {
                Err(anyhow!("{found}"))
            }
        })
        .await?;
        let remedy = found["remedy"].as_str();
        let remedy = remedy.with_context(|| format!("no remedy: {found}"))?;
        let pasted = self.user.paste(remedy).await?;
        ensure!(
            pasted.code == 0,
            "{check}: the remedy failed\n{remedy}\n{pasted}"
        );
        eventually(
            seconds(30),
            &format!("{check} to be cured by {remedy}"),
            async || {
                let now = self.examined(check).await?;
                match now["result"].as_str() {
                    Some("ok" | "skipped") | None => Ok(()),
                    _ => Err(anyhow!("{now}")),
                }
            },
        )
        .await
    }

    async fn patch(
        &self,
        cluster: &Cluster,
        (version, kind): (&str, &str),
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Result<()> {
        let api = cluster.any(version, kind, Some(namespace));
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("patching {kind} {name}"))?;
        Ok(())
    }

    async fn patch_secret(&self, patch: Value) -> Result<()> {
        let namespace = self.site.clusters_namespace();
        self.patch(self.site.hub(), kinds::SECRET, &namespace, self.name, patch)
            .await
    }

    async fn patch_policy(&self, spec: Value) -> Result<()> {
        let namespace = self.site.clusters_namespace();
        let patch = json!({ "spec": spec });
        self.patch(self.site.hub(), TARGET, &namespace, self.name, patch)
            .await
    }

    /// The registered kubeconfig.
    async fn kubeconfig(&self) -> Result<String> {
        let namespace = self.site.clusters_namespace();
        let api = self
            .site
            .hub()
            .any(kinds::SECRET.0, kinds::SECRET.1, Some(&namespace));
        let secret = api.get(self.name).await?;
        let encoded = secret.data["data"]["kubeconfig"]
            .as_str()
            .unwrap_or_default();
        Ok(String::from_utf8(
            data_encoding::BASE64.decode(encoded.as_bytes())?,
        )?)
    }

    async fn write_kubeconfig(&self, text: &str) -> Result<()> {
        self.patch_secret(json!({ "stringData": { "kubeconfig": text } }))
            .await
    }

    /// The kubeconfig with an entry of it replaced, wherever it stands.
    async fn spoil(&self, key: &str, entry: &str) -> Result<()> {
        let mut document: Value = serde_saphyr::from_str(&self.kubeconfig().await?)?;
        let entry: Value = serde_saphyr::from_str(entry)?;
        let (key, entry) = (key.trim_end_matches(':'), entry.as_object());
        let entry = entry.context("an entry has a name and a value")?;
        ensure!(
            replace(&mut document, key, entry),
            "no {key} in the kubeconfig"
        );
        // JSON is YAML.
        self.write_kubeconfig(&document.to_string()).await
    }
}

/// Puts `entry` where `key` is, and says whether it was there.
fn replace(value: &mut Value, key: &str, entry: &Map<String, Value>) -> bool {
    match value {
        Value::Object(fields) => {
            if fields.remove(key).is_some() {
                fields.extend(entry.clone());
                return true;
            }
            fields.values_mut().any(|value| replace(value, key, entry))
        }
        Value::Array(items) => items.iter_mut().any(|value| replace(value, key, entry)),
        _ => false,
    }
}

async fn admit<'f>(fleet: &'f Fleet, name: &'static str) -> Result<Patient<'f>> {
    let site = Site::open(fleet, name).await?;
    let user = Commands::of(&site).await?;
    let edge = fleet.cluster(CONTEXT)?;
    let options = ["--namespaces", site.namespace(), "--wait=false"];
    let done = register_as(&user, &site, name, CONTEXT, &options).await?;
    ensure!(done.code == 0, "{done}");
    Ok(Patient {
        name,
        site,
        user,
        edge,
    })
}

#[test]
fn faults_of_a_registration_are_found_and_cured() {
    run(async |fleet: &Fleet| {
        let patient = admit(fleet, "doc").await?;
        let site = &patient.site;
        let running = site.operator().await?.start().await?;
        let ns = site.namespace();

        // A wrong value of the label.
        let label = json!({ "metadata": { "labels": { LABEL: "True" } } });
        patient
            .suffers("registration", "must be exactly", async || {
                patient.patch_secret(label).await
            })
            .await?;
        // A list of namespaces with a hole.
        let broken = json!({ "stringData": { "namespaces": format!("{ns},,") } });
        patient
            .suffers("namespaces", "not a valid namespace name", async || {
                patient.patch_secret(broken).await
            })
            .await?;
        // A cluster on holiday.
        patient
            .suffers("pause", "nothing is written", async || {
                patient.patch_policy(json!({ "paused": true })).await
            })
            .await?;
        // Glances in namespaces that the policy, or the registration, leaves out.
        let glance = site.scenario("images").on(patient.name).glance();
        site.hub().apply(&glance).await?;
        patient
            .suffers("grants", ns, async || {
                let names = json!({ "allowedNamespaces": { "names": ["elsewhere"] } });
                patient.patch_policy(names).await
            })
            .await?;
        patient
            .suffers("scope", ns, async || {
                let other = json!({ "stringData": { "namespaces": "default" } });
                patient.patch_secret(other).await
            })
            .await?;
        site.hub().delete(&glance).await?;
        // The same cluster under another name.
        patient
            .suffers("duplicates", "twin", async || {
                let access = site.access_namespace();
                let args = [
                    "register",
                    "twin",
                    "--target-context",
                    CONTEXT,
                    "--access-namespace",
                    &access,
                    "--namespaces",
                    ns,
                    "--wait=false",
                ];
                patient.user.clusters_ok(&args).await?;
                Ok(())
            })
            .await?;
        drop(running);
        Ok(())
    });
}

#[test]
fn faults_of_a_kubeconfig_are_found_and_cured() {
    run(async |fleet: &Fleet| {
        let patient = admit(fleet, "dockc").await?;
        let site = &patient.site;
        let running = site.operator().await?.start().await?;

        patient
            .suffers("kubeconfig", "missing or empty", async || {
                patient
                    .patch_secret(json!({ "data": { "kubeconfig": null } }))
                    .await
            })
            .await?;
        patient
            .suffers("kubeconfig", "exec and auth-provider", async || {
                patient
                    .spoil(
                        "token:",
                        "exec: {apiVersion: client.authentication.k8s.io/v1, command: id}",
                    )
                    .await
            })
            .await?;
        patient
            .suffers("connection", "ConnectionRefused", async || {
                patient
                    .spoil("server:", "server: https://127.0.0.1:1")
                    .await
            })
            .await?;
        patient
            .suffers("connection", "cannot be verified", async || {
                let other = data_encoding::BASE64.encode(site.hub().authority().as_bytes());
                let line = format!("certificate-authority-data: {other}");
                patient.spoil("certificate-authority-data:", &line).await
            })
            .await?;
        patient
            .suffers("login", "does not accept the credential", async || {
                patient.spoil("token:", "token: e30.e30.e30").await
            })
            .await?;
        // A token that ends soon, and one whose account was taken away.
        patient
            .suffers("credential", "expires in", async || {
                let lifetime = ["--token-lifetime", "15m", "--wait=false"];
                let args = [&["rotate", patient.name][..], &lifetime].concat();
                patient.user.clusters_ok(&args).await?;
                Ok(())
            })
            .await?;
        patient
            .suffers("login", "does not accept the credential", async || {
                let account = json!({
                    "apiVersion": "v1", "kind": "ServiceAccount",
                    "metadata": { "namespace": site.access_namespace(), "name": ACCOUNT },
                });
                patient.edge.delete(&account).await
            })
            .await?;
        drop(running);
        Ok(())
    });
}

#[test]
fn faults_of_a_target_are_found_and_cured() {
    run(async |fleet: &Fleet| {
        let patient = admit(fleet, "doctgt").await?;
        let site = &patient.site;
        let running = site.operator().await?.start().await?;
        let role = format!("{}-{ACCOUNT}", site.access_namespace());

        // A verb that somebody took away.
        patient
            .suffers("permissions", "watch deployments.apps", async || {
                let api = patient.edge.any(ROLE.0, ROLE.1, Some(site.namespace()));
                let found = api.get(&role).await?;
                let mut rules = found.data["rules"].clone();
                for rule in rules.as_array_mut().into_iter().flatten() {
                    if rule["apiGroups"][0] == "apps" {
                        rule["verbs"] = json!(["get", "list"]);
                    }
                }
                let patch = json!({ "rules": rules });
                patient
                    .patch(patient.edge, ROLE, site.namespace(), &role, patch)
                    .await
            })
            .await?;
        // A declared namespace that is not there.
        let absent = format!("{}-absent", site.namespace());
        patient
            .suffers("namespace", &absent, async || {
                let both = format!("{},{absent}", site.namespace());
                let namespaces = json!({ "stringData": { "namespaces": both } });
                patient.patch_secret(namespaces).await
            })
            .await?;
        ensure!(
            patient
                .edge
                .any("v1", "Namespace", None)
                .get_opt(&absent)
                .await?
                .is_some(),
            "the namespace was not made"
        );
        // Another cluster behind the name.
        patient
            .suffers("identity", "stands for the cluster", async || {
                let other = json!({ "identity": "00000000-0000-0000-0000-000000000000" });
                patient.patch_policy(other).await
            })
            .await?;
        // The registration itself. Who names the cluster tells which namespaces are needed.
        site.hub()
            .apply(&site.scenario("images").on(patient.name).glance())
            .await?;
        patient
            .suffers("registration", "no Secret", async || {
                let secret = json!({
                    "apiVersion": "v1", "kind": "Secret",
                    "metadata": { "namespace": site.clusters_namespace(), "name": patient.name },
                });
                site.hub().delete(&secret).await
            })
            .await?;
        drop(running);
        Ok(())
    });
}

#[test]
fn kinds_that_a_cluster_lacks_are_named_with_the_command_that_brings_them() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "dockind").await?;
        let bare = fleet.another("kindless", false).await?;
        site.register_as("kindless", bare.cluster()).await?;
        let user = Commands::of(&site).await?;
        let capabilities = async || {
            let output = user.clusters(&["doctor", "kindless", "-o", "json"]).await?;
            let report = output.json()?;
            let checks = report["items"][0]["checks"].as_array().cloned();
            let mut checks = checks.unwrap_or_default().into_iter();
            let found = checks.find(|check| check["check"] == "capabilities");
            found.with_context(|| output.to_string())
        };
        let unasked = capabilities().await?;
        ensure!(unasked["result"] == "ok", "nobody needs it: {unasked}");

        let route = json!({ "parentRef": { "name": "edge" }, "hostname": "images.example.org" });
        let scenario = site
            .scenario("routed")
            .on("kindless")
            .with("gateway", route);
        site.hub().apply(&scenario.glance()).await?;
        let found = capabilities().await?;
        let detail = found["detail"].as_str().unwrap_or_default();
        let remedy = found["remedy"].as_str().unwrap_or_default();
        ensure!(found["result"] == "failed", "{found}");
        ensure!(detail.contains("HTTPRoute"), "{found}");
        ensure!(
            remedy.contains("kubectl") && remedy.contains("gateway-api/releases"),
            "{found}"
        );

        // The command fetches from the project's page; what it brings is installed here instead.
        let definitions = tokio::task::spawn_blocking(|| Neighbour::GatewayApi.crds()).await??;
        bare.cluster().install(&definitions).await?;
        let cured = capabilities().await?;
        ensure!(cured["result"] == "ok", "{cured}");
        Ok(())
    });
}
