use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::hash::{ContentHash, sha256_hex};
use crate::names::Family;
use crate::oslo::fixture::backend;

const SECRET: SecretPlace<'static> = SecretPlace {
    namespace: "openstack",
    name: "glance-s3",
};

fn credentials(access: &str, secret: &str) -> Credentials {
    read(&[(ACCESS_KEY_ID, access), (SECRET_ACCESS_KEY, secret)]).unwrap()
}

fn read(data: &[(&str, &str)]) -> Result<Credentials, StoreFault> {
    Credentials::read(SECRET, |key| {
        data.iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.as_bytes())
    })
}

fn render(name: &str, changes: &Value, credentials: &Credentials) -> Result<String, StoreFault> {
    section(name, &backend(changes), "openstack", credentials, "2025.2")
        .map(|section| section.text.expose_secret().to_owned())
}

fn plain(changes: &Value) -> Result<String, StoreFault> {
    render("s", changes, &credentials("AKIAEXAMPLE", "example-secret"))
}

#[test]
fn the_document_is_that_of_the_contract() {
    let section = section(
        "glance-basic-s3",
        &backend(&json!({})),
        "openstack",
        &credentials("AKIAEXAMPLE", "example-secret"),
        "2025.2",
    )
    .unwrap();
    let backends = Backends::new([section]);
    assert_eq!(backends.enabled, "glance-basic-s3:s3");
    assert_eq!(backends.data.keys().collect::<Vec<_>>(), [KEY]);
    let text = backends.data[KEY].expose_secret();
    assert_eq!(text.len(), 254);
    assert_eq!(
        sha256_hex(text),
        "cb52bd05f62a46633727c5a0c6b2cfa7c6979b1648616c9ea9e9a905f534382c"
    );
    assert_eq!(
        Family::backends("glance-basic").revision(&ContentHash::of_secret(&backends.data)),
        "glance-basic-backends-8b6eaadb"
    );
}

#[test]
fn stores_are_in_the_order_of_their_names() {
    let keys = credentials("a", "b");
    let minimal = json!({ "s3": { "region": null } });
    let make = |name| section(name, &backend(&minimal), "openstack", &keys, "2025.2").unwrap();
    let backends = Backends::new([make("b"), make("a")]);
    assert_eq!(backends.enabled, "a:s3,b:s3");
    let text = |name: &str| {
        format!(
            "[{name}]\ns3_store_access_key = a\ns3_store_bucket = glance-images\n\
             s3_store_bucket_url_format = path\ns3_store_host = http://garage.shared-services.svc.cluster.local:3900\n\
             s3_store_secret_key = b\n"
        )
    };
    assert_eq!(
        backends.data[KEY].expose_secret(),
        format!("{}\n{}", text("a"), text("b"))
    );
}

#[test]
fn no_stores_are_an_empty_document() {
    let backends = Backends::new([]);
    assert_eq!(backends.enabled, "");
    assert_eq!(backends.data[KEY].expose_secret(), "");
}

#[test]
fn every_field_has_its_option() {
    let text = plain(&json!({
        "s3": {
            "bucketURLFormat": "virtual",
            "createBucketOnPut": true,
            "largeObjectSize": 200,
            "largeObjectChunkSize": 20,
        },
        "extraOptions": { "s3_store_thread_pools": "20", "s3_store_bucket": "not-this" },
    }))
    .unwrap();
    assert_eq!(
        text,
        "[s]\n\
         s3_store_access_key = AKIAEXAMPLE\n\
         s3_store_bucket = glance-images\n\
         s3_store_bucket_url_format = virtual\n\
         s3_store_create_bucket_on_put = true\n\
         s3_store_host = http://garage.shared-services.svc.cluster.local:3900\n\
         s3_store_large_object_chunk_size = 20\n\
         s3_store_large_object_size = 200\n\
         s3_store_region_name = garage\n\
         s3_store_secret_key = example-secret\n\
         s3_store_thread_pools = 20\n"
    );
}

#[rstest]
#[case(json!({ "s3": { "createBucketOnPut": false } }), "create_bucket_on_put")]
#[case(json!({ "s3": { "region": "" } }), "region_name")]
#[case(json!({}), "large_object")]
fn an_unset_option_is_left_to_the_driver(#[case] changes: Value, #[case] option: &str) {
    assert!(!plain(&changes).unwrap().contains(option));
}

#[test]
fn always_multipart_is_a_size_of_zero() {
    let text = plain(&json!({ "s3": { "alwaysMultipart": true } })).unwrap();
    assert!(
        text.contains("\ns3_store_large_object_size = 0\n"),
        "{text}"
    );
    let text = plain(&json!({ "s3": { "alwaysMultipart": false, "largeObjectSize": 7 } }));
    assert!(text.unwrap().contains("\ns3_store_large_object_size = 7\n"));
}

#[test]
fn a_default_switch_leaves_the_document_alone() {
    assert_eq!(plain(&json!({ "isDefault": false })), plain(&json!({})));
}

#[test]
fn a_key_with_a_dollar_or_quotes_arrives_unchanged() {
    let text = render("s", &json!({}), &credentials("ab$cd", " \"q\" ")).unwrap();
    assert!(
        text.contains("\ns3_store_access_key = ab$$cd\n")
            || text.contains("[s]\ns3_store_access_key = ab$$cd\n"),
        "{text}"
    );
    assert!(
        text.contains("\ns3_store_secret_key = \" \"q\" \"\n"),
        "{text}"
    );
    // A user's own text is left as it is.
    let text = plain(&json!({ "extraOptions": { "x": "$y" } })).unwrap();
    assert!(text.contains("\nx = $y\n"), "{text}");
}

#[test]
fn a_ca_bundle_is_a_file_beside_the_document() {
    let keys = read(&[
        (ACCESS_KEY_ID, "a"),
        (SECRET_ACCESS_KEY, "b"),
        (CA_BUNDLE, "-----BEGIN CERTIFICATE-----\n"),
    ])
    .unwrap();
    let section = section("s", &backend(&json!({})), "openstack", &keys, "2025.2").unwrap();
    let backends = Backends::new([section]);
    assert!(
        backends.data[KEY]
            .expose_secret()
            .contains("s3_store_cacert = /etc/glance/backends.conf.d/s-ca.crt\n")
    );
    assert_eq!(
        backends.data["s-ca.crt"].expose_secret(),
        "-----BEGIN CERTIFICATE-----\n"
    );
    let own = json!({ "extraOptions": { "s3_store_cacert": "/etc/ssl/own.crt" } });
    assert!(
        render("s", &own, &keys)
            .unwrap()
            .contains("s3_store_cacert = /etc/ssl/own.crt\n")
    );
}

#[rstest]
#[case(&[], ACCESS_KEY_ID)]
#[case(&[(ACCESS_KEY_ID, "a")], SECRET_ACCESS_KEY)]
#[case(&[(SECRET_ACCESS_KEY, "b")], ACCESS_KEY_ID)]
#[case(&[(ACCESS_KEY_ID, ""), (SECRET_ACCESS_KEY, "b")], ACCESS_KEY_ID)]
#[case(&[(ACCESS_KEY_ID, "a"), (SECRET_ACCESS_KEY, "")], SECRET_ACCESS_KEY)]
fn a_missing_or_empty_key_is_named(#[case] data: &[(&str, &str)], #[case] key: &str) {
    assert_eq!(
        read(data).unwrap_err().to_string(),
        format!("key not found in Secret: key \"{key}\" in Secret openstack/glance-s3")
    );
}

#[test]
fn a_key_that_is_no_text_is_named() {
    let fault = Credentials::read(SECRET, |key| {
        Some(if key == ACCESS_KEY_ID { b"a" } else { b"\xff" })
    })
    .unwrap_err();
    assert_eq!(
        fault.to_string(),
        "key \"secret-access-key\" in Secret openstack/glance-s3 is not UTF-8 text"
    );
}

#[test]
fn a_secret_that_cannot_be_read_is_named() {
    let fault = StoreFault::Unreadable {
        namespace: "openstack".into(),
        name: "glance-s3".into(),
        cause: "secrets \"glance-s3\" not found".into(),
    };
    assert_eq!(
        fault.to_string(),
        "getting Secret openstack/glance-s3: secrets \"glance-s3\" not found"
    );
}

const CONTROL: &str =
    "[glance_store] option name or value contains a newline or carriage-return character";

#[rstest]
#[case("a\n", "b", ACCESS_KEY_ID)]
#[case("a", "b\r\n", SECRET_ACCESS_KEY)]
#[case("a", "b\t", SECRET_ACCESS_KEY)]
#[case("a", "b\u{7f}", SECRET_ACCESS_KEY)]
#[case("a", "b\0", SECRET_ACCESS_KEY)]
fn a_control_character_in_a_credential_names_secret_and_key(
    #[case] access: &str,
    #[case] secret: &str,
    #[case] key: &str,
) {
    let fault = render("s", &json!({}), &credentials(access, secret)).unwrap_err();
    assert_eq!(
        fault.to_string(),
        format!(
            "{CONTROL}: key \"{key}\" in Secret openstack/glance-s3 (a newline at the end is the usual cause)"
        )
    );
}

#[rstest]
#[case(json!({ "s3": { "bucket": "b\n[DEFAULT]" } }), "option \"s3_store_bucket\" of spec.s3")]
#[case(json!({ "s3": { "host": "http://x\u{1}" } }), "option \"s3_store_host\" of spec.s3")]
#[case(json!({ "extraOptions": { "x": "v\ny = z" } }), "option \"x\" of spec.extraOptions")]
#[case(json!({ "extraOptions": { "x\n": "v" } }), "option \"x\\n\" of spec.extraOptions")]
fn a_control_character_in_the_resource_names_the_option(
    #[case] changes: Value,
    #[case] place: &str,
) {
    let fault = plain(&changes).unwrap_err();
    assert_eq!(fault.to_string(), format!("{CONTROL}: {place}"));
}

#[rstest]
#[case("")]
#[case("a-b")]
#[case("s3_store_secret_key ")]
#[case("a=b")]
#[case("[x")]
fn an_option_name_that_admission_would_refuse_is_a_fault(#[case] key: &str) {
    let fault = plain(&json!({ "extraOptions": { key: "v" } })).unwrap_err();
    assert_eq!(
        fault.to_string(),
        format!("option name must match ^[A-Za-z0-9_]+$: {key:?}")
    );
}

#[rstest]
#[case("a@b", "c", ACCESS_KEY_ID)]
#[case("a", "b:c", SECRET_ACCESS_KEY)]
#[case("a", "b@c", SECRET_ACCESS_KEY)]
fn a_key_that_breaks_the_stored_url_is_a_fault_below_2026_2(
    #[case] access: &str,
    #[case] secret: &str,
    #[case] key: &str,
) {
    let keys = credentials(access, secret);
    let spec = backend(&json!({}));
    for release in ["2025.2", "2026.1", "latest"] {
        let fault = section("s", &spec, "openstack", &keys, release)
            .err()
            .unwrap();
        assert_eq!(
            fault.to_string(),
            format!(
                "{key} contains '@' or ':', which Glance below 2026.2 cannot read back (Secret openstack/glance-s3)"
            )
        );
    }
    assert!(section("s", &spec, "openstack", &keys, "2026.2").is_ok());
}

#[test]
fn a_store_without_its_block_is_a_fault_of_that_store() {
    assert_eq!(
        plain(&json!({ "s3": null })).unwrap_err().to_string(),
        "spec.s3 is not set; no S3 store to render"
    );
}

#[rstest]
#[case("default")]
#[case("Default")]
#[case("database")]
#[case("keystone_authtoken")]
#[case("glance_store")]
#[case("paste_deploy")]
#[case("oslo_policy")]
#[case("os_glance_staging_store")]
#[case("os_glance_tasks_store")]
fn a_store_cannot_take_a_section_of_glance(#[case] name: &str) {
    let fault = render(name, &json!({}), &credentials("a", "b")).unwrap_err();
    assert_eq!(
        fault.to_string(),
        format!(
            "name \"{name}\" collides with the reserved or operator-managed Glance store section of the same name"
        )
    );
}

#[rstest]
#[case("os-glance-x")]
#[case("os_glance_x")]
fn a_store_cannot_take_a_name_of_glance_s_own_stores(#[case] name: &str) {
    let fault = render(name, &json!({}), &credentials("a", "b")).unwrap_err();
    assert!(fault.to_string().starts_with(
        "name must not use the reserved \"os_glance_\" / \"os-glance-\" store-section prefix"
    ));
}

#[test]
fn credentials_are_in_no_debug_form_and_no_fault() {
    let keys = credentials("hunter2\n", "hunter2:x");
    let fault = render("s", &json!({}), &keys).unwrap_err();
    let good = credentials("hunter2", "hunter2");
    let section = section("s", &backend(&json!({})), "openstack", &good, "2025.2").unwrap();
    let texts = format!("{keys:?} {fault:?} {fault} {:?}", Backends::new([section]));
    assert!(!texts.contains("hunter2"), "{texts}");
}
