//! Kubeconfigs that ask for what a registration does not get. A registration is data: nothing in
//! it runs a program, opens a file or chooses who else is spoken to.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow, ensure};
use e2e::{
    audit::Audit,
    bed::run,
    expect::{Wanted, condition, eventually},
    fleet::Fleet,
    operator::Running,
    patience::seconds,
    registration,
    site::Site,
};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, inotify, mknodat},
    io::Errno,
};
use serde_json::{Value, json};

/// A kubeconfig, and what is said about it.
struct Case {
    name: &'static str,
    kubeconfig: String,
    /// What went wrong, in the words of the contract where it has some.
    text: &'static str,
    /// Where.
    field: String,
    /// Whether an installation may choose to accept it.
    insecure: bool,
}

/// Files that nobody may open, and a program that nobody may run.
struct Trap {
    folder: PathBuf,
    opened: OwnedFd,
}

// === impl Trap ===

impl Trap {
    fn set(folder: &Path) -> Result<Self> {
        let folder = folder.join("trap");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("file"), "secret of the operator's pod")?;
        mknodat(
            CWD,
            folder.join("fifo"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )?;
        let script = format!("#!/bin/sh\ntouch {}\n", folder.join("ran").display());
        fs::write(folder.join("program"), script)?;
        rustix::fs::chmod(folder.join("program"), Mode::RWXU)?;
        let opened = inotify::init(inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(
            &opened,
            &folder,
            inotify::WatchFlags::OPEN | inotify::WatchFlags::ACCESS,
        )?;
        Ok(Self { folder, opened })
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    /// What has been opened since the last time.
    fn sprung(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.opened, &mut buffer);
        loop {
            match events.next() {
                Ok(event) => {
                    let name = event.file_name().map(|n| n.to_string_lossy().into_owned());
                    names.push(name.unwrap_or_default());
                }
                Err(Errno::WOULDBLOCK) => break,
                Err(error) => return Err(error.into()),
            }
        }
        // A reader that waits for the other end of the pipe has not opened it yet.
        let other_end = rustix::fs::open(
            self.folder.join("fifo"),
            OFlags::WRONLY | OFlags::NONBLOCK,
            Mode::empty(),
        );
        if other_end.err() != Some(Errno::NXIO) {
            names.push("fifo, by a reader that waits".to_owned());
        }
        if self.folder.join("ran").exists() {
            names.push("program, which ran".to_owned());
        }
        Ok(names)
    }
}

#[test]
fn a_trap_notices_who_reads() {
    let folder = tempfile::tempdir().unwrap();
    let trap = Trap::set(folder.path()).unwrap();
    assert_eq!(trap.sprung().unwrap(), [""; 0]);
    fs::read(trap.path("file")).unwrap();
    assert!(trap.sprung().unwrap().contains(&"file".to_owned()));
    let fifo = trap.path("fifo");
    let reader = std::thread::spawn(move || File::open(fifo).map(drop));
    while trap.sprung().unwrap().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    reader.join().unwrap().unwrap();
}

const PLUGIN: &str = "exec and auth-provider credentials are not supported, use a bearer token or a client certificate";
const FILE: &str = "file-backed credentials (tokenFile, client-certificate, client-key, certificate-authority) are not supported, inline the token, certificate and CA data";
const UNVERIFIED: &str = "turns off the verification of the server";
const PROXY: &str = "register an address that can be reached directly";
const PASSWORD: &str = "user names and passwords are not supported";
const ACTING: &str = "impersonation is not supported";
const AUTHORITY: &str = "certificate-authority-data";
const NOTHING: &str = "";

/// A kubeconfig that works with one key of one entry set: name of the case, list and index of the
/// entry, key, value, a key to take out, what is said about it.
type Change = (
    &'static str,
    &'static str,
    usize,
    &'static str,
    Value,
    &'static str,
    &'static str,
);

/// What asks for a program or a file (contract: target clusters, refused credentials).
fn acts(trap: &Trap) -> Vec<Change> {
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": trap.path("program"),
    });
    let provider = json!({ "name": "gcp", "config": { "cmd-path": trap.path("program") } });
    let (file, fifo) = (json!(trap.path("file")), json!(trap.path("fifo")));
    let (nowhere, zero) = (json!(trap.path("not-there")), json!("/dev/zero"));
    let authority = "certificate-authority";
    vec![
        ("exec", "users", 0, "exec", exec.clone(), NOTHING, PLUGIN),
        (
            "exec-alone",
            "users",
            0,
            "exec",
            exec.clone(),
            "token",
            PLUGIN,
        ),
        (
            "auth-provider",
            "users",
            0,
            "auth-provider",
            provider,
            NOTHING,
            PLUGIN,
        ),
        (
            "token-file",
            "users",
            0,
            "tokenFile",
            file.clone(),
            "token",
            FILE,
        ),
        (
            "token-fifo",
            "users",
            0,
            "tokenFile",
            fifo.clone(),
            "token",
            FILE,
        ),
        (
            "token-nowhere",
            "users",
            0,
            "tokenFile",
            nowhere.clone(),
            NOTHING,
            FILE,
        ),
        ("token-zero", "users", 0, "tokenFile", zero, "token", FILE),
        (
            "cert-file",
            "users",
            0,
            "client-certificate",
            file.clone(),
            NOTHING,
            FILE,
        ),
        (
            "key-nowhere",
            "users",
            0,
            "client-key",
            nowhere.clone(),
            NOTHING,
            FILE,
        ),
        (
            "ca-fifo",
            "clusters",
            0,
            authority,
            fifo.clone(),
            AUTHORITY,
            FILE,
        ),
        (
            "ca-nowhere",
            "clusters",
            0,
            authority,
            nowhere,
            AUTHORITY,
            FILE,
        ),
    ]
}

/// The same in entries that are not current: which one is, is the author's choice too.
fn hidden(trap: &Trap) -> Vec<Change> {
    let exec = json!({ "command": trap.path("program") });
    let (file, fifo) = (json!(trap.path("file")), json!(trap.path("fifo")));
    let authority = "certificate-authority";
    vec![
        ("hidden-exec", "users", 1, "exec", exec, NOTHING, PLUGIN),
        (
            "hidden-token-file",
            "users",
            1,
            "tokenFile",
            fifo,
            NOTHING,
            FILE,
        ),
        (
            "hidden-ca-file",
            "clusters",
            1,
            authority,
            file,
            NOTHING,
            FILE,
        ),
    ]
}

/// What is merely insecure. `server` is the URL that works.
fn insecure(server: &str) -> Vec<Change> {
    let skip = "insecure-skip-tls-verify";
    let plain = json!(server.replace("https://", "http://"));
    let login = json!(server.replace("https://", "https://me:pw@"));
    let proxy = json!("http://127.0.0.1:1");
    let (groups, extra) = (json!(["system:masters"]), json!({ "reason": ["x"] }));
    let user_info = "contains user info";
    vec![
        (
            "unverified",
            "clusters",
            0,
            skip,
            json!(true),
            AUTHORITY,
            UNVERIFIED,
        ),
        ("proxy", "clusters", 0, "proxy-url", proxy, NOTHING, PROXY),
        (
            "plain-http",
            "clusters",
            0,
            "server",
            plain,
            NOTHING,
            "is not an https URL",
        ),
        (
            "url-login",
            "clusters",
            0,
            "server",
            login,
            NOTHING,
            user_info,
        ),
        (
            "username",
            "users",
            0,
            "username",
            json!("me"),
            NOTHING,
            PASSWORD,
        ),
        (
            "password",
            "users",
            0,
            "password",
            json!("pw"),
            NOTHING,
            PASSWORD,
        ),
        (
            "as",
            "users",
            0,
            "as",
            json!("system:admin"),
            NOTHING,
            ACTING,
        ),
        ("as-uid", "users", 0, "as-uid", json!("1"), NOTHING, ACTING),
        (
            "as-groups",
            "users",
            0,
            "as-groups",
            groups,
            NOTHING,
            ACTING,
        ),
        (
            "as-user-extra",
            "users",
            0,
            "as-user-extra",
            extra,
            NOTHING,
            ACTING,
        ),
    ]
}

fn changed(good: &Value, change: Change, insecure: bool) -> Case {
    let (name, list, index, key, value, dropped, text) = change;
    let body = list.trim_end_matches('s');
    let mut document = good.clone();
    if index > 0 {
        let other = json!({ "name": "other", body: {} });
        document[list].as_array_mut().unwrap().push(other);
    }
    let entry = document[list][index][body].as_object_mut().unwrap();
    entry.remove(dropped);
    entry.insert(key.to_owned(), value);
    Case {
        name,
        kubeconfig: document.to_string(),
        text,
        field: format!("{list}[{index}].{body}.{key}"),
        insecure,
    }
}

/// One of each kind, made from a kubeconfig that works.
fn cases(good: &Value, trap: &Trap) -> Vec<Case> {
    let server = good["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let acts = acts(trap)
        .into_iter()
        .chain(hidden(trap))
        .map(|c| changed(good, c, false));
    let insecure = insecure(server).into_iter();
    let twice = format!("{good}\n---\n{good}\n");
    let no_yaml = "is not one document of valid YAML";
    let documents = [
        ("garbage", "not a kubeconfig", "is not a mapping"),
        ("no-yaml", "{ [ \u{7}: ", no_yaml),
        ("two-documents", &twice, no_yaml),
        ("nothing", "", "is missing or empty"),
        ("blank", "# nothing\n", "it is empty"),
    ];
    let documents = documents.map(|(name, kubeconfig, text)| Case {
        name,
        kubeconfig: kubeconfig.to_owned(),
        text,
        field: "kubeconfig".to_owned(),
        insecure: false,
    });
    acts.chain(insecure.map(|c| changed(good, c, true)))
        .chain(documents)
        .collect()
}

/// What the operator says about its clusters, by name.
async fn clusters(running: &Running) -> Result<BTreeMap<String, Value>> {
    let all: Vec<Value> = serde_json::from_str(&running.health("/debug/clusters").await?)?;
    let name = |cluster: &Value| cluster["name"].as_str().unwrap_or_default().to_owned();
    Ok(all.iter().map(|c| (name(c), c.clone())).collect())
}

#[test]
fn a_refused_kubeconfig_is_named_and_nothing_in_it_is_acted_on() {
    run(async |fleet: &Fleet| {
        let site = Site::open(fleet, "refused").await?;
        let operator = site.operator().await?;
        let running = operator.start().await?;
        let edge = fleet.cluster("edge-1")?;
        let folder = tempfile::tempdir()?;
        let trap = Trap::set(folder.path())?;
        let good: Value = serde_saphyr::from_str(&site.kubeconfig(edge).await?)?;
        let cases = cases(&good, &trap);
        let mark = edge.audit().map(Audit::mark).transpose()?;

        let namespace = site.clusters_namespace();
        for case in &cases {
            registration::register(site.hub(), &namespace, case.name, &case.kubeconfig, None)
                .await?;
            let scenario = site.scenario(case.name).on(case.name);
            scenario.apply_resources(site.hub()).await?;
        }
        let mut log = String::new();
        for case in &cases {
            let wanted = Wanted::of("SecretsReady")
                .status("False")
                .reason("TargetClusterUnavailable")
                .message(case.text);
            let seen = site
                .glance(case.name)
                .condition(seconds(30), wanted)
                .await?;
            let found = condition(&seen, "SecretsReady").unwrap_or_default();
            let message = found["message"].as_str().unwrap_or_default();
            assert!(
                message.starts_with("cluster not found: "),
                "{}: {message}",
                case.name
            );
            assert!(message.contains(&case.field), "{}: {message}", case.name);
            assert!(message.contains(&format!("{:?}", case.name)), "{message}");
            assert_eq!(seen.metadata.finalizers, None, "{}", case.name);
            // The log says the same, whatever its format does to quotes.
            let said = message.trim_start_matches("cluster not found: ");
            log = operator.output().replace("\\\"", "\"");
            assert!(log.contains(said), "{}: not in the log: {said}", case.name);
        }
        assert!(!log.contains("cluster engaged"), "{log}");
        let known = clusters(&running).await?;
        for case in &cases {
            let state = &known[case.name];
            assert_eq!(state["state"], "Rejected", "{state}");
        }
        if let (Some(audit), Some(mark)) = (edge.audit(), mark) {
            let asked = audit.requests_by(&site.user_on_targets(), mark)?;
            assert!(asked.is_empty(), "{asked:#?}");
        }
        assert_eq!(trap.sprung()?, [""; 0]);

        // Corrected: usable at once.
        let (name, good) = (cases[0].name, good.to_string());
        let scope = Some(site.namespace());
        registration::register(site.hub(), &namespace, name, &good, scope).await?;
        let glance = site.glance(name);
        glance
            .satisfies(seconds(10), "to be worked on", |found| {
                let reason = condition(found, "SecretsReady").unwrap_or_default()["reason"].clone();
                if reason == "TargetClusterUnavailable" {
                    Err(reason.to_string())
                } else {
                    Ok(())
                }
            })
            .await?;
        let (kubeconfig, scope) = (&cases[0].kubeconfig, None);
        registration::register(site.hub(), &namespace, name, kubeconfig, scope).await?;
        let wanted = Wanted::of("SecretsReady").reason("TargetClusterUnavailable");
        glance.condition(seconds(10), wanted).await?;
        assert!(running.stop()?.success());

        // The flag admits what is insecure, and nothing that runs or opens anything.
        let operator = operator
            .arg("--allow-insecure-registrations")
            .log("insecure");
        let running = operator.start().await?;
        for case in &cases {
            let what = format!("the registration {}", case.name);
            eventually(seconds(20), &what, async || {
                let known = clusters(&running).await?;
                let state = known.get(case.name).ok_or_else(|| anyhow!("not known"))?;
                ensure!(state["state"] != "Pending", "{state}");
                ensure!((state["state"] == "Rejected") != case.insecure, "{state}");
                Ok(())
            })
            .await?;
        }
        let known = clusters(&running).await?;
        for name in ["unverified", "url-login"] {
            // Connected, with a credential that may do little there.
            assert_eq!(known[name]["state"], "Degraded", "{}", known[name]);
            assert_eq!(known[name]["cause"], "MissingPermissions");
        }
        assert_eq!(trap.sprung()?, [""; 0]);
        Ok(())
    });
}
