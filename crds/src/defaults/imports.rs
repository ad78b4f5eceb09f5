//! Imports, local space and stores.

use super::{
    ALLOWED_PORTS, ALLOWED_SCHEMES, BUCKET_URL_FORMAT, DISALLOWED_HOSTS, IGNORE_USER_ROLES,
    IMAGE_CACHE_SIZE_LIMIT, MAINTENANCE_INTERVAL, OUTPUT_FORMAT, STAGING_SIZE_LIMIT, text,
};
use crate::backend::{BucketUrlFormat, GlanceBackendSpec, S3Spec};
use crate::common::Quantity;
use crate::glance::{GlanceSpec, ImageCacheSpec, ImportFilteringSpec, ImportScheme, OutputFormat};

/// The URL filter of imports with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportFiltering {
    /// Schemes that may be fetched.
    pub allowed_schemes: Vec<ImportScheme>,
    /// Schemes that may not.
    pub disallowed_schemes: Vec<ImportScheme>,
    /// Hosts that may be fetched from.
    pub allowed_hosts: Vec<String>,
    /// Hosts that may not.
    pub disallowed_hosts: Vec<String>,
    /// Ports that may be fetched from.
    pub allowed_ports: Vec<i32>,
    /// Ports that may not.
    pub disallowed_ports: Vec<i32>,
}

/// The URL filter of imports. A missing block equals an empty one.
pub fn import_filtering(block: Option<&ImportFilteringSpec>) -> ImportFiltering {
    let empty = ImportFilteringSpec::default();
    let set = block.unwrap_or(&empty);
    // Glance lower-cases the host of a URL before it looks at the lists.
    let lower = |hosts: &Vec<String>| hosts.iter().map(|host| host.to_lowercase()).collect();
    let allowed_hosts: Vec<String> = set.allowed_hosts.as_ref().map(lower).unwrap_or_default();
    let disallowed: Option<Vec<String>> = set.disallowed_hosts.as_ref().map(lower);
    let disallowed_hosts = match &disallowed {
        // Glance ignores the deny-list then, so the base would only mislead.
        written if !allowed_hosts.is_empty() => written.clone().unwrap_or_default(),
        None => baseline(&[]),
        Some(opted_out) if opted_out.is_empty() => Vec::new(),
        Some(added) => baseline(added),
    };
    ImportFiltering {
        allowed_schemes: set
            .allowed_schemes
            .clone()
            .unwrap_or_else(|| ALLOWED_SCHEMES.to_vec()),
        disallowed_schemes: set.disallowed_schemes.clone().unwrap_or_default(),
        allowed_hosts,
        disallowed_hosts,
        allowed_ports: set
            .allowed_ports
            .clone()
            .unwrap_or_else(|| ALLOWED_PORTS.to_vec()),
        disallowed_ports: set.disallowed_ports.clone().unwrap_or_default(),
    }
}

/// Disk format that imports are converted to; none without the plugin.
pub fn output_format(spec: &GlanceSpec) -> Option<OutputFormat> {
    let conversion = spec.import_plugins.as_ref()?.conversion.as_ref()?;
    Some(conversion.output_format.unwrap_or(OUTPUT_FORMAT))
}

/// Roles whose imports get no properties; none without the plugin. An
/// explicit `[]` stays empty.
pub fn ignore_user_roles(spec: &GlanceSpec) -> Option<Vec<String>> {
    let inject = spec.import_plugins.as_ref()?.inject_metadata.as_ref()?;
    Some(
        inject
            .ignore_user_roles
            .clone()
            .unwrap_or_else(|| IGNORE_USER_ROLES.map(str::to_owned).to_vec()),
    )
}

/// Bound of each of the two scratch volumes; none when unbounded.
pub fn staging_size_limit(spec: &GlanceSpec) -> Option<Quantity> {
    let set = spec.staging.as_ref();
    if set.and_then(|s| s.unbounded).unwrap_or(false) {
        return None;
    }
    let limit = set.and_then(|s| s.size_limit.clone());
    Some(limit.unwrap_or_else(|| Quantity::new(STAGING_SIZE_LIMIT)))
}

/// Bound of the image cache's volume.
pub fn image_cache_size_limit(cache: &ImageCacheSpec) -> Quantity {
    cache
        .size_limit
        .clone()
        .unwrap_or_else(|| Quantity::new(IMAGE_CACHE_SIZE_LIMIT))
}

/// Time between two prunings of the image cache, as a Go duration.
pub fn maintenance_interval(cache: &ImageCacheSpec) -> &str {
    text(cache.maintenance_interval.as_deref()).unwrap_or(MAINTENANCE_INTERVAL)
}

/// Whether the store is marked as the default one.
pub fn is_default(backend: &GlanceBackendSpec) -> bool {
    backend.is_default.unwrap_or(false)
}

/// How the bucket is addressed.
pub fn bucket_url_format(s3: &S3Spec) -> BucketUrlFormat {
    s3.bucket_url_format.unwrap_or(BUCKET_URL_FORMAT)
}

/// The base list, then the added hosts that are not in it, in their order.
/// Adding an entry must not lift the base.
fn baseline(added: &[String]) -> Vec<String> {
    let mut hosts: Vec<String> = DISALLOWED_HOSTS.map(str::to_owned).to_vec();
    for host in added {
        if !hosts.contains(host) {
            hosts.push(host.clone());
        }
    }
    hosts
}
