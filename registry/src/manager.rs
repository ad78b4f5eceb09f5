//! The one task that owns the registry: it hears of Secrets and of attempts to connect, decides,
//! and publishes. Everything that waits for a network is a task of its own.

mod attempt;
mod member;
mod policy;
mod pulse;
mod renewal;
mod secrets;
mod shortcoming;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Secret;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use self::{
    attempt::Report,
    member::{Member, Trouble},
    pulse::Beat,
};
use crate::{
    Cluster, Registration, RegistrationError, RegistryOptions, State,
    registration::{Content, ContentHash},
    registry::Shared,
    renewal::{Renewed, Shelf},
};

/// Attempts to connect that begin at one time; handshakes are dear. Those that only wait for an
/// answer are not counted, so that no number of black holes keeps anybody waiting.
const ATTEMPTS_AT_ONCE: usize = 64;

/// What the owner is told.
enum Message {
    /// A registration Secret as it is now.
    Secret(Box<Secret>),
    /// There is no registration of that name, or none any more.
    Removed(String),
    /// These are all there are.
    Listed(BTreeSet<String>),
    /// A renewed token, and what it stands for.
    Renewed(Box<Renewed>),
    /// A token could not be renewed, and why.
    Unrenewed(Arc<Registration>, String),
    /// An attempt to connect ended.
    Report(Report),
    /// The probe of a connected cluster has something to say.
    Beat(Beat),
}

/// Starts the owner and the watch of the Secrets.
pub(crate) fn spawn(
    shared: &Arc<Shared>,
    hub: &Arc<Cluster>,
    options: RegistryOptions,
    policies: mpsc::UnboundedReceiver<String>,
    stop: CancellationToken,
) {
    let (inbox, mail) = mpsc::unbounded_channel();
    let watch = secrets::watch(hub, options.namespace.clone(), inbox.clone());
    let stopped = stop.clone();
    shared.tasks.spawn(async move {
        stopped.run_until_cancelled(watch).await;
    });
    let shelf = Shelf {
        hub: hub.client(),
        namespace: options.namespace.clone(),
        program: options.program.clone(),
    };
    hub.spawn({
        let stop = hub.stop_token().clone();
        let shown = pulse::show(hub.clone(), options.probe.clone());
        async move {
            stop.run_until_cancelled(shown).await;
        }
    });
    let owner = Owner {
        shared: shared.clone(),
        options: Arc::new(options),
        gate: Arc::new(Semaphore::new(ATTEMPTS_AT_ONCE)),
        inbox,
        stop,
        shelf,
        renewals: BTreeMap::new(),
        members: BTreeMap::new(),
        listed: false,
        early: Vec::new(),
        attempts: 0,
        generations: 0,
    };
    shared.tasks.spawn(owner.run(mail, policies));
}

struct Owner {
    shared: Arc<Shared>,
    options: Arc<RegistryOptions>,
    gate: Arc<Semaphore>,
    inbox: mpsc::UnboundedSender<Message>,
    stop: CancellationToken,
    /// Where renewed tokens are kept, and those that are there, by registration.
    shelf: Shelf,
    renewals: BTreeMap<String, Renewed>,
    members: BTreeMap<String, Member>,
    /// Whether the first list of Secrets is complete.
    listed: bool,
    /// Registrations of the first list: used when all of it is there, renewed tokens included.
    early: Vec<Secret>,
    /// Counts attempts, to tell a report of the present one from a late one.
    attempts: u64,
    /// The last generation given out, of whatever cluster.
    generations: u64,
}

// === impl Owner ===

impl Owner {
    async fn run(
        mut self,
        mut mail: mpsc::UnboundedReceiver<Message>,
        mut policies: mpsc::UnboundedReceiver<String>,
    ) {
        let shared = self.shared.clone();
        let mut reports = shared.reports.changes();
        let mut clock = tokio::time::interval(shortcoming::LOOK);
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(name) = policies.recv() => {
                    self.follow_policy(&name);
                    self.review();
                    continue;
                }
                Ok(()) = reports.changed() => {
                    self.review();
                    continue;
                }
                _ = clock.tick() => {
                    self.review();
                    continue;
                }
                message = mail.recv() => message,
            };
            match message {
                Some(Message::Secret(secret)) if self.listed => self.read(&secret),
                // Without the token that was renewed for it, an old one would be tried, and told of.
                Some(Message::Secret(secret)) => self.early.push(*secret),
                Some(Message::Removed(name)) => self.remove(&name),
                Some(Message::Listed(names)) => self.listed(&names),
                Some(Message::Renewed(renewed)) => self.renewed(*renewed),
                Some(Message::Unrenewed(of, why)) => self.unrenewed(of, why),
                Some(Message::Report(report)) => self.report(report),
                Some(Message::Beat(beat)) => self.hear(beat),
                None => break,
            }
            if self.listed && self.members.values().all(|member| member.tried) {
                self.shared.set_attempted();
            }
        }
        for mut member in self.members.into_values() {
            member.give_up();
            if let Some((cluster, _)) = member.current {
                join(&self.shared, cluster);
            }
        }
    }

    fn listed(&mut self, names: &BTreeSet<String>) {
        for secret in std::mem::take(&mut self.early) {
            self.read(&secret);
        }
        self.listed = true;
        self.shared.set_listed();
        let gone = self.members.keys().filter(|name| !names.contains(*name));
        for name in gone.cloned().collect::<Vec<_>>() {
            self.remove(&name);
        }
    }

    fn remove(&mut self, name: &str) {
        let Some(mut member) = self.members.remove(name) else {
            return;
        };
        member.give_up();
        self.disengage(&mut member);
        self.renewals.remove(name);
        member.keepsakes.metrics.retire();
        self.shared.publish(name, None, true);
    }

    /// A registration Secret was written (contract: target clusters, the Secret).
    fn read(&mut self, secret: &Secret) {
        let Some(name) = secret.metadata.name.clone() else {
            return;
        };
        let mut member = match self.members.remove(&name) {
            Some(member) => member,
            None => self.newcomer(&name),
        };
        match Content::read(secret) {
            Err(error) => self.refuse(&mut member, None, &error),
            Ok(content) if member.seen == Some(content.hash()) => {}
            Ok(content) => {
                if member.seen.is_some() {
                    tracing::info!(
                        cluster = name,
                        "registration changed, re-engaging the cluster"
                    );
                }
                if !content.unread.is_empty() {
                    tracing::info!(
                        cluster = name,
                        keys = content.unread.join(","),
                        "the registration Secret holds keys that nobody reads"
                    );
                }
                let current = member.current.as_ref();
                if current.is_some_and(|(_, current)| !content.covers(current)) {
                    // What is no longer declared must not be used a moment longer, whatever the
                    // kubeconfig beside it is worth.
                    self.disengage(&mut member);
                }
                let hash = content.hash();
                match content.judge(self.options.allow_insecure) {
                    Err(error) => self.refuse(&mut member, Some(hash), &error),
                    Ok(registration) => self.engage(&mut member, Arc::new(registration)),
                }
            }
        }
        self.members.insert(name, member);
    }

    fn refuse(&self, member: &mut Member, hash: Option<ContentHash>, error: &RegistrationError) {
        let detail = error.to_string();
        // What was written before is withdrawn, also where it only waits for somebody's approval.
        member.stranger = None;
        member.seen = hash;
        member.tried = true;
        let known = member.state.cause == Some(error.cause()) && member.state.detail == detail;
        // A connection that was just withdrawn has to be published as such, however old the refusal is.
        let withdrawn = member.state.state == State::Degraded && member.current.is_none();
        if known && member.attempt.is_none() && !withdrawn {
            return;
        }
        member.give_up();
        tracing::error!(cluster = member.state.name, cause = %error.cause(), "{detail}");
        member.keepsakes.metrics.engagement("refused");
        let trouble = (error.cause(), detail, None);
        if member.current.is_some() && error.keeps_last_good() {
            member.content = Some(trouble);
            self.settle(member, true);
        } else {
            self.disengage(member);
            self.publish(member, State::Rejected, Some(trouble));
        }
    }

    fn engage(&mut self, member: &mut Member, registration: Arc<Registration>) {
        member.give_up();
        member.stranger = None;
        member.seen = Some(registration.content_hash());
        let current = member
            .current
            .as_ref()
            .map(|(_, current)| current.content_hash());
        if current == Some(registration.content_hash()) {
            // Back to what is in use.
            member.content = None;
            self.settle(member, true);
            return;
        }
        tracing::info!(
            cluster = member.state.name,
            namespaces = %member::scope(&registration),
            server = registration.server(),
            "building the cluster from its registration Secret"
        );
        let registration = self.with_renewal(registration);
        self.attempt(member, registration, None);
        if member.current.is_none() {
            self.publish(member, State::Pending, None);
        }
    }

    /// Stops using the present generation. Its tasks end; what lies on the cluster stays.
    fn disengage(&self, member: &mut Member) {
        if let Some(cluster) = member.use_nothing() {
            tracing::info!(
                cluster = member.state.name,
                generation = cluster.generation(),
                "cluster disengaged"
            );
            join(&self.shared, cluster);
        }
    }

    /// Publishes how a registration with a generation in use is. What does not change whether and how
    /// it resolves concerns nobody who uses it.
    fn settle(&self, member: &mut Member, concerns_users: bool) {
        member.shortcoming = self.shortcoming(member);
        let (state, trouble) = member.standing();
        let (entry, notify) = member.turn(state, trouble);
        self.shared
            .publish(&member.state.name, Some(entry), notify && concerns_users);
    }

    fn publish(&self, member: &mut Member, state: State, trouble: Option<Trouble>) {
        let (entry, notify) = member.turn(state, trouble);
        self.shared.publish(&member.state.name, Some(entry), notify);
    }
}

/// Ends the tasks of a generation beside everything else. By value: a newer generation of the name
/// is another value and cannot be hit.
fn join(shared: &Shared, cluster: Arc<Cluster>) {
    shared.tasks.spawn(async move {
        if !cluster.shut_down().await {
            tracing::error!(
                cluster = cluster.name(),
                generation = cluster.generation(),
                "the tasks of a disengaged cluster do not end"
            );
        }
    });
}
