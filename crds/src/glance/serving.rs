//! How the API is served: image, pods, workers, gateway, traffic, scaling, log.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{
    DeploymentStrategy, LabelSelector, NetworkPolicyEgressRule, ResourceRequirements,
    TopologySpreadConstraint, text_enum,
};

/// The API pods.
// 5 and 30 in the rule are `defaults::PRE_STOP_SLEEP_SECONDS` and
// `defaults::TERMINATION_GRACE_PERIOD_SECONDS`; a test keeps them equal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("(has(self.preStopSleepSeconds) ? self.preStopSleepSeconds : 5) < (has(self.terminationGracePeriodSeconds) ? self.terminationGracePeriodSeconds : 30)")
    .message("preStopSleepSeconds must be strictly less than terminationGracePeriodSeconds"))]
#[serde(rename_all = "camelCase")]
pub struct DeploymentSpec {
    /// Number of API pods while `autoscaling` is unset. Defaults to 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 3))]
    pub replicas: Option<i32>,

    /// Resources of the API container. Unset, or without any request and
    /// limit, means requests of `100m` CPU and `512Mi` memory and limits of
    /// `500m` and `1Gi`. One entry is enough for the block to be taken as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// How long a pod may take to end its running requests once it is told to
    /// stop; at least 10. Unset means the cluster's 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10))]
    pub termination_grace_period_seconds: Option<i64>,

    /// How long a stopping pod waits before it is told, so that no new request
    /// is sent to it; less than the grace period. Unset means 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub pre_stop_sleep_seconds: Option<i64>,

    /// How pods are replaced. Unset means one new pod at a time and none
    /// missing (`maxSurge: 1`, `maxUnavailable: 0`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<DeploymentStrategy>,

    /// How pods spread over zones and nodes. Unset means an even spread over
    /// both where it can be had; `[]` means no constraint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,

    /// The `PriorityClass` of the pods, on the cluster they run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

/// A container image: a repository and either a tag or a digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("has(self.tag) != has(self.digest)")
    .message("exactly one of image.tag or image.digest must be set"))]
#[serde(rename_all = "camelCase")]
pub struct ImageSpec {
    /// Repository with its registry, e.g. `registry.example.org:5000/openstack/glance`.
    #[schemars(length(min = 1), regex(pattern = "^[a-z0-9]+([._:/-][a-z0-9]+)*$"))]
    pub repository: String,

    /// Tag of the image. Excludes `digest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$"))]
    pub tag: Option<String>,

    /// Digest of the image, `sha256:` and 64 hexadecimal digits. Excludes `tag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^sha256:[a-f0-9]{64}$"))]
    pub digest: Option<String>,
}

/// Worker processes of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiServerSpec {
    /// Worker processes below release `2026.1`. Rendered as `[DEFAULT]
    /// workers`. Unset means 2. Without effect from `2026.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub workers: Option<i32>,

    /// uWSGI from release `2026.1`. Without effect below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uwsgi: Option<UwsgiSpec>,
}

/// uWSGI, from release 2026.1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("!has(self.httpKeepAliveTimeout) || !has(self.httpKeepAlive) || self.httpKeepAlive")
    .message("httpKeepAliveTimeout may only be set when httpKeepAlive is true"))]
#[serde(rename_all = "camelCase")]
pub struct UwsgiSpec {
    /// Worker processes of a pod. An image transfer holds one worker from
    /// beginning to end. Defaults to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 2))]
    pub processes: Option<i32>,

    /// Threads of a worker process. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 1))]
    pub threads: Option<i32>,

    /// Keep client connections open between requests (`--http-keepalive`).
    /// Unset means true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_keep_alive: Option<bool>,

    /// Longest time in seconds that one request may take (`--harakiri`). Must
    /// be less than the grace period minus the sleep before stopping. Unset
    /// means no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub harakiri: Option<i32>,

    /// How long in seconds an idle client connection stays open
    /// (`--http-keepalive-timeout`). Only while `httpKeepAlive` is not false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub http_keep_alive_timeout: Option<i32>,
}

/// The route through a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// The Gateway, on the cluster this Glance runs on.
    pub parent_ref: GatewayParentRef,

    /// Host name clients use.
    #[schemars(length(min = 1))]
    pub hostname: String,

    /// Prefix of the path that is routed. Unset means `/`; a missing leading
    /// slash is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,

    /// Annotations for the `HTTPRoute`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The Gateway a route attaches to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayParentRef {
    /// Name of the Gateway.
    #[schemars(length(min = 1))]
    pub name: String,

    /// Namespace of the Gateway. Unset means the namespace of this resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,

    /// One listener of the Gateway. Unset means every one that fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
}

/// Traffic of the API pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("size(self.ingress) > 0")
    .message("at least one ingress source must be specified"))]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicySpec {
    /// Who may reach port 9292; at least one source.
    pub ingress: Vec<NetworkPolicyIngressSource>,

    /// Further outgoing traffic, e.g. to the hosts images are imported from,
    /// as rules of a `NetworkPolicy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_egress: Vec<NetworkPolicyEgressRule>,
}

/// A source of traffic: pods of some namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyIngressSource {
    /// Namespaces by label; `{}` means every namespace.
    pub namespace_selector: LabelSelector,

    /// Pods of those namespaces by label. Unset means every pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
}

/// Scaling with the load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("has(self.targetCPUUtilization) || has(self.targetMemoryUtilization)")
    .message("at least one of targetCPUUtilization or targetMemoryUtilization must be set"))]
#[x_kube(validation = Rule::new("!has(self.minReplicas) || self.minReplicas <= self.maxReplicas")
    .message("minReplicas must not exceed maxReplicas"))]
#[serde(rename_all = "camelCase")]
pub struct AutoscalingSpec {
    /// Fewest API pods, at any load. Unset means `deployment.replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_replicas: Option<i32>,

    /// Most API pods, at any load. At least `minReplicas`, or what stands in for it.
    #[schemars(range(min = 1))]
    pub max_replicas: i32,

    /// Average CPU use to aim at, in percent of the request.
    #[serde(
        rename = "targetCPUUtilization",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 1, max = 100))]
    pub target_cpu_utilization: Option<i32>,

    /// Average memory use to aim at, in percent of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub target_memory_utilization: Option<i32>,
}

/// The API's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoggingSpec {
    /// `text` for people, `json` for collectors. Defaults to `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "text"))]
    pub format: Option<LogFormat>,

    /// Least severity that is logged. Defaults to `INFO`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "INFO"))]
    pub level: Option<LogLevel>,

    /// Log at debug level whatever `level` says. Rendered as `[DEFAULT]
    /// debug`. Unset means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debug: Option<bool>,

    /// Levels of single loggers by name, e.g. `sqlalchemy: WARNING`: DEBUG,
    /// INFO, WARNING, ERROR or CRITICAL.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(validation = Rule::new("self.all(k, k != '')").message("logger name must not be empty"))]
    #[x_kube(validation = Rule::new("self.all(k, self[k] in ['DEBUG','INFO','WARNING','ERROR','CRITICAL'])")
        .message("per-logger level must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL"))]
    pub per_logger_levels: BTreeMap<String, String>,
}

text_enum! {
    /// Forms of the log.
    LogFormat {
        /// Lines for people.
        Text = "text",
        /// One JSON object for each line.
        Json = "json",
    }
}

text_enum! {
    /// Severities of the log.
    LogLevel {
        /// Everything.
        Debug = "DEBUG",
        /// Normal operation.
        Info = "INFO",
        /// Something odd.
        Warning = "WARNING",
        /// Something failed.
        Error = "ERROR",
        /// The process cannot go on.
        Critical = "CRITICAL",
    }
}
