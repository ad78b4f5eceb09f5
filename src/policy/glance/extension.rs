//! `spec.middleware`, `spec.plugins` and `spec.policyOverrides`: what a site
//! adds.

use std::collections::BTreeSet;

use glance_api::glance::GlanceSpec;

use crate::oslo::paste;
use crate::policy::ownership::{self, Policy};
use crate::policy::path::Path;
use crate::policy::review::Findings;
use crate::policy::text;

pub(super) fn middleware(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    let mut names = BTreeSet::new();
    for (index, middleware) in spec.middleware.iter().enumerate() {
        let at = at.index(index);
        let name_at = at.child("name");
        let name = middleware.name.as_str();
        if name.is_empty() {
            f.required(&name_at, "the name of the filter must be set");
        } else if !names.insert(name) {
            f.duplicate(&name_at, name);
        } else {
            filter_name(spec, name, &name_at, f);
        }
        let factory_at = at.child("filterFactory");
        if middleware.filter_factory.is_empty() {
            f.required(&factory_at, "the factory of the filter must be set");
        } else {
            text::name(&middleware.filter_factory, &factory_at, f);
        }
        text::options(&middleware.config, &at.child("config"), f);
    }
}

fn filter_name(spec: &GlanceSpec, name: &str, at: &Path, f: &mut Findings) {
    if name == paste::CACHE_NAME && spec.image_cache.is_some() {
        f.invalid(
            at,
            name,
            "the operator renders the \"cache\" paste filter and owns that filter name while spec.imageCache is set",
        );
    } else if paste::is_app(name) {
        f.invalid(
            at,
            name,
            "the operator has an application of that name in the pipeline",
        );
    } else if paste::is_filter(name) {
        f.warn(format!(
            "{at}: {name} is a filter of the built-in pipeline; its own definition stays, and filterFactory is not used"
        ));
    } else if name.contains(char::is_whitespace) {
        f.invalid(
            at,
            name,
            "must not contain blanks: the pipeline is a list of names separated by blanks",
        );
    } else {
        text::section(name, at, f);
    }
}

pub(super) fn plugins(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    let mut sections = BTreeSet::new();
    for (index, plugin) in spec.plugins.iter().enumerate() {
        let at = at.index(index);
        if plugin.name.is_empty() {
            f.required(&at.child("name"), "the name of the plugin must be set");
        }
        let section = plugin.config_section.as_str();
        let section_at = at.child("configSection");
        if section.is_empty() {
            f.required(&section_at, "the section of the plugin must be set");
        } else if !sections.insert(section) {
            f.duplicate(&section_at, section);
        } else {
            text::section(section, &section_at, f);
        }
        let config_at = at.child("config");
        for (key, value) in &plugin.config {
            match ownership::owned(section, key) {
                Some(owned) if owned.policy == Policy::Rejected => {
                    f.forbidden(&config_at.key(key), value, owned.refusal(key, "plugins"));
                }
                _ => text::option(key, value, &config_at, f),
            }
        }
    }
}

pub(super) fn policy(spec: &GlanceSpec, at: &Path, f: &mut Findings) {
    let reference = spec
        .policy_overrides
        .as_ref()
        .and_then(|policy| policy.config_map_ref.as_ref());
    if reference.is_some_and(|reference| reference.name.is_empty()) {
        f.required(
            &at.child("configMapRef.name"),
            "the name of the ConfigMap must be set",
        );
    }
}
