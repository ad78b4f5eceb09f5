//! Tokens that are renewed: used in the place of the one in the registration they stand for.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Message, Owner, member::Member};
use crate::{
    Registration,
    renewal::{self, Renewed},
};

impl Owner {
    /// A renewed token has been written.
    pub(super) fn renewed(&mut self, renewed: Renewed) {
        let name = renewed.name.clone();
        self.renewals.insert(name.clone(), renewed);
        let Some(mut member) = self.members.remove(&name) else {
            return;
        };
        member.renewed_at = Some(Instant::now());
        let in_use = member.current.as_ref().map(|(_, current)| current.clone());
        let tried = member.attempt.as_ref().map(|a| a.registration.clone());
        if let Some(present) = tried.or(in_use) {
            let next = self.with_renewal(present.clone());
            if !Arc::ptr_eq(&present, &next) {
                member.give_up();
                self.attempt(&mut member, next, None);
            }
        }
        self.members.insert(name, member);
    }

    /// A registration with its renewed token, if there is one that is still good.
    pub(super) fn with_renewal(&self, registration: Arc<Registration>) -> Arc<Registration> {
        let renewed = self.renewals.get(registration.name());
        let next = renewed.and_then(|renewed| renewed.stand_in(&registration));
        next.map_or(registration, Arc::new)
    }

    /// A token could not be renewed. It is tried on; what is said of it ends with the token.
    pub(super) fn unrenewed(&mut self, of: Arc<Registration>, why: String) {
        if let Some(member) = self.members.get_mut(of.name()) {
            member.unrenewed = Some((of, why));
        }
        self.review();
    }

    /// Sees to the renewal of the token in use, if that is wanted and was not yet.
    pub(super) fn plan_renewal(&self, member: &mut Member) {
        let wanted = self.shared.policies.renews(&member.state.name);
        let Some((cluster, registration)) = member.current.clone().filter(|_| wanted) else {
            if let Some((_, stop)) = member.renewal.take() {
                stop.cancel();
            }
            return;
        };
        let known = member.renewal.as_ref();
        if known.is_some_and(|(known, _)| Arc::ptr_eq(known, &registration)) {
            return;
        }
        if let Some((_, stop)) = member.renewal.take() {
            stop.cancel();
        }
        let stop = cluster.stop_token().child_token();
        let (inbox, of) = (self.inbox.clone(), registration.clone());
        let run = renewal::run(
            self.shelf.clone(),
            Arc::downgrade(&cluster),
            registration.clone(),
            member.renewed_at.map(|at| at + renewal::SHORTEST_PAUSE),
            move |why| {
                // The owner ends only when the registry is stopped.
                let _ = inbox.send(Message::Unrenewed(of.clone(), why));
            },
        );
        let stopped = stop.clone();
        cluster.spawn(async move {
            stopped.run_until_cancelled(run).await;
        });
        member.renewal = Some((registration, stop));
    }
}
