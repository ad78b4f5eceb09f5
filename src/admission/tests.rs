//! The server as API servers meet it: over TLS, and while it stops.

use std::sync::Arc;

use axum::http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kube::Client;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::Semaphore, task::JoinHandle};

use super::{handshake::connector, *};

const STORE: &str = r#"{
    "apiVersion": "glance.openstack.c5c3.io/v1alpha1", "kind": "GlanceBackend",
    "metadata": { "name": "fast", "namespace": "tenant" },
    "spec": {
        "glanceRef": { "name": "images" }, "type": "S3", "isDefault": true,
        "s3": { "host": "https://s3", "bucket": "b", "credentialsSecretRef": { "name": "s3" } }
    }
}"#;

/// A server whose look-ups wait.
struct Served {
    address: SocketAddr,
    stop: CancellationToken,
    over: JoinHandle<()>,
    /// One permit for each look-up that has come.
    asked: Arc<Semaphore>,
    /// One permit for each look-up that is answered.
    answers: Arc<Semaphore>,
    _folder: tempfile::TempDir,
}

impl Served {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(folder.path().join("tls.crt"), made.cert.pem()).unwrap();
        std::fs::write(
            folder.path().join("tls.key"),
            made.signing_key.serialize_pem(),
        )
        .unwrap();
        let webhooks = Webhooks::open("127.0.0.1:0", folder.path()).await.unwrap();
        let address = webhooks.address();
        let (asked, answers) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let client = {
            let (asked, answers) = (Arc::clone(&asked), Arc::clone(&answers));
            Client::new(
                tower::service_fn(move |request: Request<kube::client::Body>| {
                    let (asked, answers) = (Arc::clone(&asked), Arc::clone(&answers));
                    let is_list = request.uri().path().ends_with("/glancebackends");
                    async move {
                        if is_list {
                            asked.add_permits(1);
                            answers.acquire().await.unwrap().forget();
                        }
                        let list = json!({ "kind": "GlanceBackendList", "metadata": {}, "items": [],
                            "apiVersion": "glance.openstack.c5c3.io/v1alpha1" });
                        let body = kube::client::Body::from(list.to_string().into_bytes());
                        Ok::<_, std::convert::Infallible>(Response::new(body))
                    }
                }),
                "default",
            )
        };
        let lookup = Lookup::new(client, "c5c3-clusters", Arc::default());
        let stop = CancellationToken::new();
        let metrics = Metrics::new().unwrap();
        let token = stop.clone();
        let over = tokio::spawn(async move { webhooks.serve(lookup, &metrics, token).await });
        Self {
            address,
            stop,
            over,
            asked,
            answers,
            _folder: folder,
        }
    }

    async fn connect(&self) -> std::io::Result<SendRequest<Full<bytes::Bytes>>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = connector().unwrap().connect(name, stream).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// The `response` to the creation of a default store.
async fn ask(mut sender: SendRequest<Full<bytes::Bytes>>) -> Value {
    let object: Value = serde_json::from_str(STORE).unwrap();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "operation": "CREATE", "name": "fast", "namespace": "tenant", "userInfo": {},
            "kind": { "group": "glance.openstack.c5c3.io", "version": "v1alpha1", "kind": "GlanceBackend" },
            "resource": { "group": "glance.openstack.c5c3.io", "version": "v1alpha1", "resource": "x" },
            "object": object, "oldObject": null,
        },
    });
    let request = Request::post(Hook::ValidateBackend.path())
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::from(review.to_string()))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let mut answer: Value = serde_json::from_slice(&body).unwrap();
    answer["response"].take()
}

#[tokio::test]
async fn a_stop_lets_late_comers_in_for_a_while_and_cuts_nobody_off() {
    let served = Served::start().await;
    let early = tokio::spawn(ask(served.connect().await.unwrap()));
    served.asked.acquire().await.unwrap().forget();

    // Not every API server knows yet that this replica goes.
    served.stop.cancel();
    let late = tokio::spawn(ask(served.connect().await.unwrap()));
    served.asked.acquire().await.unwrap().forget();

    // Then nobody new comes in, and those that are in are answered.
    let began = std::time::Instant::now();
    while served.connect().await.is_ok() {
        assert!(began.elapsed() < LINGER * 5, "still open");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!early.is_finished() && !late.is_finished() && !served.over.is_finished());
    served.answers.add_permits(2);
    for answer in [early.await.unwrap(), late.await.unwrap()] {
        assert_eq!(
            (&answer["uid"], &answer["allowed"]),
            (&json!("7"), &json!(true)),
            "{answer}"
        );
    }
    served.over.await.unwrap();
}

#[tokio::test]
async fn an_api_server_that_speaks_http_2_is_spoken_to_in_it_and_one_that_does_not_in_the_older() {
    let served = Served::start().await;
    let usual = connector().unwrap();
    for (offered, spoken) in [
        (&[&b"h2"[..], b"http/1.1"][..], Some(&b"h2"[..])),
        (&[&b"http/1.1"[..]][..], Some(&b"http/1.1"[..])),
        (&[][..], None),
    ] {
        let mut config = usual.config().as_ref().clone();
        config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = TcpStream::connect(served.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let (_, session) = stream.get_ref();
        assert_eq!(session.alpn_protocol(), spoken);
    }
}
