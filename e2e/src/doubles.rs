//! The neighbours that we do not run: nodes and pods, the Glance API behind a Service, and
//! the operators for databases, secrets and gateways. Each does its job unless a test tells
//! it to be broken or silent, per namespace.
//!
//! What must not be here: anything that knows what our operator does with the answers.

pub mod external_secrets;
pub mod gateway;
pub mod glance_api;
pub mod kubelet;
pub mod mariadb;
pub mod status;

use anyhow::Result;
use tokio::task::JoinSet;

use crate::cluster::Cluster;

use self::{external_secrets::Vault, kubelet::Kubelet, status::Mood};

/// The neighbours on one cluster. Dropping them ends their work.
#[derive(Debug)]
pub struct Doubles {
    kubelet: Kubelet,
    mood: Mood,
    vault: Vault,
    // Aborted on drop.
    _tasks: JoinSet<()>,
}

// === impl Doubles ===

impl Doubles {
    /// Starts the neighbours; pods get `address`. The node simulator runs already or will.
    pub async fn start(cluster: &Cluster, address: &str) -> Result<Self> {
        let kubelet = Kubelet::start(cluster.clone(), address).await?;
        let (mood, vault) = (Mood::default(), Vault::default());
        let mut tasks = JoinSet::new();
        for role in mariadb::roles() {
            tasks.spawn(status::play(cluster.clone(), role, mood.clone()));
        }
        for role in external_secrets::roles(&vault) {
            tasks.spawn(status::play(cluster.clone(), role, mood.clone()));
        }
        for role in gateway::roles() {
            tasks.spawn(status::play(cluster.clone(), role, mood.clone()));
        }
        Ok(Self {
            kubelet,
            mood,
            vault,
            _tasks: tasks,
        })
    }

    /// Nodes and pods.
    pub fn kubelet(&self) -> &Kubelet {
        &self.kubelet
    }

    /// How the operators of custom resources feel, kind by kind.
    pub fn mood(&self) -> &Mood {
        &self.mood
    }

    /// What the secret stores hold.
    pub fn vault(&self) -> &Vault {
        &self.vault
    }
}
