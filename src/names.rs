//! The name of every object that is derived from a Glance.
//!
//! `{name}` is the name of the custom resource. Admission keeps it at 43
//! characters, so that nothing here is shortened; the length rules are for
//! resources from before that limit. They only touch names that the API server
//! would refuse otherwise (contract: configuration, immutable objects;
//! database, purge).

use crate::hash::{ContentHash, hash8};

/// Longest object name, a DNS subdomain.
const OBJECT: usize = 253;
/// Longest label value. Job names are bound by it too: the API server copies
/// them into a label of the pods.
const LABEL: usize = 63;
/// Longest name of a `CronJob`, which leaves room for the suffix of its Jobs.
const CRON_JOB: usize = 52;

/// A family of immutable, content-addressed objects: all revisions that one
/// Glance has had of one artefact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    base: String,
}

/// The step of a release upgrade that a Job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PhaseJob {
    /// Additive schema changes.
    Expand,
    /// Data.
    Migrate,
    /// Removal of what the old release needed.
    Contract,
}

/// Secret with the finished database connection.
pub fn db_connection(name: &str) -> String {
    object(format!("{name}-db-connection"))
}

/// Secret with the service password as oslo.config must read it, when the
/// password cannot be handed over as it is.
pub fn authtoken(name: &str) -> String {
    object(format!("{name}-authtoken"))
}

/// Job that brings the schema of an installed release up to date.
pub fn db_sync_job(name: &str) -> String {
    shorten(format!("{name}-db-sync"), LABEL)
}

/// Job of one upgrade phase.
pub fn phase_job(name: &str, phase: PhaseJob) -> String {
    shorten(format!("{name}-{}", phase.as_str()), LABEL)
}

/// Jobs of all upgrade phases, in their order.
pub fn phase_jobs(name: &str) -> Vec<String> {
    PhaseJob::ALL.map(|phase| phase_job(name, phase)).to_vec()
}

/// Every Job that changes the schema.
pub fn migration_jobs(name: &str) -> Vec<String> {
    let mut jobs = phase_jobs(name);
    jobs.push(db_sync_job(name));
    jobs
}

/// `CronJob` that purges soft-deleted rows.
pub fn db_purge(name: &str) -> String {
    const SUFFIX: &str = "-db-purge";
    if name.len() + SUFFIX.len() <= CRON_JOB {
        return format!("{name}{SUFFIX}");
    }
    // Eight digits and a dash in front of them.
    let head = prefix(name, CRON_JOB - SUFFIX.len() - 9);
    format!("{head}-{}{SUFFIX}", hash8(name))
}

/// `NetworkPolicy` that lets migration pods reach the database.
pub fn jobs_egress(name: &str) -> String {
    object(format!("{name}-jobs-egress"))
}

/// `NetworkPolicy` that lets the API reach Keystone.
pub fn keystone_egress(name: &str) -> String {
    object(format!("{name}-keystone-egress"))
}

/// Host name of a Service inside the cluster, in the short form that database
/// connections use.
pub fn service_host(service: &str, namespace: &str) -> String {
    format!("{service}.{namespace}.svc")
}

fn object(name: String) -> String {
    shorten(name, OBJECT)
}

/// `name` itself, or its head and eight digits of its hash.
fn shorten(name: String, limit: usize) -> String {
    if name.len() <= limit {
        return name;
    }
    format!("{}-{}", prefix(&name, limit - 9), hash8(&name))
}

/// At most `length` bytes of `name`, without separators at the end: no part
/// of a DNS name may end or begin with one.
fn prefix(name: &str, length: usize) -> &str {
    name[..name.floor_char_boundary(length)].trim_end_matches(['-', '.'])
}

// === impl Family ===

impl Family {
    /// The rendered configuration, `ConfigMap`s.
    pub fn config(name: &str) -> Self {
        Self::new(name, "config")
    }

    /// The rendered store sections, Secrets.
    pub fn backends(name: &str) -> Self {
        Self::new(name, "backends")
    }

    fn new(name: &str, artefact: &str) -> Self {
        Self {
            base: format!("{name}-{artefact}"),
        }
    }

    /// What the name of each revision begins with: the base and a dash. A dash
    /// is part of it, so that `x-config` does not take `x-config-extra` for one
    /// of its own.
    pub fn prefix(&self) -> String {
        // A dash and the digits of the longer form.
        format!("{}-", shorten(self.base.clone(), OBJECT - 17))
    }

    /// The name of the revision with this content.
    pub fn revision(&self, hash: &ContentHash) -> String {
        format!("{}{}", self.prefix(), hash.short())
    }

    /// The name of the revision with this content when other content already
    /// has the name from [`revision`](Self::revision).
    pub fn long_revision(&self, hash: &ContentHash) -> String {
        format!("{}{}", self.prefix(), hash.long())
    }

    /// The value of the base label, by which a family is listed. Over 63
    /// characters it is the first 54, a dash and eight digits.
    pub fn label(&self) -> String {
        if self.base.len() <= LABEL {
            return self.base.clone();
        }
        let head = &self.base[..self.base.floor_char_boundary(LABEL - 9)];
        format!("{head}-{}", hash8(&self.base))
    }
}

// === impl PhaseJob ===

impl PhaseJob {
    /// All phases that run a Job, in their order.
    pub const ALL: [Self; 3] = [Self::Expand, Self::Migrate, Self::Contract];

    /// What `glance-manage db` calls it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Expand => "expand",
            Self::Migrate => "migrate",
            Self::Contract => "contract",
        }
    }

    /// The name of the phase's container, and the ending of its Job's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expand => "db-expand",
            Self::Migrate => "db-migrate",
            Self::Contract => "db-contract",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_an_ordinary_resource_are_not_shortened() {
        let name = "a".repeat(43);
        assert_eq!(db_connection(&name), format!("{name}-db-connection"));
        assert_eq!(authtoken(&name), format!("{name}-authtoken"));
        assert_eq!(db_sync_job(&name), format!("{name}-db-sync"));
        assert_eq!(
            PhaseJob::ALL.map(|phase| phase_job(&name, phase)),
            [
                format!("{name}-db-expand"),
                format!("{name}-db-migrate"),
                format!("{name}-db-contract")
            ]
        );
        assert_eq!(db_purge(&name), format!("{name}-db-purge"));
        assert_eq!(jobs_egress(&name), format!("{name}-jobs-egress"));
        assert_eq!(keystone_egress(&name), format!("{name}-keystone-egress"));
        assert_eq!(Family::config(&name).label(), format!("{name}-config"));
        assert_eq!(Family::backends(&name).label(), format!("{name}-backends"));
        let empty = ContentHash::of([]);
        assert_eq!(
            Family::config(&name).revision(&empty),
            format!("{name}-config-e3b0c442")
        );
        assert_eq!(
            Family::backends(&name).long_revision(&empty),
            format!("{name}-backends-e3b0c44298fc1c14")
        );
        assert_eq!(
            service_host("openstack-db", "openstack"),
            "openstack-db.openstack.svc"
        );
    }

    #[test]
    fn a_long_purge_name_keeps_34_characters_and_a_hash() {
        let name = format!("{}-{}", "a".repeat(33), "b".repeat(20));
        assert_eq!(
            db_purge(&name),
            format!("{}-{}-db-purge", "a".repeat(33), hash8(&name))
        );
        let name = "a".repeat(44);
        let purge = db_purge(&name);
        assert_eq!(purge.len(), 52);
        assert!(purge.starts_with(&format!("{}-", "a".repeat(34))));
    }

    #[test]
    fn a_base_label_fits_for_a_resource_from_before_the_limit() {
        let name = "a".repeat(57);
        let family = Family::config(&name);
        assert_eq!(
            family.label(),
            format!("{}-{}", "a".repeat(54), hash8(&format!("{name}-config")))
        );
        assert_eq!(Family::config(&"a".repeat(56)).label().len(), 63);
    }

    #[test]
    fn a_family_is_not_the_prefix_of_a_longer_one() {
        let other = Family::config("x-config-extra").revision(&ContentHash::of([]));
        assert!(!other.starts_with(&Family::config("x-conf").prefix()));
        assert_eq!(Family::config("x").prefix(), "x-config-");
    }

    fn is_dns_name(name: &str) -> bool {
        name.split('.').all(|part| {
            !part.is_empty()
                && !part.starts_with('-')
                && !part.ends_with('-')
                && part
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        })
    }

    proptest! {
        #[test]
        fn every_name_is_valid_however_long_the_resource_name(
            name in "[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?){0,3}",
        ) {
            let name = if name.len() > 253 { &name[..253] } else { &name };
            prop_assume!(is_dns_name(name));
            let hash = ContentHash::of([]);
            let objects = [
                db_connection(name), authtoken(name), jobs_egress(name), keystone_egress(name),
                Family::config(name).revision(&hash), Family::config(name).long_revision(&hash),
                Family::backends(name).revision(&hash), Family::backends(name).long_revision(&hash),
            ];
            for object in &objects {
                prop_assert!(object.len() <= 253 && is_dns_name(object), "{}", object);
            }
            for job in PhaseJob::ALL.map(|phase| phase_job(name, phase)).into_iter().chain([db_sync_job(name)]) {
                prop_assert!(job.len() <= 63 && is_dns_name(&job), "{}", job);
            }
            let purge = db_purge(name);
            prop_assert!(purge.len() <= 52 && is_dns_name(&purge), "{}", purge);
            prop_assert_eq!(&purge, &db_purge(name));
            prop_assert!(Family::backends(name).label().len() <= 63);
            let family = Family::config(name);
            prop_assert!(family.revision(&hash).starts_with(&family.prefix()));
        }

        #[test]
        fn shortened_names_of_different_resources_differ(a in "[a-z]{60,80}", b in "[a-z]{60,80}") {
            prop_assume!(a != b);
            prop_assert_ne!(db_purge(&a), db_purge(&b));
            prop_assert_ne!(db_sync_job(&a), db_sync_job(&b));
            prop_assert_ne!(Family::config(&a).label(), Family::config(&b).label());
        }
    }
}
