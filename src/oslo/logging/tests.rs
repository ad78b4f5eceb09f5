use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::hash::sha256_hex;
use crate::oslo::fixture::spec;

fn logging(block: &Value) -> Logging {
    ::glance_api::defaults::logging(&spec(&json!({ "logging": block })))
}

#[test]
fn the_plain_json_document_is_that_of_the_contract() {
    let text = render(&logging(&json!({ "format": "json" }))).unwrap();
    assert_eq!(text.len(), 273);
    assert_eq!(
        sha256_hex(&text),
        "9c02e4cb2310ca3e10b9897d104c92bd0b13806ce12301f458df569f6490f034"
    );
}

#[rstest]
#[case(json!(null), false)]
#[case(json!({}), false)]
#[case(json!({ "level": "INFO" }), false)]
#[case(json!({ "debug": true, "perLoggerLevels": { "a": "DEBUG" } }), false)]
#[case(json!({ "level": "WARNING" }), true)]
#[case(json!({ "level": "DEBUG" }), true)]
#[case(json!({ "format": "json" }), true)]
fn only_what_oslo_log_cannot_do_itself_needs_a_document(
    #[case] block: Value,
    #[case] expected: bool,
) {
    assert_eq!(needs_document(&logging(&block)), expected);
}

#[test]
fn json_with_levels_of_single_loggers() {
    let text = render(&logging(&json!({
        "format": "json",
        "level": "WARNING",
        "perLoggerLevels": { "sqlalchemy.engine": "INFO", "glance.api": "DEBUG", "a%b": "ERROR" },
    })))
    .unwrap();
    assert_eq!(
        text,
        "[loggers]\nkeys = root,l0,l1,l2\n\
         \n[handlers]\nkeys = stderr\n\
         \n[formatters]\nkeys = json\n\
         \n[logger_root]\nlevel = WARNING\nhandlers = stderr\n\
         \n[logger_l0]\nlevel = ERROR\nhandlers = stderr\nqualname = a%%b\npropagate = 0\n\
         \n[logger_l1]\nlevel = DEBUG\nhandlers = stderr\nqualname = glance.api\npropagate = 0\n\
         \n[logger_l2]\nlevel = INFO\nhandlers = stderr\nqualname = sqlalchemy.engine\npropagate = 0\n\
         \n[handler_stderr]\nclass = StreamHandler\nargs = (sys.stderr,)\nlevel = NOTSET\nformatter = json\n\
         \n[formatter_json]\nclass = oslo_log.formatters.JSONFormatter\n"
    );
}

#[rstest]
#[case("json")]
#[case("text")]
fn debug_is_the_level_of_the_root_in_both_forms(#[case] format: &str) {
    let text = render(&logging(
        &json!({ "format": format, "level": "ERROR", "debug": true }),
    ))
    .unwrap();
    assert!(text.contains("[logger_root]\nlevel = DEBUG\n"), "{text}");
}

#[test]
fn a_text_document_has_the_context_formatter_and_its_level() {
    let text = render(&logging(&json!({ "level": "ERROR" }))).unwrap();
    assert_eq!(
        text,
        "[loggers]\nkeys = root\n\
         \n[handlers]\nkeys = stderr\n\
         \n[formatters]\nkeys = context\n\
         \n[logger_root]\nlevel = ERROR\nhandlers = stderr\n\
         \n[handler_stderr]\nclass = StreamHandler\nargs = (sys.stderr,)\nlevel = NOTSET\nformatter = context\n\
         \n[formatter_context]\nclass = oslo_log.formatters.ContextFormatter\n"
    );
}

#[test]
fn a_verbose_text_log_keeps_chatty_libraries_quiet_unless_told_otherwise() {
    let text = render(&logging(
        &json!({ "level": "DEBUG", "perLoggerLevels": { "sqlalchemy": "DEBUG" } }),
    ))
    .unwrap();
    assert!(text.contains("level = WARNING\nhandlers = stderr\nqualname = amqp\n"));
    assert!(text.contains("level = INFO\nhandlers = stderr\nqualname = oslo_messaging\n"));
    assert!(text.contains("level = DEBUG\nhandlers = stderr\nqualname = sqlalchemy\n"));
    assert_eq!(text.matches("qualname = sqlalchemy\n").count(), 1);
    assert_eq!(text.matches("qualname = ").count(), QUIET.len());
    // A strict root needs none of them, and must not be loosened by one.
    let strict = render(&logging(&json!({ "level": "WARNING" }))).unwrap();
    assert!(!strict.contains("qualname"));
}

#[test]
fn levels_of_single_loggers_in_text_form_keep_the_quiet_list() {
    assert_eq!(default_log_levels(&logging(&json!({}))), None);
    let levels = default_log_levels(&logging(&json!({
        "perLoggerLevels": { "sqlalchemy": "DEBUG", "glance": "ERROR" },
    })))
    .unwrap();
    assert_eq!(
        levels,
        "glance=ERROR,sqlalchemy=DEBUG,amqp=WARN,boto=WARN,suds=INFO,oslo.messaging=INFO,\
         oslo_messaging=INFO,iso8601=WARN,requests.packages.urllib3.connectionpool=WARN,\
         urllib3.connectionpool=WARN,websocket=WARN,requests.packages.urllib3.util.retry=WARN,\
         urllib3.util.retry=WARN,keystonemiddleware=WARN,routes.middleware=WARN,stevedore=WARN,\
         taskflow=WARN,keystoneauth=WARN,oslo.cache=INFO,oslo_policy=INFO,dogpile.core.dogpile=INFO"
    );
}

#[test]
fn levels_of_single_loggers_in_json_form_stay_as_they_were() {
    let levels = default_log_levels(&logging(&json!({
        "format": "json", "perLoggerLevels": { "b": "DEBUG", "a": "ERROR" },
    })));
    assert_eq!(levels.unwrap(), "a=ERROR,b=DEBUG");
}

#[test]
fn a_logger_name_cannot_bring_a_section() {
    let error = render(&logging(
        &json!({ "format": "json", "perLoggerLevels": { "a\n[x]": "INFO" } }),
    ))
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the value of [logger_l0] qualname contains a newline or carriage return"
    );
}
