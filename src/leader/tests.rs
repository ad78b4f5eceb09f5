use std::{
    future::ready,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::*;

const WORKS: u8 = 0;
const HANGS: u8 = 1;
const FAILS: u8 = 2;
/// Writes arrive, their answers do not.
const SWALLOWS: u8 = 3;

/// An API server that knows one Lease.
#[derive(Clone, Default)]
struct Fake {
    lease: Arc<Mutex<Option<Value>>>,
    version: Arc<Mutex<u64>>,
    mode: Arc<AtomicU8>,
    /// Writes to refuse as if somebody else had been faster.
    races: Arc<Mutex<u32>>,
}

impl Fake {
    fn client(&self) -> Client {
        let path = "/apis/coordination.k8s.io/v1/namespaces/glance-system/leases";
        let read = |fake: State<Self>| fake.0.answered(Self::get);
        let create = |fake: State<Self>, Json(lease): Json<Value>| {
            fake.0.answered(move |fake| fake.put(lease, true))
        };
        let replace = |fake: State<Self>, Json(lease): Json<Value>| {
            fake.0.answered(move |fake| fake.put(lease, false))
        };
        let change = |fake: State<Self>, Json(patch): Json<json_patch::Patch>| {
            fake.0.answered(move |fake| fake.patch(&patch))
        };
        let router = Router::new()
            .route(path, post(create))
            .route(
                &format!("{path}/{LEASE}"),
                get(read).put(replace).patch(change),
            )
            .with_state(self.clone());
        Client::new(router, "default")
    }

    async fn answered(self, work: impl FnOnce(&Self) -> Response) -> Response {
        match self.mode.load(Ordering::Relaxed) {
            HANGS => std::future::pending().await,
            FAILS => status(500, "etcd is gone"),
            SWALLOWS => {
                work(&self);
                std::future::pending().await
            }
            _ => ready(work(&self)).await,
        }
    }

    fn get(&self) -> Response {
        match self.lease.lock().unwrap().clone() {
            Some(lease) => Json(lease).into_response(),
            None => status(404, "not found"),
        }
    }

    fn put(&self, lease: Value, create: bool) -> Response {
        let mut races = self.races.lock().unwrap();
        if *races > 0 {
            *races -= 1;
            return status(409, "the object has been modified");
        }
        let wanted = lease["metadata"]["resourceVersion"].clone();
        let present = self.lease.lock().unwrap().clone();
        match (&present, create) {
            (None, false) => return status(404, "not found"),
            (Some(_), true) => return status(409, "already exists"),
            (Some(present), false) if present["metadata"]["resourceVersion"] != wanted => {
                return status(409, "the object has been modified");
            }
            _ => {}
        }
        Json(self.store(lease)).into_response()
    }

    fn patch(&self, patch: &json_patch::Patch) -> Response {
        let Some(mut lease) = self.lease.lock().unwrap().clone() else {
            return status(404, "not found");
        };
        match json_patch::patch(&mut lease, patch) {
            Ok(()) => Json(self.store(lease)).into_response(),
            Err(_) => status(422, "the server rejected our request"),
        }
    }

    fn store(&self, mut lease: Value) -> Value {
        let mut version = self.version.lock().unwrap();
        *version += 1;
        lease["metadata"]["resourceVersion"] = json!(version.to_string());
        *self.lease.lock().unwrap() = Some(lease.clone());
        lease
    }

    /// A lease as another process, with another clock, would have left it.
    fn held_by_other(&self) {
        self.store(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": "glance-system"},
            "spec": {
                "holderIdentity": "go-operator_1", "leaseDurationSeconds": 15, "leaseTransitions": 6,
                "renewTime": "2001-01-01T00:00:00.000000Z", "acquireTime": "2001-01-01T00:00:00.000000Z"
            }
        }));
    }

    fn spec(&self) -> Value {
        self.lease.lock().unwrap().as_ref().unwrap()["spec"].clone()
    }

    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::Relaxed);
    }

    fn candidate(&self, identity: &str) -> Candidate {
        let (ballot, leadership) = Ballot::new(Timings::default());
        let stop = CancellationToken::new();
        let metrics = Metrics::new().unwrap();
        let (events, _writer) = Publisher::new(identity, identity);
        let election = LeaderElection {
            namespace: "glance-system".to_owned(),
            identity: identity.to_owned(),
            timings: Timings::default(),
            metrics: metrics.clone(),
        };
        let elector = Elector::new(election, self.client(), ballot, events);
        let task = tokio::spawn(elector.run(stop.clone()));
        Candidate {
            leadership,
            metrics,
            stop,
            task,
        }
    }
}

fn status(code: u16, message: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message});
    (StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
}

struct Candidate {
    leadership: Leadership,
    metrics: Metrics,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), Error>>,
}

impl Candidate {
    /// Time until this one leads.
    async fn acquired(&mut self) -> Duration {
        let begin = Instant::now();
        timeout(Duration::from_mins(5), self.leadership.acquired())
            .await
            .unwrap()
            .unwrap();
        begin.elapsed()
    }

    fn gauge(&self) -> bool {
        let page = self.metrics.encode();
        let is = |value: u8| {
            let series = format!("leader_election_master_status{{name=\"{LEASE}\"}} {value}\n");
            page.contains(&series)
        };
        // A replica that does not lead says so: without its 0 no alert could tell that nobody does.
        assert!(is(0) != is(1), "{page}");
        is(1)
    }
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_and_renewed() {
    let fake = Fake::default();
    let mut us = fake.candidate("us_1");
    assert!(!us.leadership.may_write());
    us.acquired().await;
    assert!(us.leadership.may_write());
    assert!(us.gauge());
    let spec = fake.spec();
    assert_eq!(spec["holderIdentity"], "us_1");
    assert_eq!(spec["leaseDurationSeconds"], 15);
    assert_eq!(spec["leaseTransitions"], 0);
    let writes = *fake.version.lock().unwrap();
    sleep(Duration::from_mins(1)).await;
    assert!(us.leadership.may_write());
    let renewals = *fake.version.lock().unwrap() - writes;
    assert!(
        (28..=31).contains(&renewals),
        "one write every two seconds: {renewals}"
    );
    assert_eq!(fake.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_lease_is_taken_only_after_we_saw_it_unchanged() {
    let fake = Fake::default();
    fake.held_by_other();
    let mut us = fake.candidate("us_1");
    // Its clock is decades behind and it renews all the same: it is alive.
    for _ in 0..10 {
        sleep(Duration::from_secs(5)).await;
        fake.held_by_other();
    }
    assert!(!us.leadership.may_write());
    assert!(!us.gauge());
    let waited = us.acquired().await;
    assert!(waited >= Duration::from_secs(14), "{waited:?}");
    assert!(waited <= Duration::from_secs(19), "{waited:?}");
    assert_eq!(fake.spec()["holderIdentity"], "us_1");
    assert_eq!(us.leadership.term().unwrap().epoch, 7);
}

#[tokio::test(start_paused = true)]
async fn a_lost_race_leaves_us_standing_by() {
    let fake = Fake::default();
    *fake.races.lock().unwrap() = 2;
    let mut us = fake.candidate("us_1");
    let waited = us.acquired().await;
    assert!(
        waited >= Duration::from_secs(4),
        "two races, two pauses: {waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn two_candidates_never_lead_at_one_time() {
    let fake = Fake::default();
    let first = fake.candidate("us_1");
    let second = fake.candidate("us_2");
    sleep(Duration::from_mins(1)).await;
    let leads = [&first, &second].map(|candidate| candidate.leadership.may_write());
    assert_eq!(leads.iter().filter(|leads| **leads).count(), 1, "{leads:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_cut_off_stops_before_anybody_may_take_over() {
    for mode in [HANGS, FAILS] {
        let fake = Fake::default();
        let mut us = fake.candidate("us_1");
        us.acquired().await;
        sleep(Duration::from_secs(7)).await;
        fake.set(mode);
        let begin = Instant::now();
        let ended = timeout(Duration::from_secs(30), &mut us.task)
            .await
            .unwrap()
            .unwrap();
        assert!(matches!(ended, Err(Error::Lost)));
        assert!(
            begin.elapsed() <= Duration::from_secs(10),
            "{:?}",
            begin.elapsed()
        );
        assert!(
            begin.elapsed() >= Duration::from_secs(7),
            "{:?}",
            begin.elapsed()
        );
        assert!(!us.leadership.may_write());
        assert!(!us.gauge());
    }
}

#[tokio::test(start_paused = true)]
async fn the_word_is_no_when_the_term_ran_out_even_if_nobody_said_so() {
    let (ballot, leadership) = Ballot::new(Timings::default());
    assert_eq!(leadership.write_until(), None);
    let valid_until = Instant::now() + Duration::from_secs(10);
    ballot.terms.send_replace(Some(Term {
        epoch: 1,
        valid_until,
    }));
    assert!(leadership.may_write());
    let until = leadership.write_until().unwrap();
    assert_eq!(
        until,
        valid_until + Duration::from_secs(4),
        "a second before the lease may change hands"
    );
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(leadership.write_until(), None);
    assert!(
        !leadership.may_write(),
        "a process that was stopped must not write on"
    );
}

#[tokio::test(start_paused = true)]
async fn short_trouble_costs_nothing() {
    let fake = Fake::default();
    let mut us = fake.candidate("us_1");
    us.acquired().await;
    for mode in [FAILS, HANGS, SWALLOWS] {
        fake.set(mode);
        sleep(Duration::from_secs(5)).await;
        fake.set(WORKS);
        sleep(Duration::from_secs(10)).await;
        assert!(us.leadership.may_write(), "mode {mode}");
    }
    assert_eq!(us.leadership.term().unwrap().epoch, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_by_somebody_else_ends_the_term_at_once() {
    let fake = Fake::default();
    let mut us = fake.candidate("us_1");
    us.acquired().await;
    fake.held_by_other();
    let ended = timeout(Duration::from_secs(3), &mut us.task)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(ended, Err(Error::Lost)));
    assert_eq!(fake.spec()["holderIdentity"], "go-operator_1");
}

#[tokio::test(start_paused = true)]
async fn who_held_a_lease_that_was_deleted_keeps_its_term() {
    let fake = Fake::default();
    fake.held_by_other();
    let mut us = fake.candidate("us_1");
    sleep(Duration::from_secs(3)).await;
    *fake.lease.lock().unwrap() = None;
    let waited = us.acquired().await;
    // The other was seen to renew three seconds ago at the earliest, and may write for fifteen.
    assert!(waited >= Duration::from_secs(11), "{waited:?}");
    assert!(waited <= Duration::from_secs(17), "{waited:?}");
    assert_eq!(us.leadership.term().unwrap().epoch, 7, "of a later term");
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_under_us_is_written_again() {
    let fake = Fake::default();
    let mut us = fake.candidate("us_1");
    us.acquired().await;
    *fake.lease.lock().unwrap() = None;
    sleep(Duration::from_secs(5)).await;
    assert!(us.leadership.may_write());
    assert_eq!(fake.spec()["holderIdentity"], "us_1");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_gives_the_lease_back() {
    let fake = Fake::default();
    let mut first = fake.candidate("us_1");
    first.acquired().await;
    let mut second = fake.candidate("us_2");
    sleep(Duration::from_secs(10)).await;
    first.stop.cancel();
    let ended = timeout(Duration::from_secs(3), &mut first.task)
        .await
        .unwrap()
        .unwrap();
    assert!(ended.is_ok());
    assert!(!first.leadership.may_write());
    let waited = second.acquired().await;
    assert!(waited <= Duration::from_secs(2), "{waited:?}");
    assert_eq!(second.leadership.term().unwrap().epoch, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_standby_leaves_the_lease_alone() {
    let fake = Fake::default();
    fake.held_by_other();
    let mut us = fake.candidate("us_1");
    sleep(Duration::from_secs(3)).await;
    us.stop.cancel();
    let ended = timeout(Duration::from_secs(1), &mut us.task)
        .await
        .unwrap()
        .unwrap();
    assert!(ended.is_ok());
    assert_eq!(fake.spec()["holderIdentity"], "go-operator_1");
}

#[tokio::test]
async fn the_elector_runs_on_its_own_thread_and_tells_the_process_when_it_lost() {
    let fake = Fake::default();
    let election = LeaderElection {
        namespace: "glance-system".to_owned(),
        identity: "us_1".to_owned(),
        timings: Timings {
            lease: Duration::from_millis(1500),
            renew: Duration::from_millis(600),
            retry: Duration::from_millis(100),
        },
        metrics: Metrics::new().unwrap(),
    };
    let (told, lost) = oneshot::channel();
    let server = fake.clone();
    let (mut leadership, end) = election
        .start(
            move || Ok(server.client()),
            CancellationToken::new(),
            move || told.send(()).unwrap(),
        )
        .unwrap();
    timeout(Duration::from_secs(10), leadership.acquired())
        .await
        .unwrap()
        .unwrap();
    fake.set(HANGS);
    timeout(Duration::from_secs(10), lost)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(end.await, Err(Error::Lost)));
}

#[tokio::test]
async fn an_election_without_a_server_ends_instead_of_waiting_for_ever() {
    let election = LeaderElection {
        namespace: "glance-system".to_owned(),
        identity: "us_1".to_owned(),
        timings: Timings::default(),
        metrics: Metrics::new().unwrap(),
    };
    let no_client = || Err(kube::Error::LinesCodecMaxLineLengthExceeded);
    let (mut leadership, end) = election
        .start(no_client, CancellationToken::new(), || {})
        .unwrap();
    assert!(leadership.acquired().await.is_err());
    assert!(matches!(end.await, Err(Error::Client(_))));
}

#[tokio::test(start_paused = true)]
async fn a_standby_is_ready_while_it_hears_of_the_lease_and_not_when_it_is_cut_off() {
    let fake = Fake::default();
    fake.set(HANGS);
    let us = fake.candidate("us_1");
    sleep(Duration::from_secs(1)).await;
    assert!(us.leadership.standing().is_err(), "nobody has answered yet");
    fake.held_by_other();
    fake.set(WORKS);
    sleep(Duration::from_secs(8)).await;
    assert_eq!(us.leadership.standing(), Ok(()));
    fake.set(HANGS);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(us.leadership.standing(), Ok(()), "short trouble");
    sleep(Duration::from_secs(20)).await;
    assert!(us.leadership.standing().is_err());
}

#[test]
fn without_election_a_process_always_leads() {
    let leadership = Leadership::unelected();
    assert!(leadership.may_write());
    assert!(leadership.write_until().is_some());
    assert_eq!(leadership.standing(), Ok(()));
}

#[test]
fn each_process_is_somebody_else() {
    assert_ne!(LeaderElection::identity(), LeaderElection::identity());
    assert!(LeaderElection::identity().contains('_'));
}

#[test]
fn the_flag_names_the_namespace() {
    assert_eq!(LeaderElection::namespace("here").unwrap(), "here");
}
