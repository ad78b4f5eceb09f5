//! `backends.conf`: one section per store, with its credentials.
//!
//! Faults stay with the store that has them: a section is checked alone, by
//! the same writer that later writes it, so one bad store never keeps the
//! others from being rendered (contract: configuration, backends.conf).

use std::collections::BTreeMap;

use glance_api::backend::GlanceBackendSpec;
use glance_api::defaults;
use secrecy::{ExposeSecret as _, SecretString};

use super::escape;
use super::ini::{self, Ini};
use crate::release::{Release, is_below};

/// Data key of the document.
pub const KEY: &str = "backends.conf";
/// Data key of the access key in a credentials Secret.
pub const ACCESS_KEY_ID: &str = "access-key-id";
/// Data key of the secret key in a credentials Secret.
pub const SECRET_ACCESS_KEY: &str = "secret-access-key";
/// Data key of an optional CA bundle in a credentials Secret.
pub const CA_BUNDLE: &str = "ca.crt";
/// Where the document and the CA bundles beside it are mounted.
pub const DIR: &str = "/etc/glance/backends.conf.d/";

/// Below it, credentials are part of the URLs in the database.
const KEYS_OUT_OF_URLS: Release = Release::new(2026, 2);

/// Names of sections that belong to the operator or to Glance.
const RESERVED: &[&str] = &[
    "default",
    "database",
    "keystone_authtoken",
    "glance_store",
    "paste_deploy",
    "oslo_policy",
    "os_glance_staging_store",
    "os_glance_tasks_store",
];

/// The Secret that holds a store's credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretPlace<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// What a store logs in with.
#[derive(Debug, Clone)]
pub struct Credentials {
    access_key_id: SecretString,
    secret_access_key: SecretString,
    ca_bundle: Option<SecretString>,
}

/// The section of one store, ready to be written.
pub struct Section {
    name: String,
    text: SecretString,
    ca_bundle: Option<SecretString>,
}

/// The data of the backends Secret, and what `glance-api.conf` has to say
/// about it.
#[derive(Debug, Clone)]
pub struct Backends {
    /// Data by key.
    pub data: BTreeMap<String, SecretString>,
    /// The value of `[DEFAULT] enabled_backends`.
    pub enabled: String,
}

/// Why a store is left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// Its Secret could not be read.
    #[error("getting Secret {namespace}/{name}: {cause}")]
    Unreadable {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
        /// What the API server said.
        cause: String,
    },
    /// Its Secret lacks a key, or the key is empty.
    #[error("key not found in Secret: key {key:?} in Secret {namespace}/{name}")]
    MissingKey {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
        /// The key.
        key: &'static str,
    },
    /// A value of its Secret is no text.
    #[error("key {key:?} in Secret {namespace}/{name} is not UTF-8 text")]
    NotText {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
        /// The key.
        key: &'static str,
    },
    /// A text would break the document.
    #[error(
        "[glance_store] option name or value contains a newline or carriage-return character: {place}"
    )]
    ControlCharacter {
        /// Which one, in words.
        place: String,
    },
    /// Glance would store a URL that it cannot read back.
    #[error(
        "{key} contains '@' or ':', which Glance below 2026.2 cannot read back (Secret {namespace}/{name})"
    )]
    UnreadableUrl {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
        /// The key.
        key: &'static str,
    },
    /// It has no settings at all.
    #[error("spec.s3 is not set; no S3 store to render")]
    NoS3,
    /// Its name is that of another section.
    #[error(
        "name {name:?} collides with the reserved or operator-managed Glance store section of the same name"
    )]
    ReservedName {
        /// The name.
        name: String,
    },
    /// Its name is in a space that belongs to Glance.
    #[error(
        "name must not use the reserved \"os_glance_\" / \"os-glance-\" store-section prefix: {name:?}"
    )]
    ReservedPrefix {
        /// The name.
        name: String,
    },
    /// An additional option has a name that is none.
    #[error("option name must match ^[A-Za-z0-9_]+$: {key:?}")]
    OptionName {
        /// The name.
        key: String,
    },
}

/// The entry of a store in `enabled_backends`.
pub fn enabled_entry(name: &str) -> String {
    format!("{name}:s3")
}

/// Renders the section of the store `name`.
///
/// `release` is the release of the Glance it belongs to.
pub fn section(
    name: &str,
    spec: &GlanceBackendSpec,
    namespace: &str,
    credentials: &Credentials,
    release: &str,
) -> Result<Section, StoreFault> {
    check_name(name)?;
    let s3 = spec.s3.as_ref().ok_or(StoreFault::NoS3)?;
    let secret = SecretPlace {
        namespace,
        name: &s3.credentials_secret_ref.name,
    };
    credentials.check(secret, release)?;

    let mut ini = Ini::new();
    let mut set = |key: &str, value: String| ini.set(name, key, value);
    set("s3_store_host", s3.host.clone());
    set("s3_store_bucket", s3.bucket.clone());
    set(
        "s3_store_access_key",
        escape::file_value(credentials.access_key_id.expose_secret()).into_owned(),
    );
    set(
        "s3_store_secret_key",
        escape::file_value(credentials.secret_access_key.expose_secret()).into_owned(),
    );
    set(
        "s3_store_bucket_url_format",
        defaults::bucket_url_format(s3).to_string(),
    );
    if let Some(region) = s3.region.as_ref().filter(|region| !region.is_empty()) {
        set("s3_store_region_name", region.clone());
    }
    if s3.create_bucket_on_put == Some(true) {
        set("s3_store_create_bucket_on_put", "true".to_owned());
    }
    let large = match s3.always_multipart {
        Some(true) => Some(0),
        _ => s3.large_object_size,
    };
    if let Some(size) = large {
        set("s3_store_large_object_size", size.to_string());
    }
    if let Some(size) = s3.large_object_chunk_size {
        set("s3_store_large_object_chunk_size", size.to_string());
    }
    for (key, value) in &spec.extra_options {
        if ini.get(name, key).is_none() {
            ini.set(name, key, value);
        }
    }
    // A user's own path wins: the file may come from the image.
    if credentials.ca_bundle.is_some() && ini.get(name, "s3_store_cacert").is_none() {
        ini.set(name, "s3_store_cacert", format!("{DIR}{}", ca_file(name)));
    }
    check_options(&ini, name, spec)?;
    let text = ini.render().map_err(|error| StoreFault::ControlCharacter {
        place: error.to_string(),
    })?;
    Ok(Section {
        name: name.to_owned(),
        text: SecretString::from(text),
        ca_bundle: credentials.ca_bundle.clone(),
    })
}

/// Whether a store may have this name: it becomes a section beside those of Glance.
pub fn check_name(name: &str) -> Result<(), StoreFault> {
    let lower = name.to_lowercase();
    if RESERVED.contains(&lower.as_str()) {
        return Err(StoreFault::ReservedName {
            name: name.to_owned(),
        });
    }
    if lower.starts_with("os_glance_") || lower.starts_with("os-glance-") {
        return Err(StoreFault::ReservedPrefix {
            name: name.to_owned(),
        });
    }
    Ok(())
}

/// The values of the Secret have been checked before: they are quoted by now.
fn check_options(ini: &Ini, section: &str, spec: &GlanceBackendSpec) -> Result<(), StoreFault> {
    for (_, key) in ini.options() {
        let value = ini.get(section, key).unwrap_or_default();
        let typed = !spec.extra_options.contains_key(key);
        if has_control(key) || has_control(value) {
            let field = if typed {
                "spec.s3"
            } else {
                "spec.extraOptions"
            };
            return Err(StoreFault::ControlCharacter {
                place: format!("option {key:?} of {field}"),
            });
        }
    }
    match spec.extra_options.keys().find(|key| !is_option_name(key)) {
        Some(key) => Err(StoreFault::OptionName { key: key.clone() }),
        None => Ok(()),
    }
}

/// Whether a text can be the name of an option.
pub fn is_option_name(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether a text would not stay on its line, or not stay what it is.
pub fn has_control(text: &str) -> bool {
    text.chars().any(|c| c.is_ascii_control())
}

/// The loader reads `*.conf` only, so this file is left alone.
fn ca_file(name: &str) -> String {
    format!("{name}-{CA_BUNDLE}")
}

// === impl Credentials ===

impl Credentials {
    /// Reads credentials from the data of a Secret. An empty value counts as
    /// missing.
    pub fn read<'a>(
        secret: SecretPlace<'_>,
        data: impl Fn(&str) -> Option<&'a [u8]>,
    ) -> Result<Self, StoreFault> {
        let optional = |key: &'static str| -> Result<Option<SecretString>, StoreFault> {
            let Some(bytes) = data(key).filter(|bytes| !bytes.is_empty()) else {
                return Ok(None);
            };
            match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Some(SecretString::from(text))),
                Err(_) => Err(StoreFault::NotText {
                    namespace: secret.namespace.to_owned(),
                    name: secret.name.to_owned(),
                    key,
                }),
            }
        };
        let required = |key: &'static str| {
            optional(key)?.ok_or_else(|| StoreFault::MissingKey {
                namespace: secret.namespace.to_owned(),
                name: secret.name.to_owned(),
                key,
            })
        };
        Ok(Self {
            access_key_id: required(ACCESS_KEY_ID)?,
            secret_access_key: required(SECRET_ACCESS_KEY)?,
            ca_bundle: optional(CA_BUNDLE)?,
        })
    }

    fn check(&self, secret: SecretPlace<'_>, release: &str) -> Result<(), StoreFault> {
        let keys = [
            (ACCESS_KEY_ID, &self.access_key_id),
            (SECRET_ACCESS_KEY, &self.secret_access_key),
        ];
        for (key, value) in keys {
            let value = value.expose_secret();
            if has_control(value) {
                return Err(StoreFault::ControlCharacter {
                    place: format!(
                        "key {key:?} in Secret {}/{} (a newline at the end is the usual cause)",
                        secret.namespace, secret.name
                    ),
                });
            }
            if value.contains(['@', ':']) && is_below(release, KEYS_OUT_OF_URLS) {
                return Err(StoreFault::UnreadableUrl {
                    namespace: secret.namespace.to_owned(),
                    name: secret.name.to_owned(),
                    key,
                });
            }
        }
        Ok(())
    }
}

// === impl Backends ===

impl Backends {
    /// Joins the sections of a Glance, in the order of their names.
    pub fn new(sections: impl IntoIterator<Item = Section>) -> Self {
        let by_name: BTreeMap<String, Section> = sections
            .into_iter()
            .map(|section| (section.name.clone(), section))
            .collect();
        let mut document = String::new();
        let mut data = BTreeMap::new();
        for section in by_name.values() {
            ini::append(&mut document, section.text.expose_secret());
            if let Some(bundle) = &section.ca_bundle {
                data.insert(ca_file(&section.name), bundle.clone());
            }
        }
        let enabled: Vec<String> = by_name.keys().map(|name| enabled_entry(name)).collect();
        data.insert(KEY.to_owned(), SecretString::from(document));
        Self {
            data,
            enabled: enabled.join(","),
        }
    }
}

#[cfg(test)]
mod tests;
