//! The database URL that a Glance gets, tried by the driver that Glance uses on a real server with TLS: each mode checks
//! what its name says, and no credential changes on the way.

use std::{fmt::Write as _, io::Write as _};

use anyhow::{Context as _, Result};
use e2e::{
    bed::run,
    database_server::{DatabaseServer, Driver},
    expect::eventually,
    fleet::Fleet,
    kinds,
    patience::seconds,
    scenario::Scenario,
    site::Site,
};
use kube::api::DynamicObject;
use serde_json::{Value, json};

const SCRIPT: &str = include_str!("database_tls.py");

/// The modes, and whether each checks the name of the server.
const MODES: [(Option<&str>, bool); 5] = [
    (None, false),
    (Some("prefer"), false),
    (Some("require"), false),
    (Some("verify-ca"), false),
    (Some("verify-full"), true),
];

/// Logins that somebody might choose, and that some layer between a Secret and the server could take for syntax.
const LOGINS: [(&str, &str); 8] = [
    ("dollar$user", "pa$word$HOME${x}$(y)$$"),
    ("per%cent", "100%s%(a)s%40"),
    ("at@host", "p@ss/w:rd?a=b#c"),
    ("quo'te\"s", "single' double\" back\\slash `tick`"),
    ("blank user", " leading, trailing and in between "),
    ("brackets[1]", "[::1]{}<>|&+=;,!*()~^"),
    ("ünïcødé-日本", "plain"),
    (BEYOND_LATIN, "Пароль-пароль-密碼-😀"),
];

/// Whose password arrives unchanged like all the others, but `PyMySQL` itself cannot send it.
const BEYOND_LATIN: &str = "beyond-latin";

/// A Glance, what its URL is tried with, and what must come of it.
struct Trial {
    scenario: Scenario,
    /// Which authority the client trusts.
    trusts: &'static str,
    expected: Expected,
}

enum Expected {
    /// In clear text.
    Plain(String),
    /// With TLS.
    Encrypted(String),
    /// With a text like this.
    Refused(&'static str),
}

/// A statement's string.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

fn setup() -> String {
    let mut sql = "SET NAMES utf8mb4;\nCREATE DATABASE glance CHARACTER SET utf8mb3;\n".to_owned();
    let fixed = [
        ("certified", "pw", " REQUIRE X509"),
        ("encrypted", "pw", " REQUIRE SSL"),
        ("anyhow", "pw", ""),
    ];
    let chosen = LOGINS.map(|(user, password)| (user, password, ""));
    for (user, password, requirement) in fixed.into_iter().chain(chosen) {
        let (user, password) = (quoted(user), quoted(password));
        let _ = writeln!(
            sql,
            "CREATE USER {user}@'%' IDENTIFIED BY {password}{requirement};\n\
             GRANT ALL PRIVILEGES ON glance.* TO {user}@'%';"
        );
    }
    sql
}

/// A Glance with a database of its own.
fn brownfield(
    site: &Site<'_>,
    name: &str,
    server: &DatabaseServer,
    host: &str,
    tls: &Value,
) -> Scenario {
    let mut database = json!({
        "host": host, "port": server.port(), "database": "glance",
        "secretRef": { "name": format!("{name}-db") },
    });
    if !tls.is_null() {
        database["tls"] = tls.clone();
    }
    site.scenario(name).with("database", database)
}

fn tls(mode: Option<&str>, certificate: bool) -> Value {
    let mut tls = json!({ "caBundleSecretRef": { "name": "db-ca" } });
    if let Some(mode) = mode {
        tls["mode"] = json!(mode);
    }
    if certificate {
        tls["clientCertSecretRef"] = json!({ "name": "db-client" });
    }
    tls
}

async fn install(site: &Site<'_>, scenario: &Scenario, user: &str, password: &str) -> Result<()> {
    let hub = site.hub();
    let ns = site.namespace();
    scenario.apply_surroundings(hub).await?;
    scenario.apply_credentials(hub).await?;
    let login = [("username", user), ("password", password)];
    hub.secret(ns, &format!("{}-db", scenario.name()), &login)
        .await?;
    scenario.apply_resources(hub).await
}

/// The URL in the Secret that the pods read.
async fn url(site: &Site<'_>, scenario: &Scenario) -> Result<String> {
    let name = format!("{}-db-connection", scenario.name());
    let secret: DynamicObject = eventually(seconds(60), "the URL of the database", async || {
        let api = site
            .hub()
            .any(kinds::SECRET.0, kinds::SECRET.1, Some(site.namespace()));
        api.get_opt(&name).await?.context("it is not there")
    })
    .await?;
    let encoded = secret.data["data"]["connection"]
        .as_str()
        .unwrap_or_default();
    Ok(String::from_utf8(
        data_encoding::BASE64.decode(encoded.as_bytes())?,
    )?)
}

async fn tried(
    site: &Site<'_>,
    server: &DatabaseServer,
    driver: Driver,
    trials: &[Trial],
) -> Result<()> {
    let mut cases = Vec::new();
    for trial in trials {
        let files = server.client(trial.trusts);
        cases.push(json!({ "url": url(site, &trial.scenario).await?, "files": files }));
    }
    let input = Value::from(cases);
    let answers = {
        let input = input.clone();
        tokio::task::spawn_blocking(move || driver.run(SCRIPT, &input)).await??
    };
    let answers = answers.as_array().context("no answers")?;
    assert_eq!(answers.len(), trials.len());
    for (number, (trial, answer)) in trials.iter().zip(answers).enumerate() {
        let what = format!(
            "{} trusts {}: {answer}",
            trial.scenario.name(),
            trial.trusts
        );
        assert_eq!(answer["configured"], input[number]["url"], "{what}");
        let error = answer["error"].as_str().unwrap_or_default();
        match &trial.expected {
            Expected::Plain(user) => assert_eq!(answer["user"], format!("{user}@%"), "{what}"),
            Expected::Encrypted(user) => {
                assert_eq!(answer["user"], format!("{user}@%"), "{what}");
                assert_ne!(answer["cipher"], "", "{what}");
            }
            Expected::Refused(text) => {
                assert!(answer["ok"] == false && error.contains(text), "{what}");
            }
        }
    }
    Ok(())
}

/// A server and a driver, or a line that says why this is not tested here.
async fn surroundings(site: &Site<'_>) -> Result<Option<(DatabaseServer, Driver)>> {
    let found =
        tokio::task::spawn_blocking(|| Ok((DatabaseServer::program()?, Driver::find_or_make()?)));
    let (program, driver): (_, Driver) = match found.await? {
        Ok(found) => found,
        Err(error) => {
            let error: anyhow::Error = error;
            // Not by a macro, which the test harness would keep to itself.
            writeln!(
                std::io::stderr(),
                "skipped: the database URL on a real server: {error:#}"
            )?;
            return Ok(None);
        }
    };
    let folder = site.fleet().folder().path().join(site.namespace());
    let server = DatabaseServer::start(&program, &folder, &setup()).await?;
    Ok(Some((server, driver)))
}

#[test]
fn each_mode_of_tls_checks_what_its_name_says_and_no_credential_changes_on_the_way() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "db-tls").await?;
        let Some((server, driver)) = surroundings(&site).await? else {
            return Ok(());
        };
        let _operator = site.operator().await?.start().await?;
        let mut trials = Vec::new();
        for (number, (mode, checks_name)) in MODES.into_iter().enumerate() {
            trials.extend(encrypted(&site, &server, number, mode, checks_name).await?);
        }
        trials.extend(in_clear_text(&site, &server).await?);
        tried(&site, &server, driver, &trials).await
    });
}

/// One mode, by the name that the server's certificate is made out to and by another.
async fn encrypted(
    site: &Site<'_>,
    server: &DatabaseServer,
    number: usize,
    mode: Option<&str>,
    checks_name: bool,
) -> Result<Vec<Trial>> {
    let unverified = || Expected::Refused("certificate verify failed");
    let mut trials = Vec::new();
    for (host, named) in [("localhost", true), ("127.0.0.1", false)] {
        for (kind, user, certificate) in [
            ("with", "certified", true),
            ("without", "encrypted", false),
            // The server wants a certificate of the client.
            ("lacking", "certified", false),
        ] {
            let name = format!("mode-{number}-{kind}-{}", u8::from(named));
            let scenario = brownfield(site, &name, server, host, &tls(mode, certificate));
            install(site, &scenario, user, "pw").await?;
            let expected = if !named && checks_name {
                unverified()
            } else if kind == "lacking" {
                Expected::Refused("Access denied")
            } else {
                Expected::Encrypted(user.to_owned())
            };
            trials.push(Trial {
                scenario: scenario.clone(),
                trusts: "right",
                expected,
            });
            trials.push(Trial {
                scenario,
                trusts: "wrong",
                expected: unverified(),
            });
        }
    }
    Ok(trials)
}

async fn in_clear_text(site: &Site<'_>, server: &DatabaseServer) -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    let disabled = tls(Some("disabled"), true);
    for (user, expected) in [
        ("anyhow", Expected::Plain("anyhow".to_owned())),
        ("encrypted", Expected::Refused("Access denied")),
    ] {
        let name = format!("off-{user}");
        let scenario = brownfield(site, &name, server, "localhost", &disabled);
        install(site, &scenario, user, "pw").await?;
        trials.push(Trial {
            scenario,
            trusts: "right",
            expected,
        });
    }
    for (number, (user, password)) in LOGINS.into_iter().enumerate() {
        // Every other one over IPv6, whose colons are another trap.
        let host = if server.ipv6() && number % 2 == 0 {
            "::1"
        } else {
            "127.0.0.1"
        };
        let name = format!("login-{number}");
        let scenario = brownfield(site, &name, server, host, &Value::Null);
        install(site, &scenario, user, password).await?;
        trials.push(Trial {
            scenario,
            trusts: "right",
            expected: match user {
                BEYOND_LATIN => Expected::Refused("'latin-1' codec can't encode"),
                _ => Expected::Plain(user.to_owned()),
            },
        });
    }
    Ok(trials)
}
