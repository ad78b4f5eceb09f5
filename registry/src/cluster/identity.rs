//! Who answers, and whether it works.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, core::PartialObjectMeta};

use crate::failure::{error_code, one_line};

/// Who answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// UID of the `kube-system` namespace; `None` when it may not be read.
    pub uid: Option<String>,
    /// Version of the API server; `None` when it may not be asked.
    pub version: Option<String>,
}

/// Asks whether the server works. Who may not ask has been answered all the same.
pub(super) async fn ready(client: &Client) -> Result<(), kube::Error> {
    match text(client, "/readyz").await {
        // Not every proxy in front of an API server lets this path through.
        Err(error) if error_code(&error) == Some(404) => {
            permitted(client.apiserver_version().await)?;
        }
        answer => {
            permitted(answer)?;
        }
    }
    Ok(())
}

async fn text(client: &Client, path: &str) -> Result<String, kube::Error> {
    let request = http::Request::get(path).body(Vec::new());
    client
        .request_text(request.map_err(kube::Error::HttpError)?)
        .await
}

/// `kube-system` and `/version`, side by side.
pub(super) async fn identify(client: &Client) -> Result<Identity, kube::Error> {
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    let (system, version) = tokio::join!(namespaces.get("kube-system"), client.apiserver_version());
    // Both end up in statuses, and a server may say what it likes.
    let uid = permitted(system)?.and_then(|namespace| namespace.metadata.uid);
    let uid = uid.map(|uid| one_line(&uid));
    let version = permitted(version)?.map(|info| one_line(&info.git_version));
    Ok(Identity { uid, version })
}

/// What is forbidden is an open question, not a failure: the credential was accepted. A 404 is one: every API server
/// has both, so something else answers, a proxy whose route is gone as a rule.
fn permitted<T>(answer: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error_code(&error), Some(403)) => Ok(None),
        Err(error) => Err(error),
    }
}
