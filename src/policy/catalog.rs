//! Which options a Glance release knows.
//!
//! One document per release, generated from the upstream Python packages by
//! `catalog/generate.py` and embedded. A release without a document is not
//! judged: a build must not stand in the way of a newer Glance.

mod nearest;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer};

use crate::release::Release;

pub use values::{Kind, Misfit, is_host};

/// The options of one release.
#[derive(Debug, Deserialize)]
pub struct Catalog {
    /// The release, as `YYYY.N`.
    pub release: &'static str,
    #[serde(borrow)]
    sections: BTreeMap<&'static str, Section>,
    #[serde(borrow)]
    store_drivers: BTreeMap<&'static str, Section>,
}

/// The options of one section.
#[derive(Debug, Deserialize)]
pub struct Section {
    #[serde(borrow)]
    opts: BTreeSet<&'static str>,
    /// What a plugin registers when the process starts.
    #[serde(borrow, default)]
    plugin_opts: BTreeSet<&'static str>,
    #[serde(borrow)]
    deprecated: BTreeMap<&'static str, &'static str>,
    /// With the reason, for whoever reads the document.
    #[serde(borrow, deserialize_with = "names")]
    removal: BTreeSet<&'static str>,
    #[serde(borrow)]
    types: BTreeMap<&'static str, Kind>,
}

/// What a release knows about one option.
#[derive(Debug, PartialEq, Eq)]
pub enum Known {
    /// It reads it.
    Live {
        /// A later release will not.
        ends: bool,
    },
    /// It reads it under this name still; the other one is the name to use, as
    /// `[section] name`, or empty.
    Renamed(&'static str),
    /// It does not read it.
    Unknown,
}

/// Why there is no catalog of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absent {
    /// The text names no release.
    NoRelease,
    /// This build has none for it.
    NotEmbedded {
        /// The release, as `YYYY.N`.
        release: String,
    },
}

/// An embedded document that cannot be read: a fault of the build.
#[derive(Debug, thiserror::Error)]
#[error("the embedded option catalog of {release} cannot be read: {source}")]
pub struct CatalogError {
    /// Its release.
    pub release: &'static str,
    /// Why.
    pub source: serde_json::Error,
}

const DOCUMENTS: [(&str, &str); 3] = [
    ("2025.2", include_str!("catalog/2025.2.json")),
    ("2026.1", include_str!("catalog/2026.1.json")),
    ("2026.2", include_str!("catalog/2026.2.json")),
];

static CATALOGS: LazyLock<Result<Vec<Catalog>, CatalogError>> = LazyLock::new(|| {
    let read = |(release, text)| {
        serde_json::from_str(text).map_err(|source| CatalogError { release, source })
    };
    DOCUMENTS.into_iter().map(read).collect()
});

/// Every embedded catalog, oldest first. Asked once at start, so that a broken
/// build does not start instead of judging nothing.
pub fn all() -> Result<&'static [Catalog], &'static CatalogError> {
    CATALOGS.as_ref().map(Vec::as_slice)
}

/// The catalog of the release that a text such as `2025.2` or `2025.2-p1` names.
pub fn of(text: &str) -> Result<&'static Catalog, Absent> {
    let release: Release = text.parse().map_err(|_| Absent::NoRelease)?;
    let release = release.to_string();
    all()
        .unwrap_or_default()
        .iter()
        .find(|catalog| catalog.release == release)
        .ok_or(Absent::NotEmbedded { release })
}

/// Whether the S3 driver of any embedded release knows an option.
pub fn is_s3_option(key: &str) -> bool {
    all().unwrap_or_default().iter().any(|catalog| {
        catalog
            .store_drivers
            .get("s3")
            .is_some_and(|section| section.names().any(|name| name == key))
    })
}

/// Whether any embedded release has a section of this name, apart from those of
/// stores.
pub fn is_section(name: &str) -> bool {
    all()
        .unwrap_or_default()
        .iter()
        .any(|catalog| catalog.section(name).is_some())
}

/// The keys of a map.
fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<&'de str>, D::Error> {
    let entries: BTreeMap<&str, String> = BTreeMap::deserialize(deserializer)?;
    Ok(entries.into_keys().collect())
}

// === impl Catalog ===

impl Catalog {
    /// A section by its exact name. The sections that upstream's sample shows
    /// for stores count too (`glance.store.s3.store`, `file`).
    pub fn section(&self, name: &str) -> Option<&Section> {
        let driver = || {
            let template = name
                .strip_prefix("glance.store.")
                .and_then(|rest| rest.strip_suffix(".store"));
            template
                .filter(|driver| *driver != "file")
                .or((name == "file").then_some(name))
        };
        self.sections
            .get(name)
            .or_else(|| self.store_drivers.get(driver()?))
    }

    /// The section that a misspelt name may mean.
    pub fn nearest_section(&self, name: &str) -> Option<&'static str> {
        nearest::nearest(name, self.sections.keys().copied())
    }

    /// The sections that know an option of this name.
    pub fn sections_with(&self, key: &str) -> impl Iterator<Item = &'static str> {
        self.sections
            .iter()
            .filter(move |(_, section)| section.opts.contains(key))
            .map(|(name, _)| *name)
    }

    /// Other names of an option: `(section, other name)` of each.
    pub fn renamed(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
        self.sections.iter().flat_map(|(name, section)| {
            section
                .deprecated
                .iter()
                .map(|(old, successor)| (*name, *old, *successor))
        })
    }
}

// === impl Section ===

impl Section {
    /// What is known about an option, by its exact name.
    pub fn option(&self, key: &str) -> Known {
        if self.names().any(|name| name == key) {
            Known::Live {
                ends: self.removal.contains(key),
            }
        } else {
            self.deprecated
                .get(key)
                .map_or(Known::Unknown, |successor| Known::Renamed(successor))
        }
    }

    /// Why a value is none for an option, where the catalog knows its type.
    pub fn misfit(&self, key: &str, value: &str) -> Option<Misfit<'_>> {
        self.types.get(key)?.misfit(value)
    }

    /// The option that a misspelt name may mean.
    pub fn nearest(&self, key: &str) -> Option<&'static str> {
        nearest::nearest(key, self.names())
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.opts.iter().chain(&self.plugin_opts).copied()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_embedded_catalogs_are_whole() {
        let catalogs = all().unwrap();
        assert_eq!(catalogs.len(), DOCUMENTS.len());
        for (catalog, (release, text)) in catalogs.iter().zip(DOCUMENTS) {
            assert_eq!(catalog.release, release);
            assert!(catalog.sections.len() >= 10);
            assert!(catalog.sections.contains_key("DEFAULT"));
            let all: Vec<&Section> = catalog
                .sections
                .values()
                .chain(catalog.store_drivers.values())
                .collect();
            assert!(all.iter().map(|section| section.opts.len()).sum::<usize>() >= 400);
            for section in all {
                for (old, successor) in &section.deprecated {
                    assert!(!section.opts.contains(old), "{old}");
                    assert!(!old.contains('-') && !successor.contains('-'));
                }
                assert!(section.opts.iter().all(|name| !name.contains('-')));
                assert!(section.types.values().all(Kind::is_understood), "{release}");
            }
            assert!(text.ends_with("}\n"));
        }
    }

    #[rstest]
    #[case("2025.2", "2025.2")]
    #[case("2025.2-p1", "2025.2")]
    #[case("2026.2", "2026.2")]
    fn a_patch_has_the_catalog_of_its_release(#[case] text: &str, #[case] release: &str) {
        assert_eq!(of(text).unwrap().release, release);
    }

    #[test]
    fn a_release_without_a_catalog_says_which_it_is() {
        assert_eq!(of("").unwrap_err(), Absent::NoRelease);
        assert_eq!(of("latest").unwrap_err(), Absent::NoRelease);
        let release = "2027.1".to_owned();
        assert_eq!(of("2027.1-x").unwrap_err(), Absent::NotEmbedded { release });
    }

    #[rstest]
    #[case("DEFAULT", "allow_anonymous_access", Known::Live { ends: false })]
    #[case("DEFAULT", "worker_self_reference_url", Known::Live { ends: false })]
    #[case("DEFAULT", "show_multiple_locations", Known::Live { ends: true })]
    #[case("DEFAULT", "logfile", Known::Renamed("[DEFAULT] log_file"))]
    #[case("DEFAULT", "log-file", Known::Unknown)]
    #[case("DEFAULT", "Debug", Known::Unknown)]
    #[case("keystone_authtoken", "trust_id", Known::Live { ends: false })]
    #[case("glance_download_properties", "extra_properties", Known::Live { ends: false })]
    #[case("glance.store.s3.store", "s3_store_host", Known::Live { ends: false })]
    #[case("file", "filesystem_store_datadir", Known::Live { ends: false })]
    fn an_option_is_known_by_its_exact_name(
        #[case] section: &str,
        #[case] key: &str,
        #[case] known: Known,
    ) {
        for release in ["2025.2", "2026.1"] {
            let catalog = of(release).unwrap();
            assert_eq!(catalog.section(section).unwrap().option(key), known);
        }
    }

    #[test]
    fn stores_are_templates_and_no_sections_by_their_driver() {
        let catalog = of("2026.1").unwrap();
        assert!(catalog.section("s3").is_none());
        assert!(catalog.section("glance.store.file.store").is_none());
        assert!(is_section("cors") && !is_section("garage-a"));
        assert!(is_s3_option("s3_store_thread_pools") && !is_s3_option("s3_store_typo"));
    }

    #[test]
    fn a_near_miss_is_recognised_and_a_far_one_is_not() {
        let catalog = of("2025.2").unwrap();
        assert_eq!(catalog.nearest_section("glance_stor"), Some("glance_store"));
        assert_eq!(
            catalog.nearest_section("Glance-Store"),
            Some("glance_store")
        );
        assert_eq!(catalog.nearest_section("my_plugin"), None);
        let section = catalog.section("glance_store").unwrap();
        assert_eq!(section.nearest("default_backends"), Some("default_backend"));
        assert_eq!(section.nearest("zzz"), None);
    }
}
