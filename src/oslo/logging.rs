//! `logging.conf`, the document of Python's `fileConfig`, and the levels that
//! go into `glance-api.conf` instead.
//!
//! As soon as oslo.log is given such a document it ignores every other log
//! option, so level, debug and the levels of single loggers are all in it. The
//! plain text form at level `INFO` needs no document: oslo.log's own set-up is
//! wanted then.

use std::collections::BTreeMap;

use glance_api::defaults::Logging;
use glance_api::glance::{LogFormat, LogLevel};

use super::ini::{self, IniError};

/// Name of the document. It ends in `.conf`, so oslo.config reads it too and
/// finds nothing it knows.
pub const KEY: &str = "logging.conf";

/// Levels that oslo.log gives to chatty libraries unless told otherwise. Setting
/// any level replaces the whole list, so it is repeated.
const QUIET: &[(&str, LogLevel)] = &[
    ("amqp", LogLevel::Warning),
    ("boto", LogLevel::Warning),
    ("sqlalchemy", LogLevel::Warning),
    ("suds", LogLevel::Info),
    ("oslo.messaging", LogLevel::Info),
    ("oslo_messaging", LogLevel::Info),
    ("iso8601", LogLevel::Warning),
    (
        "requests.packages.urllib3.connectionpool",
        LogLevel::Warning,
    ),
    ("urllib3.connectionpool", LogLevel::Warning),
    ("websocket", LogLevel::Warning),
    ("requests.packages.urllib3.util.retry", LogLevel::Warning),
    ("urllib3.util.retry", LogLevel::Warning),
    ("keystonemiddleware", LogLevel::Warning),
    ("routes.middleware", LogLevel::Warning),
    ("stevedore", LogLevel::Warning),
    ("taskflow", LogLevel::Warning),
    ("keystoneauth", LogLevel::Warning),
    ("oslo.cache", LogLevel::Info),
    ("oslo_policy", LogLevel::Info),
    ("dogpile.core.dogpile", LogLevel::Info),
];

/// The value of `[DEFAULT] default_log_levels`; none when no level of a single
/// logger is set.
///
/// In text form the quiet list follows, without the loggers that are set. In
/// JSON form the option has no effect and stays as short as it was.
pub fn default_log_levels(logging: &Logging) -> Option<String> {
    let levels = &logging.per_logger_levels;
    if levels.is_empty() {
        return None;
    }
    let mut pairs: Vec<String> = levels
        .iter()
        .map(|(logger, level)| format!("{logger}={level}"))
        .collect();
    if logging.format == LogFormat::Text {
        pairs.extend(
            QUIET
                .iter()
                .filter(|(logger, _)| !levels.contains_key(*logger))
                // The short form is the one in oslo.log's own list.
                .map(|(logger, level)| match level {
                    LogLevel::Warning => format!("{logger}=WARN"),
                    level => format!("{logger}={level}"),
                }),
        );
    }
    Some(pairs.join(","))
}

/// Whether the document is needed at all.
pub fn needs_document(logging: &Logging) -> bool {
    logging.format == LogFormat::Json || logging.level != LogLevel::Info
}

/// The document.
pub fn render(logging: &Logging) -> Result<String, IniError> {
    let (formatter, class) = match logging.format {
        LogFormat::Json => ("json", "oslo_log.formatters.JSONFormatter"),
        LogFormat::Text => ("context", "oslo_log.formatters.ContextFormatter"),
    };
    let root = if logging.debug {
        LogLevel::Debug
    } else {
        logging.level
    };
    let loggers = logger_levels(logging, root);
    let mut keys = String::from("root");
    let mut sections = Vec::with_capacity(loggers.len());
    for (index, (logger, level)) in loggers.iter().enumerate() {
        let key = format!("l{index}");
        keys.push(',');
        keys.push_str(&key);
        // The reader expands percent signs.
        sections.push((format!("logger_{key}"), level, logger.replace('%', "%%")));
    }
    let formatter_section = format!("formatter_{formatter}");
    let mut document: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("loggers", vec![("keys", &keys)]),
        ("handlers", vec![("keys", "stderr")]),
        ("formatters", vec![("keys", formatter)]),
        (
            "logger_root",
            vec![("level", root.as_str()), ("handlers", "stderr")],
        ),
    ];
    for (section, level, logger) in &sections {
        document.push((
            section,
            vec![
                ("level", level),
                ("handlers", "stderr"),
                ("qualname", logger),
                ("propagate", "0"),
            ],
        ));
    }
    document.push((
        "handler_stderr",
        vec![
            ("class", "StreamHandler"),
            ("args", "(sys.stderr,)"),
            // Only the loggers filter.
            ("level", "NOTSET"),
            ("formatter", formatter),
        ],
    ));
    document.push((&formatter_section, vec![("class", class)]));
    ini::write(document)
}

/// Loggers with a level of their own, by name: those of the resource, and in
/// text form the quiet ones, as far as they are quieter than the root.
fn logger_levels(logging: &Logging, root: LogLevel) -> BTreeMap<&str, &str> {
    let mut levels: BTreeMap<&str, &str> = BTreeMap::new();
    if logging.format == LogFormat::Text {
        levels.extend(
            QUIET
                .iter()
                .filter(|(_, level)| *level > root)
                .map(|(logger, level)| (*logger, level.as_str())),
        );
    }
    levels.extend(
        logging
            .per_logger_levels
            .iter()
            .map(|(logger, level)| (logger.as_str(), level.as_str())),
    );
    levels
}

#[cfg(test)]
mod tests;
