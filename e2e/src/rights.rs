//! Whether the charts grant what the operator uses and no more: the rules that they render, compared with
//! what the audit logs of a whole run saw.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::{
    audit::{Audit, Request},
    charts, registration,
};

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// `group/resource`, of the core group without the group.
    pub resource: String,
    /// The verb.
    pub verb: String,
}

/// Who is granted rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grantee {
    /// The operator on the hub, by the chart's defaults.
    Hub,
    /// The operator on the hub, with `hardenedRBAC`.
    Hardened,
    /// The hub's account on a target.
    Target,
}

/// What is granted and what was used of it.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Granted, by grantee.
    pub granted: BTreeMap<Grantee, BTreeSet<Right>>,
    /// Used, by grantee.
    pub used: BTreeMap<Grantee, BTreeSet<Right>>,
}

/// A line of the list of rights that no test uses: `grantee | resource | verb, verb | reason`.
#[derive(Debug)]
struct Excuse {
    grantee: Grantee,
    rights: Vec<Right>,
}

// === impl Right ===

impl Right {
    fn new(group: &str, resource: &str, verb: &str) -> Self {
        let resource = match group {
            "" => resource.to_owned(),
            group => format!("{group}/{resource}"),
        };
        Self {
            resource,
            verb: verb.to_owned(),
        }
    }
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}

// === impl Grantee ===

impl Grantee {
    const ALL: [Self; 3] = [Self::Hub, Self::Hardened, Self::Target];

    fn name(self) -> &'static str {
        match self {
            Self::Hub => "hub",
            Self::Hardened => "hardened",
            Self::Target => "target",
        }
    }

    /// What the chart renders, with everything on that a value switches on.
    async fn granted(self) -> Result<BTreeSet<Right>> {
        let hub = json!({
            "apiProbe": { "mode": "api-proxy" },
            "secureMetrics": { "enabled": true },
            "targetClusters": { "authorizeUse": true },
        });
        let (chart, values) = match self {
            Self::Hub => ("glance-operator", hub),
            Self::Hardened => {
                let mut hub = hub;
                hub["hardenedRBAC"] = json!(true);
                ("glance-operator", hub)
            }
            Self::Target => (
                registration::ACCOUNT,
                json!({
                    "namespaces": ["openstack"],
                    "optional": { "identity": true, "causes": true },
                }),
            ),
        };
        Ok(rules(
            &charts::render(chart, chart, "default", &values).await?,
        ))
    }

    /// Whether an account is this one's.
    fn is(self, user: &str) -> bool {
        let account = user.rsplit(':').next().unwrap_or_default();
        match self {
            Self::Hub | Self::Hardened => account.starts_with("glance-operator"),
            Self::Target => account == registration::ACCOUNT,
        }
    }
}

// === impl Comparison ===

impl Comparison {
    /// The charts of this checkout, and all logs in a folder.
    pub async fn of(folder: &Path) -> Result<Self> {
        let mut comparison = Self::default();
        for grantee in Grantee::ALL {
            comparison.granted.insert(grantee, grantee.granted().await?);
        }
        let mut logs = 0;
        for entry in std::fs::read_dir(folder)? {
            comparison.count(&Audit::new(entry?.path()).of_accounts()?);
            logs += 1;
        }
        if logs == 0 {
            bail!("{} holds no audit log", folder.display());
        }
        Ok(comparison)
    }

    fn count(&mut self, requests: &[Request]) {
        // A refused request is no use of a right.
        let counts = |r: &&Request| {
            // Everybody may ask for his own rights.
            r.code != 403 && !r.resource.is_empty() && !r.resource.starts_with("selfsubject")
        };
        for request in requests.iter().filter(counts) {
            for grantee in Grantee::ALL.into_iter().filter(|g| g.is(&request.user)) {
                let used = self.used.entry(grantee).or_default();
                let mut note = |verb: &str| {
                    used.insert(Right::new(&request.group, &request.resource, verb));
                };
                note(&request.verb);
                // An apply that creates needs both.
                if request.verb == "patch" && request.code == 201 {
                    note("create");
                }
            }
        }
    }

    /// What is wrong, one sentence each, given the list of rights that may go unused.
    pub fn complaints(&self, excuses: &str) -> Result<Vec<String>> {
        let excuses = parse(excuses)?;
        let mut complaints = Vec::new();
        for grantee in Grantee::ALL {
            let name = grantee.name();
            let (empty, mut explained) = (BTreeSet::new(), BTreeSet::new());
            let granted = self.granted.get(&grantee).unwrap_or(&empty);
            let used = self.used.get(&grantee).unwrap_or(&empty);
            for right in excuses
                .iter()
                .filter(|e| e.grantee == grantee)
                .flat_map(|e| &e.rights)
            {
                explained.insert(right);
                if !granted.contains(right) {
                    complaints.push(format!("{name}: {right} is excused and not granted"));
                }
            }
            for right in granted
                .difference(used)
                .filter(|right| !explained.contains(right))
            {
                complaints.push(format!("{name}: {right} is granted and was never used"));
            }
            // The hardened rights are not what the tests run with, so a missing one shows only here.
            if grantee == Grantee::Hardened {
                for right in used.difference(granted) {
                    complaints.push(format!("{name}: {right} was used and is not granted"));
                }
            }
        }
        Ok(complaints)
    }

    /// Excused rights that were used after all. Rare moments come and go with the timing of a run, so these
    /// are no complaints.
    pub fn remarks(&self, excuses: &str) -> Result<Vec<String>> {
        let mut remarks = Vec::new();
        for excuse in parse(excuses)? {
            let used = self.used.get(&excuse.grantee);
            for right in excuse.rights {
                if used.is_some_and(|used| used.contains(&right)) {
                    let name = excuse.grantee.name();
                    remarks.push(format!("{name}: {right} is excused and was used"));
                }
            }
        }
        Ok(remarks)
    }
}

/// Every right in the roles among these objects.
fn rules(objects: &[Value]) -> BTreeSet<Right> {
    let texts = |value: &Value| -> Vec<String> {
        let values = value.as_array().into_iter().flatten();
        values
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let mut rights = BTreeSet::new();
    let rules = objects
        .iter()
        .flat_map(|o| o["rules"].as_array().into_iter().flatten());
    // Admission rules of webhooks are called rules, too, and have no verbs.
    for rule in rules {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    rights.insert(Right::new(&group, &resource, &verb));
                }
            }
        }
    }
    rights
}

fn parse(text: &str) -> Result<Vec<Excuse>> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let parts: Vec<_> = line.split('|').map(str::trim).collect();
            let &[name, resource, verbs, reason] = parts.as_slice() else {
                bail!("not `grantee | resource | verbs | reason`: {line}");
            };
            if reason.is_empty() {
                bail!("no reason: {line}");
            }
            let grantee = Grantee::ALL.into_iter().find(|g| g.name() == name);
            let right = |verb: &str| Right {
                resource: resource.to_owned(),
                verb: verb.trim().to_owned(),
            };
            Ok(Excuse {
                grantee: grantee.with_context(|| format!("nobody is called {name}"))?,
                rights: verbs.split(',').map(right).collect(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(verbs: &[&str]) -> BTreeSet<Right> {
        rules(&[
            json!({ "rules": [{ "apiGroups": ["apps"], "resources": ["deployments"], "verbs": verbs }] }),
        ])
    }

    fn request(user: &str, verb: &str, code: u16) -> Request {
        Request {
            user: format!("system:serviceaccount:t:{user}"),
            verb: verb.to_owned(),
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            namespace: "t".to_owned(),
            name: "images".to_owned(),
            code,
            uri: String::new(),
            agent: String::new(),
        }
    }

    fn compare(hardened: &[&str], requests: &[Request]) -> Comparison {
        let mut comparison = Comparison::default();
        for grantee in [Grantee::Hub, Grantee::Target] {
            comparison
                .granted
                .insert(grantee, role(&["patch", "create", "delete"]));
        }
        comparison.granted.insert(Grantee::Hardened, role(hardened));
        comparison.count(requests);
        comparison
    }

    #[test]
    fn a_right_that_nobody_uses_has_to_be_explained() {
        let requests = [
            request("glance-operator-t", "patch", 201),
            request("glance-operator-t", "delete", 403),
            request("target-cluster-access", "patch", 201),
            request("target-cluster-access", "delete", 200),
        ];
        let comparison = compare(&["patch", "create"], &requests);
        let told = comparison.complaints("").unwrap();
        assert_eq!(
            told,
            ["hub: delete apps/deployments is granted and was never used"]
        );
        let excuse = "# why\nhub | apps/deployments | delete | contract\n";
        assert!(comparison.complaints(excuse).unwrap().is_empty());
        assert!(comparison.remarks(excuse).unwrap().is_empty());
        let wrong = "target | apps/deployments | delete, update | for nothing\n";
        let told = comparison.complaints(wrong).unwrap();
        assert!(
            told.contains(&"target: update apps/deployments is excused and not granted".to_owned()),
            "{told:?}"
        );
        assert_eq!(comparison.remarks(wrong).unwrap().len(), 1);
        assert!(
            comparison
                .complaints("hub | apps/deployments | delete |\n")
                .is_err()
        );
    }

    #[test]
    fn a_hardened_installation_lacks_nothing_that_was_used() {
        let comparison = compare(&["patch"], &[request("glance-operator", "patch", 201)]);
        let told = comparison.complaints("").unwrap();
        assert!(
            told.contains(
                &"hardened: create apps/deployments was used and is not granted".to_owned()
            ),
            "{told:?}"
        );
    }
}
