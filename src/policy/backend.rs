//! The rules of a `GlanceBackend` (contract: custom-resource API, `GlanceBackend` validation).
//!
//! The renderer has its own word on names and options ([`crate::oslo::stores`]), which is the one used here: what is
//! admitted is what can be rendered.

use std::net::IpAddr;

use glance_api::backend::{BucketUrlFormat, GlanceBackend, S3Spec};
use kube::ResourceExt as _;
use url::Url;

use super::catalog;
use super::path::Path;
use super::quote::{cut, quoted};
use super::review::{Findings, Review};
use crate::oslo::stores;

/// Options of a store section that come from elsewhere, and from where.
const OWNED: [(&str, &str); 10] = [
    ("s3_store_host", "spec.s3.host"),
    ("s3_store_bucket", "spec.s3.bucket"),
    ("s3_store_access_key", "spec.s3.credentialsSecretRef"),
    ("s3_store_secret_key", "spec.s3.credentialsSecretRef"),
    ("s3_store_bucket_url_format", "spec.s3.bucketURLFormat"),
    ("s3_store_region_name", "spec.s3.region"),
    ("s3_store_create_bucket_on_put", "spec.s3.createBucketOnPut"),
    ("s3_store_large_object_size", "spec.s3.largeObjectSize"),
    (
        "s3_store_large_object_chunk_size",
        "spec.s3.largeObjectChunkSize",
    ),
    ("store_description", "the operator (store section wiring)"),
];

/// The driver refuses smaller parts, and the whole store with them.
const SMALLEST_CHUNK: i32 = 5;

/// The answer to the creation of a backend. `siblings` are those of its namespace, itself among them or not; they
/// matter while it is the default.
pub fn backend_create(new: &GlanceBackend, siblings: &[GlanceBackend]) -> Review {
    let mut findings = judge(new, siblings);
    advise(new, &mut findings);
    let name = new.name_any();
    if catalog::is_section(&name.to_lowercase()) {
        findings.warn(format!(
            "metadata.name: {} is also a section of Glance's own options, which would be mixed with those of the store",
            quoted(&name)
        ));
    }
    findings.into_review()
}

/// The answer to a change of a backend. One that is being deleted may change in any way.
pub fn backend_update(
    old: &GlanceBackend,
    new: &GlanceBackend,
    siblings: &[GlanceBackend],
) -> Review {
    if new.metadata.deletion_timestamp.is_some() || old.spec == new.spec {
        return Review::default();
    }
    let mut findings = judge(new, siblings);
    advise(new, &mut findings);
    findings.since(judge(old, siblings))
}

/// Every fault of an object by itself and among its siblings.
fn judge(backend: &GlanceBackend, siblings: &[GlanceBackend]) -> Findings {
    let mut findings = Findings::default();
    let spec = Path::new("spec");
    if backend.spec.s3.is_none() {
        findings.invalid(
            &spec.child("s3"),
            backend.spec.type_.as_str(),
            "exactly one backend block matching spec.type must be set (type S3 requires spec.s3)",
        );
    }
    let name = backend.name_any();
    if let Err(fault) = stores::check_name(&name) {
        findings.invalid(&Path::new("metadata.name"), name, fault.to_string());
    }
    if let Some(s3) = &backend.spec.s3 {
        object_store(s3, &spec.child("s3"), &mut findings);
    }
    let options = spec.child("extraOptions");
    for (key, value) in &backend.spec.extra_options {
        option(key, value, &options, &mut findings);
    }
    single_default(backend, siblings, &spec.child("isDefault"), &mut findings);
    findings
}

/// One additional option; its first fault is the one that is told.
fn option(key: &str, value: &str, options: &Path, findings: &mut Findings) {
    let at = options.key(key);
    if key.is_empty() {
        findings.invalid(options, key, "option name must not be empty");
    } else if !stores::is_option_name(key) {
        findings.invalid(
            &at,
            key,
            "option name must match ^[A-Za-z0-9_]+$: it is written to a file as it is",
        );
    } else if let Some((_, owner)) = OWNED.iter().find(|(owned, _)| *owned == key) {
        let detail = format!(
            "option {} is owned by {owner} and must not be set via extraOptions",
            quoted(key)
        );
        findings.invalid(&at, key, detail);
    } else if value.contains(['\n', '\r']) {
        findings.invalid(
            &at,
            value,
            "value must not contain newline or carriage-return characters",
        );
    } else if stores::has_control(value) {
        findings.invalid(&at, value, "value must not contain control characters");
    }
}

fn object_store(s3: &S3Spec, block: &Path, findings: &mut Findings) {
    let texts = [
        ("host", Some(&s3.host)),
        ("bucket", Some(&s3.bucket)),
        ("region", s3.region.as_ref()),
    ];
    for (field, text) in texts {
        if let Some(text) = text.filter(|text| stores::has_control(text)) {
            let detail = "must not contain control characters";
            findings.invalid(&block.child(field), text.as_str(), detail);
        }
    }
    // An empty host is the schema's to refuse.
    if !s3.host.is_empty() && !stores::has_control(&s3.host) {
        match Url::parse(&s3.host) {
            Ok(url) if url.has_host() => {}
            Ok(_) | Err(url::ParseError::EmptyHost) => {
                findings.invalid(
                    &block.child("host"),
                    s3.host.as_str(),
                    "URL must include a host",
                );
            }
            Err(error) => {
                let detail = format!("must be a valid URL: {error}");
                findings.invalid(&block.child("host"), s3.host.as_str(), detail);
            }
        }
    }
    if s3.always_multipart == Some(true) && s3.large_object_size.is_some() {
        findings.invalid(
            &block.child("alwaysMultipart"),
            true,
            "alwaysMultipart and largeObjectSize are mutually exclusive",
        );
    }
    let chunk = s3.large_object_chunk_size;
    if let Some(chunk) = chunk.filter(|chunk| (1..SMALLEST_CHUNK).contains(chunk)) {
        findings.invalid(
            &block.child("largeObjectChunkSize"),
            chunk,
            format!("must be at least {SMALLEST_CHUNK}: S3 takes no part below 5 MiB, and the store would not load"),
        );
    }
}

/// Exactly one store of a Glance is the default one. Siblings that go do not count: their successor may be there
/// before they are gone.
fn single_default(
    backend: &GlanceBackend,
    siblings: &[GlanceBackend],
    field: &Path,
    findings: &mut Findings,
) {
    if backend.spec.is_default != Some(true) {
        return;
    }
    let parent = &backend.spec.glance_ref.name;
    let others = siblings.iter().filter(|other| {
        other.spec.is_default == Some(true)
            && other.spec.glance_ref.name == *parent
            && other.metadata.deletion_timestamp.is_none()
            && other.metadata.name != backend.metadata.name
    });
    for other in others {
        let name = quoted(&other.name_any());
        let detail = format!(
            "GlanceBackend {name} attached to the same Glance {} is already marked isDefault; exactly one default \
             store is allowed: to move the mark, clear it on {name} first, then set it here",
            quoted(&cut(parent))
        );
        findings.invalid(field, true, detail);
    }
}

/// What is admitted and unlikely to be meant.
fn advise(backend: &GlanceBackend, findings: &mut Findings) {
    for key in backend.spec.extra_options.keys() {
        let known = catalog::is_s3_option(key);
        if !known && stores::is_option_name(key) && OWNED.iter().all(|(owned, _)| owned != key) {
            findings.warn(format!(
                "{}: the S3 driver of no release that this operator knows has such an option",
                Path::new("spec.extraOptions").key(key)
            ));
        }
    }
    let Some(s3) = &backend.spec.s3 else {
        return;
    };
    let host = Url::parse(&s3.host).ok();
    let host = host.as_ref().and_then(Url::host_str).unwrap_or_default();
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    if s3.bucket_url_format == Some(BucketUrlFormat::Virtual) && is_address {
        findings.warn(
            "spec.s3.bucketURLFormat: \"virtual\" puts the bucket in front of the host name, and spec.s3.host is an IP \
             address: use \"path\"",
        );
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::Cause;

    fn manifest(name: &str) -> Value {
        json!({
            "apiVersion": "glance.openstack.c5c3.io/v1alpha1", "kind": "GlanceBackend",
            "metadata": { "name": name, "namespace": "tenant" },
            "spec": {
                "glanceRef": { "name": "images" }, "type": "S3",
                "s3": { "host": "https://s3.example.org", "bucket": "images", "credentialsSecretRef": { "name": "s3" } },
            },
        })
    }

    fn object(manifest: Value) -> GlanceBackend {
        serde_json::from_value(manifest).unwrap()
    }

    fn with(pointer: &str, value: Value) -> GlanceBackend {
        let mut manifest = manifest("fast");
        let (parent, leaf) = pointer.rsplit_once('/').unwrap();
        manifest.pointer_mut(parent).unwrap()[leaf] = value;
        object(manifest)
    }

    fn texts(review: &Review) -> Vec<String> {
        review.causes.iter().map(Cause::to_string).collect()
    }

    fn refused(backend: &GlanceBackend) -> Vec<String> {
        texts(&backend_create(backend, &[]))
    }

    #[test]
    fn a_usual_store_is_admitted_without_a_word() {
        let review = backend_create(&object(manifest("fast")), &[]);
        assert_eq!(review, Review::default());
    }

    #[test]
    fn a_type_without_its_block_is_refused() {
        assert_eq!(
            refused(&with("/spec/s3", Value::Null)),
            [
                "spec.s3: Invalid value: \"S3\": exactly one backend block matching spec.type must be set (type S3 requires spec.s3)"
            ]
        );
    }

    #[rstest]
    #[case("default")]
    #[case("Database")]
    #[case("keystone_authtoken")]
    #[case("glance_store")]
    #[case("paste_deploy")]
    #[case("oslo_policy")]
    #[case("os_glance_staging_store")]
    #[case("os_glance_tasks_store")]
    fn a_store_cannot_take_over_a_section_of_glance(#[case] name: &str) {
        assert_eq!(
            refused(&object(manifest(name))),
            [format!(
                "metadata.name: Invalid value: \"{name}\": name \"{name}\" collides with the reserved or operator-managed \
                 Glance store section of the same name"
            )]
        );
    }

    #[rstest]
    #[case("os-glance-foo")]
    #[case("OS_GLANCE_x")]
    fn the_space_of_glances_own_stores_is_closed(#[case] name: &str) {
        let texts = refused(&object(manifest(name)));
        assert!(
            texts[0].contains("name must not use the reserved \"os_glance_\" / \"os-glance-\" store-section prefix"),
            "{texts:?}"
        );
    }

    #[rstest]
    #[case(json!({ "": "x" }), "spec.extraOptions: Invalid value: \"\": option name must not be empty")]
    #[case(json!({ "s3-store": "x" }), "spec.extraOptions[s3-store]: Invalid value: \"s3-store\": option name must match ^[A-Za-z0-9_]+$")]
    #[case(json!({ "s3_store_host ": "x" }), "spec.extraOptions[s3_store_host ]: Invalid value: \"s3_store_host \": option name must match")]
    #[case(json!({ "k": "a\nb" }), "spec.extraOptions[k]: Invalid value: \"a\\nb\": value must not contain newline or carriage-return characters")]
    #[case(json!({ "k": "a\u{1b}b" }), "spec.extraOptions[k]: Invalid value: \"a\\x1bb\": value must not contain control characters")]
    fn an_option_that_would_break_the_file_is_refused(#[case] options: Value, #[case] text: &str) {
        let texts = refused(&with("/spec/extraOptions", options));
        assert!(texts[0].starts_with(text), "{texts:?}");
        assert_eq!(texts.len(), 1);
    }

    #[test]
    fn an_option_of_a_typed_field_names_the_field() {
        for (key, owner) in OWNED {
            let texts = refused(&with("/spec/extraOptions", json!({ key: "x" })));
            assert_eq!(
                texts,
                [format!(
                    "spec.extraOptions[{key}]: Invalid value: \"{key}\": option \"{key}\" is owned by {owner} and must not \
                     be set via extraOptions"
                )]
            );
        }
        assert!(
            refused(&with(
                "/spec/extraOptions",
                json!({ "s3_store_thread_pools": "20" })
            ))
            .is_empty()
        );
    }

    #[rstest]
    #[case("/spec/s3/host", json!("http://:5000"), "spec.s3.host: Invalid value: \"http://:5000\": URL must include a host")]
    #[case("/spec/s3/host", json!("https://s3.example.org:99999"), "spec.s3.host: Invalid value: \"https://s3.example.org:99999\": must be a valid URL: ")]
    #[case("/spec/s3/host", json!("https://s3\n[x]"), "spec.s3.host: Invalid value: \"https://s3\\n[x]\": must not contain control characters")]
    #[case("/spec/s3/bucket", json!("a\rb"), "spec.s3.bucket: Invalid value: \"a\\rb\": must not contain control characters")]
    #[case("/spec/s3/region", json!("a\tb"), "spec.s3.region: Invalid value: \"a\\tb\": must not contain control characters")]
    #[case("/spec/s3/largeObjectChunkSize", json!(4), "spec.s3.largeObjectChunkSize: Invalid value: 4: must be at least 5")]
    fn a_store_that_could_never_work_is_refused(
        #[case] at: &str,
        #[case] value: Value,
        #[case] text: &str,
    ) {
        let texts = refused(&with(at, value));
        assert!(texts.len() == 1 && texts[0].starts_with(text), "{texts:?}");
    }

    #[test]
    fn one_size_of_parts_is_enough() {
        let mut both = manifest("fast");
        both["spec"]["s3"]["alwaysMultipart"] = json!(true);
        both["spec"]["s3"]["largeObjectSize"] = json!(50);
        let texts = refused(&object(both));
        assert!(texts[0].contains("mutually exclusive"), "{texts:?}");
        assert!(refused(&with("/spec/s3/largeObjectChunkSize", json!(5))).is_empty());
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let mut bad = manifest("default");
        bad["spec"]["extraOptions"] = json!({ "b-": "x", "a-": "y" });
        let texts = refused(&object(bad));
        let starts = [
            "metadata.name",
            "spec.extraOptions[a-]",
            "spec.extraOptions[b-]",
        ];
        assert_eq!(texts.len(), starts.len());
        for (text, start) in texts.iter().zip(starts) {
            assert!(text.starts_with(start), "{text}");
        }
    }

    fn default_store(name: &str, parent: &str, going: bool) -> GlanceBackend {
        let mut manifest = manifest(name);
        manifest["spec"]["isDefault"] = json!(true);
        manifest["spec"]["glanceRef"]["name"] = json!(parent);
        if going {
            manifest["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        object(manifest)
    }

    #[test]
    fn a_second_default_is_refused_and_the_way_to_move_the_mark_is_told() {
        let first = default_store("slow", "images", false);
        let review = backend_create(&default_store("fast", "images", false), &[first]);
        assert_eq!(
            texts(&review),
            [
                "spec.isDefault: Invalid value: true: GlanceBackend \"slow\" attached to the same Glance \"images\" is \
              already marked isDefault; exactly one default store is allowed: to move the mark, clear it on \"slow\" \
              first, then set it here"
            ]
        );
    }

    #[rstest]
    #[case::itself(default_store("fast", "images", false))]
    #[case::going(default_store("slow", "images", true))]
    #[case::of_another_glance(default_store("slow", "other", false))]
    fn who_does_not_compete_does_not_count(#[case] sibling: GlanceBackend) {
        let new = default_store("fast", "images", false);
        assert!(backend_create(&new, &[sibling]).is_allowed());
    }

    #[test]
    fn a_second_default_that_slipped_in_does_not_freeze_either() {
        let first = default_store("slow", "images", false);
        let second = default_store("fast", "images", false);
        let mut changed = second.clone();
        changed.spec.s3.as_mut().unwrap().bucket = "other".to_owned();
        assert!(backend_update(&second, &changed, std::slice::from_ref(&first)).is_allowed());
        let mut plain = second.clone();
        plain.spec.is_default = None;
        assert!(!backend_update(&plain, &second, std::slice::from_ref(&first)).is_allowed());
        assert!(backend_update(&second, &plain, &[first]).is_allowed());
    }

    #[test]
    fn an_old_fault_blocks_no_other_change_and_a_new_one_does() {
        let mut old = manifest("default");
        old["spec"]["extraOptions"] = json!({ "b-": "x" });
        let mut new = old.clone();
        new["spec"]["s3"]["bucket"] = json!("other");
        let review = backend_update(&object(old.clone()), &object(new.clone()), &[]);
        assert!(review.is_allowed(), "{:?}", texts(&review));
        new["spec"]["extraOptions"]["c-"] = json!("y");
        let review = backend_update(&object(old.clone()), &object(new.clone()), &[]);
        assert_eq!(review.causes.len(), 1);
        new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(backend_update(&object(old), &object(new), &[]).is_allowed());
    }

    #[test]
    fn what_is_unlikely_to_be_meant_is_said() {
        let review = backend_create(&object(manifest("cors")), &[]);
        assert!(review.is_allowed());
        assert!(
            review.warnings[0].starts_with("metadata.name"),
            "{review:?}"
        );
        let review = backend_create(
            &with("/spec/extraOptions", json!({ "s3_store_treads": "20" })),
            &[],
        );
        assert!(
            review.is_allowed()
                && review.warnings[0].starts_with("spec.extraOptions[s3_store_treads]"),
            "{review:?}"
        );
        let mut address = manifest("fast");
        address["spec"]["s3"]["host"] = json!("http://[fd00::1]:9000");
        address["spec"]["s3"]["bucketURLFormat"] = json!("virtual");
        let review = backend_create(&object(address), &[]);
        assert!(
            review.warnings[0].starts_with("spec.s3.bucketURLFormat"),
            "{review:?}"
        );
    }
}
