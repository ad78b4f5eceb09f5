//! What is remembered of an object: what steps read of it, and nothing else.
//!
//! A pod template is most of a workload, and JSON takes a multiple of its text in memory. What is not named here is not
//! there, so a step that reads a new field finds out in its first test on a cluster.

use kube::core::DynamicObject;
use serde_json::{Value, json};
use target_registry::Kind;

use super::{
    kinds::{CONFIG_MAP, CRON_JOB, DATABASE, DEPLOYMENT, INPUTS, JOB, SECRET, SERVICE},
    ledger,
};

/// The fields beside the status that steps read of a kind; `*` stands for each element of a list.
fn read_of(kind: &Kind) -> &'static [&'static str] {
    match (kind.group, kind.kind) {
        of if of == (DEPLOYMENT.group, DEPLOYMENT.kind) => &[
            "/spec/replicas",
            "/spec/selector",
            "/spec/strategy",
            "/spec/template/spec/volumes",
        ],
        of if of == (SERVICE.group, SERVICE.kind) => &["/spec/selector"],
        of if of == (DATABASE.group, DATABASE.kind) => &["/spec/mariaDbRef/name", "/spec/name"],
        of if of == (JOB.group, JOB.kind) => &[
            "/spec/template/spec/containers/*/command",
            "/spec/template/spec/containers/*/image",
            "/spec/template/spec/volumes",
        ],
        of if of == (CRON_JOB.group, CRON_JOB.kind) => {
            &["/spec/jobTemplate/spec/template/spec/volumes"]
        }
        _ => &[],
    }
}

/// Reduces an object from a watch, or from the answer to a call of ours, to what is worth its memory.
pub fn reduce(kind: &Kind, object: &mut DynamicObject) {
    ledger::reduce_managed_fields(&mut object.metadata);
    if INPUTS.iter().any(|input| input.kind == kind.kind) {
        // Of an input only its readiness is read.
        object.metadata.annotations = None;
        let conditions = object.data["status"]["conditions"].take();
        object.data = json!({ "status": { "conditions": conditions } });
        return;
    }
    let mut kept = Value::Object(serde_json::Map::new());
    // Secrets and `ConfigMap`s never keep data, whatever a watch or a write answered.
    if kind.kind == SECRET.kind || kind.kind == CONFIG_MAP.kind {
        object.types = None;
    } else {
        if let Some(status) = object.data.get_mut("status") {
            kept["status"] = status.take();
        }
        for pointer in read_of(kind) {
            carry(&mut object.data, &mut kept, pointer);
        }
    }
    object.data = kept;
}

/// Moves what is at a pointer from one object to the same place in another.
fn carry(from: &mut Value, to: &mut Value, pointer: &str) {
    let Some((field, rest)) = pointer.strip_prefix('/').map(|path| {
        let (field, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
        (field, rest)
    }) else {
        *to = from.take();
        return;
    };
    if field == "*" {
        let Value::Array(elements) = from else {
            return;
        };
        if !to.is_array() {
            *to = Value::Array(vec![Value::Null; elements.len()]);
        }
        for (index, element) in elements.iter_mut().enumerate() {
            carry(element, &mut to[index], rest);
        }
    } else if let Some(from) = from.get_mut(field) {
        carry(from, &mut to[field], rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced(kind: &Kind, data: &Value) -> Value {
        let mut object = DynamicObject::new("images", &kind.api_resource());
        object.data = data.clone();
        reduce(kind, &mut object);
        object.data
    }

    #[test]
    fn of_a_pod_template_only_what_it_mounts_is_remembered() {
        let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": {
            "volumes": [{ "name": "config", "configMap": { "name": "c" } }],
            "containers": [
                { "name": "db-sync", "image": "glance:1", "command": ["sync"], "env": [{ "name": "A", "value": "1" }] },
            ],
        } });
        let mounts =
            json!({ "spec": { "volumes": [{ "name": "config", "configMap": { "name": "c" } }] } });
        let deployment = json!({ "status": { "replicas": 2 }, "spec": {
            "replicas": 2, "selector": { "matchLabels": { "a": "b" } }, "revisionHistoryLimit": 10,
            "strategy": { "type": "Recreate" }, "template": template,
        } });
        assert_eq!(
            reduced(&DEPLOYMENT, &deployment),
            json!({ "status": { "replicas": 2 }, "spec": {
                "replicas": 2, "selector": { "matchLabels": { "a": "b" } },
                "strategy": { "type": "Recreate" }, "template": mounts,
            } })
        );
        let cron_job = json!({ "spec": { "schedule": "0 0 * * *", "jobTemplate": { "spec": { "template": template } } } });
        assert_eq!(
            reduced(&CRON_JOB, &cron_job),
            json!({ "spec": { "jobTemplate": { "spec": { "template": mounts } } } })
        );
        let mut work = mounts.clone();
        work["spec"]["containers"] = json!([{ "image": "glance:1", "command": ["sync"] }]);
        assert_eq!(
            reduced(
                &JOB,
                &json!({ "spec": { "template": template, "backoffLimit": 4 } })
            ),
            json!({ "spec": { "template": work } })
        );
    }

    #[test]
    fn no_value_of_a_secret_is_remembered() {
        for kind in [SECRET, CONFIG_MAP] {
            assert_eq!(
                reduced(&kind, &json!({ "data": { "a": "Yg==" } })),
                json!({})
            );
        }
    }

    #[test]
    fn of_an_input_its_conditions_are_remembered() {
        let conditions = json!([{ "type": "Ready", "status": "True" }]);
        let input = json!({ "spec": { "a": 1 }, "status": { "conditions": conditions, "capabilities": 1 } });
        assert_eq!(
            reduced(&INPUTS[0], &input),
            json!({ "status": { "conditions": conditions } })
        );
    }
}
