//! Serving: workers, route, log.

use std::collections::BTreeMap;

use super::{
    GATEWAY_PATH, LOG_FORMAT, LOG_LEVEL, UWSGI_HTTP_KEEP_ALIVE, UWSGI_PROCESSES, UWSGI_THREADS,
    WORKERS, positive, text,
};
use crate::glance::{GatewaySpec, GlanceSpec, LogFormat, LogLevel};

/// uWSGI with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uwsgi {
    /// Worker processes.
    pub processes: i32,
    /// Threads of a process.
    pub threads: i32,
    /// Whether client connections stay open between requests.
    pub http_keep_alive: bool,
    /// Bound on one request in seconds; none when absent.
    pub harakiri: Option<i32>,
    /// Bound on an idle connection in seconds; uWSGI's own when absent.
    pub http_keep_alive_timeout: Option<i32>,
}

/// The log with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// Its form.
    pub format: LogFormat,
    /// Least severity.
    pub level: LogLevel,
    /// Whether everything is logged whatever the level.
    pub debug: bool,
    /// Levels of single loggers.
    pub per_logger_levels: BTreeMap<String, String>,
}

/// Worker processes below release 2026.1.
pub fn workers(spec: &GlanceSpec) -> i32 {
    positive(spec.api_server.as_ref().and_then(|a| a.workers)).unwrap_or(WORKERS)
}

/// uWSGI from release 2026.1.
pub fn uwsgi(spec: &GlanceSpec) -> Uwsgi {
    let set = spec.api_server.as_ref().and_then(|a| a.uwsgi.as_ref());
    Uwsgi {
        processes: positive(set.and_then(|u| u.processes)).unwrap_or(UWSGI_PROCESSES),
        threads: positive(set.and_then(|u| u.threads)).unwrap_or(UWSGI_THREADS),
        http_keep_alive: set
            .and_then(|u| u.http_keep_alive)
            .unwrap_or(UWSGI_HTTP_KEEP_ALIVE),
        harakiri: set.and_then(|u| u.harakiri),
        http_keep_alive_timeout: set.and_then(|u| u.http_keep_alive_timeout),
    }
}

/// Path prefix of the route, with its leading slash.
pub fn gateway_path(gateway: &GatewaySpec) -> String {
    match text(gateway.path.as_deref()) {
        None => GATEWAY_PATH.to_owned(),
        Some(path) if path.starts_with('/') => path.to_owned(),
        Some(path) => format!("/{path}"),
    }
}

/// The log of the API.
pub fn logging(spec: &GlanceSpec) -> Logging {
    let set = spec.logging.as_ref();
    Logging {
        format: set.and_then(|l| l.format).unwrap_or(LOG_FORMAT),
        level: set.and_then(|l| l.level).unwrap_or(LOG_LEVEL),
        debug: set.and_then(|l| l.debug).unwrap_or(false),
        per_logger_levels: set.map(|l| l.per_logger_levels.clone()).unwrap_or_default(),
    }
}
