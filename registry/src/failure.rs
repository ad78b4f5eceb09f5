//! One place that says what an error of a call to an API server means.

use std::error::Error as StdError;

use serde::Serialize;

use crate::client::DeadlineExceeded;

/// Why a registration is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub enum Cause {
    /// The `kubeconfig` key is missing, empty or not a kubeconfig.
    KubeconfigInvalid,
    /// The `namespaces` key is present and not a list of namespace names.
    NamespacesInvalid,
    /// The kubeconfig asks for something that is refused for security.
    CredentialsRefused,
    /// The API server does not accept the credential (HTTP 401).
    Unauthorized,
    /// No secure connection: an unknown authority, a wrong name, an expired certificate.
    Tls,
    /// No answer in time.
    Timeout,
    /// The server refuses connections.
    ConnectionRefused,
    /// Any other failure on the way: name resolution, reset connections, HTTP errors.
    Unreachable,
    /// The server asked to be left alone for a while (HTTP 429).
    Throttled,
    /// The credential ends soon, and is not renewed in time.
    CredentialExpiring,
    /// The credential may not do all that the cluster is used for.
    MissingPermissions,
    /// The name leads to another cluster than it did before.
    IdentityChanged,
    /// The namespace of who asks may not use the cluster.
    NotGranted,
    /// Nothing may be written to the cluster for the time being.
    Paused,
}

// === impl Cause ===

impl Cause {
    /// Whether the content of the Secret is at fault: only a new write to it can help.
    pub const fn is_content(self) -> bool {
        matches!(
            self,
            Self::KubeconfigInvalid | Self::NamespacesInvalid | Self::CredentialsRefused
        )
    }

    /// Whether the credential is what falls short, and the cluster answers all the same.
    pub const fn is_shortcoming(self) -> bool {
        matches!(self, Self::CredentialExpiring | Self::MissingPermissions)
    }

    /// What an error of a call says about the cluster that was asked.
    ///
    /// ```
    /// use target_registry::Cause;
    ///
    /// let refused = kube::core::Status::failure("no", "Unauthorized").with_code(401).boxed();
    /// assert_eq!(Cause::of(&kube::Error::Api(refused)), Cause::Unauthorized);
    /// ```
    pub fn of(error: &kube::Error) -> Self {
        cause_of(error)
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KubeconfigInvalid => "KubeconfigInvalid",
            Self::NamespacesInvalid => "NamespacesInvalid",
            Self::CredentialsRefused => "CredentialsRefused",
            Self::Unauthorized => "Unauthorized",
            Self::Tls => "Tls",
            Self::Timeout => "Timeout",
            Self::ConnectionRefused => "ConnectionRefused",
            Self::Unreachable => "Unreachable",
            Self::Throttled => "Throttled",
            Self::CredentialExpiring => "CredentialExpiring",
            Self::MissingPermissions => "MissingPermissions",
            Self::IdentityChanged => "IdentityChanged",
            Self::NotGranted => "NotGranted",
            Self::Paused => "Paused",
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// HTTP status an API server answered with, if it was the server that said no.
///
/// Always ask this and never `Status::is_not_found()` and its like: for an answer that is not
/// JSON, such as the 404 of an unknown API group, those say no.
///
/// ```
/// use target_registry::error_code;
///
/// let gone = kube::core::Status::failure("404 page not found", "").with_code(404).boxed();
/// assert_eq!(error_code(&kube::Error::Api(gone)), Some(404));
/// ```
pub fn error_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// What an error of a call means for the cluster.
pub(crate) fn cause_of(error: &kube::Error) -> Cause {
    match error_code(error) {
        Some(401) => return Cause::Unauthorized,
        Some(429) => return Cause::Throttled,
        Some(408 | 504) => return Cause::Timeout,
        Some(_) => return Cause::Unreachable,
        None => {}
    }
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<DeadlineExceeded>() {
            return Cause::Timeout;
        }
        if error.is::<rustls::Error>() {
            return Cause::Tls;
        }
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            match io.kind() {
                std::io::ErrorKind::TimedOut => return Cause::Timeout,
                std::io::ErrorKind::ConnectionRefused => return Cause::ConnectionRefused,
                _ => {}
            }
        }
        next = within(error);
    }
    Cause::Unreachable
}

/// The error another one wraps. An `io::Error` does not give it as its source, only the source of
/// that one.
fn within<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error
        .downcast_ref::<std::io::Error>()
        .and_then(|io| io.get_ref())
    {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

/// The error of this type that is behind another one.
pub(crate) fn cause<E: StdError + 'static>(error: &kube::Error) -> Option<&E> {
    let mut next = Some(error as &(dyn StdError + 'static));
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = within(error);
    }
    None
}

/// The longest text of somebody else's that is passed on, in characters.
const LONGEST_TEXT: usize = 512;

/// What a server said, as one line of bounded length: it may be a whole page of a proxy, or meant to
/// do harm to a terminal or to a status that has to stay small.
pub fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_control() || c.is_whitespace());
    let mut line = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > LONGEST_TEXT {
            break;
        }
    }
    if line.chars().count() > LONGEST_TEXT {
        line = line.chars().take(LONGEST_TEXT - 1).collect();
        line.push('…');
    }
    line
}

/// An error of a call as one line for people, of bounded length: kube's own text repeats the status
/// it wraps, and a transport error hides the interesting part in its sources.
pub fn error_text(error: &kube::Error) -> String {
    one_line(&whole_text(error))
}

fn whole_text(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        if status.message.trim().is_empty() {
            return format!("HTTP {}", status.code);
        }
        return status.message.trim().to_owned();
    }
    let mut text = String::new();
    let mut next: Option<&(dyn StdError + 'static)> = match error {
        // Says nothing of its own.
        kube::Error::Service(inner) => Some(inner.as_ref()),
        error => Some(error),
    };
    while let Some(error) = next {
        let part = error.to_string();
        // Wrappers commonly repeat what they wrap; say it once, the innermost part last.
        if !text.contains(&part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
        next = within(error);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use kube::core::Status;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(401, Cause::Unauthorized)]
    #[case(429, Cause::Throttled)]
    #[case(504, Cause::Timeout)]
    #[case(403, Cause::Unreachable)]
    #[case(500, Cause::Unreachable)]
    fn the_code_of_an_answer_decides(#[case] code: u16, #[case] cause: Cause) {
        let status = Status::failure(" why \n", "Whatever").with_code(code);
        let error = kube::Error::Api(status.boxed());
        assert_eq!((error_code(&error), cause_of(&error)), (Some(code), cause));
        assert_eq!(error_text(&error), "why");
    }

    #[test]
    fn a_page_of_a_proxy_is_cut_to_one_line() {
        let page = format!("<html>\r\n\u{1b}[2J bad gateway {}", "é".repeat(100_000));
        let status = Status::failure(&page, "Whatever").with_code(502);
        let text = error_text(&kube::Error::Api(status.boxed()));
        assert!(text.starts_with("<html> [2J bad gateway é"), "{text}");
        assert_eq!(text.chars().count(), LONGEST_TEXT);
        assert!(!text.contains(char::is_control));
        assert_eq!(one_line(" as it  is\n"), "as it is");
    }

    #[test]
    fn the_innermost_error_decides_and_is_said_once() {
        let inner = io::Error::new(io::ErrorKind::ConnectionRefused, "refused");
        let error = kube::Error::Service(Box::new(inner));
        assert_eq!(
            (error_code(&error), cause_of(&error)),
            (None, Cause::ConnectionRefused)
        );
        assert_eq!(error_text(&error), "refused");
        let error = kube::Error::Service(DeadlineExceeded(Duration::from_secs(10)).into());
        assert_eq!(cause_of(&error), Cause::Timeout);
        assert_eq!(
            error_text(&error),
            "no answer from the API server within 10s"
        );
        let inner = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError);
        assert_eq!(cause_of(&kube::Error::Service(Box::new(inner))), Cause::Tls);
        let inner = io::Error::other(io::Error::new(
            io::ErrorKind::InvalidData,
            rustls::Error::DecryptError,
        ));
        assert_eq!(cause_of(&kube::Error::Service(Box::new(inner))), Cause::Tls);
        let inner = io::Error::other("reset");
        assert_eq!(
            cause_of(&kube::Error::ReadEvents(inner)),
            Cause::Unreachable
        );
    }
}
