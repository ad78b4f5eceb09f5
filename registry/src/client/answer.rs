//! Answers that say no, in a form that callers can read.

use bytes::Bytes;
use http::{Response, header::CONTENT_LENGTH};
use http_body::Body;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use serde_json::Value;
use tower::BoxError;

/// The longest refusal that is read. What is longer is a page for people, or meant to do harm.
const LONGEST_REFUSAL: usize = 64 * 1024;

/// An answer whose refusal, if it is one, bears the HTTP code that it came with.
///
/// Gateways and proxies in front of an API server refuse in JSON of their own, which `kube` takes for a status of the
/// server's without a code: neither a withdrawn credential nor a missing right would be seen for what it is.
pub(super) async fn explained<B>(
    answer: Response<B>,
) -> Result<Response<Either<B, Full<Bytes>>>, BoxError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let code = answer.status();
    if !code.is_client_error() && !code.is_server_error() {
        return Ok(answer.map(Either::Left));
    }
    let (mut parts, body) = answer.into_parts();
    let body = match Limited::new(body, LONGEST_REFUSAL).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => Bytes::new(),
        Err(error) => return Err(error),
    };
    parts.headers.remove(CONTENT_LENGTH);
    let body = Full::new(with_code(body, code.as_u16()));
    Ok(Response::from_parts(parts, Either::Right(body)))
}

/// The body with the code, where it is JSON that could bear one and does not.
fn with_code(body: Bytes, code: u16) -> Bytes {
    let Ok(Value::Object(mut status)) = serde_json::from_slice(&body) else {
        return body;
    };
    if status.get("code").and_then(Value::as_u64).unwrap_or(0) != 0 {
        return body;
    }
    status.insert("code".to_owned(), code.into());
    if !status.contains_key("message")
        && let Some(words) = status.remove("error").filter(Value::is_string)
    {
        status.insert("message".to_owned(), words);
    }
    serde_json::to_vec(&status).map_or(body, Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(code: u16, body: &str) -> String {
        let body = Full::new(Bytes::from(body.to_owned()));
        let answer = Response::builder().status(code).body(body).unwrap();
        let answer = explained(answer).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn what_a_gateway_refuses_bears_its_code() {
        assert_eq!(
            read(401, r#"{"message":"no"}"#).await,
            r#"{"code":401,"message":"no"}"#
        );
        assert_eq!(
            read(403, r#"{"error":"no"}"#).await,
            r#"{"code":403,"message":"no"}"#
        );
    }

    #[tokio::test]
    async fn what_has_a_code_or_is_no_refusal_stays_as_it_is() {
        for (code, body) in [
            (404, r#"{"kind":"Status","code":404}"#),
            (404, "404 page not found"),
            (503, "[]"),
            (200, r#"{"message":"no"}"#),
        ] {
            assert_eq!(read(code, body).await, body);
        }
    }

    #[tokio::test]
    async fn an_endless_refusal_is_not_read() {
        assert_eq!(read(502, &"x".repeat(LONGEST_REFUSAL + 1)).await, "");
    }
}
