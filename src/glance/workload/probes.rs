//! The three probes of the API container; the same in both launch modes.

use serde_json::{Value, json};

use super::API_PORT;

/// Answered by a piece of middleware, without database or Keystone.
pub const HEALTH_PATH: &str = "/healthcheck";

/// Thirty tries of ten seconds: a cold start on a busy node is not a reason to restart.
pub fn startup() -> Value {
    json!({
        "httpGet": { "path": HEALTH_PATH, "port": API_PORT },
        "periodSeconds": 10,
        "timeoutSeconds": 8,
        "failureThreshold": 30,
    })
}

/// Waits as long as the readiness probe does, because under uWSGI the check needs a free worker and
/// the kubelet's second is less than a request in flight takes.
pub fn liveness() -> Value {
    json!({
        "httpGet": { "path": HEALTH_PATH, "port": API_PORT },
        "initialDelaySeconds": 15,
        "periodSeconds": 20,
        "timeoutSeconds": 10,
    })
}

/// Takes a pod out of the Service after three misses.
pub fn readiness() -> Value {
    json!({
        "httpGet": { "path": HEALTH_PATH, "port": API_PORT },
        "initialDelaySeconds": 10,
        "periodSeconds": 15,
        "timeoutSeconds": 10,
        "failureThreshold": 3,
    })
}
