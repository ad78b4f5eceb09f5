use std::fmt::Write as _;

use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::Time};
use rstest::rstest;

use super::*;
use crate::Cause;

/// Planted into every document; must never come out in an error.
const SECRET: &str = "eyJzZWNyZXQiOjF9SECRET";

fn ca() -> String {
    let key = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).unwrap();
    data_encoding::BASE64.encode(key.cert.pem().as_bytes())
}

fn identity() -> (String, String) {
    let pair = rcgen::generate_simple_self_signed(vec!["user".to_owned()]).unwrap();
    let encode = |pem: String| data_encoding::BASE64.encode(pem.as_bytes());
    (
        encode(pair.cert.pem()),
        encode(pair.signing_key.serialize_pem()),
    )
}

/// A kubeconfig in order, with lines put into its user and its cluster.
fn kubeconfig(user: &str, cluster: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: c\n\
         contexts:\n- name: c\n  context: {{cluster: k, user: u, namespace: ignored}}\n\
         clusters:\n- name: k\n  cluster:\n    server: https://api.example.org:6443\n    \
         certificate-authority-data: {}\n{cluster}\n\
         users:\n- name: u\n  user:\n    token: {SECRET}\n{user}\n",
        ca()
    )
}

fn secret(data: &[(&str, &str)]) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some("blue".to_owned());
    secret.metadata.labels = Some([(REGISTRATION_LABEL.to_owned(), "true".to_owned())].into());
    let data = data
        .iter()
        .map(|(k, v)| ((*k).to_owned(), ByteString(v.as_bytes().to_vec())));
    secret.data = Some(data.collect());
    secret
}

fn judge(kubeconfig: &str) -> Result<Registration, RegistrationError> {
    Registration::from_secret(&secret(&[("kubeconfig", kubeconfig)]), false)
}

fn error(kubeconfig: &str) -> RegistrationError {
    let error = judge(kubeconfig).unwrap_err();
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(!text.contains("SECRET"), "{text}");
    }
    assert!(error.to_string().contains("\"blue\""), "{error}");
    error
}

#[test]
fn a_kubeconfig_in_order_is_taken() {
    let registration = judge(&kubeconfig("", "")).unwrap();
    assert_eq!(registration.name(), "blue");
    assert_eq!(registration.server(), "api.example.org:6443");
    assert_eq!(registration.namespaces(), None);
    assert!(!registration.access.config.accept_invalid_certs);
    assert!(!registration.access.config.default_retry);
    let header = registration.access.credential.as_ref().unwrap();
    assert_eq!(header.to_str().unwrap(), format!("Bearer {SECRET}"));
    assert!(header.is_sensitive());
    assert!(!format!("{registration:?}").contains("SECRET"));
}

#[test]
fn a_client_certificate_is_enough() {
    let (certificate, key) = identity();
    let user = format!("    client-certificate-data: {certificate}\n    client-key-data: {key}");
    let document = kubeconfig(&user, "").replace(&format!("token: {SECRET}"), "token: ''");
    let registration = judge(&document).unwrap();
    assert!(registration.access.credential.is_none());
    assert!(
        registration
            .access
            .config
            .auth_info
            .client_key_data
            .is_some()
    );
}

#[rstest]
#[case("    exec: {command: /bin/true}", "users[0].user.exec")]
#[case("    exec: {}", "users[0].user.exec")]
#[case("    auth-provider: {name: gcp}", "users[0].user.auth-provider")]
fn plugins_are_refused(#[case] user: &str, #[case] field: &str) {
    let error = error(&kubeconfig(user, ""));
    assert_eq!(error.cause(), Cause::CredentialsRefused);
    assert!(!error.keeps_last_good());
    let text = error.to_string();
    let expected = "refusing the kubeconfig of cluster \"blue\": exec and auth-provider credentials \
                    are not supported, use a bearer token or a client certificate";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains(field), "{text}");
}

#[rstest]
#[case(
    "    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
    ""
)]
#[case("    tokenFile: /dev/zero", "")]
#[case("    tokenFile: /nowhere/at/all", "")]
#[case("    client-certificate: /tmp/c", "")]
#[case("    client-key: /tmp/k", "")]
#[case("", "    certificate-authority: /tmp/ca")]
fn paths_are_refused(#[case] user: &str, #[case] cluster: &str) {
    let error = error(&kubeconfig(user, cluster));
    assert_eq!(error.cause(), Cause::CredentialsRefused);
    let expected = "refusing the kubeconfig of cluster \"blue\": file-backed credentials (tokenFile, \
                    client-certificate, client-key, certificate-authority) are not supported, inline \
                    the token, certificate and CA data";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn a_pipe_is_refused_without_being_opened() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    // Opening it would never return.
    error(&kubeconfig(
        &format!("    tokenFile: {}", pipe.display()),
        "",
    ));
}

#[rstest]
#[case("    exec: {command: id}", "")]
#[case("    tokenFile: /x", "")]
#[case("    password: x", "")]
#[case("", "    insecure-skip-tls-verify: true")]
#[case("", "    certificate-authority: /x")]
#[case("", "    Server: https://elsewhere")]
fn entries_that_are_not_current_are_judged_too(#[case] user: &str, #[case] cluster: &str) {
    let mut document = kubeconfig("", "");
    document = document.replace("users:\n", &format!("users:\n- name: z\n  user:\n{user}\n"));
    document = document.replace(
        "clusters:\n",
        &format!("clusters:\n- name: z\n  cluster:\n{cluster}\n"),
    );
    let error = error(&document);
    assert_eq!(error.cause(), Cause::CredentialsRefused, "{error}");
}

#[rstest]
#[case("", "    insecure-skip-tls-verify: true", "insecure-skip-tls-verify")]
#[case("", "    proxy-url: http://proxy:3128", "proxy-url")]
#[case("    username: admin", "", "user.username")]
#[case("    password: SECRET", "", "user.password")]
#[case("    as: admin", "", "user.as:")]
#[case("    as-uid: '1'", "", "user.as-uid")]
#[case("    as-groups: ['system:masters']", "", "user.as-groups")]
#[case("    as-user-extra: {scopes: [x]}", "", "user.as-user-extra")]
fn insecure_things_are_refused_and_may_be_admitted(
    #[case] user: &str,
    #[case] cluster: &str,
    #[case] field: &str,
) {
    let document = kubeconfig(user, cluster);
    let error = error(&document);
    assert_eq!(error.cause(), Cause::CredentialsRefused);
    assert!(error.to_string().contains(field), "{error}");
    let RegistrationError::Refused { refusal, .. } = error else {
        panic!("{error}")
    };
    assert!(refusal.is_insecure());
    let secret = secret(&[("kubeconfig", &document)]);
    Registration::from_secret(&secret, true).unwrap();
}

#[rstest]
#[case("http://api.example.org:6443", "not an https URL")]
#[case("HTTP://api.example.org", "not an https URL")]
#[case("api.example.org:6443", "not an https URL")]
#[case("ftp://api.example.org", "not an https URL")]
#[case("https://user:SECRET@api.example.org", "contains user info")]
#[case("https://SECRET@api.example.org/path", "contains user info")]
fn urls_are_refused(#[case] url: &str, #[case] text: &str) {
    let error = error(&kubeconfig("", "").replace("https://api.example.org:6443", url));
    assert_eq!(error.cause(), Cause::CredentialsRefused);
    assert!(
        error.to_string().contains("clusters[0].cluster.server"),
        "{error}"
    );
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn what_is_admitted_as_insecure_is_used() {
    let user = "    as: admin\n    as-uid: u1\n    as-groups: [a, b]\n    \
                as-user-extra: {scopes: [s]}\n    username: me\n    password: pw";
    let cluster = "    insecure-skip-tls-verify: true\n    proxy-url: http://proxy:3128";
    let document = kubeconfig(user, cluster)
        .replace(&format!("    token: {SECRET}\n"), "")
        .replace("https://api", "http://x:y@api");
    let secret = secret(&[("kubeconfig", &document)]);
    let access = Registration::from_secret(&secret, true).unwrap().access;
    assert!(access.config.accept_invalid_certs);
    assert_eq!(
        access.config.cluster_url.to_string(),
        "http://api.example.org:6443/"
    );
    assert_eq!(
        access.config.proxy_url.unwrap().to_string(),
        "http://proxy:3128/"
    );
    let basic = data_encoding::BASE64.encode(b"me:pw");
    assert_eq!(
        access.credential.unwrap().to_str().unwrap(),
        format!("Basic {basic}")
    );
    let values = |name| {
        let values: Vec<_> = access.headers.get_all(name).iter().collect();
        values
            .into_iter()
            .map(|value| value.to_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(values("impersonate-user"), ["admin"]);
    assert_eq!(values("impersonate-uid"), ["u1"]);
    assert_eq!(values("impersonate-group"), ["a", "b"]);
    assert_eq!(values("impersonate-extra-scopes"), ["s"]);
}

#[rstest]
#[case("    exec: {command: id}", "")]
#[case("    tokenFile: /x", "")]
#[case("    Exec: {command: id}", "")]
#[case("", "    certificate-authority: /x")]
fn admitting_insecure_things_admits_nothing_else(#[case] user: &str, #[case] cluster: &str) {
    let secret = secret(&[("kubeconfig", &kubeconfig(user, cluster))]);
    let error = Registration::from_secret(&secret, true).unwrap_err();
    assert_eq!(error.cause(), Cause::CredentialsRefused);
}

#[rstest]
#[case("    Exec: {command: id}", "", "users[0].user.Exec")]
#[case("    execute: {}", "", "users[0].user.execute")]
#[case("", "    proxyURL: http://x", "clusters[0].cluster.proxyURL")]
#[case("    eyJzZWNyZXQiOjF9SECRET: x", "", "users[0].user.<key not shown>")]
#[case("", "foo: bar", "foo is not a key")]
fn unknown_keys_are_refused(#[case] user: &str, #[case] cluster: &str, #[case] field: &str) {
    let document = if cluster == "foo: bar" {
        format!("{}foo: bar\n", kubeconfig("", ""))
    } else {
        kubeconfig(user, cluster)
    };
    let error = error(&document);
    assert_eq!(error.cause(), Cause::CredentialsRefused);
    assert!(error.to_string().contains(field), "{error}");
}

#[test]
fn a_plugin_behind_an_anchor_a_merge_key_or_a_tag_is_found() {
    for user in [
        "    <<: *plugin",
        "    exec: *command",
        "    !!str exec: !!map {command: id}",
    ] {
        let anchors =
            "extensions:\n- name: x\n  extension: &plugin\n    exec: &command {command: id}\n";
        let error = error(&format!("{anchors}{}", kubeconfig(user, "")));
        let text = error.to_string();
        assert!(
            text.contains("exec and auth-provider") || text.contains("valid YAML"),
            "{text}"
        );
        assert!(
            user.contains("!!") || text.contains("exec and auth-provider"),
            "{text}"
        );
    }
}

#[rstest]
#[case::nothing("# SECRET", "it is empty")]
#[case::null("null", "it is empty")]
#[case::blanked(
    &kubeconfig("", "").replace(&format!("token: {SECRET}"), "token: ''"),
    "neither a token nor a client certificate"
)]
fn what_was_emptied_or_blanked_out_was_withdrawn(#[case] document: &str, #[case] text: &str) {
    let error = error(document);
    assert_eq!(error.cause(), Cause::KubeconfigInvalid);
    assert!(!error.keeps_last_good());
    assert!(error.to_string().contains(text), "{error}");
}

#[rstest]
#[case::words("not a kubeconfig", "not a mapping")]
#[case::list("- a\n- b", "not a mapping")]
#[case::broken("a: [SECRET", "valid YAML")]
#[case::twice("a: 1\na: SECRET", "valid YAML")]
#[case::two("a: 1\n---\nb: SECRET", "valid YAML")]
#[case::binary("\u{0}\u{1}SECRET", "valid YAML")]
#[case::wrong_list("users: SECRET", "users is not a list")]
#[case::wrong_entry("users: [SECRET]", "users[0] is not a mapping")]
#[case::wrong_body("users: [{name: a, user: SECRET}]", "users[0].user is not a mapping")]
#[case::no_context("clusters: []", "current-context is not set")]
#[case::dangling(
    "current-context: SECRET",
    "current-context names no entry of contexts"
)]
#[case::duplicate(
    "users: [{name: SECRET}, {name: SECRET}]",
    "users has two entries of one name"
)]
fn what_is_no_kubeconfig_keeps_the_last_good(#[case] document: &str, #[case] text: &str) {
    let error = error(document);
    assert_eq!(error.cause(), Cause::KubeconfigInvalid);
    assert!(error.keeps_last_good());
    assert!(error.to_string().contains(text), "{error}");
}

#[rstest]
#[case(
    "token: eyJzZWNyZXQiOjF9SECRET",
    "token: ''",
    "users[0].user has neither a token"
)]
#[case(
    "token: eyJzZWNyZXQiOjF9SECRET",
    "token: 12",
    "users[0].user.token is not a text"
)]
#[case(
    "token: eyJzZWNyZXQiOjF9SECRET",
    "token: \"SEC\\u0001RET\"",
    "users[0].user.token is not made"
)]
#[case(
    "token: eyJzZWNyZXQiOjF9SECRET",
    "client-key-data: U0VDUkVU",
    "client-certificate-data is missing"
)]
#[case(
    "token: eyJzZWNyZXQiOjF9SECRET",
    "client-key-data: '%SECRET'",
    "client-key-data is not valid base64"
)]
#[case("user: u,", "", "contexts[0].context.user is missing")]
#[case(
    "user: u,",
    "user: other,",
    "contexts[0].context.user names no entry of users"
)]
#[case(
    "cluster: k,",
    "cluster: other,",
    "contexts[0].context.cluster names no entry of clusters"
)]
#[case(
    "server: https://api.example.org:6443",
    "",
    "clusters[0].cluster.server is missing"
)]
#[case(
    "server: https://api.example.org:6443",
    "server: 'https://a b'",
    "server is not a valid URL"
)]
#[case(
    "server: https",
    "tls-server-name: 'a b'\n    server: https",
    "not a valid host name"
)]
fn faults_name_their_field(#[case] from: &str, #[case] to: &str, #[case] text: &str) {
    let document = kubeconfig("", "");
    assert!(document.contains(from));
    let error = error(&document.replace(from, to));
    assert_eq!(error.cause(), Cause::KubeconfigInvalid, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn certificates_are_tried_before_they_are_needed() {
    let document = kubeconfig("", "");
    let line = document
        .lines()
        .find(|line| line.contains("certificate-authority-data"))
        .unwrap();
    let broken = document.replace(line, "    certificate-authority-data: U0VDUkVU");
    assert!(error(&broken).to_string().contains("not a PEM certificate"));
    let (certificate, _) = identity();
    let (_, other) = identity();
    let user = format!("    client-certificate-data: {certificate}\n    client-key-data: {other}");
    assert!(
        error(&kubeconfig(&user, ""))
            .to_string()
            .contains("certificates are not usable")
    );
}

#[test]
fn a_kubeconfig_of_excessive_size_is_not_even_parsed() {
    let document = format!("{}# {}", kubeconfig("", ""), "x".repeat(64 * 1024));
    let error = error(&document);
    assert!(error.to_string().contains("more than the 65536"), "{error}");
}

#[test]
fn an_alias_bomb_ends_quickly() {
    let mut bomb = "a0: &a0 [x]\n".to_owned();
    for level in 1..30 {
        let previous = format!("*a{}", level - 1);
        let list = vec![previous; 10].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{list}]").unwrap();
    }
    let started = std::time::Instant::now();
    assert_eq!(error(&bomb).cause(), Cause::KubeconfigInvalid);
    assert!(started.elapsed() < std::time::Duration::from_secs(1));
}

#[test]
fn missing_and_empty_kubeconfigs_withdraw_the_credential() {
    for data in [
        &[][..],
        &[("kubeconfig", "")],
        &[("value", "x"), ("namespaces", "")],
    ] {
        let error = Registration::from_secret(&secret(data), false).unwrap_err();
        assert!(
            matches!(error, RegistrationError::KubeconfigMissing { .. }),
            "{error}"
        );
        assert!(!error.keeps_last_good());
        assert_eq!(error.cause(), Cause::KubeconfigInvalid);
    }
}

#[rstest]
#[case("", "namespaces key present but empty")]
#[case("  \n", "namespaces key present but empty")]
#[case("a,,b", "namespaces entry \"\" is not a valid namespace name: ")]
#[case("a,", "namespaces entry \"\" is not a valid namespace name: ")]
#[case("a, B", "namespaces entry \"B\" is not a valid namespace name: ")]
#[case("a.b", "namespaces entry \"a.b\" is not a valid namespace name: ")]
#[case("-a", "namespaces entry \"-a\" is not a valid namespace name: ")]
#[case("a-", "namespaces entry \"a-\" is not a valid namespace name: ")]
fn a_bad_scope_spoils_the_whole_registration(#[case] namespaces: &str, #[case] text: &str) {
    // Also with a kubeconfig that would be refused: the scope is looked at first.
    let secret = secret(&[("kubeconfig", "exec"), ("namespaces", namespaces)]);
    let error = Registration::from_secret(&secret, false).unwrap_err();
    assert!(error.to_string().starts_with(text), "{error}");
    assert_eq!(error.cause(), Cause::NamespacesInvalid);
    assert!(!error.keeps_last_good());
}

#[test]
fn long_labels_are_counted() {
    let fits = "a".repeat(63);
    assert!(is_label(&fits));
    assert!(!is_label(&format!("{fits}a")));
}

fn scoped(namespaces: Option<&str>) -> Registration {
    let document = kubeconfig("", "");
    let mut data = vec![("kubeconfig", document.as_str())];
    data.extend(namespaces.map(|namespaces| ("namespaces", namespaces)));
    Registration::from_secret(&secret(&data), false).unwrap()
}

#[test]
fn scopes_are_trimmed_and_compared() {
    let one = scoped(Some(" a , b,a"));
    assert_eq!(
        one.namespaces().unwrap().iter().collect::<Vec<_>>(),
        ["a", "b"]
    );
    let covers = |now: Option<&str>, before: &Registration| {
        let mut data = vec![("kubeconfig", "not even looked at")];
        data.extend(now.map(|namespaces| ("namespaces", namespaces)));
        let secret = secret(&data);
        Content::read(&secret).unwrap().covers(before)
    };
    assert!(covers(None, &one) && covers(Some("c,b,a"), &one) && covers(None, &scoped(None)));
    assert!(!covers(Some("a"), &one) && !covers(Some("a,b"), &scoped(None)));
}

#[test]
fn the_hash_is_over_the_raw_content() {
    let hash = |kubeconfig: &[u8], namespaces: Option<&[u8]>| {
        ContentHash::of(kubeconfig, namespaces).to_string()
    };
    // printf 'k' | sha256sum; printf 'k\0a' | sha256sum
    assert_eq!(
        hash(b"k", None),
        "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"
    );
    assert_eq!(hash(b"k", Some(b"a")), hash(b"k\0a", None));
    assert_ne!(
        hash(b"k", None),
        hash(b"k", Some(b"")),
        "absent is not empty"
    );
    assert_ne!(hash(b"k", Some(b"a")), hash(b"k", Some(b"a,b")));
}

#[test]
fn only_a_changed_token_keeps_the_connection() {
    let document = kubeconfig("", "");
    let base = judge(&document).unwrap();
    let other = |from: &str, to: &str| judge(&document.replace(from, to)).unwrap();
    assert!(base.same_connection(&other(SECRET, "another")));
    assert!(base.same_connection(&other("preferences: {}\n", "")));
    assert!(!base.same_connection(&other("api.example.org", "api2.example.org")));
    let secret = secret(&[("kubeconfig", &document), ("namespaces", "a")]);
    assert!(!base.same_connection(&Registration::from_secret(&secret, false).unwrap()));
}

#[test]
fn only_the_exact_label_registers() {
    let mut metadata = secret(&[]).metadata;
    assert!(is_registration(&metadata));
    metadata.deletion_timestamp = Some(Time(jiff::Timestamp::now()));
    assert!(!is_registration(&metadata));
    metadata.deletion_timestamp = None;
    for value in ["True", "yes", "", "true "] {
        metadata.labels = Some([(REGISTRATION_LABEL.to_owned(), value.to_owned())].into());
        assert!(!is_registration(&metadata), "{value:?}");
    }
    metadata.labels = None;
    assert!(!is_registration(&metadata));
}
