//! How the API server is started: the argument list of both launch modes.
//!
//! The list is part of the contract, token by token. What uWSGI needs beyond it travels as
//! environment (see [`environment`](super::environment)).

use glance_api::defaults;
use glance_api::glance::GlanceSpec;

use super::volumes::{BACKENDS_DIR, CONFIG_DIR};
use crate::release::{LaunchMode, launch_mode};

const LOG_FORMAT: &str =
    "%(method) %(uri) => generated %(rsize) bytes in %(msecs) msecs (%(proto) %(status))";

/// The command of the API container. A knob of the other launch mode is ignored.
pub fn argv(spec: &GlanceSpec) -> Vec<String> {
    match launch_mode(&spec.open_stack_release) {
        LaunchMode::Eventlet => eventlet(),
        LaunchMode::Uwsgi => uwsgi(spec),
    }
}

/// The worker count is not here: it comes from the rendered config.
fn eventlet() -> Vec<String> {
    [
        "glance-api",
        "--config-dir",
        CONFIG_DIR,
        "--config-dir",
        BACKENDS_DIR,
    ]
    .map(str::to_owned)
    .to_vec()
}

fn uwsgi(spec: &GlanceSpec) -> Vec<String> {
    let knobs = defaults::uwsgi(spec);
    // A cap of zero switches off what was asked for, so it is no cap.
    let cap = |value: Option<i32>| {
        value
            .filter(|value| *value > 0)
            .map(|value| value.to_string())
    };

    let mut argv: Vec<String> = Vec::with_capacity(32);
    let mut push = |tokens: &[&str]| argv.extend(tokens.iter().map(ToString::to_string));

    push(&["uwsgi", "--http", ":9292"]);
    // Image bodies come in chunks, and go out in chunks.
    push(&["--http-auto-chunked", "--http-chunked-input"]);
    if knobs.http_keep_alive {
        push(&["--http-keepalive"]);
        if let Some(timeout) = cap(knobs.http_keep_alive_timeout) {
            push(&["--http-keepalive-timeout", &timeout]);
        }
    }
    push(&["--log-master", "--log-format", LOG_FORMAT]);
    // The shim of the image: Glance's own module ignores its arguments and would miss the config.
    push(&["--wsgi-file", "/var/lib/openstack/bin/glance-wsgi-api"]);
    push(&["--master", "--lazy-apps", "--need-app"]);
    push(&["--processes", &knobs.processes.to_string()]);
    push(&["--threads", &knobs.threads.to_string()]);
    push(&[
        "--pyargv",
        &format!("--config-dir {CONFIG_DIR} --config-dir {BACKENDS_DIR}"),
    ]);
    if let Some(seconds) = cap(knobs.harakiri) {
        push(&["--harakiri", &seconds]);
    }
    argv
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::glance::specimen;

    const EVENTLET: &str = "glance-api --config-dir /etc/glance/glance-api.conf.d/ --config-dir /etc/glance/backends.conf.d/";

    /// The argument list with spaces made visible, so that one token is told from two.
    fn shown(patch: &Value) -> String {
        argv(&specimen::with(patch).spec)
            .iter()
            .map(|token| token.replace(' ', "\u{b7}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn uwsgi_starts_with_exactly_the_asserted_list() {
        assert_eq!(
            argv(&specimen::uwsgi().spec),
            [
                "uwsgi",
                "--http",
                ":9292",
                "--http-auto-chunked",
                "--http-chunked-input",
                "--http-keepalive",
                "--log-master",
                "--log-format",
                "%(method) %(uri) => generated %(rsize) bytes in %(msecs) msecs (%(proto) %(status))",
                "--wsgi-file",
                "/var/lib/openstack/bin/glance-wsgi-api",
                "--master",
                "--lazy-apps",
                "--need-app",
                "--processes",
                "2",
                "--threads",
                "1",
                "--pyargv",
                "--config-dir /etc/glance/glance-api.conf.d/ --config-dir /etc/glance/backends.conf.d/",
            ]
        );
    }

    #[rstest]
    #[case::below("2025.2", false)]
    #[case::boundary("2026.1", true)]
    #[case::above("2026.2", true)]
    #[case::patched("2026.1-p1", true)]
    #[case::unreadable("queens", false)]
    #[case::third_of_a_year("2026.3", false)]
    fn the_release_decides_the_server(#[case] release: &str, #[case] uwsgi: bool) {
        let argv = shown(&json!({ "openStackRelease": release }));
        assert_eq!(argv.starts_with("uwsgi "), uwsgi, "{argv}");
        assert_eq!(argv == EVENTLET, !uwsgi, "{argv}");
    }

    #[test]
    fn knobs_of_the_other_server_change_nothing() {
        let knobs = json!({ "uwsgi": { "processes": 9, "harakiri": 60 }, "workers": 7 });
        assert_eq!(shown(&json!({ "apiServer": knobs })), EVENTLET);
        assert_eq!(
            shown(&json!({ "openStackRelease": "2026.1", "apiServer": { "workers": 7 } })),
            shown(&json!({ "openStackRelease": "2026.1" }))
        );
    }

    #[rstest]
    #[case::off(json!({ "httpKeepAlive": false, "httpKeepAliveTimeout": 75 }), &[], &["--http-keepalive", "--http-keepalive-timeout"])]
    #[case::timeout(json!({ "httpKeepAliveTimeout": 75 }), &["--http-keepalive --http-keepalive-timeout 75 --log-master"], &[])]
    #[case::no_timeout(json!({ "httpKeepAliveTimeout": 0 }), &["--http-keepalive --log-master"], &["--http-keepalive-timeout"])]
    #[case::counts(json!({ "processes": 4, "threads": 8 }), &["--processes 4 --threads 8 --pyargv"], &[])]
    #[case::zero_counts(json!({ "processes": 0, "threads": -1 }), &["--processes 2 --threads 1 --pyargv"], &[])]
    #[case::zero_harakiri(json!({ "harakiri": 0 }), &[], &["--harakiri"])]
    fn knobs(#[case] uwsgi: Value, #[case] present: &[&str], #[case] absent: &[&str]) {
        let argv = shown(&json!({ "openStackRelease": "2026.1", "apiServer": { "uwsgi": uwsgi } }));
        for text in present {
            assert!(argv.contains(text), "{text} in {argv}");
        }
        for token in absent {
            assert!(
                !argv.split(' ').any(|other| other == *token),
                "{token} in {argv}"
            );
        }
    }

    #[test]
    fn harakiri_comes_last() {
        let argv = shown(
            &json!({ "openStackRelease": "2026.1", "apiServer": { "uwsgi": { "harakiri": 300 } } }),
        );
        assert!(argv.ends_with(" --harakiri 300"), "{argv}");
    }
}
