//! Whose an object is: a controller reference on the hub, three labels and the hub mark on a target.
//!
//! A reference to an object of another cluster would make that cluster's garbage collector delete the child, so a
//! placed child has none (contract: target clusters, ownership).

use glance_api::{
    GROUP,
    glance::Glance,
    keys::{annotations, labels},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::pipeline::report::{ErrorKind, StepError};

/// Longest value of a label.
const LABEL_MAX: usize = 63;
/// The kind that owns.
pub const OWNER_KIND: &str = "Glance";

/// On which side of the registry the children are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The cluster that holds the CR.
    Local,
    /// A registered target.
    Remote,
}

/// The Glance a pass works for.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Its name.
    pub name: String,
    /// Its namespace, and that of all children.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Where the children are.
    pub placement: Placement,
    /// Who this hub is, when we know.
    pub hub_uid: Option<String>,
    /// The hub whose children of this Glance are taken over, where a person has said so.
    pub adopts_from: Option<String>,
}

/// What an existing object says about its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is this Glance's.
    Mine,
    /// It is not marked as this Glance's, but may be: on the hub nobody controls it; on a target it bears this CR's
    /// UID and has lost its labels, or the mark of a hub that is to be inherited from. Marked again when it is wanted, and left alone by every delete.
    Unmarked,
    /// It carries our labels, but the mark of another hub.
    OtherHub(String),
    /// It is somebody else's, or nobody's.
    Foreign,
}

// === impl Owner ===

impl Owner {
    /// The owner a Glance is.
    pub fn of(glance: &Glance, placement: Placement, hub_uid: Option<String>) -> Self {
        let meta = &glance.metadata;
        Self {
            name: meta.name.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            placement,
            hub_uid,
            adopts_from: meta
                .annotations
                .as_ref()
                .and_then(|all| all.get(annotations::ADOPT_FROM_HUB).cloned()),
        }
    }

    /// Marks `object` as a child of this Glance.
    pub fn stamp(&self, object: &mut Value) {
        let meta = &mut object["metadata"];
        meta["namespace"] = json!(self.namespace);
        match self.placement {
            Placement::Local => {
                meta["ownerReferences"] = json!([{
                    "apiVersion": format!("{GROUP}/v1alpha1"),
                    "kind": OWNER_KIND,
                    "name": self.name,
                    "uid": self.uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }]);
            }
            Placement::Remote => {
                meta["labels"][labels::OWNER_KIND] = json!(OWNER_KIND);
                meta["labels"][labels::OWNER_NAME] = json!(self.name);
                meta["labels"][labels::OWNER_NAMESPACE] = json!(self.namespace);
                meta["annotations"][annotations::OWNER_UID] = json!(self.uid);
                if let Some(hub) = &self.hub_uid {
                    meta["annotations"][annotations::HUB_UID] = json!(hub);
                }
            }
        }
    }

    /// Whether an object in the CR's namespace is this Glance's.
    pub fn claim(&self, meta: &ObjectMeta) -> Claim {
        let reference = controller(meta);
        let controlled = reference.is_some_and(|reference| reference.uid == self.uid);
        match self.placement {
            Placement::Local if controlled => Claim::Mine,
            Placement::Local if reference.is_none() => Claim::Unmarked,
            Placement::Local => Claim::Foreign,
            Placement::Remote => {
                let labelled = self.is_labelled(meta);
                let mark = |key| meta.annotations.as_ref()?.get(key);
                let hub = mark(annotations::HUB_UID);
                match (labelled, hub, &self.hub_uid) {
                    (true, Some(_), Some(_)) if self.inherits(meta) => Claim::Unmarked,
                    (true, Some(hub), Some(ours)) if hub != ours => Claim::OtherHub(hub.clone()),
                    // Who we are is not known: only what this very Glance made is safely ours.
                    (true, Some(hub), None) if mark(annotations::OWNER_UID) != Some(&self.uid) => {
                        Claim::OtherHub(hub.clone())
                    }
                    (true, _, _) => Claim::Mine,
                    (false, _, _) if controlled => Claim::Mine,
                    (false, hub, ours)
                        if hub == ours.as_ref()
                            && mark(annotations::OWNER_UID) == Some(&self.uid) =>
                    {
                        Claim::Unmarked
                    }
                    (false, _, _) => Claim::Foreign,
                }
            }
        }
    }

    /// Whether an object is to be taken over from another hub.
    pub fn inherits(&self, meta: &ObjectMeta) -> bool {
        if self.adopts_from.is_none() {
            return false;
        }
        let marks = meta.annotations.as_ref();
        let hub = marks.and_then(|all| all.get(annotations::HUB_UID));
        self.placement == Placement::Remote
            && hub == self.adopts_from.as_ref()
            && hub != self.hub_uid.as_ref()
            && self.is_labelled(meta)
    }

    /// Whether an object goes with this Glance.
    pub fn may_delete(&self, meta: &ObjectMeta) -> bool {
        self.claim(meta) == Claim::Mine || self.inherits(meta)
    }

    fn is_labelled(&self, meta: &ObjectMeta) -> bool {
        // The name first: among many Glances it tells most.
        label(meta, labels::OWNER_NAME) == Some(&self.name)
            && label(meta, labels::OWNER_NAMESPACE) == Some(&self.namespace)
            && label(meta, labels::OWNER_KIND) == Some(OWNER_KIND)
    }

    /// Whether an object was certainly left by this very Glance: also when another of its name exists by now.
    pub fn has_left(&self, meta: &ObjectMeta) -> bool {
        let mark = |key| meta.annotations.as_ref()?.get(key);
        self.claim(meta) == Claim::Mine
            && mark(annotations::OWNER_UID) == Some(&self.uid)
            && mark(annotations::HUB_UID) == self.hub_uid.as_ref()
    }

    /// The patch that marks an object as a child of this Glance; what else it says about itself stays.
    pub fn mark(&self, meta: &ObjectMeta) -> Value {
        let mut patch = json!({ "metadata": { "uid": meta.uid } });
        self.stamp(&mut patch);
        if let Some(references) = patch["metadata"]["ownerReferences"].as_array_mut() {
            // A merge patch replaces the list, so it carries the references of others as well.
            let others = meta.owner_references.iter().flatten();
            references.extend(
                others
                    .filter(|other| other.uid != self.uid)
                    .filter_map(|other| serde_json::to_value(other).ok()),
            );
        }
        patch
    }

    /// Refuses a name that cannot be recorded as an ownership label. Local children carry no such label.
    pub fn check_name(&self, kind: &str, child: &str) -> Result<(), StepError> {
        if self.placement == Placement::Local || self.name.len() <= LABEL_MAX {
            return Ok(());
        }
        Err(StepError::new(
            ErrorKind::Refused,
            format!(
                "refusing to claim {kind} {}/{child} for {OWNER_KIND} {}: the owner's name is {} characters, and a \
                 name a child records as an ownership label may not exceed {LABEL_MAX}",
                self.namespace,
                self.name,
                self.name.len()
            ),
        ))
    }

    /// The refusal to take over an object that is not this Glance's.
    pub fn refuse(&self, kind: &str, child: &str, claim: &Claim) -> StepError {
        let text = match claim {
            Claim::OtherHub(hub) => format!(
                "refusing to write {kind} {}/{child}: its mark says that it belongs to the hub {hub}; one target \
                 namespace belongs to one hub. If this hub takes the place of that one, annotate the Glance with \
                 {}={hub}",
                self.namespace,
                annotations::ADOPT_FROM_HUB
            ),
            _ => format!(
                "refusing to adopt pre-existing {kind} {}/{child}: it was not created by this {OWNER_KIND}, so \
                 adopting it would overwrite its spec and delete it at teardown",
                self.namespace
            ),
        };
        StepError::new(ErrorKind::Refused, text)
    }
}

/// The controller reference of an object.
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|reference| reference.controller == Some(true))
}

/// The Glance that a child on the hub belongs to, by its controller reference (any version of the group).
pub fn local_owner(meta: &ObjectMeta) -> Option<(String, String)> {
    let reference = controller(meta)?;
    let group = reference.api_version.split('/').next()?;
    (reference.kind == OWNER_KIND && group == GROUP).then(|| {
        (
            meta.namespace.clone().unwrap_or_default(),
            reference.name.clone(),
        )
    })
}

/// The Glance that a child on a target belongs to, by its labels; only in the namespace the labels name.
pub fn remote_owner(meta: &ObjectMeta) -> Option<(String, String)> {
    let namespace = label(meta, labels::OWNER_NAMESPACE)?;
    let name = label(meta, labels::OWNER_NAME)?;
    let matches = label(meta, labels::OWNER_KIND) == Some(OWNER_KIND)
        && !name.is_empty()
        && meta.namespace.as_deref() == Some(namespace);
    matches.then(|| (namespace.to_owned(), name.to_owned()))
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(placement: Placement) -> Owner {
        Owner {
            name: "images".into(),
            namespace: "tenant".into(),
            uid: "uid-1".into(),
            placement,
            hub_uid: Some("hub-1".into()),
            adopts_from: None,
        }
    }

    fn meta(object: &Value) -> ObjectMeta {
        serde_json::from_value(object["metadata"].clone()).unwrap()
    }

    fn stamped(placement: Placement) -> Value {
        let mut object = json!({"metadata": {"name": "images", "labels": {"a": "b"}}});
        owner(placement).stamp(&mut object);
        object
    }

    #[test]
    fn a_local_child_has_a_controller_reference_and_no_mark() {
        let object = stamped(Placement::Local);
        let meta = meta(&object);
        assert_eq!(owner(Placement::Local).claim(&meta), Claim::Mine);
        assert_eq!(local_owner(&meta), Some(("tenant".into(), "images".into())));
        assert_eq!(meta.labels.unwrap().len(), 1);
        assert!(meta.annotations.is_none());
        let reference = &meta.owner_references.unwrap()[0];
        assert_eq!(reference.block_owner_deletion, Some(true));
    }

    #[test]
    fn a_placed_child_has_labels_and_marks_and_no_reference() {
        let object = stamped(Placement::Remote);
        let meta = meta(&object);
        assert_eq!(owner(Placement::Remote).claim(&meta), Claim::Mine);
        assert_eq!(
            remote_owner(&meta),
            Some(("tenant".into(), "images".into()))
        );
        assert!(meta.owner_references.is_none());
        let annotations = meta.annotations.unwrap();
        assert_eq!(annotations["openstack.c5c3.io/hub-uid"], "hub-1");
        assert_eq!(annotations["openstack.c5c3.io/owner-uid"], "uid-1");
    }

    #[test]
    fn every_label_counts_and_so_does_the_hub() {
        for key in [
            labels::OWNER_KIND,
            labels::OWNER_NAME,
            labels::OWNER_NAMESPACE,
        ] {
            let mut object = stamped(Placement::Remote);
            object["metadata"]["labels"][key] = json!("other");
            object["metadata"]["annotations"][annotations::OWNER_UID] = json!("uid-2");
            assert_eq!(
                owner(Placement::Remote).claim(&meta(&object)),
                Claim::Foreign
            );
            assert_eq!(
                remote_owner(&meta(&object)).is_some(),
                key == labels::OWNER_NAME,
                "{key}"
            );
        }
        let mut object = stamped(Placement::Remote);
        object["metadata"]["annotations"][annotations::HUB_UID] = json!("hub-2");
        assert_eq!(
            owner(Placement::Remote).claim(&meta(&object)),
            Claim::OtherHub("hub-2".into())
        );
    }

    #[test]
    fn a_hub_that_was_built_anew_takes_over_what_the_one_before_left_and_nothing_else() {
        let mut object = stamped(Placement::Remote);
        object["metadata"]["annotations"][annotations::HUB_UID] = json!("hub-0");
        let mut heir = owner(Placement::Remote);
        heir.uid = "uid-2".into();
        assert!(!heir.may_delete(&meta(&object)));
        heir.adopts_from = Some("hub-0".into());
        assert_eq!(heir.claim(&meta(&object)), Claim::Unmarked);
        assert!(heir.may_delete(&meta(&object)));
        let patch = heir.mark(&meta(&object));
        assert_eq!(heir.claim(&meta(&patch)), Claim::Mine);
        assert_eq!(
            patch["metadata"]["annotations"][annotations::HUB_UID],
            "hub-1"
        );
        object["metadata"]["annotations"][annotations::HUB_UID] = json!("hub-2");
        assert_eq!(
            heir.claim(&meta(&object)),
            Claim::OtherHub("hub-2".into()),
            "of a third one"
        );
        object["metadata"]["annotations"][annotations::HUB_UID] = json!("hub-0");
        object["metadata"]["labels"][labels::OWNER_NAME] = json!("other");
        assert_eq!(heir.claim(&meta(&object)), Claim::Foreign);
        assert!(!heir.may_delete(&meta(&object)));
        heir.adopts_from = Some("hub-1".into());
        let own = meta(&stamped(Placement::Remote));
        assert_eq!(heir.claim(&own), Claim::Mine, "of this very hub");
    }

    #[test]
    fn a_child_that_lost_its_labels_is_known_by_the_uid_it_bears() {
        let mut object = stamped(Placement::Remote);
        object["metadata"]["labels"] = json!({"a": "b"});
        let claim = |object: &Value| owner(Placement::Remote).claim(&meta(object));
        assert_eq!(claim(&object), Claim::Unmarked);
        let patch = owner(Placement::Remote).mark(&meta(&object));
        assert_eq!(owner(Placement::Remote).claim(&meta(&patch)), Claim::Mine);
        object["metadata"]["annotations"][annotations::OWNER_UID] = json!("uid-2");
        assert_eq!(claim(&object), Claim::Foreign, "a namesake from before");
        object["metadata"]["annotations"] =
            json!({annotations::OWNER_UID: "uid-1", annotations::HUB_UID: "hub-2"});
        assert_eq!(claim(&object), Claim::Foreign, "of another hub");
    }

    #[test]
    fn on_the_hub_an_object_without_controller_may_be_taken_and_keeps_its_other_owners() {
        let owned_by = |controller: bool| {
            meta(&json!({"metadata": {"name": "images", "ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "uid-x",
                "controller": controller,
            }]}}))
        };
        let owner = owner(Placement::Local);
        assert_eq!(owner.claim(&owned_by(true)), Claim::Foreign);
        assert_eq!(owner.claim(&owned_by(false)), Claim::Unmarked);
        let marked = meta(&owner.mark(&owned_by(false)));
        assert_eq!(owner.claim(&marked), Claim::Mine);
        assert_eq!(marked.owner_references.unwrap().len(), 2);
    }

    #[test]
    fn a_child_of_an_older_operator_is_known_by_its_reference_and_a_missing_mark_is_no_obstacle() {
        let object = stamped(Placement::Local);
        assert_eq!(owner(Placement::Remote).claim(&meta(&object)), Claim::Mine);
        let mut object = stamped(Placement::Remote);
        object["metadata"]["annotations"] = json!({});
        assert_eq!(owner(Placement::Remote).claim(&meta(&object)), Claim::Mine);
    }

    #[test]
    fn a_label_outside_its_namespace_means_nothing() {
        let mut object = stamped(Placement::Remote);
        object["metadata"]["namespace"] = json!("elsewhere");
        assert_eq!(remote_owner(&meta(&object)), None);
    }

    #[test]
    fn a_name_that_no_label_can_hold_is_refused_on_targets_only() {
        let mut long = owner(Placement::Remote);
        long.name = "x".repeat(64);
        let error = long.check_name("Service", "svc").unwrap_err();
        assert!(
            error
                .message
                .starts_with("refusing to claim Service tenant/svc for Glance xxx")
        );
        assert!(error.message.ends_with("the owner's name is 64 characters, and a name a child records as an ownership label may not exceed 63"));
        long.placement = Placement::Local;
        assert!(long.check_name("Service", "svc").is_ok());
    }
}
