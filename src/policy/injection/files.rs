//! The files of an object, read as their readers read them.
//!
//! The reader is written anew and shares nothing with the writer in [`crate::oslo::ini`]: it follows the parsers of
//! `oslo.config` and of `configparser`, which cut lines at any of three ends, strip names of all that Python calls a
//! blank, and take a line that begins with a blank as more of the one before.

use std::collections::BTreeMap;

use glance_api::{Glance, GlanceBackend};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use crate::oslo::{
    self, Projection, paste,
    stores::{self, Backends, Credentials, SecretPlace},
};
use crate::policy::ownership::{self, Policy};

/// Where an option stands; a section alone has no key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    section: String,
    key: Option<String>,
}

/// How often each section and option is in a file.
pub(super) type Entries = BTreeMap<Entry, usize>;

/// Files by name; one that its reader would not take as the writer meant it says why.
pub(super) type Files = BTreeMap<String, Result<Entries, String>>;

/// Files by name that could be read.
pub(super) type Contents = BTreeMap<String, Entries>;

/// The files of a Glance; nothing when it cannot be read.
pub(super) fn of_glance(object: &Value) -> Option<Result<Files, String>> {
    let glance: Glance = serde_json::from_value(object.clone()).ok()?;
    let stores = Projection {
        enabled_backends: "store:s3".to_owned(),
        default_backend: "store".to_owned(),
    };
    let config = match oslo::render(&glance, &stores, Some("{}")) {
        Ok(config) => config,
        Err(error) => return Some(Err(error.to_string())),
    };
    let files = config.data.iter().map(|(name, text)| {
        let is_policy = name == oslo::policy::KEY;
        let read = if is_policy { policy(text) } else { ini(text) };
        (name.clone(), read)
    });
    Some(Ok(files.collect()))
}

/// The file of one store; nothing when it cannot be read.
pub(super) fn of_backend(object: &Value) -> Option<Result<Files, String>> {
    let backend: GlanceBackend = serde_json::from_value(object.clone()).ok()?;
    let place = SecretPlace {
        namespace: "ns",
        name: "s",
    };
    let credentials =
        Credentials::read(place, |key| (!key.starts_with("ca")).then_some(b"x")).ok()?;
    let name = backend.metadata.name.clone().unwrap_or_default();
    let section = stores::section(&name, &backend.spec, "ns", &credentials, "2026.2");
    Some(match section {
        Ok(section) => {
            let backends = Backends::new([section]);
            let files = backends
                .data
                .iter()
                .map(|(name, text)| (name.clone(), ini(text.expose_secret())));
            Ok(files.collect())
        }
        Err(fault) => Err(fault.to_string()),
    })
}

/// The files with every marker in a name replaced by its text.
pub(super) fn renamed(files: &Files, markers: &[(&str, &str)]) -> Contents {
    let name = |text: &str| {
        let replaced = markers.iter().fold(text.to_owned(), |text, (marker, by)| {
            text.replace(marker, by)
        });
        strip(&replaced).to_owned()
    };
    let mut out = BTreeMap::new();
    for (file, entries) in files {
        let Ok(entries) = entries else { continue };
        let mut found = Entries::new();
        for (entry, count) in entries {
            let section = markers
                .iter()
                .fold(entry.section.clone(), |text, (marker, by)| {
                    text.replace(marker, by)
                });
            let key = entry.key.as_deref().map(name);
            *found.entry(Entry { section, key }).or_default() += count;
        }
        out.insert(file.clone(), found);
    }
    out
}

/// What is in both.
pub(super) fn common(one: &Contents, other: &Contents) -> Contents {
    let both = one.iter().filter_map(|(name, entries)| {
        let others = other.get(name)?;
        let both = entries
            .iter()
            .filter(|(entry, _)| others.contains_key(entry));
        let both = both.map(|(entry, count)| (entry.clone(), *count)).collect();
        Some((name.clone(), both))
    });
    both.collect()
}

/// Whether an entry is one that is left out on purpose: an option that is not the user's, or a filter that the
/// pipeline defines itself.
pub(super) fn is_dropped(entry: &Entry) -> bool {
    let filter = entry.section.strip_prefix("filter:");
    let owned = entry
        .key
        .as_deref()
        .and_then(|key| ownership::owned(&entry.section, key));
    filter.is_some_and(paste::is_filter)
        || owned.is_some_and(|owned| owned.policy == Policy::Rejected)
}

/// An option that Glance reads and that only the operator may set, set once more.
pub(super) fn smuggled(files: &Files) -> Option<String> {
    let entries = files.get("glance-api.conf")?.as_ref().ok()?;
    let rejected = ownership::OWNED_KEYS
        .iter()
        .filter(|owned| owned.policy == Policy::Rejected);
    for owned in rejected {
        let times: usize = entries
            .iter()
            .filter(|(entry, _)| {
                let is_default = entry.section == "DEFAULT" || owned.section == "DEFAULT";
                let section = if is_default {
                    entry.section.clone()
                } else {
                    entry.section.to_lowercase()
                };
                section == owned.section && entry.key.as_deref() == Some(owned.key)
            })
            .map(|(_, count)| count)
            .sum();
        // The password comes by the environment.
        let most = usize::from(owned.key != "password");
        if times > most {
            return Some(format!("[{}] {}", owned.section, owned.key));
        }
    }
    None
}

fn ini(text: &str) -> Result<Entries, String> {
    let mut entries = Entries::new();
    let mut section: Option<String> = None;
    // Python reads lines to any of the three ends.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    for line in text.split('\n') {
        let line = line.trim_end_matches(is_blank);
        if line.is_empty() {
            continue;
        }
        if line.starts_with(is_blank) {
            return Err(format!("{line:?} continues the line before"));
        }
        if line.starts_with(['#', ';']) {
            return Err(format!("{line:?} is a comment"));
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest
                .strip_suffix(']')
                .filter(|name| !name.is_empty() && !name.contains(']'))
                .ok_or_else(|| format!("{line:?} is no section"))?;
            let entry = Entry {
                section: name.to_owned(),
                key: None,
            };
            section = Some(name.to_owned());
            *entries.entry(entry).or_default() += 1;
            continue;
        }
        let section = section
            .clone()
            .ok_or_else(|| format!("{line:?} is in no section"))?;
        let (key, _) = line
            .split_once(['=', ':'])
            .ok_or_else(|| format!("{line:?} is no option"))?;
        let key = strip(key);
        if key.is_empty() {
            return Err(format!("{line:?} has no name"));
        }
        let entry = Entry {
            section,
            key: Some(key.to_owned()),
        };
        *entries.entry(entry).or_default() += 1;
    }
    Ok(entries)
}

/// One rule a line, and all of them texts.
fn policy(text: &str) -> Result<Entries, String> {
    let rules: BTreeMap<String, String> =
        serde_saphyr::from_str(text).map_err(|error| format!("{text:?}: {error}"))?;
    if rules.len() != text.lines().count() {
        return Err(format!("{text:?} has {} rules", rules.len()));
    }
    let entries = rules.into_keys().map(|rule| {
        let entry = Entry {
            section: String::new(),
            key: Some(strip(&rule).to_owned()),
        };
        (entry, 1)
    });
    Ok(entries.collect())
}

fn strip(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// As `str.isspace` of Python, which knows four blanks more than Unicode does.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}
