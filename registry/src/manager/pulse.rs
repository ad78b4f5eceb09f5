//! The probe of one connected cluster, for as long as its generation is in use.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::{Message, Owner, attempt::explain, member::Member};
use crate::{
    Cause, Cluster, State,
    backoff::jittered,
    breaker::{Answer, Breaker, Health, ProbeOptions},
    cluster::Identity,
};

/// How soon a cluster that did not say who it is is asked again.
const ANONYMOUS: Duration = Duration::from_mins(1);

/// What the probe has to say.
pub(super) struct Beat {
    pub(super) name: String,
    pub(super) generation: u64,
    /// Which credential it was made with.
    pub(super) credential: u64,
    pub(super) health: Health,
    /// Who answers, where it was asked because the cluster may have been another one meanwhile.
    pub(super) identity: Option<Identity>,
    pub(super) next_try: Timestamp,
}

/// Probes until the cluster is gone, and tells of every answer that is not just as good as the one
/// before. The first probe is due after `first`.
pub(super) async fn run(
    cluster: Weak<Cluster>,
    options: ProbeOptions,
    first: Duration,
    tell: impl Fn(Beat) + Send,
) {
    let mut breaker = Breaker::new(options.clone());
    let (mut rotated, throttle) = match cluster.upgrade() {
        Some(cluster) => (cluster.rotations(), cluster.throttle().clone()),
        None => return,
    };
    let mut was_good = false;
    let mut asked = Instant::now();
    let mut pause = first;
    loop {
        let changed = tokio::select! {
            () = tokio::time::sleep(pause) => rotated.has_changed(),
            // Somebody's call was not accepted.
            () = throttle.refused(), if !breaker.is_open() => rotated.has_changed(),
            changed = rotated.changed() => changed.map(|()| true),
        };
        match changed {
            // The new credential was tried before it was put in place.
            Ok(true) => {
                rotated.mark_unchanged();
                breaker = Breaker::new(options.clone());
                was_good = true;
                pause = breaker.pause();
                continue;
            }
            Ok(false) => {}
            Err(_) => return,
        }
        let Some(cluster) = cluster.upgrade() else {
            return;
        };
        let credential = *rotated.borrow();
        // The right to it may have been granted meanwhile.
        let unknown = cluster.uid().is_none() && asked.elapsed() >= ANONYMOUS;
        let who = breaker.is_open() || unknown;
        if who {
            asked = Instant::now();
        }
        let (answer, identity) = ask(&cluster, options.timeout, who).await;
        let health = breaker.hear(answer);
        pause = breaker.pause();
        let is_good = health == Health::Good;
        if is_good && was_good && identity.is_none() {
            continue;
        }
        was_good = is_good;
        let wait = SignedDuration::try_from(pause).unwrap_or_default();
        tell(Beat {
            name: cluster.name().to_owned(),
            generation: cluster.generation(),
            credential,
            health,
            identity,
            next_try: Timestamp::now().saturating_add(wait).unwrap_or_default(),
        });
    }
}

/// One probe, over the client that does the work; with `who` it is also asked who it is.
async fn ask(cluster: &Cluster, timeout: Duration, who: bool) -> (Answer, Option<Identity>) {
    let started = Instant::now();
    let asked = tokio::time::timeout(timeout, async {
        cluster.ready().await?;
        if who {
            cluster.probe().await.map(Some)
        } else {
            Ok(None)
        }
    });
    let outcome = asked.await;
    cluster.metrics().probe(started.elapsed());
    match outcome {
        Ok(Ok(identity)) => (Answer::Good, identity),
        Ok(Err(error)) => match explain(&error) {
            (Cause::Throttled, text) => (Answer::Throttled(text), None),
            (cause, text) => (Answer::Bad(cause, text), None),
        },
        Err(_) => {
            let text = format!(
                "no answer from the API server within {}s",
                timeout.as_secs_f32()
            );
            (Answer::Bad(Cause::Timeout, text), None)
        }
    }
}

/// Shows the health of the hub in its metrics; nobody else asks for it.
pub(super) async fn show(hub: Arc<Cluster>, options: ProbeOptions) {
    let metrics = hub.metrics().clone();
    let me = Arc::downgrade(&hub);
    drop(hub);
    run(me, options, Duration::ZERO, move |beat| {
        metrics.state(match beat.health {
            Health::Good => State::Connected,
            Health::Shaky(..) => State::Degraded,
            Health::Down(..) => State::Lost,
        });
    })
    .await;
}

// === impl Owner ===

impl Owner {
    /// Probes a generation until it ends.
    pub(super) fn watch_over(&self, cluster: &Arc<Cluster>) {
        let inbox = self.inbox.clone();
        let options = self.options.probe.clone();
        let first = jittered(options.interval);
        let pulse = run(Arc::downgrade(cluster), options, first, move |beat| {
            // The owner ends only when the registry is stopped.
            let _ = inbox.send(Message::Beat(beat));
        });
        let stop = cluster.stop_token().clone();
        cluster.spawn(async move {
            stop.run_until_cancelled(pulse).await;
        });
    }

    pub(super) fn hear(&mut self, beat: Beat) {
        let name = beat.name.clone();
        let Some(mut member) = self.members.remove(&name) else {
            return;
        };
        let current = member.current.as_ref().map(|(cluster, _)| cluster.clone());
        // Of the generation in use and its present credential?
        let current = current.filter(|cluster| {
            cluster.generation() == beat.generation
                && *cluster.rotations().borrow() == beat.credential
        });
        if let Some(cluster) = current {
            self.judge(&mut member, &cluster, beat);
        }
        self.members.insert(name, member);
    }

    fn judge(&self, member: &mut Member, cluster: &Cluster, beat: Beat) {
        let registration = member.current.as_ref().map(|(_, current)| current.clone());
        if let (Some(registration), Some(who)) = (registration, &beat.identity)
            && !self.identify(member, &registration, who.uid.as_deref())
        {
            return;
        }
        let name = &member.state.name;
        let before = member.state.state.resolves();
        match &beat.health {
            Health::Down(cause, detail) if before => {
                tracing::warn!(cluster = name, %cause, %detail, next_try = %beat.next_try, "the cluster is lost");
            }
            Health::Good | Health::Shaky(..) if !before => {
                tracing::info!(cluster = name, "the cluster is back");
            }
            Health::Shaky(cause, detail) => {
                tracing::debug!(cluster = name, %cause, %detail, "the cluster does not answer as it should");
            }
            Health::Good | Health::Down(..) => {}
        }
        let usable = !matches!(beat.health, Health::Down(..));
        member.health = (beat.health, Some(beat.next_try));
        self.settle(member, !(before && usable));
        cluster.set_usable(usable);
    }
}
