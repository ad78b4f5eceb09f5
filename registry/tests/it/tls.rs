//! How a secure connection is made.

use std::sync::Arc;

use serde_json::json;
use target_registry::{Cause, State};

use crate::{
    fake::{Fake, kubeconfig},
    rig::{Rig, SHORT},
};

/// A server that completes TLS handshakes and nothing more; tells the protocol that was agreed on.
fn tls_server() -> (String, String, std::sync::mpsc::Receiver<Option<Vec<u8>>>) {
    let pair = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let chain = vec![pair.cert.der().clone()];
    let key = pair.signing_key.serialize_der().try_into().unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (agreed, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut tls = rustls::ServerConnection::new(Arc::new(config.clone())).unwrap();
            while tls.is_handshaking() && tls.complete_io(&mut stream).is_ok() {}
            if agreed
                .send(tls.alpn_protocol().map(<[u8]>::to_vec))
                .is_err()
            {
                return;
            }
        }
    });
    (
        url,
        data_encoding::BASE64.encode(pair.cert.pem().as_bytes()),
        seen,
    )
}

#[tokio::test]
async fn an_unknown_authority_is_named_as_such() {
    let (url, _, _seen) = tls_server();
    let rig = Rig::start(Fake::start());
    rig.register(&[("kubeconfig", &kubeconfig(&url, "good"))]);
    let state = rig.until(State::Lost, Some(Cause::Tls)).await;
    assert!(state.detail.contains("certificate"), "{}", state.detail);
    assert!(!rig.error().may_abandon());
}

#[tokio::test]
async fn http2_is_agreed_on_with_a_verified_server() {
    let (url, ca, seen) = tls_server();
    let rig = Rig::start(Fake::start());
    let other = kubeconfig(&url, "good");
    let mut config: serde_json::Value = serde_json::from_str(&other).unwrap();
    config["clusters"][0]["cluster"]["certificate-authority-data"] = json!(ca);
    rig.register(&[("kubeconfig", &config.to_string())]);
    let agreed = tokio::task::spawn_blocking(move || seen.recv_timeout(SHORT).unwrap());
    assert_eq!(agreed.await.unwrap().as_deref(), Some(&b"h2"[..]));
}
