//! The network policies of one Glance: the API's own, and two that only add egress.
//!
//! | Name | Selects | Allows |
//! | --- | --- | --- |
//! | `{name}` | API and purge pods | ingress from the named sources; egress to DNS, database, cache and stores |
//! | `{name}-keystone-egress` | the same | egress to Keystone, without which every token is refused |
//! | `{name}-jobs-egress` | migration pods | egress to DNS and database |
//!
//! Policies add up, so the first has exactly the rules that outside checks count. Destinations stay
//! open on purpose: DNS may be a node-local address and stores lie outside the cluster.

use std::collections::BTreeSet;

use glance_api::defaults;
use glance_api::glance::{Glance, GlanceSpec, NetworkPolicySpec};
use serde_json::{Value, json};
use url::Url;

use super::{API_PORT, Identity, labels};
use crate::names;

/// Port of a memcached server that names none.
const MEMCACHED_PORT: u16 = 11211;

/// What the policy needs beside the Glance.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicyInputs<'a> {
    /// `spec.s3.host` of every attached backend that is not being deleted, ready or not.
    pub s3_hosts: &'a [String],
    /// The namespace the operator runs in, from where it probes the API; `None` when it is unknown.
    pub operator_namespace: Option<&'a str>,
    /// Ranges from where an API server probes the Service through its proxy.
    pub api_server_cidrs: &'a [String],
}

/// Why there is no policy although one is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The schema was bypassed. An ingress rule from nowhere is one from everywhere.
    #[error(
        "spec.networkPolicy.ingress must not be empty: refusing to create NetworkPolicy that would allow all ingress"
    )]
    EmptyIngress,
}

/// The names of the three policies, for whoever removes them.
pub fn policy_names(name: &str) -> [String; 3] {
    [
        name.to_owned(),
        names::keystone_egress(name),
        names::jobs_egress(name),
    ]
}

/// The desired policies; none when `spec.networkPolicy` is absent.
pub fn network_policies(
    glance: &Glance,
    id: Identity<'_>,
    inputs: PolicyInputs<'_>,
) -> Result<Vec<Value>, PolicyError> {
    let Some(wanted) = &glance.spec.network_policy else {
        return Ok(Vec::new());
    };
    if wanted.ingress.is_empty() {
        return Err(PolicyError::EmptyIngress);
    }
    let database = tcp([defaults::database_port(&glance.spec.database)]);
    let [own, keystone, jobs] = policy_names(id.name);

    let mut egress = vec![dns(), database.clone()];
    egress.extend(rule_unless_empty(cache_ports(&glance.spec)));
    egress.extend(rule_unless_empty(s3_ports(inputs.s3_hosts)));
    egress.extend(wanted.additional_egress.iter().map(|rule| json!(rule)));

    Ok(vec![
        policy(
            id,
            &own,
            &labels::selector(id.name),
            json!({
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{
                    "from": sources(glance, wanted, id, inputs),
                    "ports": [{ "protocol": "TCP", "port": API_PORT }],
                }],
                "egress": egress,
            }),
        ),
        policy(
            id,
            &keystone,
            &labels::selector(id.name),
            json!({
                "policyTypes": ["Egress"],
                "egress": [tcp([keystone_port(&glance.spec.keystone_endpoint)])],
            }),
        ),
        policy(
            id,
            &jobs,
            &labels::migration(id.name),
            json!({
                "policyTypes": ["Egress"],
                "egress": [dns(), database],
            }),
        ),
    ])
}

fn policy(id: Identity<'_>, name: &str, pods: &Value, mut spec: Value) -> Value {
    spec["podSelector"] = json!({ "matchLabels": pods });
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": id.metadata_named(name, &labels::common(id.name)),
        "spec": spec,
    })
}

/// Who may call the API: the named sources, the gateway's namespace, and whoever probes it.
///
/// A placed Glance is probed by its cluster's API server. The operator's namespace is on another
/// cluster then, and the namespace of that name over there is a stranger's.
fn sources(
    glance: &Glance,
    wanted: &NetworkPolicySpec,
    id: Identity<'_>,
    inputs: PolicyInputs<'_>,
) -> Vec<Value> {
    let mut sources: Vec<Value> = wanted.ingress.iter().map(|source| json!(source)).collect();
    if let Some(gateway) = &glance.spec.gateway {
        sources.push(namespace(
            super::http_route::parent(gateway, id.namespace).namespace,
        ));
    }
    if glance.spec.target_cluster_ref.is_none() {
        sources.extend(inputs.operator_namespace.map(namespace));
    }
    sources.extend(
        inputs
            .api_server_cidrs
            .iter()
            .map(|cidr| json!({ "ipBlock": { "cidr": cidr } })),
    );
    sources
}

/// All pods of a namespace; the labels of foreign pods are unknown.
fn namespace(name: &str) -> Value {
    json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } })
}

fn dns() -> Value {
    json!({ "ports": [{ "protocol": "UDP", "port": 53 }, { "protocol": "TCP", "port": 53 }] })
}

fn tcp(ports: impl IntoIterator<Item = impl Into<Value>>) -> Value {
    let ports: Vec<Value> = ports
        .into_iter()
        .map(|port| json!({ "protocol": "TCP", "port": port.into() }))
        .collect();
    json!({ "ports": ports })
}

/// A rule without ports would allow every port.
fn rule_unless_empty(ports: Vec<u16>) -> Option<Value> {
    (!ports.is_empty()).then(|| tcp(ports))
}

/// The ports of the token cache, each once, in the order of the servers.
fn cache_ports(spec: &GlanceSpec) -> Vec<u16> {
    if spec.cache.servers.is_empty() {
        return spec
            .cache
            .cluster_ref
            .iter()
            .map(|_| MEMCACHED_PORT)
            .collect();
    }
    let mut ports = Vec::new();
    for server in &spec.cache.servers {
        let port = memcached_port(server);
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    ports
}

/// The port of `host:port`; an IPv6 address needs brackets for one.
fn memcached_port(server: &str) -> u16 {
    let server = server.trim();
    let port = match server.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").map(|(_, port)| port),
        None => server.split_once(':').map(|(_, port)| port),
    };
    port.and_then(|port| port.parse().ok())
        .filter(|port| *port > 0)
        .unwrap_or(MEMCACHED_PORT)
}

/// The ports of the stores, ascending: the hosts come in no order.
fn s3_ports(hosts: &[String]) -> Vec<u16> {
    let ports: BTreeSet<u16> = hosts.iter().filter_map(|host| s3_port(host)).collect();
    ports.into_iter().collect()
}

/// The port of a store's URL. What is no URL, names no host or an impossible port gives none; there
/// is no falling back from a port that was meant and is wrong.
fn s3_port(host: &str) -> Option<u16> {
    let url = Url::parse(host).ok()?;
    url.host_str().filter(|host| !host.is_empty())?;
    match (url.scheme(), url.port_or_known_default()?) {
        ("http" | "https", port) if port > 0 => Some(port),
        _ => None,
    }
}

/// The port of Keystone. Always one: an address nobody can read is taken for HTTPS.
fn keystone_port(endpoint: &str) -> u16 {
    let Ok(url) = Url::parse(endpoint) else {
        return 443;
    };
    match (url.port(), url.scheme()) {
        (Some(port), _) if port > 0 => port,
        (None, "http") => 80,
        _ => 443,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::networking::v1::NetworkPolicy;
    use rstest::rstest;

    use super::*;
    use crate::glance::specimen;

    /// The policies of a minimal Glance with one source and `patch` over it.
    fn policies(patch: &Value, inputs: PolicyInputs<'_>) -> Vec<Value> {
        let mut spec = json!({ "networkPolicy": { "ingress": [
            { "namespaceSelector": { "matchLabels": { "team": "nova" } } },
        ] } });
        json_patch::merge(&mut spec, patch);
        let glance = specimen::with(&spec);
        let policies = network_policies(&glance, Identity::of(&glance), inputs).unwrap();
        policies
            .iter()
            .for_each(specimen::assert_is::<NetworkPolicy>);
        policies
    }

    fn egress_ports(policy: &Value) -> Vec<Vec<i64>> {
        policy["spec"]["egress"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| {
                assert!(rule.get("to").is_none());
                rule["ports"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|port| port["port"].as_i64().unwrap())
                    .collect()
            })
            .collect()
    }

    #[test]
    fn no_block_no_policy() {
        let glance = specimen::eventlet();
        let none = network_policies(&glance, Identity::of(&glance), PolicyInputs::default());
        assert_eq!(none, Ok(Vec::new()));
    }

    #[test]
    fn an_empty_ingress_list_is_refused_because_it_would_admit_everybody() {
        let glance = specimen::with(&json!({ "networkPolicy": { "ingress": [] } }));
        let refused = network_policies(&glance, Identity::of(&glance), PolicyInputs::default());
        assert_eq!(
            refused.unwrap_err().to_string(),
            "spec.networkPolicy.ingress must not be empty: refusing to create NetworkPolicy that would allow all ingress"
        );
    }

    #[test]
    fn the_first_policy_has_the_four_rules_and_the_others_only_add() {
        let hosts = ["https://garage:3900".to_owned()];
        let inputs = PolicyInputs {
            s3_hosts: &hosts,
            ..PolicyInputs::default()
        };
        let policies = policies(&json!({}), inputs);
        let names: Vec<&str> = policies
            .iter()
            .map(|policy| policy["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "pictures",
                "pictures-keystone-egress",
                "pictures-jobs-egress"
            ]
        );
        assert_eq!(names, policy_names("pictures"));
        assert_eq!(
            egress_ports(&policies[0]),
            [vec![53, 53], vec![3306], vec![11211], vec![3900]]
        );
        assert_eq!(
            policies[0]["spec"]["egress"][0]["ports"][0]["protocol"],
            "UDP"
        );
        assert_eq!(
            policies[0]["spec"]["policyTypes"],
            json!(["Ingress", "Egress"])
        );
        assert_eq!(egress_ports(&policies[1]), [vec![5000]]);
        assert_eq!(policies[1]["spec"]["policyTypes"], json!(["Egress"]));
        assert_eq!(
            policies[1]["spec"]["podSelector"],
            policies[0]["spec"]["podSelector"]
        );
        assert_eq!(egress_ports(&policies[2]), [vec![53, 53], vec![3306]]);
        assert_eq!(
            policies[2]["spec"]["podSelector"],
            json!({ "matchLabels": { "glance.openstack.c5c3.io/migration-of": "pictures" } })
        );
    }

    #[test]
    fn additional_rules_come_last_and_as_they_are() {
        let rule = json!({ "to": [{ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"] } }],
            "ports": [{ "port": "https", "protocol": "TCP" }, { "port": 8000, "endPort": 8010 }] });
        let patch = json!({ "networkPolicy": { "additionalEgress": [rule, {}] } });
        let policies = policies(&patch, PolicyInputs::default());
        let egress = policies[0]["spec"]["egress"].as_array().unwrap();
        assert_eq!(egress[3..], [rule, json!({})]);
    }

    fn sources_of(patch: &Value) -> Vec<Value> {
        let cidrs = ["192.0.2.0/24".to_owned()];
        let inputs = PolicyInputs {
            operator_namespace: Some("operators"),
            api_server_cidrs: &cidrs,
            ..PolicyInputs::default()
        };
        let policies = policies(patch, inputs);
        let ingress = policies[0]["spec"]["ingress"].as_array().unwrap();
        assert_eq!(ingress.len(), 1);
        assert_eq!(
            ingress[0]["ports"],
            json!([{ "protocol": "TCP", "port": 9292 }])
        );
        ingress[0]["from"].as_array().unwrap().clone()
    }

    #[test]
    fn named_sources_then_the_gateway_then_the_operator_may_call() {
        let patch = json!({ "gateway": { "parentRef": { "name": "edge" }, "hostname": "h" } });
        assert_eq!(
            sources_of(&patch),
            [
                json!({ "namespaceSelector": { "matchLabels": { "team": "nova" } } }),
                namespace("openstack"),
                namespace("operators"),
                json!({ "ipBlock": { "cidr": "192.0.2.0/24" } }),
            ]
        );
        let patch = json!({ "gateway": { "parentRef": { "name": "edge", "namespace": "edges" }, "hostname": "h" } });
        assert_eq!(sources_of(&patch)[1], namespace("edges"));
    }

    #[test]
    fn on_a_target_the_operators_namespace_is_a_strangers() {
        let sources = sources_of(&json!({ "targetClusterRef": { "name": "site-a" } }));
        assert!(!sources.contains(&namespace("operators")));
        assert_eq!(sources.len(), 2);
    }

    #[rstest]
    #[case(&["mc"], &[11211])]
    #[case(&["mc:11212"], &[11212])]
    #[case(&["a:11211", "b:11212", "c:11211"], &[11211, 11212])]
    #[case(&["[::1]:11213"], &[11213])]
    #[case(&["[::1]"], &[11211])]
    #[case(&["::1"], &[11211])]
    #[case(&["mc:notaport"], &[11211])]
    #[case(&["mc:0", "mc:70000"], &[11211])]
    fn cache_ports_are_those_of_the_servers(#[case] servers: &[&str], #[case] expected: &[u16]) {
        let spec =
            specimen::with(&json!({ "cache": { "clusterRef": null, "servers": servers } })).spec;
        assert_eq!(cache_ports(&spec), expected);
    }

    #[test]
    fn a_cache_cluster_has_the_known_port_and_no_cache_none() {
        assert_eq!(cache_ports(&specimen::eventlet().spec), [11211]);
        let none = specimen::with(&json!({ "cache": { "clusterRef": null } })).spec;
        assert_eq!(cache_ports(&none), Vec::<u16>::new());
    }

    #[rstest]
    #[case(&["https://host:3900"], &[3900])]
    #[case(&["https://a", "https://b"], &[443])]
    #[case(&["https://a:9000", "http://b", "https://c:3900"], &[80, 3900, 9000])]
    #[case(&["https://host:0", "https://host:99999", "://nope", "not a url at all"], &[])]
    #[case(&["https://a:443", "http://[::1]:7480/x", "ftp://c"], &[443, 7480])]
    fn store_ports_are_those_of_the_hosts(#[case] hosts: &[&str], #[case] expected: &[u16]) {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        assert_eq!(s3_ports(&hosts), expected);
    }

    #[rstest]
    #[case("http://keystone.openstack.svc:5000/v3", 5000)]
    #[case("http://keystone/v3", 80)]
    #[case("https://keystone/v3", 443)]
    #[case("https://keystone:443", 443)]
    #[case("https://keystone:0", 443)]
    #[case("https://keystone:99999", 443)]
    #[case("keystone", 443)]
    fn keystone_can_always_be_asked(#[case] endpoint: &str, #[case] port: u16) {
        assert_eq!(keystone_port(endpoint), port);
    }
}
