//! `glance-api.conf`.
//!
//! Four layers, each on top of the one before: lines that help and that any
//! value of the user replaces; the sections of plugins; what the operator
//! decides; `spec.extraConfig`, which wins over all of it (contract:
//! configuration, `glance-api.conf`).

use std::collections::BTreeSet;

use glance_api::defaults;
use glance_api::glance::GlanceSpec;

use super::ini::Ini;
use super::{logging, paste};
use crate::policy::ownership::{self, Policy};
use crate::quantity::{self, QuantityError};
use crate::release::{LaunchMode, launch_mode};

/// Where the rendered files are mounted.
pub const DIR: &str = "/etc/glance/glance-api.conf.d/";
/// Mount path of the import staging area.
pub const STAGING_DIR: &str = "/var/lib/glance/staging";
/// Mount path of the work area of tasks.
pub const TASKS_DIR: &str = "/var/lib/glance/tasks-work";
/// Mount path of the image cache.
pub const IMAGE_CACHE_DIR: &str = "/var/lib/glance/image-cache";

/// What the rendered stores mean for `glance-api.conf`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// The rendered stores as `name:type`, joined with commas.
    pub enabled_backends: String,
    /// The one default store.
    pub default_backend: String,
}

/// A plugin section that cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// Its name is empty.
    #[error("plugin at index {index} has an empty Name")]
    EmptyName {
        /// Its place in the list.
        index: usize,
    },
    /// Its section is empty.
    #[error("plugin {name:?} has an empty ConfigSection")]
    EmptySection {
        /// Its name.
        name: String,
    },
    /// An earlier one has its section.
    #[error("duplicate ConfigSection {section:?}: plugin {name:?} would overwrite existing config")]
    Duplicate {
        /// The section.
        section: String,
        /// Name of the later plugin.
        name: String,
    },
}

/// The sections of `spec.plugins`.
///
/// Options that no one but the operator may set are left out, whether or not
/// the operator renders them at the moment: a password in a `ConfigMap` does
/// not become harmless by the field it came through. The condition
/// `ExtraConfigHealthy` lists them.
pub fn plugin_sections(spec: &GlanceSpec) -> Result<Ini, PluginError> {
    let mut ini = Ini::new();
    let mut sections = BTreeSet::new();
    for (index, plugin) in spec.plugins.iter().enumerate() {
        if plugin.name.is_empty() {
            return Err(PluginError::EmptyName { index });
        }
        if plugin.config_section.is_empty() {
            return Err(PluginError::EmptySection {
                name: plugin.name.clone(),
            });
        }
        if !sections.insert(&plugin.config_section) {
            return Err(PluginError::Duplicate {
                section: plugin.config_section.clone(),
                name: plugin.name.clone(),
            });
        }
        ini.section(&plugin.config_section);
        for (key, value) in &plugin.config {
            let owned = ownership::owned(&plugin.config_section, key);
            if owned.is_none_or(|owned| owned.policy == Policy::Reported) {
                ini.set(&plugin.config_section, key, value);
            }
        }
    }
    Ok(ini)
}

/// Lines that the operator adds for the benefit of users and that belong to
/// nobody.
pub fn helpful_lines(spec: &GlanceSpec) -> Ini {
    let mut ini = Ini::new();
    // Application credentials with access rules are checked against it.
    ini.set("keystone_authtoken", "service_type", "image");
    if !defaults::memcached_servers(spec).is_empty() {
        // A lost server must not stall every request for minutes.
        ini.set("keystone_authtoken", "memcache_pool_dead_retry", "10");
        ini.set("keystone_authtoken", "memcache_pool_conn_get_timeout", "2");
    }
    if spec.gateway.is_some() {
        // Links in answers would be http and internal otherwise.
        ini.set("oslo_middleware", "enable_proxy_headers_parsing", "true");
    }
    ini
}

/// What the operator decides. Every option in it is in
/// [`OWNED_KEYS`](ownership::OWNED_KEYS).
pub fn operator_lines(spec: &GlanceSpec, projection: &Projection) -> Result<Ini, QuantityError> {
    let mut ini = Ini::new();
    service(&mut ini, spec);
    stores(&mut ini, projection);
    keystone(&mut ini, spec);
    log(&mut ini, spec);
    import_filtering(&mut ini, spec);
    import_plugins(&mut ini, spec);
    image_cache(&mut ini, spec)?;
    Ok(ini)
}

fn service(ini: &mut Ini, spec: &GlanceSpec) {
    // Not glance-direct: it stages on the disk of one pod, and another pod
    // could not finish the import.
    ini.set(
        "DEFAULT",
        "enabled_import_methods",
        bracketed(["web-download", "copy-image"]),
    );
    let workers_set = spec.api_server.as_ref().and_then(|api| api.workers);
    // Without it the server forks one worker per CPU of the node. uWSGI does
    // not read it.
    if workers_set.is_some() || launch_mode(&spec.open_stack_release) == LaunchMode::Eventlet {
        ini.set("DEFAULT", "workers", defaults::workers(spec).to_string());
    }
    // The real one comes by environment; this one has to be parsable.
    ini.set("database", "connection", "mysql+pymysql://placeholder");
    ini.set("database", "connection_recycle_time", "600");
    ini.set("database", "max_retries", "-1");
    ini.set("paste_deploy", "flavor", paste::FLAVOR);
    ini.set(
        "paste_deploy",
        "config_file",
        format!("{DIR}glance-api-paste.ini"),
    );
}

fn stores(ini: &mut Ini, projection: &Projection) {
    ini.set("DEFAULT", "enabled_backends", &*projection.enabled_backends);
    ini.set(
        "glance_store",
        "default_backend",
        &*projection.default_backend,
    );
    // Staging and tasks work on local disk whatever the stores are.
    ini.set(
        "os_glance_staging_store",
        "filesystem_store_datadir",
        STAGING_DIR,
    );
    ini.set(
        "os_glance_tasks_store",
        "filesystem_store_datadir",
        TASKS_DIR,
    );
}

fn keystone(ini: &mut Ini, spec: &GlanceSpec) {
    let user = defaults::service_user(&spec.service_user);
    let mut set = |key: &str, value: &str| ini.set("keystone_authtoken", key, value);
    set("auth_type", "password");
    set("auth_url", &spec.keystone_endpoint);
    set(
        "www_authenticate_uri",
        defaults::keystone_public_endpoint(spec),
    );
    set("username", &user.username);
    set("project_name", &user.project_name);
    set("user_domain_name", &user.user_domain_name);
    set("project_domain_name", &user.project_domain_name);
    if let Some(region) = spec.region.as_ref().filter(|region| !region.is_empty()) {
        set("region_name", region);
    }
    let servers = defaults::memcached_servers(spec);
    if !servers.is_empty() {
        set("memcached_servers", &servers.join(","));
    }
}

fn log(ini: &mut Ini, spec: &GlanceSpec) {
    let logging = defaults::logging(spec);
    ini.set("DEFAULT", "use_stderr", "true");
    ini.set("DEFAULT", "debug", logging.debug.to_string());
    if let Some(levels) = logging::default_log_levels(&logging) {
        ini.set("DEFAULT", "default_log_levels", levels);
    }
    if logging::needs_document(&logging) {
        ini.set(
            "DEFAULT",
            "log_config_append",
            format!("{DIR}{}", logging::KEY),
        );
    }
}

/// All six always: Glance's own defaults for schemes and ports are not empty,
/// and without brackets every import fails.
fn import_filtering(ini: &mut Ini, spec: &GlanceSpec) {
    let filter = defaults::import_filtering(spec.import_filtering.as_ref());
    let mut set = |key: &str, value: String| ini.set("import_filtering_opts", key, value);
    set("allowed_schemes", bracketed(filter.allowed_schemes));
    set("disallowed_schemes", bracketed(filter.disallowed_schemes));
    set("allowed_hosts", bracketed(filter.allowed_hosts));
    set("disallowed_hosts", bracketed(filter.disallowed_hosts));
    set("allowed_ports", bracketed(filter.allowed_ports));
    set("disallowed_ports", bracketed(filter.disallowed_ports));
}

/// Decompression comes before conversion, or the archive is converted instead
/// of the image in it.
fn import_plugins(ini: &mut Ini, spec: &GlanceSpec) {
    let plugins = spec.import_plugins.clone().unwrap_or_default();
    let names = [
        ("image_decompression", plugins.decompression.is_some()),
        ("image_conversion", plugins.conversion.is_some()),
        ("inject_image_metadata", plugins.inject_metadata.is_some()),
    ];
    ini.set(
        "image_import_opts",
        "image_import_plugins",
        bracketed(
            names
                .into_iter()
                .filter(|(_, on)| *on)
                .map(|(name, _)| name),
        ),
    );
    if let Some(format) = defaults::output_format(spec) {
        ini.set("image_conversion", "output_format", format.as_str());
    }
    if let Some(inject) = &plugins.inject_metadata {
        // No brackets and no quotes: both would become part of the values.
        let properties: Vec<String> = inject
            .properties
            .iter()
            .map(|(name, value)| format!("{name}:{value}"))
            .collect();
        ini.set("inject_metadata_properties", "inject", properties.join(","));
    }
    if let Some(roles) = defaults::ignore_user_roles(spec) {
        ini.set(
            "inject_metadata_properties",
            "ignore_user_roles",
            roles.join(","),
        );
    }
}

fn image_cache(ini: &mut Ini, spec: &GlanceSpec) -> Result<(), QuantityError> {
    let Some(cache) = &spec.image_cache else {
        return Ok(());
    };
    let limit = quantity::bytes(defaults::image_cache_size_limit(cache).as_str())?;
    ini.set("DEFAULT", "image_cache_dir", IMAGE_CACHE_DIR);
    // Keeps its rows inside the volume; the upstream default leaves those of
    // dead pods in the database.
    ini.set("DEFAULT", "image_cache_driver", "sqlite");
    ini.set(
        "DEFAULT",
        "image_cache_max_size",
        quantity::cache_max_bytes(limit).to_string(),
    );
    Ok(())
}

/// A bounded list option of oslo.config: `[a,b]`.
fn bracketed(items: impl IntoIterator<Item: ToString>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    format!("[{}]", items.join(","))
}

#[cfg(test)]
mod tests;
