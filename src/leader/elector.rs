//! The candidate: looks, writes, counts its time, and stops when it has run out.

use std::time::Duration;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ObjectReference};
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use target_registry::{error_code, error_text};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Ballot, Error, LEASE, LeaderElection, Term,
    lease::{Decision, decide, held_by, transitions},
};
use crate::pipeline::notice::{Notice, Publisher};

/// Longest time one attempt may take.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(5);

/// An attempt gets this share of the time that is left, so that there is time for others.
const SHARE: u32 = 3;

/// The least an attempt or a pause gets.
const LEAST: Duration = Duration::from_millis(50);

pub struct Elector {
    election: LeaderElection,
    api: Api<Lease>,
    ballot: Ballot,
    events: Publisher,
    /// The lease as this process last saw it, and since when it looks like that.
    seen: Option<(Lease, Instant)>,
    epoch: i32,
}

/// Where an attempt left us.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Leads,
    /// Another one holds the lease, or was faster.
    Follows(String),
}

// === impl Elector ===

impl Elector {
    pub fn new(
        election: LeaderElection,
        client: Client,
        ballot: Ballot,
        events: Publisher,
    ) -> Self {
        let api = Api::namespaced(client, &election.namespace);
        election.metrics.leader(LEASE, false);
        Self {
            election,
            api,
            ballot,
            events,
            seen: None,
            epoch: 0,
        }
    }

    /// Stands by, leads, and comes back when stopped or when the lease is lost.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Error> {
        let Some(mut valid_until) = stop.run_until_cancelled(self.stand_by()).await else {
            return Ok(());
        };
        self.announce("became leader");
        loop {
            let next = Instant::now() + self.pause(valid_until);
            tokio::select! {
                () = stop.cancelled() => {
                    self.release().await;
                    return Ok(());
                }
                () = sleep_until(next) => {}
            }
            match self.renew(valid_until).await {
                Ok(until) => valid_until = until,
                Err(error) => {
                    self.end_term();
                    // No event: the process ends at once, for what is sent already may not arrive any later.
                    tracing::error!("leader election lost");
                    return Err(error);
                }
            }
        }
    }

    /// Waits for the lease and returns until when it is ours.
    async fn stand_by(&mut self) -> Instant {
        let LeaderElection {
            namespace,
            identity,
            ..
        } = &self.election;
        tracing::info!(
            namespace,
            lease = LEASE,
            identity,
            "attempting to acquire the leader lease"
        );
        let mut last = String::new();
        loop {
            let started = Instant::now();
            let news = match timeout(LONGEST_ATTEMPT, self.attempt()).await {
                Ok(Ok(Standing::Leads)) => {
                    tracing::info!(epoch = self.epoch, "acquired the leader lease");
                    return self.begin_term(started);
                }
                Ok(Ok(Standing::Follows(holder))) => {
                    self.ballot.heard.send_replace(Some(Instant::now()));
                    format!("the leader lease is held by {holder}")
                }
                Ok(Err(error)) => {
                    format!("cannot acquire the leader lease: {}", error_text(&error))
                }
                Err(_) => "cannot acquire the leader lease: no answer".to_owned(),
            };
            if news != last {
                tracing::info!("{news}");
                last = news;
            }
            sleep_until(started + self.election.timings.retry).await;
        }
    }

    /// One or more attempts, until one succeeds or the time is up.
    async fn renew(&mut self, valid_until: Instant) -> Result<Instant, Error> {
        loop {
            let started = Instant::now();
            let left = valid_until.saturating_duration_since(started);
            if left.is_zero() {
                return Err(Error::Lost);
            }
            let share = (left / SHARE).clamp(LEAST, LONGEST_ATTEMPT).min(left);
            match timeout(share, self.attempt()).await {
                Ok(Ok(Standing::Leads)) => return Ok(self.begin_term(started)),
                Ok(Ok(Standing::Follows(holder))) => {
                    tracing::error!(holder, "the leader lease was taken");
                    return Err(Error::Lost);
                }
                Ok(Err(error)) => {
                    tracing::warn!(error = error_text(&error), "leader lease not renewed");
                }
                Err(_) => tracing::warn!("leader lease not renewed: no answer"),
            }
            sleep_until((Instant::now() + self.pause(valid_until)).min(valid_until)).await;
        }
    }

    /// The usual pause, or less when time is running out.
    fn pause(&self, valid_until: Instant) -> Duration {
        let left = valid_until.saturating_duration_since(Instant::now());
        self.election.timings.retry.min((left / SHARE).max(LEAST))
    }

    /// One look and at most one write.
    async fn attempt(&mut self) -> kube::Result<Standing> {
        // While it is ours, the last write tells all a look would.
        if self.is_ours()
            && let Some((lease, _)) = self.seen.clone()
        {
            match self.write(Some(&lease)).await {
                Err(error) if matches!(error_code(&error), Some(404 | 409)) => self.seen = None,
                written => return written,
            }
        }
        let lease = match self.api.get(LEASE).await {
            Err(error) if error_code(&error) == Some(404) => {
                // Deleted by hand: whoever held it writes on until its term is over.
                if let Some((lease, since)) = &self.seen {
                    let (timings, identity) = (self.election.timings, &self.election.identity);
                    let decision = decide(lease, identity, since.elapsed(), timings.lease);
                    if let Decision::Wait { holder } = decision {
                        return Ok(Standing::Follows(holder));
                    }
                    self.epoch = self.epoch.max(transitions(lease).saturating_add(1));
                }
                return self.write_or_follow(None).await;
            }
            found => found?,
        };
        match self.look(lease) {
            Decision::Renew | Decision::Take => {
                let lease = self.seen.as_ref().map(|(lease, _)| lease.clone());
                self.write_or_follow(lease.as_ref()).await
            }
            Decision::Wait { holder } => Ok(Standing::Follows(holder)),
        }
    }

    /// Remembers since when the lease looks like this, and decides.
    fn look(&mut self, lease: Lease) -> Decision {
        let now = Instant::now();
        let since = match &self.seen {
            Some((seen, since)) if seen.resource_version() == lease.resource_version() => *since,
            _ => now,
        };
        let timings = self.election.timings;
        let unchanged = now.duration_since(since);
        let decision = decide(&lease, &self.election.identity, unchanged, timings.lease);
        self.seen = Some((lease, since));
        decision
    }

    /// Somebody else was faster: that is no error, the next look tells who.
    async fn write_or_follow(&mut self, old: Option<&Lease>) -> kube::Result<Standing> {
        match self.write(old).await {
            Err(error) if error_code(&error) == Some(409) => {
                Ok(Standing::Follows("a faster candidate".to_owned()))
            }
            written => written,
        }
    }

    async fn write(&mut self, old: Option<&Lease>) -> kube::Result<Standing> {
        let epoch = old.map_or(self.epoch, |old| transitions(old).saturating_add(1));
        let LeaderElection {
            identity,
            namespace,
            timings,
            ..
        } = &self.election;
        let lease = held_by(identity, old, LEASE, namespace, timings.lease, epoch);
        let post = PostParams::default();
        let written = match old {
            // With the resourceVersion that was read, so that only one candidate succeeds.
            Some(_) => self.api.replace(LEASE, &post, &lease).await?,
            None => self.api.create(&post, &lease).await?,
        };
        self.epoch = transitions(&written);
        self.seen = Some((written, Instant::now()));
        Ok(Standing::Leads)
    }

    /// Gives the lease back, if it still is ours, so that the next leader need not wait.
    async fn release(&mut self) {
        self.end_term();
        let patch = json!([
            {"op": "test", "path": "/spec/holderIdentity", "value": self.election.identity},
            {"op": "replace", "path": "/spec/holderIdentity", "value": ""},
            {"op": "replace", "path": "/spec/leaseDurationSeconds", "value": 1},
        ]);
        let patch = match serde_json::from_value(patch) {
            Ok(patch) => Patch::<()>::Json(patch),
            Err(error) => return tracing::error!(%error, "leader lease not released"),
        };
        let params = PatchParams::default();
        let released = timeout(
            self.election.timings.retry,
            self.api.patch(LEASE, &params, &patch),
        );
        match released.await {
            Ok(Ok(_)) => {
                tracing::info!("released the leader lease");
                self.announce("stopped leading");
            }
            Ok(Err(error)) => {
                tracing::warn!(error = error_text(&error), "leader lease not released");
            }
            Err(_) => tracing::warn!("leader lease not released: no answer"),
        }
    }

    fn begin_term(&self, started: Instant) -> Instant {
        let valid_until = started + self.election.timings.renew;
        let term = Term {
            epoch: self.epoch,
            valid_until,
        };
        self.ballot.terms.send_replace(Some(term));
        self.election.metrics.leader(LEASE, true);
        valid_until
    }

    fn end_term(&self) {
        self.ballot.terms.send_replace(None);
        self.election.metrics.leader(LEASE, false);
    }

    fn is_ours(&self) -> bool {
        self.ballot.terms.borrow().is_some()
    }

    fn announce(&self, what: &str) {
        let Some((lease, _)) = &self.seen else { return };
        let mut reference: ObjectReference = lease.object_ref(&());
        reference.resource_version = lease.resource_version();
        let message = format!("{} {what}", self.election.identity);
        let notice = Notice::normal("LeaderElection", message);
        self.events.publish(&reference, notice);
    }
}
