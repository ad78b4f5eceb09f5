//! What the Go operator has written for one Glance, as its pages of the contract describe it: a Glance
//! of release 2025.2 in managed mode with one backend, a network policy, an autoscaler and a route.

use anyhow::{Context as _, Result};
use e2e::{
    cluster::{Cluster, told},
    expect::{Object, Wanted, eventually},
    kinds,
    patience::seconds,
    scenario::Scenario,
};
use glance_api::keys::FIELD_MANAGER;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The field manager of what the Go operator creates without server-side apply: its program's name.
const CREATOR: &str = "manager";

const IMAGE: &str = "registry.example/openstack/glance:2025.2";

/// Writes everything for a Glance that exists already, and waits until its pods and its Job are done.
pub async fn write(hub: &Cluster, children: &Cluster, scenario: &Scenario) -> Result<()> {
    let (ns, name) = (scenario.namespace(), scenario.name());
    let glance = Object::glance(hub, ns, name)
        .get()
        .await?
        .context("no Glance")?;
    let uid = glance.metadata.uid.context("a Glance without UID")?;
    let hand = Hand {
        children,
        ns,
        name,
        uid,
        placed: scenario.target().is_some(),
    };
    for object in hand.immutable() {
        hand.create(object).await?;
    }
    for object in hand.database() {
        hand.apply(object).await?;
    }
    hand.create(hand.db_sync()).await?;
    let job = Object::new(children, kinds::JOB, ns, &hand.named("db-sync"))
        .condition(seconds(60), Wanted::of("Complete").status("True"))
        .await?;
    for object in hand.workload() {
        hand.apply(object).await?;
    }
    hand.scale().await?;
    let deployments: Api<Deployment> = children.api(ns);
    eventually(seconds(60), "its pods to be ready", async || {
        let live = deployments.get(name).await.map_err(|e| told(&e))?;
        let ready = live.status.and_then(|status| status.ready_replicas);
        if ready == Some(2) {
            Ok(())
        } else {
            Err(format!("{ready:?} of 2"))
        }
    })
    .await?;
    // The Service only counts the labelled pods from then on.
    hand.apply(hand.service(true)).await?;
    hand.status(hub, &job).await
}

/// Writes as the Go operator does.
struct Hand<'a> {
    children: &'a Cluster,
    ns: &'a str,
    name: &'a str,
    uid: String,
    placed: bool,
}

impl Hand<'_> {
    fn named(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.name)
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        self.children
            .any(text("apiVersion"), text("kind"), Some(self.ns))
    }

    async fn apply(&self, object: Value) -> Result<()> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&object);
        self.api(&object).patch(name, &params, &patch).await?;
        Ok(())
    }

    async fn create(&self, object: Value) -> Result<()> {
        let params = PostParams {
            field_manager: Some(CREATOR.to_owned()),
            ..PostParams::default()
        };
        let api = self.api(&object);
        api.create(&params, &serde_json::from_value(object)?)
            .await?;
        Ok(())
    }

    /// The mark of a child: a reference on the hub, labels on a target, and nothing that names the hub.
    fn metadata(&self, name: &str, mut labels: Value) -> Value {
        let mut metadata = json!({ "namespace": self.ns, "name": name });
        if self.placed {
            for (key, value) in self.owner_labels().as_object().into_iter().flatten() {
                labels[key] = value.clone();
            }
        } else {
            metadata["ownerReferences"] = json!([{
                "apiVersion": kinds::GLANCE.0, "kind": kinds::GLANCE.1,
                "name": self.name, "uid": self.uid,
                "controller": true, "blockOwnerDeletion": true,
            }]);
        }
        metadata["labels"] = labels;
        metadata
    }

    fn owner_labels(&self) -> Value {
        json!({
            "openstack.c5c3.io/owner-kind": "Glance",
            "openstack.c5c3.io/owner-name": self.name,
            "openstack.c5c3.io/owner-namespace": self.ns,
        })
    }

    fn selector(&self) -> Value {
        json!({ "app.kubernetes.io/name": "glance", "app.kubernetes.io/instance": self.name })
    }

    fn common(&self) -> Value {
        let mut labels = self.selector();
        labels["app.kubernetes.io/managed-by"] = json!("glance-operator");
        labels
    }

    fn component(&self, component: &str) -> Value {
        let mut labels = self.common();
        labels["app.kubernetes.io/component"] = json!(component);
        labels
    }

    fn dsn(&self) -> String {
        format!(
            "mysql+pymysql://{}:db-password@mariadb.{}.svc:3306/glance?charset=utf8",
            self.name, self.ns
        )
    }

    /// Rendered files under the hashes of their content, and the connection.
    fn immutable(&self) -> [Value; 3] {
        let family = |base: &str| json!({ "cobaltcore.c5c3.io/config-base": self.named(base) });
        [
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
                "metadata": self.metadata(&self.named("config-1a2b3c4d"), family("config")),
                "data": {
                    "glance-api.conf": "[DEFAULT]\nenabled_backends = store:s3\n",
                    "glance-api-paste.ini": "[composite:glance-api]\n",
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "Secret", "immutable": true,
                "metadata": self.metadata(&self.named("backends-5e6f7a8b"), family("backends")),
                "stringData": { "backends.conf": "[store]\ns3_store_bucket = images\n" },
            }),
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": self.metadata(&self.named("db-connection"), json!({})),
                "stringData": { "connection": self.dsn() },
            }),
        ]
    }

    fn database(&self) -> [Value; 3] {
        let server = json!({ "name": "mariadb", "waitForIt": false });
        let object = |kind: &str, spec: Value| {
            json!({
                "apiVersion": kinds::DATABASE.0, "kind": kind,
                "metadata": self.metadata(self.name, json!({})),
                "spec": spec,
            })
        };
        [
            object(
                "Database",
                json!({
                    "mariaDbRef": server, "name": "glance",
                    "characterSet": "utf8", "collate": "utf8_general_ci",
                }),
            ),
            object(
                "User",
                json!({
                    "mariaDbRef": server, "passwordPlugin": {},
                    "passwordSecretKeyRef": { "name": self.named("db"), "key": "password" },
                }),
            ),
            object(
                "Grant",
                json!({
                    "mariaDbRef": server, "privileges": ["ALL PRIVILEGES"],
                    "database": "glance", "table": "*", "username": self.name,
                }),
            ),
        ]
    }

    /// Keyed by a hash of the whole pod template, which is the Go operator's own affair.
    fn db_sync(&self) -> Value {
        let manage = "glance-manage --config-dir /etc/glance/glance-api.conf.d/ db";
        let script = format!(
            "{manage} sync && {manage} load_metadefs --path /var/lib/openstack/etc/glance/metadefs"
        );
        let mut metadata = self.metadata(&self.named("db-sync"), json!({}));
        metadata["annotations"] = json!({ "cobaltcore.c5c3.io/pod-spec-hash": sha256("theirs") });
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
            "spec": { "backoffLimit": 4, "template": { "spec": {
                "restartPolicy": "Never",
                "containers": [self.manager("db-sync", &script)],
                "volumes": [self.config_volume()],
            }}},
        })
    }

    fn workload(&self) -> [Value; 7] {
        [
            self.deployment(),
            self.service(false),
            json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": self.metadata(self.name, self.common()),
                "spec": { "minAvailable": 1, "selector": {
                    "matchLabels": self.selector(),
                    "matchExpressions": [{ "key": "batch.kubernetes.io/job-name", "operator": "DoesNotExist" }],
                }},
            }),
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "metadata": self.metadata(self.name, self.common()),
                "spec": {
                    "podSelector": { "matchLabels": self.selector() },
                    "policyTypes": ["Ingress", "Egress"],
                    "ingress": [{
                        "from": [{ "namespaceSelector": {} }],
                        "ports": [{ "protocol": "TCP", "port": 9292 }],
                    }],
                },
            }),
            self.purge(),
            json!({
                "apiVersion": kinds::AUTOSCALER.0, "kind": kinds::AUTOSCALER.1,
                "metadata": self.metadata(self.name, self.common()),
                "spec": {
                    "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": self.name },
                    "minReplicas": 2, "maxReplicas": 4,
                    "metrics": [{ "type": "Resource", "resource": {
                        "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 80 },
                    }}],
                },
            }),
            json!({
                "apiVersion": kinds::HTTP_ROUTE.0, "kind": kinds::HTTP_ROUTE.1,
                "metadata": self.metadata(self.name, self.common()),
                "spec": {
                    "parentRefs": [{ "name": "gw" }],
                    "hostnames": ["images.example.org"],
                    "rules": [{
                        "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
                        "backendRefs": [{ "name": self.name, "port": 9292 }],
                    }],
                },
            }),
        ]
    }

    /// As the autoscaler has done, whose number of replicas it is.
    async fn scale(&self) -> Result<()> {
        let params = PatchParams {
            field_manager: Some("kube-controller-manager".to_owned()),
            ..PatchParams::default()
        };
        let two = json!({ "spec": { "replicas": 2 } });
        let deployments: Api<Deployment> = self.children.api(self.ns);
        deployments
            .patch_scale(self.name, &params, &Patch::Merge(&two))
            .await?;
        Ok(())
    }

    fn deployment(&self) -> Value {
        let labels = self.component("api");
        let mut pod_labels = labels.clone();
        if self.placed {
            // One map for both, by accident.
            for (key, value) in self.owner_labels().as_object().into_iter().flatten() {
                pod_labels[key] = value.clone();
            }
        }
        let healthcheck = json!({ "path": "/healthcheck", "port": 9292 });
        let spread = |key: &str| {
            json!({
                "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": { "matchLabels": self.selector() },
            })
        };
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": self.metadata(self.name, labels),
            "spec": {
                "selector": { "matchLabels": self.selector() },
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } },
                "template": {
                    "metadata": {
                        "labels": pod_labels,
                        // Plain digests, without the Glance's UID.
                        "annotations": {
                            "glance.c5c3.io/db-connection-hash": sha256(&self.dsn()),
                            "glance.c5c3.io/authtoken-hash": sha256("service-password"),
                        },
                    },
                    "spec": {
                        "terminationGracePeriodSeconds": 30,
                        "topologySpreadConstraints": [
                            spread("topology.kubernetes.io/zone"), spread("kubernetes.io/hostname"),
                        ],
                        "securityContext": { "fsGroup": 42424 },
                        "containers": [{
                            "name": "glance-api",
                            "image": IMAGE,
                            "command": [
                                "glance-api", "--config-dir", "/etc/glance/glance-api.conf.d/",
                                "--config-dir", "/etc/glance/backends.conf.d/",
                            ],
                            "env": [
                                self.connection(),
                                { "name": "OS_KEYSTONE_AUTHTOKEN__PASSWORD", "valueFrom": { "secretKeyRef": {
                                    "name": self.named("service-user"), "key": "password",
                                }}},
                            ],
                            "ports": [{ "name": "glance-api", "containerPort": 9292 }],
                            "lifecycle": { "preStop": { "exec": { "command": ["/bin/sh", "-c", "sleep 5"] } } },
                            "livenessProbe": { "httpGet": healthcheck, "initialDelaySeconds": 15, "periodSeconds": 20 },
                            "readinessProbe": { "httpGet": healthcheck, "initialDelaySeconds": 10, "periodSeconds": 15 },
                            "securityContext": restricted(),
                            "volumeMounts": [
                                { "name": "config", "mountPath": "/etc/glance/glance-api.conf.d/", "readOnly": true },
                                { "name": "backends", "mountPath": "/etc/glance/backends.conf.d/", "readOnly": true },
                                { "name": "staging", "mountPath": "/var/lib/glance/staging" },
                                { "name": "tasks-work", "mountPath": "/var/lib/glance/tasks-work" },
                            ],
                        }],
                        "volumes": [
                            self.config_volume(),
                            { "name": "backends", "secret": { "secretName": self.named("backends-5e6f7a8b") } },
                            { "name": "staging", "emptyDir": { "sizeLimit": "10Gi" } },
                            { "name": "tasks-work", "emptyDir": { "sizeLimit": "10Gi" } },
                        ],
                    },
                },
            },
        })
    }

    fn service(&self, narrow: bool) -> Value {
        let mut selector = self.selector();
        if narrow {
            selector["app.kubernetes.io/component"] = json!("api");
        }
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": self.metadata(self.name, self.common()),
            "spec": {
                "ports": [{ "port": 9292, "targetPort": 9292, "protocol": "TCP" }],
                "selector": selector,
            },
        })
    }

    fn purge(&self) -> Value {
        let script = "glance-manage --config-dir /etc/glance/glance-api.conf.d/ db purge --age_in_days 30 --max_rows 1000";
        json!({
            "apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": self.metadata(&self.named("db-purge"), self.common()),
            "spec": {
                "schedule": "1 0 * * *", "suspend": false, "concurrencyPolicy": "Forbid",
                "jobTemplate": {
                    "metadata": { "labels": self.common() },
                    "spec": { "activeDeadlineSeconds": 3600, "template": {
                        "metadata": { "labels": self.component("db-purge") },
                        "spec": {
                            "restartPolicy": "OnFailure",
                            "containers": [self.manager("db-purge", script)],
                            "volumes": [self.config_volume()],
                        },
                    }},
                },
            },
        })
    }

    /// A container that runs a script of the schema tool.
    fn manager(&self, name: &str, script: &str) -> Value {
        json!({
            "name": name, "image": IMAGE,
            "command": ["/bin/sh", "-eu", "-c", script],
            "env": [self.connection()],
            "securityContext": restricted(),
            "volumeMounts": [
                { "name": "config", "mountPath": "/etc/glance/glance-api.conf.d/", "readOnly": true },
            ],
        })
    }

    fn connection(&self) -> Value {
        json!({ "name": "OS_DATABASE__CONNECTION", "valueFrom": { "secretKeyRef": {
            "name": self.named("db-connection"), "key": "connection",
        }}})
    }

    fn config_volume(&self) -> Value {
        json!({ "name": "config", "configMap": { "name": self.named("config-1a2b3c4d") } })
    }

    /// What the Go operator remembers on the Glance itself.
    async fn status(&self, hub: &Cluster, job: &DynamicObject) -> Result<()> {
        let api = hub.any(kinds::GLANCE.0, kinds::GLANCE.1, Some(self.ns));
        let params = PatchParams {
            field_manager: Some(CREATOR.to_owned()),
            ..PatchParams::default()
        };
        let mut finalizers = vec!["glance.openstack.c5c3.io/finalizer"];
        if self.placed {
            finalizers.push("openstack.c5c3.io/remote-children");
        }
        let marks = json!({ "metadata": {
            "finalizers": finalizers,
            "annotations": { "cobaltcore.c5c3.io/last-db-sync-job-uid": job.metadata.uid },
        }});
        api.patch(self.name, &params, &Patch::Merge(&marks)).await?;
        let condition = |type_: &str, reason: &str| {
            json!({
                "type": type_, "status": "True", "reason": reason, "message": "",
                "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let status = json!({ "status": {
            "installedRelease": "2025.2",
            "endpoint": format!("http://{}.{}.svc.cluster.local:9292/", self.name, self.ns),
            "conditions": [
                condition("SecretsReady", "SecretsAvailable"),
                condition("DatabaseReady", "DatabaseSynced"),
                condition("DeploymentReady", "DeploymentReady"),
                condition("Ready", "AllReady"),
            ],
        }});
        api.patch_status(self.name, &params, &Patch::Merge(&status))
            .await?;
        let status = json!({ "status": { "conditions": [
            condition("CredentialsReady", "CredentialsAvailable"),
            condition("ConfigProjected", "BackendProjected"),
            condition("Ready", "AllReady"),
        ]}});
        let backends = hub.any(kinds::BACKEND.0, kinds::BACKEND.1, Some(self.ns));
        for backend in backends.list(&ListParams::default()).await?.items {
            let name = backend.metadata.name.unwrap_or_default();
            backends
                .patch_status(&name, &params, &Patch::Merge(&status))
                .await?;
        }
        Ok(())
    }
}

fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "runAsNonRoot": true, "runAsUser": 42424, "runAsGroup": 42424,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}

fn sha256(text: &str) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(text.as_bytes()))
}
