//! `spec.extraConfig`: its shape, what in it belongs to the operator, and
//! whether the release knows it.

use std::collections::BTreeSet;

use glance_api::glance::GlanceSpec;

use crate::oslo::ini;
use crate::policy::catalog::{self, Absent, Catalog, Known, Section};
use crate::policy::ownership::{self, Policy};
use crate::policy::path::Path;
use crate::policy::review::Findings;

/// Options of these stores are registered when the process starts, so that no
/// catalog lists them.
const RUNTIME_SECTIONS: [&str; 2] = ["os_glance_staging_store", "os_glance_tasks_store"];

/// Sections that exist for the sake of a typed field; whatever else is set in
/// them is unknown as if the section were (contract: where we can be better,
/// a richer catalog).
const TYPED_SECTIONS: [&str; 2] = ["image_import_opts", "import_filtering_opts"];

/// What would not come out as one entry of the file.
pub(super) fn shape(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    for (section, entries) in &spec.extra_config {
        if section.is_empty() {
            f.invalid(
                at,
                section.as_str(),
                "extraConfig section name must not be empty",
            );
            continue;
        }
        if let Some(fault) = ini::section_fault(section) {
            f.invalid(
                at,
                section.as_str(),
                format!(
                    "extraConfig section name must not contain {}",
                    fault.as_str()
                ),
            );
            continue;
        }
        let at = at.key(section);
        for (key, value) in entries {
            option(key, value, &at, f);
        }
    }
}

fn option(key: &str, value: &str, at: &Path, f: &mut Findings) {
    const LINE_BREAK: &str = "extraConfig key and value must not contain a newline or carriage return: each would start another line of the file";
    if key.is_empty() {
        f.invalid(at, key, "extraConfig key must not be empty");
    } else if let Some(fault) = ini::key_fault(key) {
        let detail = match fault {
            ini::Fault::LineBreak => LINE_BREAK.to_owned(),
            fault => format!("extraConfig key must not contain {}", fault.as_str()),
        };
        f.invalid(&at.key(key), key, detail);
    } else if let Some(fault) = ini::value_fault(value) {
        let detail = match fault {
            ini::Fault::LineBreak => LINE_BREAK.to_owned(),
            fault => format!("extraConfig value must not contain {}", fault.as_str()),
        };
        // The value may be a secret: it is judged and not shown.
        f.hidden(&at.key(key), value, detail);
    }
}

/// What no one but the operator may set, whether or not it renders it now.
pub(super) fn rejected(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    for (section, entries) in &spec.extra_config {
        let at = at.key(section);
        for (key, value) in entries {
            if let Some(owned) = ownership::owned(section, key)
                && owned.policy == Policy::Rejected
            {
                f.forbidden(&at.key(key), value, owned.refusal(key, "extraConfig"));
            }
        }
    }
}

/// What the release does not know.
///
/// A section that a plugin declares is left alone; if it is one of Glance's
/// own, only the options that the plugin itself lists are.
pub(super) fn catalog(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    if spec.extra_config.is_empty() {
        return;
    }
    let catalog = match catalog::of(&spec.open_stack_release) {
        Ok(catalog) => catalog,
        Err(absent) => return f.warn(unjudged(&absent)),
    };
    for (name, entries) in &spec.extra_config {
        let section = catalog.section(name);
        let of_plugin = plugin_options(spec, name);
        if RUNTIME_SECTIONS.contains(&name.as_str()) || (of_plugin.is_some() && section.is_none()) {
            continue;
        }
        let at = at.key(name);
        for (key, value) in entries {
            let is_known_elsewhere = key.is_empty()
                || of_plugin
                    .as_ref()
                    .is_some_and(|keys| keys.contains(key.as_str()))
                || ownership::is_registered(name, key)
                || ownership::owned(name, key).is_some_and(|o| o.policy == Policy::Rejected);
            // An alias of one of the operator's options is still told to be old.
            if !is_known_elsewhere {
                judge(catalog, (name, section), (key, value), &at, f);
            } else if let Some(section) = section {
                misfit(catalog, (name, section), (key, value), f);
            }
        }
    }
}

fn judge(
    catalog: &Catalog,
    (name, section): (&str, Option<&Section>),
    (key, value): (&str, &str),
    at: &Path,
    f: &mut Findings,
) {
    let release = catalog.release;
    let Some(section) = section else {
        let meant = catalog
            .nearest_section(name)
            .map(|section| format!("; did you mean [{section}]?"))
            .unwrap_or_default();
        return f.invalid(
            &at.key(key),
            key,
            format!(
                "no such section in the glance {release} option catalog{meant} (declare sections of plugins via spec.plugins)"
            ),
        );
    };
    match section.option(key) {
        Known::Live { ends } => {
            if ends {
                f.warn(deprecated(release, name, key, ""));
            }
            misfit(catalog, (name, section), (key, value), f);
        }
        Known::Renamed(successor) => f.warn(deprecated(release, name, key, successor)),
        Known::Unknown if TYPED_SECTIONS.contains(&name) => f.invalid(
            &at.key(key),
            key,
            format!(
                "no such section in the glance {release} option catalog takes this option: [{name}] is rendered from the typed fields"
            ),
        ),
        Known::Unknown => f.invalid(
            &at.key(key),
            key,
            format!(
                "no such option in the glance {release} option catalog{}",
                meant(catalog, section, name, key)
            ),
        ),
    }
}

fn meant(catalog: &Catalog, section: &Section, name: &str, key: &str) -> String {
    if let Some(nearest) = section.nearest(key) {
        return format!("; did you mean {nearest}?");
    }
    let elsewhere: Vec<String> = catalog
        .sections_with(key)
        .filter(|section| *section != name)
        .take(2)
        .map(|section| format!("[{section}]"))
        .collect();
    if elsewhere.is_empty() {
        String::new()
    } else {
        format!("; it belongs to {}", elsewhere.join(" or "))
    }
}

fn misfit(
    catalog: &Catalog,
    (name, section): (&str, &Section),
    (key, value): (&str, &str),
    f: &mut Findings,
) {
    if let Some(misfit) = section.misfit(key, value) {
        f.warn(format!(
            "spec.extraConfig [{name}] {key}: {misfit} (glance {})",
            catalog.release
        ));
    }
}

fn deprecated(release: &str, section: &str, key: &str, successor: &str) -> String {
    let end = if successor.is_empty() {
        " with no replacement".to_owned()
    } else {
        format!(", replaced by {successor}")
    };
    format!("spec.extraConfig [{section}] {key}: deprecated option in glance {release}{end}")
}

fn unjudged(absent: &Absent) -> String {
    let why = match absent {
        Absent::NoRelease => "spec.openStackRelease does not name an OpenStack release".to_owned(),
        Absent::NotEmbedded { release } => {
            format!("no catalog for release {release:?} is embedded in this operator build")
        }
    };
    format!("spec.extraConfig was not validated against an option catalog: {why}")
}

/// The options that plugins list under a section; none when no plugin declares
/// it.
fn plugin_options<'a>(spec: &'a GlanceSpec, section: &str) -> Option<BTreeSet<&'a str>> {
    let mut declared = spec
        .plugins
        .iter()
        .filter(|plugin| plugin.config_section == section)
        .peekable();
    declared.peek()?;
    Some(
        declared
            .flat_map(|plugin| plugin.config.keys().map(String::as_str))
            .collect(),
    )
}
