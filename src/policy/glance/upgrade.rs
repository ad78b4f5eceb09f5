//! Releases: what an upgrade will stop at, said while it is being asked for.

use glance_api::Glance;
use glance_api::glance::GlanceSpec;

use crate::glance::database::jobs::image_release_mismatch;
use crate::policy::review::Findings;
use crate::release::Release;

/// Warns about an image of another release than the spec names.
pub(super) fn image(spec: &GlanceSpec, f: &mut Findings) {
    if image_release_mismatch(spec).is_some() {
        f.warn(format!(
            "spec.image.tag {:?} names another release than spec.openStackRelease {:?}: no migration starts until they agree",
            spec.image.tag.as_deref().unwrap_or_default(),
            spec.open_stack_release
        ));
    }
}

/// Warns about a release that the upgrade will refuse.
pub(super) fn release(old: &Glance, new: &Glance, f: &mut Findings) {
    let wanted = &new.spec.open_stack_release;
    if *wanted == old.spec.open_stack_release {
        return;
    }
    let Some(status) = &old.status else {
        return;
    };
    let installed = status.installed_release.as_deref().unwrap_or_default();
    let target = status.target_release.as_deref().unwrap_or_default();
    if status.upgrade_phase.is_some() && wanted != target && wanted != installed {
        f.warn(format!(
            "spec.openStackRelease: an upgrade from {installed} to {target} is in flight; {wanted} has to wait until it is over"
        ));
        return;
    }
    let (Ok(from), Ok(to)) = (installed.parse::<Release>(), wanted.parse::<Release>()) else {
        return;
    };
    if to < from {
        f.warn(format!(
            "spec.openStackRelease: {wanted} is older than the installed {installed}, and a downgrade is not supported"
        ));
    } else if to != from && !from.is_followed_by(to) {
        f.warn(format!(
            "spec.openStackRelease: {wanted} is not the release after the installed {installed}; only sequential upgrades are supported"
        ));
    }
}
