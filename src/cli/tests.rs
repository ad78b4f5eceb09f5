use std::ffi::OsString;

use rstest::rstest;

use super::*;

fn parse(args: &[&str]) -> Result<RunArgs, Usage> {
    let args = std::iter::once("glance-operator").chain(args.iter().copied());
    match Cli::parse_from_args(args.map(OsString::from))?.into_command() {
        Command::Run(args) => Ok(*args),
        _ => panic!("these are not the operator's arguments"),
    }
}

fn on(address: &str) -> Listen {
    Listen::On(address.to_owned())
}

#[test]
fn defaults_are_the_contracts() {
    for args in [&[][..], &["run"][..]] {
        let args = parse(args).unwrap();
        assert_eq!(args.metrics_bind_address, on(":8080"));
        assert_eq!(args.health_probe_bind_address, on(":8081"));
        assert!(!args.leader_elect);
        assert!(args.enable_webhooks);
        assert!(!args.metrics_secure);
        assert_eq!(args.webhook_bind_address, ":9443");
        let folder = std::env::temp_dir().join("k8s-webhook-server/serving-certs");
        assert_eq!(args.webhook_certificate(), folder);
        assert_eq!(args.sync_period, Duration::from_mins(10));
        assert_eq!(args.watched_namespace(), None);
        assert_eq!(args.clusters_namespace, "c5c3-clusters");
        assert_eq!(args.concurrency(), 2);
        assert_eq!(args.abandon_after, Duration::from_mins(5));
        assert_eq!(args.local_probe, LocalProbe::Direct);
        assert!(!args.allow_insecure_registrations);
        assert!(!args.authorize_target_use);
        assert_eq!(args.hub_id(), None);
        assert_eq!(args.cluster_domain, "cluster.local");
        assert_eq!(args.leader_election_namespace, "");
        let Timings {
            lease,
            renew,
            retry,
        } = args.lease();
        assert_eq!(
            [lease, renew, retry].map(|time| time.as_secs()),
            [15, 10, 2]
        );
    }
}

#[test]
fn the_charts_own_argument_list_is_understood() {
    let args = parse(&[
        "--leader-elect",
        "--metrics-bind-address=:8080",
        "--health-probe-bind-address=:8081",
        "--enable-webhooks=false",
        "--sync-period=10m",
        "--max-concurrent-reconciles=2",
        "--namespace=openstack",
        "--clusters-namespace=",
        "--zap-log-level=debug",
        "--zap-encoder=json",
    ])
    .unwrap();
    assert!(args.leader_elect);
    assert!(!args.enable_webhooks);
    assert_eq!(args.watched_namespace(), Some("openstack"));
    assert_eq!(args.clusters_namespace, "", "explicitly empty stays empty");
}

#[rstest]
#[case(&["-sync-period", "90s"], 90)]
#[case(&["-sync-period=90s"], 90)]
#[case(&["--sync-period", "90s"], 90)]
#[case(&["--sync-period=1h30m"], 5400)]
#[case(&["--sync-period=1.5h"], 5400)]
#[case(&["--sync-period=5m", "--sync-period=7s"], 7)]
#[case(&["run", "-sync-period=90s"], 90)]
fn one_dash_or_two_equals_or_space_and_the_last_wins(#[case] args: &[&str], #[case] secs: u64) {
    assert_eq!(
        parse(args).unwrap().sync_period,
        Duration::from_secs(secs),
        "{args:?}"
    );
}

#[rstest]
#[case("-leader-elect", true)]
#[case("--leader-elect=T", true)]
#[case("--leader-elect=1", true)]
#[case("--leader-elect=True", true)]
#[case("--leader-elect=f", false)]
#[case("--leader-elect=FALSE", false)]
fn booleans_as_go_spells_them(#[case] arg: &str, #[case] expected: bool) {
    assert_eq!(parse(&[arg]).unwrap().leader_elect, expected);
}

/// Every flag that takes no value as a word of its own says so, those that come later too.
#[test]
fn a_boolean_with_its_value_behind_a_space_is_told_how_booleans_are_written() {
    let command = Cli::command();
    let booleans: Vec<_> = command
        .get_arguments()
        .filter(|arg| arg.get_value_names().is_some_and(|names| names == ["BOOL"]))
        .filter_map(clap::Arg::get_long)
        .collect();
    assert!(booleans.len() >= 7, "{booleans:?}");
    for name in booleans {
        let flag = format!("--{name}");
        let usage = parse(&[&flag, "true"]).unwrap_err();
        assert!(
            usage.text.contains(&format!("write {flag}=true")),
            "{}",
            usage.text
        );
    }
    // What follows is another flag, a value of another one, or a command.
    parse(&["--leader-elect", "--hub-id", "true"]).unwrap();
    let usage = parse(&["--leader-elect", "crds"]).unwrap_err();
    assert!(!usage.text.contains("write"), "{}", usage.text);
}

#[rstest]
#[case("--metrics-bind-address=0", Listen::Off, on(":8081"))]
#[case("--metrics-bind-address=", on(":8080"), on(":8081"))]
#[case("--metrics-bind-address=127.0.0.1:0", on("127.0.0.1:0"), on(":8081"))]
#[case("--metrics-bind-address=[::1]:9000", on("[::1]:9000"), on(":8081"))]
#[case("--health-probe-bind-address=0", on(":8080"), Listen::Off)]
#[case("--health-probe-bind-address=", on(":8080"), Listen::Off)]
fn addresses(#[case] arg: &str, #[case] metrics: Listen, #[case] health: Listen) {
    let args = parse(&[arg]).unwrap();
    assert_eq!(args.metrics_bind_address, metrics);
    assert_eq!(args.health_probe_bind_address, health);
}

#[test]
fn listeners_share_what_cannot_clash() {
    parse(&[
        "--metrics-bind-address=:0",
        "--health-probe-bind-address=:0",
    ])
    .unwrap();
    let unused = [
        "--health-probe-bind-address=:9443",
        "--enable-webhooks=false",
    ];
    parse(&unused).unwrap();
    parse(&["--metrics-bind-address=0", "--health-probe-bind-address=0"]).unwrap();
}

#[rstest]
#[case("0", 2)]
#[case("-3", 2)]
#[case("7", 7)]
fn concurrency_of_nothing_means_two(#[case] value: &str, #[case] expected: usize) {
    assert_eq!(
        parse(&["--max-concurrent-reconciles", value])
            .unwrap()
            .concurrency(),
        expected
    );
}

#[rstest]
#[case(&["--kubeconfig=/tmp/x"], "--kubeconfig")]
#[case(&["-kubeconfig=/tmp/x"], "--kubeconfig")]
#[case(&["--nonsense"], "--nonsense")]
#[case(&["leftover"], "leftover")]
#[case(&["--leader-elect", "true"], "write --leader-elect=true, or --leader-elect alone")]
#[case(&["-leader-elect", "F"], "write --leader-elect=F,")]
#[case(&["run", "--enable-webhooks", "false", "--leader-elect"], "write --enable-webhooks=false,")]
#[case(&["--sync-period=5m", "--zap-devel", "1"], "write --zap-devel=1,")]
#[case(&["--metrics-secure", "yes"], "--metrics-secure=true or --metrics-secure=false")]
#[case(&["--leader-elect=yes"], "expected true or false")]
#[case(&["--sync-period=10"], "is not a duration")]
#[case(&["--sync-period=0"], "longer than 0")]
#[case(&["--sync-period=-5m"], "is not a duration")]
#[case(&["--sync-period="], "")]
#[case(&["--sync-period=99999999999999999999h"], "is not a duration")]
#[case(&["--metrics-bind-address=8080"], "HOST:PORT")]
#[case(&["--metrics-bind-address=:99999"], "HOST:PORT")]
#[case(&["--max-concurrent-reconciles=two"], "two")]
#[case(&["--zap-log-level=warn"], "warn")]
#[case(&["--zap-encoder=xml"], "xml")]
#[case(&["--local-probe=magic"], "magic")]
#[case(&["--cluster-domain="], "DNS domain")]
#[case(&["--cluster-domain=.local"], "DNS domain")]
#[case(&["--namespace"], "--namespace")]
#[case(&["--namespace=Bad Name"], "one namespace")]
#[case(&["--clusters-namespace=a/b"], "one namespace")]
#[case(&["--leader-election-namespace=-a"], "one namespace")]
#[case(&["--metrics-bind-address=:8081"], "--health-probe-bind-address cannot both be :8081")]
#[case(&["--health-probe-bind-address=:9443"], "--webhook-bind-address cannot both be :9443")]
#[case(&["crds", "leftover"], "leftover")]
#[case(&["--leader-elect-lease-duration=10s"], "renew-deadline")]
#[case(&["--leader-elect-renew-deadline=2s"], "retry-period")]
#[case(&["run", "--leader-elect-lease-duration=15500ms"], "whole seconds")]
fn mistakes_end_in_usage_and_exit_code_one(#[case] args: &[&str], #[case] names: &str) {
    let usage = parse(args).unwrap_err();
    assert_eq!(usage.exit_code, 1, "{}", usage.text);
    assert!(usage.text.contains("Usage:"), "{}", usage.text);
    let mut lines = usage.text.lines();
    let first = lines.next().unwrap();
    assert!(first.starts_with("error: "), "{first}");
    assert!(first.contains(names), "one line says all of it: {first}");
    assert_eq!(lines.count(), 1, "{}", usage.text);
}

#[rstest]
#[case("-h")]
#[case("--help")]
#[case("-help")]
fn help_lists_the_flags_and_is_no_failure(#[case] arg: &str) {
    let usage = parse(&[arg]).unwrap_err();
    assert_eq!(usage.exit_code, 0);
    for flag in [
        "--metrics-bind-address",
        "--clusters-namespace",
        "--zap-devel",
        "crds",
    ] {
        assert!(usage.text.contains(flag), "{flag}: {}", usage.text);
    }
}

#[test]
fn crds_prints_every_kind_as_a_yaml_document() {
    let text = crds().unwrap();
    let kinds: Vec<String> = text
        .split("---\n")
        .skip(1)
        .map(|document| {
            let crd: serde_json::Value = serde_saphyr::from_str(document).unwrap();
            crd["spec"]["names"]["kind"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(kinds, ["Glance", "GlanceBackend", "TargetCluster"]);
}

fn usage(args: &[&str]) -> Usage {
    Cli::parse_from_args(args.iter().map(OsString::from)).unwrap_err()
}

#[test]
fn as_a_kubectl_plugin_it_never_starts_the_operator() {
    for args in [
        &["/usr/local/bin/kubectl-glance"][..],
        &["kubectl-glance", "--leader-elect"],
    ] {
        assert_ne!(usage(args).text, "", "{args:?}");
    }
    let help = usage(&["kubectl-glance", "--help"]);
    assert_eq!(help.exit_code, 0);
    assert!(help.text.contains("Usage: kubectl glance"), "{}", help.text);
    assert!(!help.text.contains("--leader-elect"), "{}", help.text);
    let parsed = Cli::parse_from_args(
        [
            "kubectl-glance",
            "clusters",
            "list",
            "-n",
            "fleet",
            "-ojson",
        ]
        .map(OsString::from),
    );
    assert!(matches!(
        parsed.unwrap().into_command(),
        Command::Clusters(_)
    ));
}

#[test]
fn options_of_all_clusters_commands_stand_before_or_behind_the_verb() {
    for args in [
        &["glance-operator", "clusters", "-n", "fleet", "list"][..],
        &[
            "glance-operator",
            "clusters",
            "list",
            "--namespace",
            "fleet",
        ],
        &[
            "glance-operator",
            "clusters",
            "get",
            "--clusters-namespace=fleet",
        ],
    ] {
        let parsed = Cli::parse_from_args(args.iter().map(OsString::from)).unwrap();
        let Command::Clusters(clusters) = parsed.into_command() else {
            panic!("{args:?}");
        };
        assert_eq!(clusters.common.clusters_namespace, "fleet", "{args:?}");
    }
}

#[rstest]
#[case(&["glance-operator", "clusters", "register", "Edge"], "lower case")]
#[case(&["glance-operator", "clusters", "register"], "<NAME>")]
#[case(&["glance-operator", "clusters", "frobnicate"], "unrecognized subcommand")]
#[case(&["glance-operator", "clusters", "list", "-o", "xml"], "json")]
fn mistakes_say_what_would_be_right(#[case] args: &[&str], #[case] text: &str) {
    let usage = usage(args);
    assert_eq!(usage.exit_code, 1);
    assert!(usage.text.contains(text), "{}", usage.text);
}

#[test]
fn every_verb_teaches_itself() {
    let command = Cli::command();
    let clusters = command.find_subcommand("clusters").unwrap();
    for verb in clusters.get_subcommands() {
        assert!(verb.get_about().is_some(), "{}", verb.get_name());
        for arg in verb.get_arguments() {
            assert!(
                arg.get_help().is_some(),
                "{} {}",
                verb.get_name(),
                arg.get_id()
            );
        }
    }
    for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh] {
        let script = String::from_utf8(completion(shell)).unwrap();
        assert!(script.contains("unregister"), "{shell}");
    }
}
