//! Objects pass through the types as they are.

use glance_api::backend::GlanceBackendSpec;
use glance_api::glance::{GlanceSpec, GlanceStatus, UpgradePhase};
use glance_api::{Glance, GlanceBackend};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::admission::Server;
use crate::cases::{self, Expect, Kind, Layer, Setup};

fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let read: T = serde_json::from_value(object.clone()).unwrap();
    serde_json::to_value(read).unwrap()
}

/// What a Rust program may leave out without a change of meaning: lists and
/// maps where empty equals absent.
const EMPTY_EQUALS_ABSENT: [&str; 1] = ["/spec/cache/servers"];

#[test]
fn every_admitted_object_comes_out_as_it_went_in() {
    let glances = Server::of(Kind::Glance);
    let backends = Server::of(Kind::GlanceBackend);
    let mut seen = 0;
    for case in cases::all() {
        let admitted = match case.expect {
            Expect::Admitted(_) => case.setup != Setup::WithWebhooks,
            Expect::Refused(layer, _) => layer == Layer::Webhook,
        };
        // Without a spec there is nothing to keep: see the test below.
        if !admitted || case.new.get("spec").is_none() {
            continue;
        }
        let mut object = match case.kind {
            Kind::Glance => glances.read(&case.new),
            Kind::GlanceBackend => backends.read(&case.new),
        };
        for pointer in EMPTY_EQUALS_ABSENT {
            if object.pointer(pointer) == Some(&json!([])) {
                let (parent, key) = pointer.rsplit_once('/').unwrap();
                object
                    .pointer_mut(parent)
                    .unwrap()
                    .as_object_mut()
                    .unwrap()
                    .remove(key);
            }
        }
        let out = match case.kind {
            Kind::Glance => through::<Glance>(&object),
            Kind::GlanceBackend => through::<GlanceBackend>(&object),
        };
        assert_eq!(out, object, "{}", case.name);
        seen += 1;
    }
    assert!(seen > 150, "only {seen} objects were compared");
}

/// The schema admits it where no webhook runs; were it unreadable, every list
/// with it would be.
#[test]
fn a_resource_without_a_spec_does_not_spoil_the_list_it_is_in() {
    for spec in [json!({}), json!({ "spec": null })] {
        let mut object = json!({
            "apiVersion": glance_api::API_VERSION,
            "metadata": { "name": "images" },
        });
        object
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        object["kind"] = json!("Glance");
        let glance: Glance = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(glance.spec, GlanceSpec::default());
        object["kind"] = json!("GlanceBackend");
        let store: GlanceBackend = serde_json::from_value(object).unwrap();
        assert_eq!(store.spec, GlanceBackendSpec::default());
    }
}

#[test]
fn the_documented_store_is_read() {
    let manifest = r#"
apiVersion: glance.openstack.c5c3.io/v1alpha1
kind: GlanceBackend
metadata:
  name: garage-a
  namespace: openstack
spec:
  glanceRef:
    name: glance-multistore
  type: S3
  isDefault: true
  s3:
    host: http://garage.shared-services.svc.cluster.local:3900
    bucket: glance-images
    region: garage
    credentialsSecretRef:
      name: garage-s3-credentials
status:
  conditions:
  - type: Ready
    status: "True"
    reason: AllReady
    message: ""
    lastTransitionTime: "2026-11-29T22:24:37Z"
"#;
    let object: Value = serde_saphyr::from_str(manifest).unwrap();
    assert_eq!(through::<GlanceBackend>(&object), object);
}

#[test]
fn leaving_an_upgrade_removes_the_phase_and_never_empties_it() {
    let status = GlanceStatus {
        upgrade_phase: Some(UpgradePhase::Contracting),
        ..GlanceStatus::default()
    };
    assert_eq!(
        serde_json::to_value(&status).unwrap(),
        json!({ "upgradePhase": "Contracting" })
    );
    assert_eq!(
        serde_json::to_value(GlanceStatus::default()).unwrap(),
        json!({})
    );
}

#[test]
fn an_empty_message_is_written_all_the_same() {
    let condition = json!({
        "type": "Ready", "status": "Unknown", "reason": "AllReady", "message": "",
        "lastTransitionTime": "2026-11-29T22:24:37Z",
    });
    assert_eq!(
        through::<glance_api::common::Condition>(&condition),
        condition
    );
}

#[test]
fn a_word_that_no_enumeration_knows_is_refused_with_the_ones_it_knows() {
    let error = serde_json::from_value::<UpgradePhase>(json!("")).unwrap_err();
    assert!(error.to_string().contains("Expanding"), "{error}");
    let error = "Resting".parse::<UpgradePhase>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"Resting\" is not one of Expanding, Migrating, RollingUpdate, Contracting"
    );
}
