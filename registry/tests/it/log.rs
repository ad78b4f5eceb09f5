//! What the log says, and what it must not.

use std::{
    io,
    sync::{Arc, Mutex},
};

use target_registry::{Cause, State};

use crate::{
    fake::Fake,
    rig::{Rig, informer},
};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_log_has_the_lines_people_look_for_and_no_secret() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // For all tests of this process: a subscriber for one thread would race with the others.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let text = || String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();

    let blue = Fake::start();
    blue.accept(&["PLANTED1", "PLANTED2"]);
    let mut rig = Rig::start(Fake::start());
    rig.name = "logged";
    rig.register(&[
        ("kubeconfig", &blue.kubeconfig("PLANTED1")),
        ("namespaces", "a,b"),
    ]);
    let cluster = rig.engaged().await;
    let _watch = informer(&cluster);
    rig.register(&[
        ("kubeconfig", &blue.kubeconfig("PLANTED2")),
        ("namespaces", "a,b,c"),
    ]);
    rig.generation(2).await;
    rig.register(&[("kubeconfig", "PLANTED3: [")]);
    rig.until(State::Degraded, Some(Cause::KubeconfigInvalid))
        .await;
    rig.register(&[(
        "kubeconfig",
        "users: [{name: PLANTED4, user: {exec: {command: PLANTED5}}}]",
    )]);
    rig.until(State::Rejected, Some(Cause::CredentialsRefused))
        .await;
    rig.register(&[("kubeconfig", "x"), ("namespaces", "")]);
    rig.until(State::Rejected, Some(Cause::NamespacesInvalid))
        .await;
    for line in [
        "building the cluster from its registration Secret",
        "namespaces=a,b",
        "cluster engaged",
        "registration changed, re-engaging the cluster",
        "cluster disengaged",
        "namespaces key present but empty",
        "refusing the kubeconfig of cluster \"logged\": exec and auth-provider",
    ] {
        let ours = |whole: &&str| whole.contains("cluster=\"logged\"") && whole.contains(line);
        assert!(
            text().lines().any(|whole| ours(&whole)),
            "{line} in {}",
            text()
        );
    }
    let planted = text()
        .lines()
        .find(|line| line.contains("PLANTED"))
        .map(str::to_owned);
    assert_eq!(planted, None);
    assert!(!format!("{cluster:?} {:?} {:?}", rig.registry, rig.state()).contains("PLANTED"));
}
