//! The case list of the API crate, run against the policy alone.

use serde::de::DeserializeOwned;
use serde_json::Value;

use glance_api::Glance;

use super::{Cause, Review, default_glance, glance_create, glance_update};

#[path = "../../crds/tests/cases/list.rs"]
mod cases;

mod injection;
mod warnings;

use cases::{Case, Expect, Kind, Layer, Setup};

fn read<T: DeserializeOwned>(object: &Value) -> Option<T> {
    serde_json::from_value(object.clone()).ok()
}

/// The object as the mutating webhook leaves it.
fn filled(object: &Value) -> Value {
    let mut object = object.clone();
    let defaults = default_glance(&object);
    json_patch::patch(&mut object, &defaults.patch).unwrap();
    object
}

fn review(case: &Case) -> Option<Review> {
    let new: Glance = read(&filled(&case.new))?;
    Some(match &case.old {
        Some(old) => glance_update(&read(old)?, &new),
        None => glance_create(&new),
    })
}

/// What is wrong with the outcome of a case.
fn complaint(case: &Case) -> Option<String> {
    let review = review(case);
    let texts: Option<Vec<String>> = review
        .as_ref()
        .map(|review| review.causes.iter().map(Cause::to_string).collect());
    let joined = texts.as_ref().map(|texts| texts.join("; "));
    let right = match &case.expect {
        // What the schema refuses need not even be readable.
        Expect::Refused(Layer::Schema | Layer::Cel, _) => true,
        Expect::Refused(Layer::Webhook, fragments) => joined
            .as_ref()
            .is_some_and(|text| fragments.iter().all(|fragment| text.contains(fragment))),
        Expect::Admitted(_) => joined.as_deref() == Some(""),
    };
    (!right).then(|| format!("{}: expected {:?}, got {joined:?}", case.name, case.expect))
}

/// What only a cluster can judge is judged on one, by the same list.
fn is_looked_up(case: &Case) -> bool {
    matches!(&case.expect, Expect::Refused(Layer::Webhook, fragments)
        if fragments.iter().any(|fragment| fragment.contains(": Not found:")))
}

#[test]
fn every_case_of_a_glance_ends_as_the_list_says() {
    let complaints: Vec<String> = cases::all()
        .iter()
        .filter(|case| case.kind == Kind::Glance && case.setup != Setup::WithoutWebhooks)
        .filter(|case| !is_looked_up(case))
        .filter_map(complaint)
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

/// Once it is stored, by whatever way, nothing of it stands in the way of a
/// change elsewhere.
#[test]
fn a_stored_fault_blocks_no_change_elsewhere() {
    for case in cases::all() {
        if case.kind != Kind::Glance {
            continue;
        }
        let Some(old) = read::<Glance>(&case.new) else {
            continue;
        };
        let mut new = old.clone();
        new.metadata.finalizers = Some(Vec::new());
        new.spec.gateway = None;
        let unrelated = new.spec.api_server.get_or_insert_default();
        unrelated.workers = Some(7);
        let review = glance_update(&old, &new);
        assert!(review.is_allowed(), "{}: {:?}", case.name, review.causes);
    }
}
