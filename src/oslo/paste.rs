//! `glance-api-paste.ini`: which filters a request passes.
//!
//! The health check is an app beside the pipeline, not a filter in it: from
//! Glance 32 on the filter does not load, and beside the pipeline probes need
//! no token. The file is the same for all releases (contract: configuration,
//! paste file).

use std::collections::BTreeSet;

use glance_api::glance::{GlanceSpec, MiddlewarePosition, MiddlewareSpec};

use super::ini::{Ini, IniError};

/// The flavour that `glance-api.conf` selects: it names the root composite.
pub const FLAVOR: &str = "keystone";

const FILTER_FACTORY: &str = "paste.filter_factory";
const APP_FACTORY: &str = "paste.app_factory";
const COMPOSITE_FACTORY: &str = "paste.composite_factory";
const ROOT_APP_FACTORY: &str = "glance.api:root_app_factory";

/// One of the operator's own filters.
struct Filter {
    name: &'static str,
    factory: &'static str,
    options: &'static [(&'static str, &'static str)],
}

/// The operator's filters in the order of the pipeline.
const FILTERS: &[Filter] = &[
    Filter {
        name: "cors",
        factory: "oslo_middleware.cors:filter_factory",
        options: &[
            ("oslo_config_project", "glance"),
            ("oslo_config_program", "glance-api"),
        ],
    },
    Filter {
        name: "http_proxy_to_wsgi",
        factory: "oslo_middleware:HTTPProxyToWSGI.factory",
        options: &[],
    },
    Filter {
        name: "versionnegotiation",
        factory: "glance.api.middleware.version_negotiation:VersionNegotiationFilter.factory",
        options: &[],
    },
    Filter {
        name: "authtoken",
        factory: "keystonemiddleware.auth_token:filter_factory",
        options: &[("delay_auth_decision", "true")],
    },
    Filter {
        name: "context",
        factory: "glance.api.middleware.context:ContextMiddleware.factory",
        options: &[],
    },
];

/// Names that the file uses for something else than filters.
const APPS: &[&str] = &[
    "api",
    "apiversions",
    "apiv2app",
    "glance-api-keystone",
    "healthcheck",
    "rootapp",
];

/// Name of the filter of the image cache.
pub const CACHE_NAME: &str = "cache";

/// The filter of the image cache.
const CACHE: Filter = Filter {
    name: CACHE_NAME,
    factory: "glance.api.middleware.cache:CacheFilter.factory",
    options: &[],
};

/// A middleware that makes no pipeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PasteError {
    /// Its name is empty.
    #[error("pipeline \"api\" contains a MiddlewareSpec with an empty Name")]
    EmptyName,
    /// Its factory is empty.
    #[error("middleware {name:?} in pipeline \"api\" has an empty FilterFactory")]
    EmptyFactory {
        /// Its name.
        name: String,
    },
    /// Another one has its name.
    #[error("duplicate middleware Name {name:?} in pipeline \"api\"")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// An app of the operator has its name.
    #[error("middleware {name:?} in pipeline \"api\" has the name of an app of the operator")]
    Reserved {
        /// The name.
        name: String,
    },
    /// A text would break the file.
    #[error(transparent)]
    Unwritable(#[from] IniError),
}

/// The text of the file.
pub fn render(spec: &GlanceSpec) -> Result<String, PasteError> {
    let cache = spec.image_cache.is_some();
    check(&spec.middleware, cache)?;
    let mut ini = Ini::new();
    for middleware in &spec.middleware {
        // Named twice, defined once, as the Go operator has it: its own
        // definition stays.
        if is_filter(&middleware.name) {
            continue;
        }
        let section = format!("filter:{}", middleware.name);
        for (key, value) in &middleware.config {
            ini.set(&section, key, value);
        }
        ini.set(&section, FILTER_FACTORY, &middleware.filter_factory);
    }
    operator_sections(&mut ini);
    for filter in FILTERS.iter().chain(cache.then_some(&CACHE)) {
        filter_section(&mut ini, filter);
    }
    ini.set(
        "pipeline:api",
        "pipeline",
        pipeline(&spec.middleware, cache),
    );
    Ok(ini.render()?)
}

/// Whether a middleware may not have this name: the file uses it for an app.
pub fn is_app(name: &str) -> bool {
    APPS.contains(&name)
}

/// Whether a filter of this name is in every pipeline. `cache` is not: it is
/// free without an image cache.
pub fn is_filter(name: &str) -> bool {
    FILTERS.iter().any(|filter| filter.name == name)
}

fn check(middleware: &[MiddlewareSpec], cache: bool) -> Result<(), PasteError> {
    let mut names: BTreeSet<&str> = cache.then_some(CACHE.name).into_iter().collect();
    for MiddlewareSpec {
        name,
        filter_factory,
        ..
    } in middleware
    {
        if name.is_empty() {
            return Err(PasteError::EmptyName);
        }
        if filter_factory.is_empty() {
            return Err(PasteError::EmptyFactory { name: name.clone() });
        }
        if is_app(name) {
            return Err(PasteError::Reserved { name: name.clone() });
        }
        if !names.insert(name) {
            return Err(PasteError::Duplicate { name: name.clone() });
        }
    }
    Ok(())
}

fn operator_sections(ini: &mut Ini) {
    for (section, key, value) in [
        (
            "composite:glance-api-keystone",
            COMPOSITE_FACTORY,
            ROOT_APP_FACTORY,
        ),
        ("composite:glance-api-keystone", "/", "api"),
        (
            "composite:glance-api-keystone",
            "/healthcheck",
            "healthcheck",
        ),
        ("composite:rootapp", COMPOSITE_FACTORY, ROOT_APP_FACTORY),
        ("composite:rootapp", "/", "apiversions"),
        ("composite:rootapp", "/v2", "apiv2app"),
        (
            "app:healthcheck",
            APP_FACTORY,
            "oslo_middleware:Healthcheck.app_factory",
        ),
        ("app:healthcheck", "backends", "disable_by_file"),
        (
            "app:healthcheck",
            "disable_by_file_path",
            "/etc/glance/healthcheck_disable",
        ),
        (
            "app:apiversions",
            APP_FACTORY,
            "glance.api.versions:create_resource",
        ),
        (
            "app:apiv2app",
            APP_FACTORY,
            "glance.api.v2.router:API.factory",
        ),
    ] {
        ini.set(section, key, value);
    }
}

fn filter_section(ini: &mut Ini, filter: &Filter) {
    let section = format!("filter:{}", filter.name);
    ini.set(&section, FILTER_FACTORY, filter.factory);
    for (key, value) in filter.options {
        ini.set(&section, key, *value);
    }
}

/// The names a request passes, in order. The cache is the last filter, so that
/// every request to the versioned apps passes it.
fn pipeline(middleware: &[MiddlewareSpec], cache: bool) -> String {
    let at = |position: MiddlewarePosition| {
        middleware
            .iter()
            .filter(move |m| m.position == position)
            .map(|m| m.name.as_str())
    };
    let names: Vec<&str> = at(MiddlewarePosition::Before)
        .chain(FILTERS.iter().map(|filter| filter.name))
        .chain(at(MiddlewarePosition::After))
        .chain(cache.then_some(CACHE.name))
        .chain(["rootapp"])
        .collect();
    names.join(" ")
}

#[cfg(test)]
mod tests;
