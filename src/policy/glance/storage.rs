//! `spec.staging` and `spec.imageCache`: local space.

use glance_api::common::Quantity;
use glance_api::glance::{ImageCacheSpec, ImportPluginsSpec, StagingSpec};

use crate::duration;
use crate::policy::path::Path;
use crate::policy::review::Findings;
use crate::quantity;

/// `100m` is a legal quantity, a tenth of a byte, and the usual slip for
/// `100Mi`.
const LEAST_BYTES: i64 = 1024 * 1024;
const LEAST_SECONDS: i64 = 60;

/// The plugin expands by a ratio that the caller chooses, and this limit is the
/// only bound: going over it evicts the pod with every import in it, so someone
/// has to have chosen the number. `at` is the path of what holds both blocks.
pub fn decompression_needs_a_limit(
    plugins: Option<&ImportPluginsSpec>,
    staging: Option<&StagingSpec>,
    at: &Path,
    f: &mut Findings,
) {
    let is_on = plugins.is_some_and(|plugins| plugins.decompression.is_some());
    let is_chosen = staging.is_some_and(|s| s.size_limit.is_some() || s.unbounded == Some(true));
    if is_on && !is_chosen {
        f.required(
            &at.child("staging.sizeLimit"),
            "must be set explicitly while importPlugins.decompression is enabled: the caller chooses how far an archive expands, and the default 10Gi is a bound nobody chose; set staging.unbounded: true for none",
        );
    }
}

/// The rules of the block at `at`.
pub fn staging(set: Option<&StagingSpec>, at: &Path, f: &mut Findings) {
    let Some(set) = set else {
        return;
    };
    match &set.size_limit {
        Some(_) if set.unbounded == Some(true) => f.invalid(
            &at.child("unbounded"),
            true,
            "unbounded and sizeLimit are mutually exclusive: an unbounded staging area has no size limit to configure",
        ),
        Some(limit) => size(limit, &at.child("sizeLimit"), f),
        None => {}
    }
}

/// The rules of the block at `at`.
pub fn image_cache(set: Option<&ImageCacheSpec>, at: &Path, f: &mut Findings) {
    let Some(set) = set else {
        return;
    };
    if let Some(limit) = &set.size_limit {
        size(limit, &at.child("sizeLimit"), f);
    }
    let interval = set.maintenance_interval.as_deref();
    if let Some(interval) = interval.filter(|interval| !interval.is_empty()) {
        let at = at.child("maintenanceInterval");
        match duration::seconds(interval) {
            Ok(seconds) if seconds >= LEAST_SECONDS => {}
            Ok(_) => f.invalid(&at, interval, "must be at least 1m0s"),
            Err(error) => f.invalid(&at, interval, error.to_string()),
        }
    }
}

fn size(limit: &Quantity, at: &Path, f: &mut Findings) {
    match quantity::bytes(limit.as_str()) {
        Ok(bytes) if bytes >= LEAST_BYTES => {}
        Ok(_) => f.invalid(at, limit.as_str(), "must be at least 1Mi"),
        Err(error) => f.invalid(at, limit.as_str(), error.to_string()),
    }
}
