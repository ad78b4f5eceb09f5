//! What policy says about a registration: which cluster it must lead to, and how much may be under way.

use std::sync::Arc;

use super::{Owner, member::Member};
use crate::{Cause, Registration, State};

impl Owner {
    /// A registration that was not there before.
    pub(super) fn newcomer(&self, name: &str) -> Member {
        let mut member = Member::new(name, &self.options);
        member.permits.set_limit(self.shared.policies.limit(name));
        member.wanted = self.shared.policies.pinned(name);
        // A Secret that is created later, or anew, is trusted anew.
        member.inherits = !self.listed;
        member
    }

    /// The policy of a cluster is another one now.
    pub(super) fn follow_policy(&mut self, name: &str) {
        let Some(mut member) = self.members.remove(name) else {
            return;
        };
        member.permits.set_limit(self.shared.policies.limit(name));
        let wanted = self.shared.policies.pinned(name);
        let before = std::mem::replace(&mut member.wanted, wanted.clone());
        if let Some(registration) = member.stranger.clone() {
            if wanted != before {
                // What was refused may be what is wanted now, or what nobody objects to any more.
                member.stranger = None;
                self.attempt(&mut member, registration, None);
                self.publish(&mut member, State::Pending, None);
            }
        } else if let (Some(wanted), Some(led), Some((_, registration))) =
            (wanted, member.pin.clone(), member.current.clone())
            && wanted != led
            && member.identified
        {
            self.reject(&mut member, registration, &wanted, &led);
        }
        self.plan_renewal(&mut member);
        self.members.insert(name.to_owned(), member);
    }

    /// Whether this is the cluster the name has to lead to: the one that was named by hand, else the
    /// one it has led to before. `uid` is `None` where who answers may not be asked.
    pub(super) fn identify(
        &self,
        member: &mut Member,
        registration: &Arc<Registration>,
        uid: Option<&str>,
    ) -> bool {
        let policies = &self.shared.policies;
        let name = &member.state.name;
        let by_hand = policies.pinned(name);
        let pin = by_hand
            .clone()
            .or_else(|| member.pin.clone())
            .or_else(|| policies.seen(name).filter(|_| member.inherits));
        match (pin, uid) {
            (Some(pin), Some(uid)) if pin != uid => {
                // Shown as what it should be, also where no process has seen it; but what somebody wrote may be a typo.
                if by_hand.is_none() {
                    member.pin.get_or_insert(pin.clone());
                }
                self.reject(member, registration.clone(), &pin, uid);
                return false;
            }
            (_, Some(uid)) => member.pin = Some(uid.to_owned()),
            // Where it led to is not forgotten over a while in which it may not be asked.
            (Some(pin), None) if by_hand.is_none() => member.pin = Some(pin),
            (_, None) => {}
        }
        member.identified = uid.is_some();
        member.stranger = None;
        true
    }

    fn reject(&self, member: &mut Member, led: Arc<Registration>, wanted: &str, uid: &str) {
        let name = &member.state.name;
        // What was approved by hand outlives the Secret.
        let anew = match self.shared.policies.pinned(name) {
            Some(_) => "",
            None => ", or delete the Secret and create it again",
        };
        let detail = format!(
            "the registration leads to cluster {uid} and has to lead to {wanted}; write back what \
             leads there, or, if the other cluster is meant, set spec.identity of the TargetCluster \
             {name:?} to {uid}{anew}"
        );
        tracing::error!(cluster = member.state.name, "{detail}");
        member.keepsakes.metrics.engagement("refused");
        member.give_up();
        self.disengage(member);
        member.stranger = Some(led);
        self.publish(
            member,
            State::Rejected,
            Some((Cause::IdentityChanged, detail, None)),
        );
    }
}
