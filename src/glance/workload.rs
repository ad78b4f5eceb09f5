//! The objects that serve the API, as the operator wants them.
//!
//! Everything here is a pure function from the custom resource and the outputs of earlier steps to
//! JSON that is ready to be applied: no status, no marks of ownership and no nulls, since an
//! applied null claims a field. Whoever applies an object marks it as ours (contract: workload).

pub mod cache_sidecar;
pub mod command;
pub mod containers;
pub mod deployment;
pub mod environment;
pub mod hpa;
pub mod http_route;
pub mod labels;
pub mod network_policy;
pub mod pdb;
pub mod pod;
pub mod probes;
pub mod rollout;
pub mod service;
pub mod volumes;

use glance_api::Glance;
use serde_json::{Value, json};

/// The port of the API, everywhere: container, Service, probes, route, policy, addresses.
pub const API_PORT: u16 = 9292;

/// The name and the namespace that all objects of one Glance share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// `metadata.name` of the Glance.
    pub name: &'a str,
    /// `metadata.namespace` of the Glance; the same on every cluster.
    pub namespace: &'a str,
}

// === impl Identity ===

impl<'a> Identity<'a> {
    /// The identity of a Glance as the API server returned it.
    pub fn of(glance: &'a Glance) -> Self {
        Self {
            name: glance.metadata.name.as_deref().unwrap_or_default(),
            namespace: glance.metadata.namespace.as_deref().unwrap_or_default(),
        }
    }

    /// The metadata of the object that carries the bare name.
    pub fn metadata(self, labels: &Value) -> Value {
        self.metadata_named(self.name, labels)
    }

    /// The metadata of an object of another name.
    pub fn metadata_named(self, name: &str, labels: &Value) -> Value {
        json!({ "name": name, "namespace": self.namespace, "labels": labels })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
    use k8s_openapi::api::networking::v1::NetworkPolicy;
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use rstest::rstest;

    use glance_api::defaults;

    use super::deployment::{LiveReplicas, deployment, replicas};
    use super::environment::SecretKeyRef;
    use super::network_policy::{PolicyInputs, network_policies};
    use super::pod::PodInputs;
    use super::*;
    use crate::glance::specimen;

    fn deployment_of(glance: &Glance, digest: &str) -> Value {
        let user = defaults::service_user(&glance.spec.service_user);
        let inputs = PodInputs {
            config_map: "pictures-config-0a1b2c3d",
            backends_secret: "pictures-backends-4e5f6071",
            dsn_digest: digest,
            password_digest: digest,
            authtoken_secret: &SecretKeyRef {
                name: user.secret_name,
                key: user.secret_key,
            },
        };
        let deployment = deployment(
            glance,
            Identity::of(glance),
            inputs,
            replicas(glance, LiveReplicas::Absent),
        );
        specimen::assert_is::<Deployment>(&deployment);
        deployment
    }

    #[rstest]
    #[case("eventlet", specimen::eventlet())]
    #[case("uwsgi", specimen::uwsgi())]
    #[case("everything", specimen::everything())]
    fn the_deployment(#[case] name: &str, #[case] glance: Glance) {
        let deployment = deployment_of(&glance, "d1e2");
        insta::assert_snapshot!(format!("deployment-{name}"), specimen::text(&deployment));
    }

    #[test]
    fn everything_around_the_deployment() {
        let glance = specimen::everything();
        let id = Identity::of(&glance);
        let hosts = [
            "https://s3.example.com:3900".to_owned(),
            "http://s3-old.example.com".to_owned(),
        ];
        let inputs = PolicyInputs {
            s3_hosts: &hosts,
            operator_namespace: Some("operators"),
            api_server_cidrs: &[],
        };
        let budget = pdb::pod_disruption_budget(&glance, id);
        let scaler = hpa::horizontal_pod_autoscaler(&glance, id).unwrap();
        let policies = network_policies(&glance, id, inputs).unwrap();
        specimen::assert_is::<PodDisruptionBudget>(&budget);
        specimen::assert_is::<HorizontalPodAutoscaler>(&scaler);
        policies
            .iter()
            .for_each(specimen::assert_is::<NetworkPolicy>);

        let mut objects = vec![
            service::service(id, service::Selection::Narrow),
            budget,
            scaler,
        ];
        objects.extend(policies);
        objects.extend(http_route::http_route(&glance, id));
        insta::assert_snapshot!(specimen::text(&Value::Array(objects)));
    }

    #[test]
    fn without_digests_the_template_has_no_annotations() {
        let deployment = deployment_of(&specimen::eventlet(), "");
        assert!(
            deployment["spec"]["template"]["metadata"]
                .get("annotations")
                .is_none()
        );
    }

    #[test]
    fn a_rotated_credential_rolls_the_pods_and_nothing_else_changes() {
        let glance = specimen::eventlet();
        let (mut before, after) = (deployment_of(&glance, "old"), deployment_of(&glance, "new"));
        assert_ne!(before, after);
        for key in [
            "glance.c5c3.io/db-connection-hash",
            "glance.c5c3.io/authtoken-hash",
        ] {
            before["spec"]["template"]["metadata"]["annotations"][key] = json!("new");
        }
        assert_eq!(before, after);
    }

    #[test]
    fn an_empty_topology_list_is_not_an_absent_one() {
        let constraints = |patch: &Value| {
            deployment_of(&specimen::with(patch), "d")["spec"]["template"]["spec"]["topologySpreadConstraints"].clone()
        };
        assert_eq!(
            constraints(&json!({ "deployment": { "topologySpreadConstraints": [] } })),
            json!([])
        );
        assert_eq!(
            constraints(&json!({ "deployment": {} }))
                .as_array()
                .unwrap()
                .len(),
            2
        );
    }

    #[test]
    fn switching_the_cache_on_adds_and_off_leaves_no_trace() {
        let off = deployment_of(&specimen::eventlet(), "d");
        let on = deployment_of(&specimen::with(&json!({ "imageCache": {} })), "d");
        let pod = |deployment: &Value| deployment["spec"]["template"]["spec"].clone();
        assert_eq!(pod(&off)["containers"].as_array().unwrap().len(), 1);
        assert_eq!(pod(&off)["volumes"].as_array().unwrap().len(), 4);
        assert_eq!(pod(&on)["containers"].as_array().unwrap().len(), 2);
        assert_eq!(pod(&on)["volumes"].as_array().unwrap().len(), 5);
        assert!(!off.to_string().contains("image-cache"));
    }

    #[test]
    fn a_namespace_that_enforces_the_restricted_profile_admits_every_container() {
        let deployment = deployment_of(&specimen::everything(), "d");
        let pod = &deployment["spec"]["template"]["spec"];
        assert!(pod.get("hostNetwork").is_none());
        for container in pod["containers"].as_array().unwrap() {
            assert_eq!(container["securityContext"], containers::restricted());
        }
    }

    #[test]
    fn a_strategy_passes_through_as_it_is() {
        let recreate = json!({ "type": "Recreate" });
        let glance = specimen::with(&json!({ "deployment": { "strategy": recreate } }));
        assert_eq!(deployment_of(&glance, "d")["spec"]["strategy"], recreate);
    }
}
