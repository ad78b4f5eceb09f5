//! One event as one line: JSON with zap's keys (`level`, `ts`, `logger`, `msg`, then the
//! fields), or tab-separated columns for a terminal.

use std::fmt;

use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormattedFields,
        format::{FormatEvent, JsonFields, Writer},
    },
    registry::{LookupSpan, Scope},
};

use super::Encoder;

/// How the time of a line is written; the names are zap's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeEncoding {
    /// Seconds since 1970 as a fraction.
    Epoch,
    /// Milliseconds since 1970 as a fraction.
    Millis,
    /// Nanoseconds since 1970.
    Nanos,
    /// `2006-01-02T15:04:05.000Z`.
    Iso8601,
    /// `2006-01-02T15:04:05Z`.
    Rfc3339,
    /// `2006-01-02T15:04:05.999999999Z`.
    Rfc3339nano,
}

/// Writes events.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The shape of a line.
    pub encoder: Encoder,
    /// The shape of its time.
    pub time: TimeEncoding,
}

/// Collects an event's fields; the message apart.
#[derive(Default)]
struct Fields {
    message: String,
    rest: Map<String, Value>,
}

/// How span fields are kept until a line is written: as JSON, so that they can be merged.
pub fn fields() -> JsonFields {
    JsonFields::new()
}

// === impl TimeEncoding ===

impl TimeEncoding {
    #[expect(
        clippy::cast_precision_loss,
        reason = "microseconds since 1970 fit a float's 53 bits for centuries"
    )]
    pub(super) fn encode(self, now: Timestamp) -> Value {
        let micros = now.as_microsecond() as f64;
        match self {
            Self::Epoch => json!(micros / 1e6),
            Self::Millis => json!(micros / 1e3),
            Self::Nanos => i64::try_from(now.as_nanosecond()).map_or(Value::Null, Value::from),
            Self::Iso8601 => Value::from(format!("{now:.3}")),
            Self::Rfc3339 => Value::from(format!("{now:.0}")),
            Self::Rfc3339nano => Value::from(now.to_string()),
        }
    }
}

// === impl Line ===

impl Line {
    fn json(self, now: Timestamp, event: &Event<'_>, fields: Fields) -> Value {
        let mut line = Map::new();
        line.insert("level".to_owned(), json!(level(*event.metadata().level())));
        line.insert("ts".to_owned(), self.time.encode(now));
        line.insert("logger".to_owned(), json!(event.metadata().target()));
        line.insert("msg".to_owned(), Value::from(fields.message));
        for (key, value) in fields.rest {
            line.entry(key).or_insert(value);
        }
        Value::Object(line)
    }

    fn console(self, now: Timestamp, event: &Event<'_>, fields: Fields) -> String {
        let time = match self.time.encode(now) {
            Value::String(text) => text,
            number => number.to_string(),
        };
        let level = level(*event.metadata().level()).to_ascii_uppercase();
        let mut line = format!(
            "{time}\t{level}\t{}\t{}",
            event.metadata().target(),
            fields.message
        );
        if !fields.rest.is_empty() {
            line.push('\t');
            line.push_str(&Value::Object(fields.rest).to_string());
        }
        line
    }
}

impl<S> FormatEvent<S, JsonFields> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        for span in ctx.event_scope().into_iter().flat_map(Scope::from_root) {
            let extensions = span.extensions();
            let kept = extensions.get::<FormattedFields<JsonFields>>();
            if let Some(Ok(Value::Object(kept))) =
                kept.map(|kept| serde_json::from_str(&kept.fields))
            {
                fields.rest.extend(kept);
            }
        }
        event.record(&mut fields);
        let now = Timestamp::now();
        match self.encoder {
            Encoder::Json => writeln!(writer, "{}", self.json(now, event, fields)),
            Encoder::Console => writeln!(writer, "{}", self.console(now, event, fields)),
        }
    }
}

// === impl Fields ===

impl Fields {
    fn insert(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.message = match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
        } else {
            self.rest.insert(field.name().to_owned(), value);
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, Value::from(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, Value::from(value));
    }
}

/// zap's names; it has no trace level.
fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        _ => "debug",
    }
}
