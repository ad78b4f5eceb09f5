//! Workers of the launch mode that does not run.

use glance_api::glance::GlanceSpec;

use crate::policy::review::Findings;
use crate::release::{LaunchMode, Release, launch_mode};

pub(super) fn inert(spec: &GlanceSpec, f: &mut Findings) {
    let release = &spec.open_stack_release;
    // What names no release is refused elsewhere.
    if release.parse::<Release>().is_err() {
        return;
    }
    let Some(api) = &spec.api_server else {
        return;
    };
    let mode = launch_mode(release);
    if api.uwsgi.is_some() && mode == LaunchMode::Eventlet {
        f.warn(format!(
            "spec.apiServer.uwsgi is set but release \"{release}\" runs the eventlet glance-api server (below 2026.1), so the uWSGI knobs are inert; configure spec.apiServer.workers instead."
        ));
    }
    if api.workers.is_some() && mode == LaunchMode::Uwsgi {
        f.warn(format!(
            "spec.apiServer.workers is set but release \"{release}\" runs under uWSGI (2026.1 or later), so the eventlet worker count is inert; configure spec.apiServer.uwsgi instead."
        ));
    }
}
