//! Logging: one line per event on standard error, in the shape zap writes, with the
//! `--zap-*` flags of the contract and a filter that can be changed while running.
//!
//! Secrets stay out of the log twice over: our own values of that kind are `secrecy`
//! types, whose `Debug` shows nothing, and what the Kubernetes client would print of a
//! body it cannot read is silenced whatever the level (see [`Level::filter`]).

use std::{
    fmt,
    io::IsTerminal as _,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use clap::{ArgAction, Args, ValueEnum};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    fmt::MakeWriter,
    layer::SubscriberExt as _,
    registry::LookupSpan,
    reload,
    util::{SubscriberInitExt as _, TryInitError},
};

mod line;

use line::{Line, TimeEncoding};

/// Our own crates: what a level means is said for them, libraries are kept quieter.
const OURS: [&str; 3] = ["glance_operator", "target_registry", "glance_api"];

/// The module of the Kubernetes client that logs whole response bodies, Secrets included.
const PRINTS_BODIES: &str = "kube_client::client";

/// Where panics are reported; never filtered out.
const PANIC: &str = "panic";

/// The `--zap-*` flags. Their names are contract because charts pass them.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Development logging: console encoder, debug level
    #[arg(long = "zap-devel", value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = crate::cli::go_bool)]
    devel: bool,

    /// How a line is written: json or console
    #[arg(
        long = "zap-encoder",
        value_enum,
        ignore_case = true,
        value_name = "ENCODER"
    )]
    encoder: Option<Encoder>,

    /// How much is logged: debug, info, error, panic, or a number above 0 (1 = debug)
    #[arg(long = "zap-log-level", value_name = "LEVEL")]
    log_level: Option<Level>,

    /// Accepted for compatibility: errors carry their causes instead of a stack; a panic always has its backtrace
    #[arg(
        long = "zap-stacktrace-level",
        value_enum,
        ignore_case = true,
        value_name = "LEVEL"
    )]
    stacktrace_level: Option<StacktraceLevel>,

    /// How the time of a line is written
    #[arg(
        long = "zap-time-encoding",
        value_enum,
        ignore_case = true,
        default_value_t = TimeEncoding::Rfc3339,
        value_name = "ENCODING"
    )]
    time_encoding: TimeEncoding,
}

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Encoder {
    /// One JSON object per line.
    Json,
    /// Tab-separated, for people.
    Console,
}

/// From where on stack traces were attached in the Go operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StacktraceLevel {
    Info,
    Error,
    Panic,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Panics only.
    Panic,
    /// Errors only.
    Error,
    /// Warnings and what people need to follow the operator's work.
    Info,
    /// Verbosity N of the Go operator; 1 is debug, more shows all we have.
    Verbose(u32),
}

/// Not a level.
#[derive(Debug, thiserror::Error)]
#[error("expected debug, info, error, panic or a number above 0")]
pub struct LevelError;

/// Logging could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start logging: {0}")]
pub struct Error(#[from] TryInitError);

/// The running log: tells its level and takes another one.
#[derive(Clone, Debug)]
pub struct Telemetry {
    filter: reload::Handle<Targets, Registry>,
    level: Arc<Mutex<Level>>,
}

// === impl LogArgs ===

impl LogArgs {
    /// The level these flags ask for.
    pub fn level(&self) -> Level {
        self.log_level.unwrap_or(if self.devel {
            Level::Verbose(1)
        } else {
            Level::Info
        })
    }

    fn encoder(&self) -> Encoder {
        self.encoder.unwrap_or(if self.devel {
            Encoder::Console
        } else {
            Encoder::Json
        })
    }
}

// === impl Level ===

impl Level {
    /// What passes. Libraries are one step quieter than we are; the Kubernetes client's
    /// request module says errors only, because its warnings and debug lines quote
    /// response bodies in full.
    fn filter(self) -> Targets {
        let (ours, others) = match self {
            Self::Panic => (LevelFilter::OFF, LevelFilter::OFF),
            Self::Error => (LevelFilter::ERROR, LevelFilter::ERROR),
            Self::Info => (LevelFilter::INFO, LevelFilter::WARN),
            Self::Verbose(0 | 1) => (LevelFilter::DEBUG, LevelFilter::INFO),
            Self::Verbose(_) => (LevelFilter::TRACE, LevelFilter::DEBUG),
        };
        Targets::new()
            .with_default(others)
            .with_targets(OURS.map(|target| (target, ours)))
            .with_target(PRINTS_BODIES, others.min(LevelFilter::ERROR))
            .with_target(PANIC, LevelFilter::ERROR)
    }
}

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        match text.to_ascii_lowercase().as_str() {
            "debug" => Ok(Self::Verbose(1)),
            "info" => Ok(Self::Info),
            "error" => Ok(Self::Error),
            "panic" => Ok(Self::Panic),
            number => match number.parse() {
                Ok(n) if n > 0 => Ok(Self::Verbose(n)),
                _ => Err(LevelError),
            },
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic => f.write_str("panic"),
            Self::Error => f.write_str("error"),
            Self::Info => f.write_str("info"),
            Self::Verbose(1) => f.write_str("debug"),
            Self::Verbose(n) => write!(f, "{n}"),
        }
    }
}

// === impl Telemetry ===

impl Telemetry {
    /// Installs logging for the whole process, panics included. Once per process.
    pub fn start(args: &LogArgs) -> Result<Self, Error> {
        let (filter, handle) = reload::Layer::new(args.level().filter());
        let ansi = std::io::stderr().is_terminal();
        let lines = lines(args, ansi, std::io::stderr);
        tracing_subscriber::registry()
            .with(filter.and_then(lines))
            .try_init()?;
        std::panic::set_hook(Box::new(report_panic));
        Ok(Self::new(handle, args.level()))
    }

    /// A log that nobody writes to, for tests of what holds one.
    #[cfg(test)]
    pub(crate) fn detached() -> Self {
        let (_, filter) = reload::Layer::<Targets, Registry>::new(Level::Info.filter());
        Self::new(filter, Level::Info)
    }

    fn new(filter: reload::Handle<Targets, Registry>, level: Level) -> Self {
        let level = Arc::new(Mutex::new(level));
        Self { filter, level }
    }

    /// The present level.
    pub fn level(&self) -> Level {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs at another level from now on, until the process ends.
    pub fn set_level(&self, level: Level) {
        // Said at the level from before as well: the new one may be too high for it.
        tracing::info!(log_level = %level, "the log level is being changed");
        match self.filter.reload(level.filter()) {
            Ok(()) => {
                *self.level.lock().unwrap_or_else(PoisonError::into_inner) = level;
                tracing::info!(log_level = %level, "log level changed");
            }
            Err(error) => tracing::error!(%error, "log level not changed"),
        }
    }
}

fn lines<S, W>(args: &LogArgs, ansi: bool, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let line = Line {
        encoder: args.encoder(),
        time: args.time_encoding,
    };
    tracing_subscriber::fmt::layer()
        .fmt_fields(line::fields())
        .event_format(line)
        .with_ansi(ansi)
        .with_writer(writer)
}

/// One log line per panic instead of the default hook's free text.
fn report_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let payload = panic.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)");
    let location = panic.location().map(ToString::to_string);
    let stacktrace = std::backtrace::Backtrace::force_capture();
    tracing::error!(
        target: PANIC,
        location = location.as_deref().unwrap_or("unknown"),
        %stacktrace,
        "panicked: {message}"
    );
}

#[cfg(test)]
mod tests;
