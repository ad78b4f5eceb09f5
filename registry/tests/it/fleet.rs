//! Many registrations, and many writes of one.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    eventually,
    fake::{Fake, kubeconfig},
    rig::{Rig, SHORT, black_hole, synced, version_of},
};

/// Tells the child of [`alone`] that it is one.
const ALONE: &str = "TARGET_REGISTRY_TEST_ALONE";

/// Runs the test of this name in a process of its own, whose descriptors and memory are nobody
/// else's. Whether the caller is to go on.
fn alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env(ALONE, "1");
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let told = text.lines().filter(|line| line.starts_with("measured: "));
    told.for_each(|line| println!("{line}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{error}");
    assert!(
        text.contains("1 passed"),
        "{name} is not the name of a test"
    );
    false
}

/// Tasks, open descriptors, and resident memory in KiB.
fn held() -> (usize, usize, usize) {
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.unwrap().trim().trim_end_matches(" kB");
    (tasks, descriptors, resident.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_rotations_leave_tasks_descriptors_and_memory_as_they_were() {
    if !alone("fleet::a_thousand_rotations_leave_tasks_descriptors_and_memory_as_they_were") {
        return;
    }
    let blue = Fake::start();
    let port = blue.url.rsplit(':').next().unwrap().to_owned();
    let rig = Rig::start(Fake::start());
    let addresses = [
        format!("http://127.0.0.1:{port}"),
        format!("http://localhost:{port}"),
    ];
    blue.accept(&["good", "better"]);
    let mut first = None;
    let started = Instant::now();
    for round in 0..1000_usize {
        // By turns another server and another token: a new connection, and one that goes on.
        let address = &addresses[round / 2 % 2];
        let token = ["good", "better"][round.div_ceil(2) % 2];
        rig.register(&[("kubeconfig", &kubeconfig(address, token))]);
        let generation = round as u64 / 2 + 1;
        let cluster = rig.generation(generation).await;
        eventually("the token is in place", SHORT, || {
            let last = blue.calls("version").pop();
            last.filter(|call| call.token == token)
        })
        .await;
        if round % 10 == 0 {
            // Some work, so that there is something to leak.
            let _watches = [synced(&cluster).await, synced(&cluster).await];
        }
        if round % 100 == 99 {
            // The servers of the test remember every call, which is not to be measured.
            blue.forget();
            rig.hub.forget();
            let settled = eventually("the old generations to end", SHORT, || {
                let now = held();
                let limit = first.map_or(usize::MAX, |(tasks, descriptors, _)| tasks + descriptors);
                (now.0 + now.1 <= limit.saturating_add(2)).then_some(now)
            })
            .await;
            println!("measured: after {} rotations {settled:?}", round + 1);
            first.get_or_insert(settled);
        }
    }
    let (first, last) = (first.unwrap(), held());
    println!(
        "measured: {first:?} after 100, {last:?} (tasks, descriptors, KiB) after 1000 rotations in {:?}",
        started.elapsed()
    );
    assert!(last.0 <= first.0 + 2, "tasks: {first:?} {last:?}");
    assert!(last.1 <= first.1 + 2, "descriptors: {first:?} {last:?}");
    // One leaked connection is some 10 KiB, a leaked generation with its watches 300.
    assert!(last.2 <= first.2 + 4096, "memory: {first:?} {last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_hundred_registrations_a_fifth_of_them_dead_the_first_is_usable_at_once() {
    let hub = Fake::start();
    let alive: Vec<_> = (0..4).map(|_| Fake::start()).collect();
    let (hole, _open) = black_hole().await;
    let mut dead = 0;
    for index in 0..100 {
        let url = match index % 5 {
            0 if index % 2 == 0 => hole.clone(),
            0 => "http://127.0.0.1:1".to_owned(),
            of => alive[of - 1].url.clone(),
        };
        dead += usize::from(index % 5 == 0);
        let config = kubeconfig(&url, "good");
        hub.register(&format!("c{index:03}"), "true", &[("kubeconfig", &config)]);
    }
    assert_eq!(dead, 20);
    let started = Instant::now();
    let rig = Rig::with(hub, |options| {
        options.engage_timeout = Duration::from_secs(10);
        options.client.connect_timeout = Duration::from_secs(5);
    });
    let connected = || {
        let snapshot = rig.registry.snapshot();
        snapshot
            .iter()
            .filter(|state| state.state.resolves())
            .count()
    };
    let first = eventually("a healthy cluster", SHORT, || {
        let snapshot = rig.registry.snapshot();
        let mut names = snapshot.into_iter().map(|state| state.name);
        names.find_map(|name| rig.registry.resolve(&name).ok())
    })
    .await;
    version_of(&first).await.unwrap();
    let one = started.elapsed();
    eventually("all healthy clusters", SHORT, || {
        (connected() == 80).then_some(())
    })
    .await;
    let all = started.elapsed();
    println!(
        "measured: the first of 80 healthy clusters used after {one:?}, all connected after {all:?}"
    );
    let limit = Duration::from_secs(5);
    assert!(one < limit, "the first after {one:?}");
    rig.registry.attempted().await;
    let states = rig.registry.snapshot();
    assert_eq!(states.len(), 100);
    assert_eq!(states.iter().filter(|s| s.next_try.is_some()).count(), 20);
}
