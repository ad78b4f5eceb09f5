//! The property that no text of a resource adds a line or a section to a rendered file, as a function.
//!
//! The unit tests and the fuzz target in `fuzz/` both ask it, so that there is one definition of what holds. The texts
//! are not listed by hand: [`Kind`] finds them in the schemas of both kinds, values and keys of maps alike, so a new
//! field is in here with the day it exists. The files are rendered as they would be for an object that no webhook has
//! seen, and read back as their readers in Python read them.

mod files;
mod places;
mod sample;

use std::collections::BTreeMap;

use glance_api::{Glance, GlanceBackend};
use serde_json::Value;

use files::{Contents, Files};
pub use places::Place;

use super::{Cause, backend_create, glance_create};

/// One kind of resource: a sample with everything in it, the places of its texts, and how its files are rendered.
#[derive(Debug)]
pub struct Kind {
    /// An object with everything in it.
    pub sample: Value,
    /// Every place that takes a text.
    pub places: Vec<Place>,
    render: fn(&Value) -> Option<Result<Files, String>>,
    judge: fn(&Value) -> Result<Vec<Cause>, serde_json::Error>,
}

/// What is left of a case when the object cannot be read or rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The files hold what they should and nothing else.
    Rendered,
    /// There are no files, and admission refuses the object too.
    Refused,
}

/// What may be in the files.
struct Expected {
    /// What is in those of every harmless object.
    required: Contents,
    /// What is in those of any, and how often at most.
    allowed: Contents,
}

/// Texts that harmless users type; the files of any of them show what may be in a file at all.
const HARMLESS: [&str; 6] = ["", "x", "2031.1", "1Gi", "http://x", "@daily"];

// === impl Kind ===

impl Kind {
    /// Glance and `GlanceBackend`.
    pub fn all() -> Result<[Self; 2], glance_api::schema::SchemaError> {
        Ok([Self::glance()?, Self::backend()?])
    }

    /// The kind `Glance`.
    pub fn glance() -> Result<Self, glance_api::schema::SchemaError> {
        let (sample, places) = sample::glance()?;
        Ok(Self {
            sample,
            places,
            render: files::of_glance,
            judge: |object| {
                let glance: Glance = serde_json::from_value(object.clone())?;
                Ok(glance_create(&glance).causes)
            },
        })
    }

    /// The kind `GlanceBackend`.
    pub fn backend() -> Result<Self, glance_api::schema::SchemaError> {
        let (sample, places) = sample::backend()?;
        Ok(Self {
            sample,
            places,
            render: files::of_backend,
            judge: |object| {
                let backend: GlanceBackend = serde_json::from_value(object.clone())?;
                Ok(backend_create(&backend, &[]).causes)
            },
        })
    }

    /// Whether these texts stay what they are: the files have exactly the sections and options that harmless texts at
    /// the same places give them, no option that users must not set is set by them, and whatever the policy admits can
    /// be rendered. The error says which of it does not hold.
    pub fn check(&self, texts: &[(&Place, &str)]) -> Result<Outcome, String> {
        let places: Vec<&Place> = texts.iter().map(|(place, _)| *place).collect();
        self.compare(texts, &self.plain(&places))
    }

    /// The same for one text after the other at one place.
    pub fn check_each(&self, place: &Place, texts: &[&str]) -> Result<(), String> {
        let plain = self.plain(&[place]);
        texts.iter().try_for_each(|text| {
            let outcome = self.compare(&[(place, text)], &plain);
            outcome
                .map(|_| ())
                .map_err(|fault| format!("{place:?} {text:?}: {fault}"))
        })
    }

    /// The same for what a fuzzer makes up: for each text a byte that chooses the place, one for the length, and the
    /// text itself.
    pub fn check_bytes(&self, mut bytes: &[u8]) -> Result<Outcome, String> {
        let mut chosen: BTreeMap<&Place, String> = BTreeMap::new();
        while let [place, length, rest @ ..] = bytes {
            let (text, rest) = rest.split_at(usize::from(*length).min(rest.len()));
            if let Some(place) = self
                .places
                .get(usize::from(*place) % self.places.len().max(1))
            {
                chosen.insert(place, String::from_utf8_lossy(text).into_owned());
            }
            bytes = rest;
        }
        let texts: Vec<(&Place, &str)> = chosen
            .iter()
            .map(|(place, text)| (*place, text.as_str()))
            .collect();
        self.check(&texts)
            .map_err(|fault| format!("{texts:?}: {fault}"))
    }

    fn compare(&self, texts: &[(&Place, &str)], plain: &[Files]) -> Result<Outcome, String> {
        let object = places::with_all(&self.sample, texts);
        let files = match (self.render)(&object) {
            Some(Ok(files)) => files,
            Some(Err(error)) if self.admits(&object) => {
                return Err(format!("admitted, and cannot be rendered: {error}"));
            }
            _ => return Ok(Outcome::Refused),
        };
        let Expected { required, allowed } = Expected::of(plain, texts);
        for (name, file) in &files {
            let file = file.as_ref().map_err(|fault| format!("{name}: {fault}"))?;
            let allowed = allowed
                .get(name)
                .ok_or_else(|| format!("{name}: a file that no other text brings"))?;
            for (entry, count) in file {
                let most = allowed.get(entry).copied().unwrap_or_default();
                if *count > most {
                    return Err(format!("{name}: {entry:?} {count} times, and not {most}"));
                }
            }
        }
        for (name, file) in &required {
            let found = files.get(name).and_then(|file| file.as_ref().ok());
            let missing = file.keys().find(|entry| {
                !found.is_some_and(|found| found.contains_key(*entry)) && !files::is_dropped(entry)
            });
            if let Some(entry) = missing {
                return Err(format!("{name}: {entry:?} is lost"));
            }
        }
        if self.admits(&object)
            && let Some(option) = files::smuggled(&files)
        {
            return Err(format!("admitted, and {option} is not the user's to set"));
        }
        Ok(Outcome::Rendered)
    }

    /// The files with harmless texts at these places, a marker where a text becomes a name.
    fn plain(&self, places: &[&Place]) -> Vec<Files> {
        let markers: Vec<String> = (0..places.len()).map(marker).collect();
        let variants = HARMLESS.map(Some).into_iter().chain([None]);
        let files = variants.filter_map(|harmless| {
            let texts: Vec<(&Place, &str)> = places
                .iter()
                .zip(&markers)
                .map(|(place, marker)| {
                    let text = harmless.filter(|_| !place.is_named());
                    (*place, text.unwrap_or(marker))
                })
                .collect();
            (self.render)(&places::with_all(&self.sample, &texts))?.ok()
        });
        files.collect()
    }

    /// Whether the API server and the policy let the object in.
    fn admits(&self, object: &Value) -> bool {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        sample::is_object_name(name) && (self.judge)(object).is_ok_and(|causes| causes.is_empty())
    }
}

fn marker(number: usize) -> String {
    format!("zq{number}qz")
}

// === impl Expected ===

impl Expected {
    /// From the files of harmless objects; names stand under the texts that were put at their places.
    fn of(plain: &[Files], texts: &[(&Place, &str)]) -> Self {
        let markers: Vec<String> = (0..texts.len()).map(marker).collect();
        let names: Vec<(&str, &str)> = markers
            .iter()
            .zip(texts)
            .map(|(marker, (_, text))| (marker.as_str(), *text))
            .collect();
        let mut required: Option<Contents> = None;
        let mut allowed = Contents::new();
        for files in plain {
            let files = files::renamed(files, &names);
            for (name, entries) in &files {
                let known = allowed.entry(name.clone()).or_default();
                for (entry, count) in entries {
                    let most = known.entry(entry.clone()).or_default();
                    *most = (*most).max(*count);
                }
            }
            required = Some(match required {
                None => files,
                Some(before) => files::common(&before, &files),
            });
        }
        Self {
            required: required.unwrap_or_default(),
            allowed,
        }
    }
}
