//! What a Glance is made of, on the hub and on targets, object by object and field by field.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use data_encoding::{BASE64, HEXLOWER};
use e2e::{
    bed::run,
    children::KINDS,
    cluster::Cluster,
    expect::{Object, condition},
    fleet::Fleet,
    kinds,
    patience::seconds,
    scenario::{Scenario, gateway},
    shape::{assert_has, differences},
    site::Site,
    workload::{Files, Workload, traces},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Every sub-condition that `Ready` stands for.
const SUB_CONDITIONS: [&str; 9] = [
    "SecretsReady",
    "BackendsReady",
    "DatabaseReady",
    "DeploymentReady",
    "HTTPRouteReady",
    "GlanceAPIReady",
    "HPAReady",
    "NetworkPolicyReady",
    "DBPurgeReady",
];

const READY: u64 = 60;

/// A Glance with everything that the overview's table of owned objects has a row for.
fn full(site: &Site<'_>, name: &str) -> Scenario {
    site.scenario(name)
        .backend(&format!("{name}-archive"), false)
        .backend(&format!("{name}-s3"), true)
        .with(
            "autoscaling",
            json!({ "minReplicas": 2, "maxReplicas": 4, "targetCPUUtilization": 80, "targetMemoryUtilization": 70 }),
        )
        .with(
            "networkPolicy",
            json!({
                "ingress": [{
                    "namespaceSelector": { "matchLabels": { "team": "compute" } },
                    "podSelector": { "matchLabels": { "app": "nova" } },
                }],
                "additionalEgress": [{ "ports": [{ "protocol": "TCP", "port": 8443 }] }],
            }),
        )
        .with(
            "gateway",
            json!({
                "parentRef": { "name": "gw", "sectionName": "http" },
                "hostname": "images.example.org",
                "annotations": { "example.org/team": "images" },
            }),
        )
}

/// Kind and name of everything that [`full`] owns, sorted; hashes of names left out.
fn owned_by_full(name: &str) -> Vec<String> {
    let mut all = vec![
        format!("ConfigMap {name}-config-*"),
        format!("CronJob {name}-db-purge"),
        format!("Database {name}"),
        format!("Deployment {name}"),
        format!("Grant {name}"),
        format!("HTTPRoute {name}"),
        format!("HorizontalPodAutoscaler {name}"),
        format!("Job {name}-db-sync"),
        format!("NetworkPolicy {name}"),
        format!("NetworkPolicy {name}-jobs-egress"),
        format!("NetworkPolicy {name}-keystone-egress"),
        format!("PodDisruptionBudget {name}"),
        format!("Secret {name}-backends-*"),
        format!("Secret {name}-db-connection"),
        format!("Service {name}"),
        format!("User {name}"),
    ];
    all.sort();
    all
}

/// The eight hex digits at the end of a content-addressed name, as a star.
fn without_hash(trace: &str) -> String {
    match trace.rsplit_once('-') {
        Some((base, hash))
            if (base.ends_with("-config") || base.ends_with("-backends"))
                && hash.len() == 8
                && hash.bytes().all(|b| b.is_ascii_hexdigit()) =>
        {
            format!("{base}-*")
        }
        _ => trace.to_owned(),
    }
}

fn sha256(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text.as_bytes()))
}

/// A digest as the pod template has it, salted with the CR's UID.
fn salted(uid: &str, value: &str) -> String {
    sha256(&format!("{uid}\0{value}"))
}

async fn uid_of(cluster: &Cluster) -> Result<String> {
    let system: Api<Namespace> = Api::all(cluster.client());
    Ok(system
        .get("kube-system")
        .await?
        .metadata
        .uid
        .unwrap_or_default())
}

fn selector(name: &str) -> Value {
    json!({ "app.kubernetes.io/name": "glance", "app.kubernetes.io/instance": name })
}

fn common(name: &str) -> Value {
    let mut labels = selector(name);
    labels["app.kubernetes.io/managed-by"] = json!("glance-operator");
    labels
}

fn component(name: &str, component: &str) -> Value {
    let mut labels = common(name);
    labels["app.kubernetes.io/component"] = json!(component);
    labels
}

fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 42424, "runAsGroup": 42424,
        "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}

const EVENTLET: [&str; 5] = [
    "glance-api",
    "--config-dir",
    "/etc/glance/glance-api.conf.d/",
    "--config-dir",
    "/etc/glance/backends.conf.d/",
];

/// The objects of [`full`] as their pages have them.
async fn check_objects(site: &Site<'_>, scenario: &Scenario) -> Result<()> {
    let (ns, name) = (site.namespace(), scenario.name());
    let workload = Workload::of(site, scenario)?;
    let files = workload.files().await?;
    let glance = site.glance(name).get().await?.context("the Glance")?;
    let uid = glance.metadata.uid.clone().unwrap_or_default();
    let dsn =
        format!("mysql+pymysql://{name}:db-password@mariadb.{ns}.svc:3306/glance?charset=utf8");
    check_deployment(&workload, name, &files).await?;
    check_credentials(&workload, name, &uid, &dsn).await?;
    check_serving(&workload, name).await?;
    check_policies(&workload, scenario, ns).await?;
    check_files(&workload, name, &files).await?;
    check_jobs(&workload, name, &files.config_map).await?;
    check_database(&workload, name).await?;
    assert_eq!(
        glance.data["status"]["endpoint"],
        "https://images.example.org/"
    );
    assert_eq!(glance.data["status"]["installedRelease"], "2025.2");
    Ok(())
}

async fn check_deployment(workload: &Workload<'_>, name: &str, files: &Files) -> Result<()> {
    let spread = |key: &str| {
        json!({
            "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "topologyKey": key,
            "labelSelector": { "matchLabels": selector(name) },
        })
    };
    let deployment = workload.deployment().await?;
    assert_has(
        &deployment,
        &json!({
            "metadata": { "labels": component(name, "api") },
            "spec": {
                "replicas": 2,
                "selector": { "matchLabels": selector(name), "matchExpressions": null },
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } },
                "template": {
                    "spec": {
                        "terminationGracePeriodSeconds": 30,
                        "topologySpreadConstraints": [
                            spread("topology.kubernetes.io/zone"), spread("kubernetes.io/hostname"),
                        ],
                        "priorityClassName": null, "serviceAccountName": null, "nodeSelector": null,
                        "affinity": null, "tolerations": null, "hostNetwork": null, "imagePullSecrets": null,
                        "automountServiceAccountToken": false,
                        "initContainers": null,
                        "containers": [{
                            "name": "glance-api",
                            "image": "registry.example/openstack/glance:2025.2",
                            "command": EVENTLET, "args": null,
                            "ports": [{ "name": "glance-api", "containerPort": 9292 }],
                            "lifecycle": { "preStop": { "exec": { "command": ["/bin/sh", "-c", "sleep 5"] } } },
                            "startupProbe": { "httpGet": { "path": "/healthcheck", "port": 9292, "httpHeaders": null },
                                "initialDelaySeconds": null, "periodSeconds": 10, "timeoutSeconds": 8, "failureThreshold": 30 },
                            "livenessProbe": { "httpGet": { "path": "/healthcheck", "port": 9292 },
                                "initialDelaySeconds": 15, "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 3 },
                            "readinessProbe": { "httpGet": { "path": "/healthcheck", "port": 9292 },
                                "initialDelaySeconds": 10, "periodSeconds": 15, "timeoutSeconds": 10, "failureThreshold": 3 },
                            "volumeMounts": [
                                { "name": "config", "mountPath": "/etc/glance/glance-api.conf.d/", "readOnly": true },
                                { "name": "backends", "mountPath": "/etc/glance/backends.conf.d/", "readOnly": true },
                                { "name": "staging", "mountPath": "/var/lib/glance/staging", "readOnly": null },
                                { "name": "tasks-work", "mountPath": "/var/lib/glance/tasks-work", "readOnly": null },
                            ],
                        }],
                        "volumes": [
                            { "name": "config", "configMap": { "name": files.config_map } },
                            { "name": "backends", "secret": { "secretName": files.secret } },
                            { "name": "staging", "emptyDir": { "sizeLimit": "10Gi" } },
                            { "name": "tasks-work", "emptyDir": { "sizeLimit": "10Gi" } },
                        ],
                    },
                },
            },
        }),
    );
    Ok(())
}

/// What the pods get of the credentials: digests and references, never a value.
async fn check_credentials(
    workload: &Workload<'_>,
    name: &str,
    uid: &str,
    dsn: &str,
) -> Result<()> {
    let deployment = workload.deployment().await?;
    let template = &deployment["spec"]["template"];
    assert_eq!(template["metadata"]["labels"], component(name, "api"));
    assert_eq!(
        template["metadata"]["annotations"],
        json!({
            "glance.c5c3.io/db-connection-hash": salted(uid, dsn),
            "glance.c5c3.io/authtoken-hash": salted(uid, "service-password"),
        })
    );
    assert_eq!(
        template["spec"]["securityContext"],
        json!({ "fsGroup": 42424 })
    );
    let api = &template["spec"]["containers"][0];
    assert_eq!(api["securityContext"], restricted());
    assert_eq!(
        api["env"],
        json!([
            { "name": "OS_DATABASE__CONNECTION", "valueFrom": { "secretKeyRef": {
                "name": format!("{name}-db-connection"), "key": "connection" } } },
            { "name": "OS_KEYSTONE_AUTHTOKEN__PASSWORD", "valueFrom": { "secretKeyRef": {
                "name": format!("{name}-service-user"), "key": "password" } } },
            { "name": "AWS_REQUEST_CHECKSUM_CALCULATION", "value": "when_required" },
            { "name": "AWS_RESPONSE_CHECKSUM_VALIDATION", "value": "when_required" },
        ])
    );
    let connection = workload
        .get(kinds::SECRET, &format!("{name}-db-connection"))
        .await?;
    assert_eq!(connection["type"], "Opaque");
    assert_eq!(
        connection["data"],
        json!({ "connection": BASE64.encode(dsn.as_bytes()) })
    );
    Ok(())
}

async fn check_serving(workload: &Workload<'_>, name: &str) -> Result<()> {
    let mut narrow = selector(name);
    narrow["app.kubernetes.io/component"] = json!("api");
    let service = workload.get(kinds::SERVICE, name).await?;
    assert_has(
        &service,
        &json!({
            "metadata": { "labels": common(name) },
            "spec": { "type": "ClusterIP", "ports": [{ "port": 9292, "targetPort": 9292, "protocol": "TCP", "name": null }] },
        }),
    );
    assert_eq!(
        service["spec"]["selector"], narrow,
        "the Service narrows to API pods"
    );
    assert_has(
        &workload.get(kinds::DISRUPTION_BUDGET, name).await?,
        &json!({
            "metadata": { "labels": common(name) },
            "spec": {
                "minAvailable": 1, "maxUnavailable": null,
                "selector": {
                    "matchLabels": selector(name),
                    "matchExpressions": [{ "key": "batch.kubernetes.io/job-name", "operator": "DoesNotExist" }],
                },
            },
        }),
    );
    let metric = |resource: &str, value: u32| {
        json!({ "type": "Resource", "resource": { "name": resource,
            "target": { "type": "Utilization", "averageUtilization": value } } })
    };
    assert_has(
        &workload.get(kinds::AUTOSCALER, name).await?,
        &json!({
            "metadata": { "labels": common(name) },
            "spec": {
                "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
                "minReplicas": 2, "maxReplicas": 4, "metrics": [metric("cpu", 80), metric("memory", 70)], "behavior": null,
            },
        }),
    );
    assert_has(
        &workload.get(kinds::HTTP_ROUTE, name).await?,
        &json!({
            "metadata": { "annotations": { "example.org/team": "images" }, "labels": common(name) },
            "spec": {
                "parentRefs": [{ "name": "gw", "namespace": null, "sectionName": "http", "port": null }],
                "hostnames": ["images.example.org"],
                "rules": [{
                    "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
                    "backendRefs": [{ "kind": "Service", "name": name, "port": 9292, "namespace": null }],
                    "timeouts": { "request": "4h" },
                    "filters": null,
                }],
            },
        }),
    );
    Ok(())
}

async fn check_files(workload: &Workload<'_>, name: &str, files: &Files) -> Result<()> {
    let config = workload.get(kinds::CONFIG_MAP, &files.config_map).await?;
    assert_has(
        &config,
        &json!({ "immutable": true, "metadata": { "labels": {
        "cobaltcore.c5c3.io/config-base": format!("{name}-config") } } }),
    );
    assert_eq!(
        files.config.keys().collect::<Vec<_>>(),
        ["glance-api-paste.ini", "glance-api.conf", "policy.yaml"]
    );
    let backends = workload.get(kinds::SECRET, &files.secret).await?;
    assert_has(
        &backends,
        &json!({ "immutable": true, "type": "Opaque", "metadata": { "labels": {
        "cobaltcore.c5c3.io/config-base": format!("{name}-backends") } } }),
    );
    let section = |backend: &str| {
        format!(
            "[{backend}]\ns3_store_access_key = AKIAEXAMPLE\ns3_store_bucket = images\n\
             s3_store_bucket_url_format = path\ns3_store_host = https://{backend}.s3.example\n\
             s3_store_secret_key = s3-secret\n"
        )
    };
    let (archive, default) = (format!("{name}-archive"), format!("{name}-s3"));
    assert_eq!(
        files.backends,
        format!("{}\n{}", section(&archive), section(&default))
    );
    for (in_section, line) in [
        (
            "DEFAULT",
            format!("enabled_backends = {archive}:s3,{default}:s3"),
        ),
        ("glance_store", format!("default_backend = {default}")),
        (
            "oslo_middleware",
            "enable_proxy_headers_parsing = true".to_owned(),
        ),
        (
            "keystone_authtoken",
            "memcached_servers = memcached:11211".to_owned(),
        ),
    ] {
        files.assert_line("glance-api.conf", in_section, &line);
    }
    Ok(())
}

async fn check_policies(workload: &Workload<'_>, scenario: &Scenario, ns: &str) -> Result<()> {
    let name = scenario.name();
    let tcp = |port: u16| json!({ "protocol": "TCP", "port": port });
    let dns = json!({ "ports": [{ "protocol": "UDP", "port": 53 }, tcp(53)] });
    let namespace =
        json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": ns } } });
    let mut from = vec![
        json!({
            "namespaceSelector": { "matchLabels": { "team": "compute" } },
            "podSelector": { "matchLabels": { "app": "nova" } },
        }),
        // The gateway's namespace, the Glance's own unless it names another.
        namespace.clone(),
    ];
    if scenario.target().is_none() {
        // The operator's. On a target its namespace would be somebody else's.
        from.push(namespace);
    }
    let policy = workload.get(kinds::NETWORK_POLICY, name).await?;
    assert_has(
        &policy,
        &json!({
            "metadata": { "labels": common(name) },
            "spec": {
                "podSelector": { "matchLabels": selector(name) },
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{ "ports": [tcp(9292)], "from": from }],
                "egress": [
                    dns.clone(), { "ports": [tcp(3306)] }, { "ports": [tcp(11211)] }, { "ports": [tcp(443)] },
                    { "ports": [tcp(8443)] },
                ],
            },
        }),
    );
    let keystone = workload
        .get(kinds::NETWORK_POLICY, &format!("{name}-keystone-egress"))
        .await?;
    assert_has(
        &keystone,
        &json!({ "spec": {
            "podSelector": { "matchLabels": selector(name) },
            "policyTypes": ["Egress"], "egress": [{ "ports": [tcp(5000)], "to": null }],
        } }),
    );
    let jobs = workload
        .get(kinds::NETWORK_POLICY, &format!("{name}-jobs-egress"))
        .await?;
    assert_has(
        &jobs,
        &json!({ "spec": { "policyTypes": ["Egress"], "egress": [dns, { "ports": [tcp(3306)] }] } }),
    );
    // It selects the pods of the migration Jobs and no others.
    let job = workload.get(kinds::JOB, &format!("{name}-db-sync")).await?;
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    assert_has(labels, &jobs["spec"]["podSelector"]["matchLabels"]);
    assert_eq!(differences(labels, &selector(name)).len(), 2, "{labels}");
    Ok(())
}

async fn check_jobs(workload: &Workload<'_>, name: &str, config_map: &str) -> Result<()> {
    let connection = json!({ "name": "OS_DATABASE__CONNECTION", "valueFrom": { "secretKeyRef": {
        "name": format!("{name}-db-connection"), "key": "connection" } } });
    let mounts = json!([{ "name": "config", "mountPath": "/etc/glance/glance-api.conf.d/", "readOnly": true }]);
    let volumes = json!([{ "name": "config", "configMap": { "name": config_map } }]);
    let sync = workload.get(kinds::JOB, &format!("{name}-db-sync")).await?;
    let key = &sync["metadata"]["annotations"]["cobaltcore.c5c3.io/pod-spec-hash"];
    assert_eq!(key.as_str().map(str::len), Some(64), "{key}");
    assert_has(
        &sync,
        &json!({
            "spec": {
                "backoffLimit": 4, "ttlSecondsAfterFinished": null, "activeDeadlineSeconds": null,
                "template": { "spec": {
                    "restartPolicy": "Never", "securityContext": { "fsGroup": 42424 },
                    "containers": [{
                        "name": "db-sync", "image": "registry.example/openstack/glance:2025.2",
                        "command": ["/bin/sh", "-eu", "-c", "glance-manage --config-dir /etc/glance/glance-api.conf.d/ db sync && glance-manage --config-dir /etc/glance/glance-api.conf.d/ db load_metadefs --path /var/lib/openstack/etc/glance/metadefs"],
                        "env": [connection.clone(), { "name": "OS_DATABASE__MAX_RETRIES", "value": "1" }],
                        "volumeMounts": mounts.clone(), "securityContext": restricted(),
                    }],
                    "volumes": volumes.clone(),
                } },
            },
        }),
    );
    let purge = workload
        .get(kinds::CRON_JOB, &format!("{name}-db-purge"))
        .await?;
    assert_has(
        &purge,
        &json!({
            "metadata": { "labels": common(name) },
            "spec": {
                "schedule": "1 0 * * *", "suspend": false, "concurrencyPolicy": "Forbid",
                "timeZone": null, "startingDeadlineSeconds": null,
                "jobTemplate": { "spec": {
                    "activeDeadlineSeconds": 3600, "backoffLimit": null,
                    "template": { "spec": {
                        "restartPolicy": "OnFailure",
                        "containers": [{
                            "name": "db-purge", "image": "registry.example/openstack/glance:2025.2",
                            "command": ["/bin/sh", "-eu", "-c", "glance-manage --config-dir /etc/glance/glance-api.conf.d/ db purge --age_in_days 30 --max_rows 1000"],
                            "env": [connection], "volumeMounts": mounts, "securityContext": restricted(),
                        }],
                        "volumes": volumes,
                    } },
                } },
            },
        }),
    );
    let template = &purge["spec"]["jobTemplate"];
    assert_eq!(template["metadata"]["labels"], common(name));
    assert_eq!(
        template["spec"]["template"]["metadata"]["labels"],
        component(name, "db-purge")
    );
    Ok(())
}

async fn check_database(workload: &Workload<'_>, name: &str) -> Result<()> {
    let server = json!({ "name": "mariadb", "waitForIt": false });
    assert_has(
        &workload.get(kinds::DATABASE, name).await?,
        &json!({ "spec": { "mariaDbRef": server, "name": "glance", "characterSet": "utf8",
            "collate": "utf8_general_ci", "cleanupPolicy": null } }),
    );
    assert_has(
        &workload.get(kinds::USER, name).await?,
        &json!({ "spec": { "mariaDbRef": server, "name": null, "require": null, "cleanupPolicy": null,
            "passwordSecretKeyRef": { "name": format!("{name}-db"), "key": "password" } } }),
    );
    assert_has(
        &workload.get(kinds::GRANT, name).await?,
        &json!({ "spec": { "mariaDbRef": server, "privileges": ["ALL PRIVILEGES"], "database": "glance",
            "table": "*", "username": name, "host": null, "cleanupPolicy": null } }),
    );
    Ok(())
}

/// How every child says whose it is: by a controller reference on the hub, by labels and marks
/// on a target, and never by both.
async fn check_ownership(site: &Site<'_>, scenario: &Scenario) -> Result<()> {
    let (ns, name) = (site.namespace(), scenario.name());
    let glance = site.glance(name).get().await?.context("the Glance")?;
    let uid = glance.metadata.uid.unwrap_or_default();
    let hub = uid_of(site.hub()).await?;
    let workload = Workload::of(site, scenario)?;
    for trace in traces(workload.cluster(), ns).await? {
        let (kind, child) = trace.split_once(' ').context("no name")?;
        let kind = KINDS
            .into_iter()
            .find(|k| k.1 == kind)
            .context("no such kind")?;
        let object = workload.get(kind, child).await?;
        let wanted = if scenario.target().is_none() {
            json!({
                "labels": { "openstack.c5c3.io/owner-kind": null, "openstack.c5c3.io/owner-name": null,
                    "openstack.c5c3.io/owner-namespace": null },
                "annotations": { "openstack.c5c3.io/hub-uid": null, "openstack.c5c3.io/owner-uid": null },
                "ownerReferences": [{
                    "apiVersion": "glance.openstack.c5c3.io/v1alpha1", "kind": "Glance", "name": name, "uid": uid,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            })
        } else {
            json!({
                "labels": { "openstack.c5c3.io/owner-kind": "Glance", "openstack.c5c3.io/owner-name": name,
                    "openstack.c5c3.io/owner-namespace": ns },
                "annotations": { "openstack.c5c3.io/hub-uid": hub, "openstack.c5c3.io/owner-uid": uid },
                "ownerReferences": null,
            })
        };
        let mut meta = object["metadata"].clone();
        // A child without any labels or annotations has none of ours, either.
        for field in ["labels", "annotations"] {
            if meta[field].is_null() {
                meta[field] = json!({});
            }
        }
        let complaints = differences(&meta, &wanted);
        assert!(complaints.is_empty(), "{trace}: {complaints:?}");
        // What a template carries lands on pods and on Jobs, where it would be taken for a child.
        for template in [
            "/spec/template/metadata",
            "/spec/jobTemplate/metadata",
            "/spec/jobTemplate/spec/template/metadata",
        ] {
            let text = object
                .pointer(template)
                .map(Value::to_string)
                .unwrap_or_default();
            assert!(
                !text.contains("openstack.c5c3.io/owner"),
                "{trace}{template}: {text}"
            );
        }
    }
    Ok(())
}

/// Applies [`full`], waits for it and checks everything on the cluster where it runs; nothing of
/// it may be on any other.
async fn install_full(site: &Site<'_>, scenario: &Scenario) -> Result<()> {
    let children = site.children(scenario)?;
    for manifest in gateway(site.namespace(), "gw") {
        children.apply(&manifest).await?;
    }
    let operator = site.operator().await?;
    let _running = operator.start().await?;
    site.apply(scenario).await?;
    let name = scenario.name();
    let glance = site.glance(name).is_ready(seconds(READY)).await?;
    for type_ in SUB_CONDITIONS {
        let found = condition(&glance, type_).map(|c| c["status"].clone());
        assert_eq!(found, Some(json!("True")), "{type_}");
    }
    for backend in scenario.backends() {
        let backend = backend["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        site.backend(&backend).is_ready(seconds(READY)).await?;
    }
    Workload::of(site, scenario)?
        .is_rolled_out(seconds(READY))
        .await?;

    // The Service narrows in the pass after the roll-out.
    let service = Object::new(children, kinds::SERVICE, site.namespace(), name);
    service
        .satisfies(seconds(20), "to select API pods only", |service| {
            let selector = service.data["spec"]["selector"].clone();
            (selector["app.kubernetes.io/component"] == "api")
                .then_some(())
                .ok_or(selector.to_string())
        })
        .await?;
    let mut found: Vec<_> = traces(children, site.namespace())
        .await?
        .iter()
        .map(|t| without_hash(t))
        .collect();
    // A revision from before the second backend was ready may still be kept.
    found.dedup();
    assert_eq!(found, owned_by_full(name));
    check_objects(site, scenario).await?;
    check_ownership(site, scenario).await?;
    for member in site.fleet().members() {
        let cluster = member.cluster();
        if cluster.name() != children.name() {
            let found = traces(cluster, site.namespace()).await?;
            assert!(found.is_empty(), "on {}: {found:?}", cluster.name());
        }
    }
    Ok(())
}

#[test]
fn a_local_glance_gets_everything_that_the_overview_lists_and_owns_it() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "local").await?;
        install_full(&site, &full(&site, "images")).await
    });
}

#[test]
fn a_placed_glance_lives_on_its_target_and_leaves_no_trace_elsewhere() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "placed").await?;
        site.register("edge-1").await?;
        site.register("edge-2").await?;
        install_full(&site, &full(&site, "images").on("edge-1")).await
    });
}

const PASTE: &str = "glance-api-paste.ini";
const CONF: &str = "glance-api.conf";

/// The argument list of uWSGI with everything at its default.
fn uwsgi() -> Vec<&'static str> {
    vec![
        "uwsgi",
        "--http",
        ":9292",
        "--http-auto-chunked",
        "--http-chunked-input",
        "--http-keepalive",
        "--log-master",
        "--log-format",
        "%(method) %(uri) => generated %(rsize) bytes in %(msecs) msecs (%(proto) %(status))",
        "--wsgi-file",
        "/var/lib/openstack/bin/glance-wsgi-api",
        "--master",
        "--lazy-apps",
        "--need-app",
        "--processes",
        "2",
        "--threads",
        "1",
        "--pyargv",
        "--config-dir /etc/glance/glance-api.conf.d/ --config-dir /etc/glance/backends.conf.d/",
    ]
}

/// The variables behind the two that come from Secrets.
fn plain_variables(pod: &Value) -> BTreeMap<String, String> {
    let env = pod["spec"]["containers"][0]["env"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let from: Vec<_> = env
        .iter()
        .take(2)
        .filter_map(|v| v["name"].as_str())
        .collect();
    assert_eq!(
        from,
        ["OS_DATABASE__CONNECTION", "OS_KEYSTONE_AUTHTOKEN__PASSWORD"]
    );
    env.iter()
        .skip(2)
        .map(|v| {
            [&v["name"], &v["value"]]
                .map(|text| text.as_str().unwrap_or_default().to_owned())
                .into()
        })
        .collect()
}

fn volume_names(pod: &Value) -> Vec<&str> {
    let volumes = pod["spec"]["volumes"].as_array();
    volumes
        .into_iter()
        .flatten()
        .filter_map(|v| v["name"].as_str())
        .collect()
}

/// The first vector of the contract.
async fn apply_basic(site: &Site<'_>, old: &Scenario) -> Result<()> {
    old.apply_surroundings(site.hub()).await?;
    old.apply_credentials(site.hub()).await?;
    site.hub()
        .secret(
            site.namespace(),
            "glance-basic-s3-credentials",
            &[
                ("access-key-id", "AKIAEXAMPLE"),
                ("secret-access-key", "example-secret"),
            ],
        )
        .await?;
    let mut backend = old.backends().remove(0);
    backend["spec"]["s3"]["host"] = json!("http://garage.shared-services.svc.cluster.local:3900");
    backend["spec"]["s3"]["bucket"] = json!("glance-images");
    backend["spec"]["s3"]["region"] = json!("garage");
    site.hub().apply(&backend).await?;
    site.hub().apply(&old.glance()).await?;
    Ok(())
}

/// The first vector, byte for byte.
fn check_basic(conf: &Files) {
    for (file, digest) in [
        (
            CONF,
            "80faf6acf007dec3c8824e3aa1fbb13627735eb101164b86b4a83ac626ffb467",
        ),
        (
            PASTE,
            "3abc8008eac3833c46d02ef5c121cad5461f5be6fc34219d2cc60ab188b5cc76",
        ),
        (
            "policy.yaml",
            "ce11df0577cd6ecc9e7d44794c465ade372218ab1b31ad28dce5e730318e03ed",
        ),
    ] {
        assert_eq!(
            sha256(conf.text(file)),
            digest,
            "{file}:\n{}",
            conf.text(file)
        );
    }
    assert_eq!(conf.config_map, "glance-basic-config-40a668e9");
    assert_eq!(
        sha256(&conf.backends),
        "cb52bd05f62a46633727c5a0c6b2cfa7c6979b1648616c9ea9e9a905f534382c"
    );
    assert_eq!(conf.secret, "glance-basic-backends-8b6eaadb");
    conf.assert_line(CONF, "DEFAULT", "workers = 2");
}

fn check_variables(pod: &Value) {
    // Grace less pause less five.
    assert_eq!(
        plain_variables(pod),
        [
            (
                "UWSGI_HOOK_MASTER_START",
                "unix_signal:15 gracefully_kill_them_all"
            ),
            ("UWSGI_WORKER_RELOAD_MERCY", "105"),
            ("UWSGI_BINARY_PATH", "/var/lib/openstack/bin/python3"),
            ("UWSGI_CHUNKED_INPUT_LIMIT", "67108864"),
            ("UWSGI_BUFFER_SIZE", "65535"),
            ("UWSGI_HTTP_TIMEOUT", "14400"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
    );
}

#[test]
fn releases_and_clusters_mix_and_each_glance_is_launched_its_own_way() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "mixed").await?;
        site.register("edge-1").await?;
        site.register("edge-2").await?;
        let operator = site.operator().await?;
        let _running = operator.start().await?;

        let old = crate::features::vector(&site, "glance-basic", "2025.2");
        let new = site.scenario("newer").release("2026.1").backend("newer-s3", true).on("edge-1").with(
            "deployment",
            json!({ "replicas": 1, "terminationGracePeriodSeconds": 120, "preStopSleepSeconds": 10 }),
        );
        let tuned = site.scenario("tuned").release("2026.1").backend("tuned-s3", true).on("edge-2").with(
            "apiServer",
            json!({ "workers": 7, "uwsgi": { "processes": 4, "threads": 8, "harakiri": 20, "httpKeepAliveTimeout": 65 } }),
        );
        apply_basic(&site, &old).await?;
        futures::try_join!(site.apply(&new), site.apply(&tuned))?;
        let mut pods = BTreeMap::new();
        let mut files = BTreeMap::new();
        for scenario in [&old, &new, &tuned] {
            site.glance(scenario.name())
                .is_ready(seconds(READY))
                .await?;
            let workload = Workload::of(&site, scenario)?;
            let rollout = workload.is_rolled_out(seconds(READY)).await?;
            pods.insert(scenario.name().to_owned(), rollout.template);
            files.insert(scenario.name().to_owned(), workload.files().await?);
        }
        let command = |name: &str| pods[name]["spec"]["containers"][0]["command"].clone();

        assert_eq!(command("glance-basic"), json!(EVENTLET));
        check_basic(&files["glance-basic"]);
        assert_eq!(command("newer"), json!(uwsgi()));
        let text = files["newer"].text(CONF);
        assert!(
            !text.contains("workers ="),
            "uWSGI counts its own processes:\n{text}"
        );
        check_variables(&pods["newer"]);
        let mut wanted = uwsgi();
        wanted.splice(6..6, ["--http-keepalive-timeout", "65"]);
        wanted[17] = "4";
        wanted[19] = "8";
        wanted.extend(["--harakiri", "20"]);
        assert_eq!(command("tuned"), json!(wanted));
        files["tuned"].assert_line(CONF, "DEFAULT", "workers = 7");
        for name in ["newer", "tuned"] {
            let sections = files[name].section(PASTE, "composite:glance-api-keystone");
            assert_eq!(
                sections,
                files["glance-basic"].section(PASTE, "composite:glance-api-keystone")
            );
            files[name].assert_line(
                CONF,
                "glance_store",
                &format!("default_backend = {name}-s3"),
            );
            assert!(!files[name].backends.contains("garage"));
        }
        for (name, image) in [
            ("glance-basic", "2025.2"),
            ("newer", "2026.1"),
            ("tuned", "2026.1"),
        ] {
            let pod = &pods[name];
            assert_eq!(
                pod["spec"]["containers"][0]["image"],
                format!("registry.example/openstack/glance:{image}")
            );
            assert_eq!(
                volume_names(pod),
                ["config", "backends", "staging", "tasks-work"]
            );
            assert_eq!(
                pod["spec"]["volumes"][0]["configMap"]["name"],
                json!(files[name].config_map)
            );
        }
        assert_eq!(pods["newer"]["spec"]["terminationGracePeriodSeconds"], 120);

        // Each cluster has the children of its own Glance and of no other.
        for (cluster, name) in [
            ("hub", "glance-basic"),
            ("edge-1", "newer"),
            ("edge-2", "tuned"),
        ] {
            let found = traces(fleet.cluster(cluster)?, site.namespace()).await?;
            assert_eq!(found.len(), 11, "{cluster}: {found:?}");
            assert!(
                found.iter().all(|t| t.contains(&format!(" {name}"))),
                "{cluster}: {found:?}"
            );
        }
        Ok(())
    });
}
