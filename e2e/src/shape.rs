//! Comparing an object with what a page says about it.

use serde_json::Value;

/// Where `found` is not as `wanted`, one line per place. Everything in `wanted` must be there;
/// `null` means that nothing may be there; lists have the same length and order. What
/// `wanted` does not name does not matter: servers fill in defaults.
pub fn differences(found: &Value, wanted: &Value) -> Vec<String> {
    let mut complaints = Vec::new();
    compare("", Some(found), wanted, &mut complaints);
    complaints
}

/// Fails unless `found` has all of `wanted` (see [`differences`]).
#[track_caller]
pub fn assert_has(found: &Value, wanted: &Value) {
    let complaints = differences(found, wanted);
    assert!(
        complaints.is_empty(),
        "{} {} is not as its page says:\n{}\n{found:#}",
        found["kind"].as_str().unwrap_or("value"),
        found["metadata"]["name"].as_str().unwrap_or_default(),
        complaints.join("\n")
    );
}

fn compare(path: &str, found: Option<&Value>, wanted: &Value, complaints: &mut Vec<String>) {
    match (found, wanted) {
        (None | Some(Value::Null), Value::Null) => {}
        (Some(found), Value::Null) => complaints.push(format!("{path}: unwanted {found}")),
        (Some(Value::Object(found)), Value::Object(wanted)) => {
            for (key, wanted) in wanted {
                compare(&format!("{path}/{key}"), found.get(key), wanted, complaints);
            }
        }
        (Some(Value::Array(found)), Value::Array(wanted)) if found.len() == wanted.len() => {
            for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
                compare(&format!("{path}/{index}"), Some(found), wanted, complaints);
            }
        }
        (Some(found), wanted) if found == wanted => {}
        (found, wanted) => {
            let found = found.map_or("nothing".to_owned(), Value::to_string);
            complaints.push(format!("{path}: {found}, wanted {wanted}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_of_a_server_do_not_matter_and_all_else_does() {
        let found = json!({ "a": 1, "b": { "c": [{ "d": 1, "default": 2 }] } });
        assert!(differences(&found, &json!({ "b": { "c": [{ "d": 1 }] }, "e": null })).is_empty());
        assert_eq!(
            differences(&found, &json!({ "a": 2, "b": { "c": [], "x": 1 }, "f": 1 })),
            [
                "/a: 1, wanted 2",
                "/b/c: [{\"d\":1,\"default\":2}], wanted []",
                "/b/x: nothing, wanted 1",
                "/f: nothing, wanted 1"
            ]
        );
        assert_eq!(
            differences(&found, &json!({ "a": null })),
            ["/a: unwanted 1"]
        );
    }
}
