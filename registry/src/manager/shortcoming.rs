//! What a credential falls short of while its cluster answers: rights that are missing, an end that is near.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::{Owner, member::Member};
use crate::{Cause, Registration, objects::missing, renewal::Life};

/// How often the clock is asked.
pub(super) const LOOK: Duration = Duration::from_secs(30);

/// How near an end that nobody will put off is worth a state.
const NEAR: SignedDuration = SignedDuration::from_hours(7 * 24);

impl Owner {
    /// Looks at every registration in use once more. Nothing of this concerns who uses it.
    pub(super) fn review(&mut self) {
        let mut members = std::mem::take(&mut self.members);
        for member in members.values_mut() {
            if member.current.is_some() && self.shortcoming(member) != member.shortcoming {
                self.settle(member, false);
                if let Some((cause, detail)) = &member.shortcoming {
                    tracing::warn!(cluster = member.state.name, %cause, %detail, "the credential falls short");
                }
            }
        }
        self.members = members;
    }

    pub(super) fn shortcoming(&self, member: &Member) -> Option<(Cause, String)> {
        let (_, registration) = member.current.as_ref()?;
        let name = &member.state.name;
        let findings = self.shared.reports.findings(name);
        if let Some(findings) = findings.filter(|findings| !findings.missing.is_empty()) {
            return Some((Cause::MissingPermissions, missing(&findings.missing)));
        }
        let ends = registration.credential().expires_at.as_ref()?.0;
        let renews = self.shared.policies.renews(name);
        let unrenewed = member.unrenewed.as_ref().filter(|_| renews);
        if let Some((_, why)) = unrenewed.filter(|(of, _)| Arc::ptr_eq(of, registration)) {
            let detail = format!("the credential ends at {ends} and cannot be renewed: {why}");
            return Some((Cause::CredentialExpiring, detail));
        }
        let near = near(registration, renews);
        (ends.duration_since(Timestamp::now()) < near).then(|| {
            let detail = format!("the credential ends at {ends}");
            (Cause::CredentialExpiring, detail)
        })
    }
}

/// How much of a life is little. A token that is renewed should have been after four fifths of it.
fn near(registration: &Registration, renewed: bool) -> SignedDuration {
    let life = Life::of(registration.claims()).filter(|_| renewed);
    life.map_or(NEAR, |life| life.last_tenth())
}
