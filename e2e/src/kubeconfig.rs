//! Kubeconfig documents as text, the form in which people and registrations hold them.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use secrecy::{ExposeSecret as _, SecretString};

use crate::certificates::Pair;

/// Who logs in.
#[derive(Debug, Clone)]
pub enum Login {
    /// A bearer token.
    Token(SecretString),
    /// A client certificate.
    Certificate(Pair),
}

/// A document with one cluster, one user and one context.
pub fn document(name: &str, server: &str, authority: &str, login: &Login) -> String {
    let user = match login {
        Login::Token(token) => format!("token: {}", token.expose_secret()),
        Login::Certificate(pair) => format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            BASE64_STANDARD.encode(&pair.certificate),
            BASE64_STANDARD.encode(&pair.key)
        ),
    };
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {name}
  cluster:
    server: {server}
    certificate-authority-data: {}
users:
- name: {name}
  user:
    {user}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {name}
current-context: {name}
",
        BASE64_STANDARD.encode(authority)
    )
}
