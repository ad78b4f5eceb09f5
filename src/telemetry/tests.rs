use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use clap::Parser;
use rstest::rstest;
use serde_json::Value;
use tracing::{debug, error, info, warn};

use super::*;

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn args(flags: &[&str]) -> LogArgs {
    Flags::try_parse_from(std::iter::once(&"test").chain(flags))
        .unwrap()
        .log
}

/// Lines that `log` writes under `flags`.
fn logged(flags: &[&str], log: impl FnOnce(&Telemetry)) -> Vec<String> {
    let args = args(flags);
    let sink = Sink::default();
    let (filter, handle) = reload::Layer::new(args.level().filter());
    let writer = sink.clone();
    let lines = lines(&args, false, move || writer.clone());
    let subscriber = tracing_subscriber::registry().with(filter.and_then(lines));
    let telemetry = Telemetry::new(handle, args.level());
    tracing::subscriber::with_default(subscriber, || log(&telemetry));
    let bytes = sink.0.lock().unwrap().clone();
    String::from_utf8(bytes)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_json_line_has_zaps_keys_and_the_fields_of_its_spans() {
    let lines = logged(&[], |_| {
        let span = tracing::info_span!("pass", namespace = "openstack", attempt = 3);
        let _inside = span.enter();
        info!(cluster = "edge-1", ready = true, "building the cluster");
    });
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(line["level"], "info");
    assert_eq!(line["msg"], "building the cluster");
    assert_eq!(line["logger"], "glance_operator::telemetry::tests");
    assert_eq!(line["namespace"], "openstack");
    assert_eq!(line["attempt"], 3);
    assert_eq!(line["cluster"], "edge-1");
    assert_eq!(line["ready"], true);
    let time = line["ts"].as_str().unwrap();
    assert_eq!(time.len(), "2026-01-02T15:04:05Z".len(), "{time}");
}

#[test]
fn a_field_cannot_forge_the_level_of_its_line() {
    let lines = logged(&[], |_| {
        warn!(level = "info", msg = "harmless", "dangerous");
    });
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(line["level"], "warn");
    assert_eq!(line["msg"], "dangerous");
}

#[rstest]
#[case("epoch", "1700000000.25")]
#[case("millis", "1700000000250.0")]
#[case("nanos", "1700000000250000000")]
#[case("iso8601", "\"2023-11-14T22:13:20.250Z\"")]
#[case("RFC3339", "\"2023-11-14T22:13:20Z\"")]
#[case("rfc3339nano", "\"2023-11-14T22:13:20.25Z\"")]
fn time_encodings(#[case] name: &str, #[case] expected: &str) {
    let encoding = args(&["--zap-time-encoding", name]).time_encoding;
    let now = jiff::Timestamp::from_millisecond(1_700_000_000_250).unwrap();
    assert_eq!(encoding.encode(now).to_string(), expected);
}

#[rstest]
#[case(&[], &["info", "warn", "error"])]
#[case(&["--zap-log-level=error"], &["error"])]
#[case(&["--zap-log-level=panic"], &[])]
#[case(&["--zap-log-level=DEBUG"], &["debug", "info", "warn", "error"])]
#[case(&["--zap-log-level=1"], &["debug", "info", "warn", "error"])]
#[case(&["--zap-devel"], &["debug", "info", "warn", "error"])]
#[case(&["--zap-devel", "--zap-log-level=error"], &["error"])]
fn levels(#[case] flags: &[&str], #[case] expected: &[&str]) {
    let lines = logged(flags, |_| {
        debug!("debug");
        info!("info");
        warn!("warn");
        error!("error");
    });
    let said: Vec<bool> = expected
        .iter()
        .map(|word| lines.iter().any(|line| line.contains(word)))
        .collect();
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    assert!(said.into_iter().all(|said| said), "{lines:?}");
}

#[test]
fn the_console_form_is_for_people() {
    let lines = logged(&["--zap-encoder=Console"], |_| info!(n = 1, "hello"));
    let columns: Vec<&str> = lines[0].split('\t').collect();
    assert_eq!(columns[1], "INFO");
    assert_eq!(columns[3], "hello");
    assert_eq!(columns[4], r#"{"n":1}"#);
}

#[test]
fn bodies_quoted_by_the_client_never_reach_the_log() {
    let lines = logged(&["--zap-log-level=9"], |_| {
        warn!(target: "kube_client::client", "{{\"data\":{{\"password\":\"aHVudGVyMg==\"}}}}");
        debug!(target: "kube_client::client", "Unsuccessful data error parse: hunter2");
        let password = secrecy::SecretString::from("hunter2");
        error!(?password, "credentials refused");
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(!lines[0].contains("hunter2"), "{lines:?}");
}

#[test]
fn the_level_can_be_changed_while_running() {
    let lines = logged(&[], |telemetry| {
        debug!("before");
        telemetry.set_level(Level::Verbose(1));
        debug!("after");
    });
    assert!(lines.iter().any(|line| line.contains("after")), "{lines:?}");
    assert!(
        !lines.iter().any(|line| line.contains("before")),
        "{lines:?}"
    );
}

#[test]
fn a_panic_is_one_line_with_its_place() {
    let lines = logged(&["--zap-log-level=panic"], |_| {
        // The hook is the process's: panics of other tests go on to the one before.
        let previous = std::panic::take_hook();
        let this = std::thread::current().id();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().id() == this {
                report_panic(panic);
            } else {
                previous(panic);
            }
        }));
        let result = std::panic::catch_unwind(|| panic!("on purpose"));
        assert!(result.is_err());
    });
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(line["msg"], "panicked: on purpose");
    assert!(line["location"].as_str().unwrap().contains("tests.rs"));
    assert!(!line["stacktrace"].as_str().unwrap().is_empty());
}

#[rstest]
#[case("0")]
#[case("-1")]
#[case("warn")]
#[case("")]
fn not_levels(#[case] text: &str) {
    assert!(text.parse::<Level>().is_err());
}
