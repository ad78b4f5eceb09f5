//! The reasons not to use a kubeconfig, in words that help.

/// What a kubeconfig asks for and does not get. Each names the field, by position and not by the
/// names in the kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A credential plugin: it would run a program in this process's pod.
    #[error(
        "exec and auth-provider credentials are not supported, use a bearer token or a client \
         certificate (found {field})"
    )]
    Plugin {
        /// Where.
        field: String,
    },
    /// A path: it would send files of this process's pod, its own token for example, to a server
    /// of the author's choice.
    #[error(
        "file-backed credentials (tokenFile, client-certificate, client-key, \
         certificate-authority) are not supported, inline the token, certificate and CA data \
         (found {field})"
    )]
    File {
        /// Where.
        field: String,
    },
    /// The server's certificate would not be verified.
    #[error(
        "{field} turns off the verification of the server, put its CA into \
         certificate-authority-data instead"
    )]
    UnverifiedTls {
        /// Where.
        field: String,
    },
    /// The connection would not be encrypted.
    #[error("{field} is not an https URL, use one")]
    PlainHttp {
        /// Where.
        field: String,
    },
    /// A user and password in the URL.
    #[error("{field} contains user info, use a bearer token or a client certificate instead")]
    UserInfo {
        /// Where.
        field: String,
    },
    /// A proxy: it would let the author connect from this process's network to anywhere.
    #[error("{field} is not supported, register an address that can be reached directly")]
    Proxy {
        /// Where.
        field: String,
    },
    /// A user name or password.
    #[error(
        "{field}: user names and passwords are not supported, use a bearer token or a client \
         certificate"
    )]
    Password {
        /// Where.
        field: String,
    },
    /// Acting as somebody else.
    #[error("{field}: impersonation is not supported, use the credential of the account itself")]
    Impersonation {
        /// Where.
        field: String,
    },
    /// A key that is not known here and may mean something elsewhere.
    #[error("{field} is not a key that is supported, remove it")]
    UnknownKey {
        /// Where.
        field: String,
    },
}

/// What is wrong with a kubeconfig that asks for nothing bad.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It is larger than 64 KiB.
    #[error("it is {size} bytes long, more than the {limit} that are read")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// It has no content.
    #[error("it is empty")]
    Empty,
    /// It is not one YAML document.
    #[error("it is not one document of valid YAML (line {line}, column {column})")]
    NotYaml {
        /// Line, from 1; 0 if unknown.
        line: u64,
        /// Column, from 1; 0 if unknown.
        column: u64,
    },
    /// A value has another type than it must have.
    #[error("{field} is not {expected}")]
    WrongType {
        /// Where.
        field: String,
        /// What it must be.
        expected: &'static str,
    },
    /// Two entries of a list have one name.
    #[error("{list} has two entries of one name")]
    Duplicate {
        /// Which list.
        list: &'static str,
    },
    /// The current context is not set.
    #[error("current-context is not set")]
    NoContext,
    /// A name leads nowhere.
    #[error("{field} names no entry of {list}")]
    Dangling {
        /// Where the name stands.
        field: String,
        /// Where it should be defined.
        list: &'static str,
    },
    /// A field that must be there is not.
    #[error("{field} is missing")]
    Missing {
        /// Where.
        field: String,
    },
    /// The user of the current context has nothing to log in with.
    #[error(
        "{field} has neither a token nor a client certificate, put one of them into the kubeconfig"
    )]
    NoCredential {
        /// Where.
        field: String,
    },
    /// Inline data cannot be decoded.
    #[error("{field} is not {expected}")]
    Undecodable {
        /// Where.
        field: String,
        /// What it must be.
        expected: &'static str,
    },
    /// The TLS library does not accept the certificates.
    #[error("the certificates are not usable: {reason}")]
    Tls {
        /// In the library's words.
        reason: String,
    },
}

// === impl Refusal ===

impl Refusal {
    /// Whether it is only insecure, so that an installation may choose to accept it. Plugins,
    /// files and unknown keys never are.
    pub const fn is_insecure(&self) -> bool {
        match self {
            Self::UnverifiedTls { .. }
            | Self::PlainHttp { .. }
            | Self::UserInfo { .. }
            | Self::Proxy { .. }
            | Self::Password { .. }
            | Self::Impersonation { .. } => true,
            Self::Plugin { .. } | Self::File { .. } | Self::UnknownKey { .. } => false,
        }
    }
}
