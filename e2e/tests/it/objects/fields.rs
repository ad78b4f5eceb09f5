//! What each object of a Glance holds, field by field.

use anyhow::{Context as _, Result};
use data_encoding::BASE64;
use e2e::{
    kinds,
    scenario::Scenario,
    shape::{assert_has, differences},
    site::Site,
    workload::{Files, Workload},
};
use serde_json::json;

use super::{common, component, restricted, salted, selector};

pub const EVENTLET: [&str; 5] = [
    "glance-api",
    "--config-dir",
    "/etc/glance/glance-api.conf.d/",
    "--config-dir",
    "/etc/glance/backends.conf.d/",
];

/// The objects of [`full`] as their pages have them.
pub async fn check_objects(site: &Site<'_>, scenario: &Scenario) -> Result<()> {
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
