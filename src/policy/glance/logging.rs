//! `spec.logging`.

use glance_api::glance::{LogLevel, LoggingSpec};

use crate::policy::path::Path;
use crate::policy::review::Findings;
use crate::policy::text;

pub(super) fn judge(logging: &LoggingSpec, at: &Path, f: &mut Findings) {
    let at = at.child("perLoggerLevels");
    for (logger, level) in &logging.per_logger_levels {
        if logger.is_empty() {
            f.invalid(&at, logger.as_str(), "logger name must not be empty");
        } else {
            text::name(logger, &at.key(logger), f);
        }
        if level.parse::<LogLevel>().is_err() {
            f.invalid(
                &at.key(logger),
                level.as_str(),
                "level must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL",
            );
        }
    }
}
