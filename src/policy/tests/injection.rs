//! No text of a resource adds a line or a section to a rendered file: the property in [`crate::policy::injection`],
//! asked for every place with texts that try to break out, and for random ones at several places together.
//!
//! `FUZZ_CASES` sets how many random objects are tried; `make fuzz` tries many, or has a fuzzer look for them.

use std::{collections::BTreeMap, sync::LazyLock};

use proptest::prelude::*;
use serde_json::json;

use crate::policy::injection::{Kind, Outcome, Place};

static GLANCES: LazyLock<Kind> = LazyLock::new(|| Kind::glance().unwrap());
static BACKENDS: LazyLock<Kind> = LazyLock::new(|| Kind::backend().unwrap());

const EVIL: &[&str] = &[
    "",
    " ",
    "\n",
    "x\n[evil]\nevil = 1",
    "x\r[evil]\revil = 1",
    "x\r\n[evil]\r\nevil = 1",
    "x\n\tcontinued",
    "x\0y",
    "]\n[evil]\nevil = 1",
    "evil = 1\nx",
    "evil: 1",
    "[evil]",
    "x]",
    "#",
    ";x",
    "%(x)s",
    "$x",
    "\"",
    "'\n'",
    "- a\n- b",
    "\u{85}evil = 1",
    "\u{2028}[evil]",
    "\u{b}evil = 1\u{c}",
    "DEFAULT",
    "keystone_authtoken",
    "Keystone_AuthToken",
    "import_filtering_opts",
    "password",
    "password ",
    "password\u{1f}",
    "\u{1c}password",
    "disallowed_hosts\u{1e}",
    "\u{a0}disallowed_hosts",
    "image_cache_dir\u{2003}",
    "paste.filter_factory",
    "\u{feff}",
    "---\nevil: '@'",
    "世\n界",
];

fn cases() -> ProptestConfig {
    let cases = std::env::var("FUZZ_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases.unwrap_or(256))
    }
}

fn evil() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(EVIL).prop_map(str::to_owned),
        "[\\x00-\\x20\\]\\[=:#;%$\"'\\\\A-Za-z\u{85}\u{2028}\u{2029}\u{feff}-]{0,12}",
        "(?s).{0,24}",
        "[a-z]{1,4}[\r\n]{1,2}\\[?evil\\]? ?[=:]? ?[0-9\r\n]{0,3}",
    ]
}

#[test]
fn every_text_of_both_kinds_is_known_and_the_sample_has_it() {
    for (kind, least, some) in [
        (
            &*GLANCES,
            70,
            [
                "/spec/region",
                "/spec/plugins/0/configSection",
                "/spec/extraConfig/k/k",
            ],
        ),
        (
            &*BACKENDS,
            7,
            ["/metadata/name", "/spec/s3/bucket", "/spec/extraOptions/k"],
        ),
    ] {
        assert!(kind.places.len() >= least, "{}", kind.places.len());
        for pointer in some {
            let place = Place::Value(pointer.to_owned());
            assert!(kind.places.contains(&place), "{pointer}");
        }
        assert_eq!(kind.check(&[]), Ok(Outcome::Rendered));
    }
}

#[test]
fn no_text_of_either_kind_adds_a_line_or_is_admitted_and_cannot_be_rendered() {
    for kind in [&*GLANCES, &*BACKENDS] {
        for place in &kind.places {
            if let Err(fault) = kind.check_each(place, EVIL) {
                panic!("{fault}");
            }
        }
    }
}

/// Python strips more from a name than Unicode calls white.
#[test]
fn no_blank_around_a_name_hides_an_option_that_is_not_the_users() {
    let section = Place::Value("/spec/plugins/0/configSection".to_owned());
    let of_plugin = Place::Key("/spec/plugins/0/config".to_owned());
    let (sections, keys) = (
        Place::Key("/spec/extraConfig".to_owned()),
        Place::Key("/spec/extraConfig/k".to_owned()),
    );
    let release = Place::Value("/spec/openStackRelease".to_owned());
    let blanks = (0..0x3001)
        .filter_map(char::from_u32)
        .filter(|c| c.is_whitespace() || c.is_control());
    for blank in blanks {
        for key in [
            format!("disallowed_hosts{blank}"),
            format!("{blank}disallowed_hosts"),
        ] {
            for texts in [
                [
                    (&section, "import_filtering_opts"),
                    (&of_plugin, key.as_str()),
                ],
                [(&sections, "import_filtering_opts"), (&keys, key.as_str())],
            ] {
                // No catalog of a release that is to come knows an option.
                let texts = [texts[0], texts[1], (&release, "2031.1")];
                if let Err(fault) = GLANCES.check(&texts) {
                    panic!("{blank:?}: {fault}");
                }
            }
        }
    }
}

#[test]
fn the_bytes_of_a_fuzzer_reach_the_places() {
    let kind = &*BACKENDS;
    let bucket = Place::Value("/spec/s3/bucket".to_owned());
    let place = kind
        .places
        .iter()
        .position(|place| *place == bucket)
        .unwrap();
    let bytes = |text: &str| {
        let mut bytes = vec![
            u8::try_from(place).unwrap(),
            u8::try_from(text.len()).unwrap(),
        ];
        bytes.extend(text.as_bytes());
        bytes
    };
    assert_eq!(kind.check_bytes(&bytes("images")), Ok(Outcome::Rendered));
    assert_eq!(kind.check_bytes(&bytes("a\nb")), Ok(Outcome::Refused));
    assert_eq!(kind.sample["kind"], json!("GlanceBackend"));
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn fuzz_no_texts_together_add_a_line_or_a_section(
        is_glance in any::<bool>(),
        texts in prop::collection::vec((any::<prop::sample::Index>(), evil()), 1..4),
    ) {
        let kind = if is_glance { &*GLANCES } else { &*BACKENDS };
        let texts: BTreeMap<&Place, &str> = texts
            .iter()
            .map(|(index, text)| (index.get(&kind.places), text.as_str()))
            .collect();
        let texts: Vec<(&Place, &str)> = texts.into_iter().collect();
        let outcome = kind.check(&texts);
        prop_assert!(outcome.is_ok(), "{texts:?}: {outcome:?}");
    }

    /// What the fuzz target runs.
    #[test]
    fn fuzz_no_bytes_add_a_line_or_a_section(
        is_glance in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let kind = if is_glance { &*GLANCES } else { &*BACKENDS };
        let outcome = kind.check_bytes(&bytes);
        prop_assert!(outcome.is_ok(), "{outcome:?}");
    }
}
