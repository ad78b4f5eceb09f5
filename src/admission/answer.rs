//! What goes back to the API server.

use data_encoding::BASE64;
use json_patch::PatchOperation;
use kube::core::{
    DynamicObject, Status,
    admission::{AdmissionRequest, META_API_VERSION_V1, META_KIND, PatchType},
    response::{StatusCause, StatusDetails, reason},
};
use serde::Serialize;

use crate::policy::{Cause, CauseKind, Review, quote};

/// API group of both kinds.
const GROUP: &str = "glance.openstack.c5c3.io";

/// The answer to one review.
#[derive(Debug, Default)]
pub struct Answer {
    /// Why it is refused; `None` admits.
    refusal: Option<Status>,
    /// Whether it is refused because something that had to be known could not be found out.
    unjudged: bool,
    patch: Vec<PatchOperation>,
    warnings: Vec<String>,
}

/// A review with its response, as it is sent. Not the client library's type, which writes a patch as a list of numbers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    api_version: String,
    kind: &'static str,
    response: Response,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<PatchType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

// === impl Answer ===

impl Answer {
    /// Admits as it is.
    pub fn admitted() -> Self {
        Self::default()
    }

    /// Admits with changes.
    pub fn patched(patch: Vec<PatchOperation>, warnings: Vec<String>) -> Self {
        Self {
            patch,
            warnings,
            ..Self::default()
        }
    }

    /// What a review of an object says. Warnings are told either way.
    pub fn reviewed(kind: &str, name: &str, review: Review) -> Self {
        let refusal = (!review.causes.is_empty()).then(|| invalid(kind, name, &review.causes));
        let failed = |cause: &Cause| cause.kind == CauseKind::Internal;
        Self {
            refusal,
            unjudged: review.causes.iter().any(failed),
            warnings: review.warnings,
            ..Self::default()
        }
    }

    /// A review that could not be judged.
    pub fn error(code: u16, message: impl Into<String>) -> Self {
        let refusal = Status::failure(&message.into(), reason_of(code)).with_code(code);
        Self {
            refusal: Some(refusal),
            unjudged: true,
            ..Self::default()
        }
    }

    /// In a word, for the metrics.
    pub fn result(&self) -> &'static str {
        match &self.refusal {
            None => "allowed",
            Some(_) if self.unjudged => "error",
            Some(_) => "denied",
        }
    }

    /// In the form of the protocol. Without a request nobody knows which one is answered.
    pub fn into_review(self, request: Option<&AdmissionRequest<DynamicObject>>) -> Reply {
        let mut status = self.refusal;
        let mut patch = None;
        if status.is_none() && !self.patch.is_empty() {
            match serde_json::to_vec(&self.patch) {
                Ok(bytes) => patch = Some(BASE64.encode(&bytes)),
                Err(error) => {
                    status =
                        Some(Status::failure(&error.to_string(), reason_of(500)).with_code(500));
                }
            }
        }
        let version = request.map(|request| request.types.api_version.clone());
        Reply {
            api_version: version.unwrap_or_else(|| META_API_VERSION_V1.to_owned()),
            kind: META_KIND,
            response: Response {
                uid: request
                    .map(|request| request.uid.clone())
                    .unwrap_or_default(),
                allowed: status.is_none(),
                patch_type: patch.as_ref().map(|_| PatchType::JsonPatch),
                patch,
                warnings: self.warnings,
                status,
            },
        }
    }
}

/// As the API server itself refuses an object: clients look at the code and the reason, and some at the causes.
fn invalid(kind: &str, name: &str, causes: &[Cause]) -> Status {
    let mut texts: Vec<String> = Vec::with_capacity(causes.len());
    for cause in causes {
        let text = cause.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let errors = match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let causes = causes
        .iter()
        .map(|cause| StatusCause {
            reason: cause.kind.reason().to_owned(),
            message: cause.body(),
            field: cause.field.clone(),
        })
        .collect();
    let details = StatusDetails {
        name: name.to_owned(),
        group: GROUP.to_owned(),
        kind: kind.to_owned(),
        uid: String::new(),
        causes,
        retry_after_seconds: 0,
    };
    Status::failure(
        &format!(
            "{kind}.{GROUP} {} is invalid: {errors}",
            quote::quoted(name)
        ),
        reason::INVALID,
    )
    .with_code(422)
    .with_details(details)
}

fn reason_of(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        413 => "RequestEntityTooLarge",
        504 => "Timeout",
        _ => "InternalError",
    }
}

#[cfg(test)]
mod tests {
    use kube::core::admission::AdmissionReview;
    use serde_json::{Value, json};

    use super::*;

    fn cause(kind: CauseKind, field: &str, value: Option<&str>, detail: &str) -> Cause {
        Cause {
            kind,
            field: field.to_owned(),
            value: value.map(str::to_owned),
            detail: detail.to_owned(),
        }
    }

    fn request() -> AdmissionRequest<DynamicObject> {
        let review: AdmissionReview<DynamicObject> = serde_json::from_value(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u-1",
                "kind": {"group": GROUP, "version": "v1alpha1", "kind": "Glance"},
                "resource": {"group": GROUP, "version": "v1alpha1", "resource": "glances"},
                "operation": "CREATE", "userInfo": {}, "name": "images",
                "object": {"apiVersion": "glance.openstack.c5c3.io/v1alpha1", "kind": "Glance",
                    "metadata": {"name": "images"}, "spec": {}},
                "oldObject": null,
            },
        }))
        .unwrap();
        review.try_into().unwrap()
    }

    fn json_of(answer: Answer) -> Value {
        serde_json::to_value(answer.into_review(Some(&request()))).unwrap()
    }

    #[test]
    fn a_refusal_reads_like_one_of_the_api_server() {
        let review = Review {
            causes: vec![
                cause(CauseKind::Invalid, "spec.image", Some("{}"), "exactly one"),
                cause(CauseKind::Required, "spec.x", None, "x must be set"),
                cause(CauseKind::Required, "spec.x", None, "x must be set"),
            ],
            warnings: vec!["mind the gap".to_owned()],
        };
        let answer = json_of(Answer::reviewed("Glance", "images", review));
        assert_eq!(
            answer,
            json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {
                    "uid": "u-1", "allowed": false,
                    "warnings": ["mind the gap"],
                    "status": {
                        "status": "Failure", "code": 422, "reason": "Invalid",
                        "message": "Glance.glance.openstack.c5c3.io \"images\" is invalid: \
                            [spec.image: Invalid value: {}: exactly one, spec.x: Required value: x must be set]",
                        "details": {
                            "group": GROUP, "kind": "Glance", "name": "images",
                            "causes": [
                                {"reason": "FieldValueInvalid", "message": "Invalid value: {}: exactly one", "field": "spec.image"},
                                {"reason": "FieldValueRequired", "message": "Required value: x must be set", "field": "spec.x"},
                                {"reason": "FieldValueRequired", "message": "Required value: x must be set", "field": "spec.x"},
                            ],
                        },
                    },
                },
            })
        );
    }

    #[test]
    fn a_single_fault_stands_without_brackets() {
        let review = Review {
            causes: vec![cause(CauseKind::Required, "spec.x", None, "set it")],
            warnings: Vec::new(),
        };
        let answer = json_of(Answer::reviewed("GlanceBackend", "fast", review));
        assert_eq!(
            answer["response"]["status"]["message"],
            "GlanceBackend.glance.openstack.c5c3.io \"fast\" is invalid: spec.x: Required value: set it"
        );
    }

    #[test]
    fn an_object_that_lacks_nothing_gets_no_patch() {
        let answer = json_of(Answer::admitted());
        assert_eq!(answer["response"]["allowed"], true);
        assert!(answer["response"].get("patch").is_none());
        assert!(answer["response"].get("patchType").is_none());
    }
}
