//! The section of one backend, or why it has none.

use glance_api::{backend::GlanceBackend, glance::Glance};
use kube::ResourceExt;
use secrecy::ExposeSecret;

use crate::{
    cluster::Target,
    oslo::stores::{self, Credentials, SecretPlace, Section, StoreFault},
    pipeline::report::{ErrorKind, StepError},
};

/// Why a backend has no section.
pub enum Fault {
    /// Its credentials may not be read.
    Unreadable(String),
    /// It cannot be rendered as it is.
    Wrong(String),
}

/// One section, or the fault that keeps this backend out.
pub async fn section(
    glance: &Glance,
    target: &Target,
    backend: &GlanceBackend,
) -> Result<Result<Section, Fault>, StepError> {
    let Some(s3) = &backend.spec.s3 else {
        return Ok(Err(Fault::Wrong(StoreFault::NoS3.to_string())));
    };
    let name = &s3.credentials_secret_ref.name;
    let unreadable = |cause: String| {
        let fault = StoreFault::Unreadable {
            namespace: target.namespace().to_owned(),
            name: name.clone(),
            cause,
        };
        Ok(Err(Fault::Wrong(fault.to_string())))
    };
    let payload = match target.payload(name).await {
        Ok(Some(payload)) => payload,
        Ok(None) => return unreadable(format!("secrets \"{name}\" not found")),
        Err(error) if error.kind == ErrorKind::Forbidden => {
            return Ok(Err(Fault::Unreadable(error.message)));
        }
        Err(error) => return Err(error),
    };
    let place = SecretPlace {
        namespace: target.namespace(),
        name,
    };
    let bytes = |key: &str| payload.get(key).map(ExposeSecret::expose_secret);
    Ok(Credentials::read(place, bytes)
        .and_then(|credentials| {
            stores::section(
                &backend.name_any(),
                &backend.spec,
                target.namespace(),
                &credentials,
                &glance.spec.open_stack_release,
            )
        })
        .map_err(|fault| Fault::Wrong(fault.to_string())))
}
