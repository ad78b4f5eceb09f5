//! One named entry of a kubeconfig, and what is made of it.

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::{
    Fault, Refusal,
    document::{PROXY, UNVERIFIED},
};
use crate::client::{basic_auth, basic_auth_of, host_of};

/// A named entry of `clusters`, `users` or `contexts`.
pub(super) struct Entry<'a> {
    /// `users[2].user`
    pub(super) path: String,
    pub(super) name: &'a str,
    pub(super) fields: &'a Map<String, Value>,
}

// === impl Entry ===

impl Entry<'_> {
    /// The first of `keys` whose value is as asked, by its path.
    pub(super) fn first(&self, keys: &[&str], wanted: impl Fn(&Value) -> bool) -> Option<String> {
        let key = keys
            .iter()
            .find(|key| self.fields.get(**key).is_some_and(&wanted))?;
        Some(format!("{}.{key}", self.path))
    }

    pub(super) fn only(&self, known: &[&[&str]]) -> Result<(), Refusal> {
        let unknown = |key: &&String| !known.iter().any(|keys| keys.contains(&key.as_str()));
        match self.fields.keys().find(unknown) {
            Some(key) => Err(Refusal::UnknownKey {
                field: shown(&self.path, key),
            }),
            None => Ok(()),
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, Fault> {
        Ok(text(self.fields, &self.path, key)?.filter(|text| !text.is_empty()))
    }

    /// Inline data: base64 in the kubeconfig.
    pub(super) fn data(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        let compact: String = text.split_ascii_whitespace().collect();
        data_encoding::BASE64
            .decode(compact.as_bytes())
            .map(Some)
            .map_err(|_| Fault::Undecodable {
                field: format!("{}.{key}", self.path),
                expected: "valid base64",
            })
    }

    /// For an entry of `clusters`: where the server is and how it is verified.
    pub(super) fn config(&self) -> Result<kube::Config, Fault> {
        let field = format!("{}.server", self.path);
        let server = self.text("server")?.ok_or(Fault::Missing {
            field: field.clone(),
        })?;
        let not_a_url = || Fault::Undecodable {
            field: field.clone(),
            expected: "a valid URL",
        };
        let url: Uri = server.trim().parse().map_err(|_| not_a_url())?;
        if url.scheme().is_none() || url.host().is_none_or(str::is_empty) {
            return Err(not_a_url());
        }
        // Not by kube's loader, which would also look at the environment of this process.
        let mut config = kube::Config::new(url);
        config.default_retry = false;
        config.accept_invalid_certs = self.fields.get(UNVERIFIED).is_some_and(is_set);
        if let Some(name) = self.text("tls-server-name")? {
            ServerName::try_from(name.to_owned()).map_err(|_| Fault::Undecodable {
                field: format!("{}.tls-server-name", self.path),
                expected: "a valid host name",
            })?;
            config.tls_server_name = Some(name.to_owned());
        }
        if let Some(proxy) = self.text(PROXY)? {
            let field = format!("{}.{PROXY}", self.path);
            let proxy: Option<Uri> = proxy.parse().ok();
            let proxy = proxy.filter(|proxy| proxy.scheme_str() == Some("http"));
            config.proxy_url = Some(proxy.ok_or(Fault::Undecodable {
                field,
                expected: "an http URL",
            })?);
        }
        if let Some(pem) = self.data("certificate-authority-data")? {
            let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            let roots = roots
                .ok()
                .filter(|roots| !roots.is_empty())
                .ok_or_else(|| Fault::Undecodable {
                    field: format!("{}.certificate-authority-data", self.path),
                    expected: "a PEM certificate in base64",
                })?;
            config.root_cert = Some(roots.into_iter().map(|root| root.to_vec()).collect());
        }
        Ok(config)
    }

    /// For an entry of `users`: the client certificate.
    pub(super) fn identify(&self, config: &mut kube::Config) -> Result<(), Fault> {
        let (certificate, key) = ("client-certificate-data", "client-key-data");
        let missing = |key| Fault::Missing {
            field: format!("{}.{key}", self.path),
        };
        match (self.data(certificate)?, self.data(key)?) {
            (None, None) => Ok(()),
            (Some(_), None) => Err(missing(key)),
            (None, Some(_)) => Err(missing(certificate)),
            (Some(chain), Some(secret)) => {
                let encode = |bytes: &[u8]| data_encoding::BASE64.encode(bytes);
                config.auth_info.client_certificate_data = Some(encode(&chain));
                config.auth_info.client_key_data = Some(SecretString::from(encode(&secret)));
                Ok(())
            }
        }
    }

    /// For an entry of `users`: the `Authorization` header. A token goes before a password, and
    /// that before one in the URL.
    pub(super) fn credential(&self, server: &Uri) -> Result<Option<HeaderValue>, Fault> {
        let sendable = |key: &str| Fault::Undecodable {
            field: format!("{}.{key}", self.path),
            expected: "made of characters that can be sent",
        };
        if let Some(token) = self
            .text("token")?
            .map(str::trim)
            .filter(|token| !token.is_empty())
        {
            let header = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut header = header.map_err(|_| sendable("token"))?;
            header.set_sensitive(true);
            return Ok(Some(header));
        }
        if let Some(user) = self.text("username")? {
            let password = self.text("password")?.unwrap_or_default();
            return basic_auth(user, password)
                .map(Some)
                .ok_or_else(|| sendable("password"));
        }
        Ok(basic_auth_of(server))
    }

    /// For an entry of `users`: the headers that make the server act as somebody else.
    pub(super) fn impersonation(&self) -> Result<HeaderMap, Fault> {
        let mut headers = HeaderMap::new();
        let mut add = |name: &str, value: &Value, key: &str| {
            let field = || format!("{}.{key}", self.path);
            let value = value
                .as_str()
                .ok_or_else(|| wrong_type(&field(), "a text"))?;
            let unsendable = || Fault::Undecodable {
                field: field(),
                expected: "made of characters that can be sent",
            };
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unsendable())?;
            headers.append(
                name,
                HeaderValue::from_str(value).map_err(|_| unsendable())?,
            );
            Ok::<_, Fault>(())
        };
        for (key, name) in [("as", "impersonate-user"), ("as-uid", "impersonate-uid")] {
            if let Some(value) = self.fields.get(key).filter(|value| is_set(value)) {
                add(name, value, key)?;
            }
        }
        for group in self
            .fields
            .get("as-groups")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            add("impersonate-group", group, "as-groups")?;
        }
        let extra = self.fields.get("as-user-extra").and_then(Value::as_object);
        for (name, values) in extra.into_iter().flatten() {
            for value in values.as_array().into_iter().flatten() {
                add(&format!("impersonate-extra-{name}"), value, "as-user-extra")?;
            }
        }
        Ok(headers)
    }
}

/// Whether a field says anything: null, false and empty texts and lists do not.
pub(super) fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Number(_) => true,
    }
}

pub(super) fn text<'a>(
    fields: &'a Map<String, Value>,
    path: &str,
    key: &str,
) -> Result<Option<&'a str>, Fault> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong_type(&joined(path, key), "a text")),
    }
}

pub(super) fn wrong_type(field: &str, expected: &'static str) -> Fault {
    Fault::WrongType {
        field: field.to_owned(),
        expected,
    }
}

pub(super) fn joined(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// The path of an unknown key. The key itself only if it looks like one: where a document is
/// mangled, anything may stand in the place of a key, a token too.
pub(super) fn shown(path: &str, key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-' || byte == b'_';
    if key.len() <= 32 && key.bytes().all(plain) {
        joined(path, key)
    } else {
        joined(path, "<key not shown>")
    }
}

pub(super) fn without_user_info(url: &Uri) -> Uri {
    if url
        .authority()
        .is_none_or(|authority| !authority.as_str().contains('@'))
    {
        return url.clone();
    }
    let scheme = url.scheme_str().unwrap_or("https");
    format!("{scheme}://{}{}", host_of(url), url.path())
        .parse()
        .unwrap_or_default()
}
