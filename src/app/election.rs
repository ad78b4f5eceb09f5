//! This replica's part in the election: what the rest of the process asks about it, and how it ends.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::future::BoxFuture;
use kube::Config;
use target_registry::{ClientOptions, Cluster, Fence};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::RunArgs,
    leader::{Error, LeaderElection, Leadership},
    metrics::Metrics,
};

/// What the lease gets to be given back, and the event about it to be written.
const GIVE_BACK: Duration = Duration::from_secs(3);

/// What is known of the leadership, from before there is any.
#[derive(Clone, Debug, Default)]
pub struct Standing(Arc<OnceLock<Leadership>>);

/// A place in the election, until [`Seat::give_up`].
pub struct Seat {
    leadership: Leadership,
    give_up: CancellationToken,
    ended: BoxFuture<'static, Result<(), Error>>,
}

// === impl Standing ===

impl Standing {
    /// Keeps every client of this process from changing anything while this replica does not lead.
    pub fn fence(&self) -> Fence {
        let standing = self.clone();
        Fence::new(move || standing.0.get()?.write_until())
    }

    /// Whether this replica leads or could take over; else why not.
    pub fn check(&self) -> Result<(), String> {
        let leadership = self.0.get().ok_or("not in the election yet")?;
        leadership.standing()
    }
}

// === impl Seat ===

impl Seat {
    /// Takes part, or leads at once when there is no election. From now on `standing` knows.
    pub fn take(
        args: &RunArgs,
        config: Config,
        metrics: &Metrics,
        standing: &Standing,
    ) -> anyhow::Result<Self> {
        let give_up = CancellationToken::new();
        let (leadership, ended): (_, BoxFuture<'static, _>) = if args.leader_elect {
            let election = LeaderElection {
                namespace: LeaderElection::namespace(&args.leader_election_namespace)?,
                identity: LeaderElection::identity(),
                timings: args.lease(),
                metrics: metrics.clone(),
            };
            // A connection of its own, on the elector's runtime, and no fence: the lease is what opens it.
            let connect = || {
                let options = ClientOptions {
                    user_agent: super::user_agent(),
                    ..ClientOptions::default()
                };
                Ok(Cluster::hub(config, None, &options)?.client())
            };
            // Said by the elector already; no drain, for another replica may be writing.
            let on_lost = || std::process::exit(1);
            let (leadership, ended) = election.start(connect, give_up.clone(), on_lost)?;
            (leadership, Box::pin(ended))
        } else {
            (
                Leadership::unelected(),
                Box::pin(std::future::ready(Ok(()))),
            )
        };
        // Set once: there is one seat in a process.
        let _ = standing.0.set(leadership.clone());
        Ok(Self {
            leadership,
            give_up,
            ended,
        })
    }

    /// Waits until this replica leads; `None` when `stop` came first.
    pub async fn lead(&mut self, stop: &CancellationToken) -> anyhow::Result<Option<Leadership>> {
        let acquired = stop.run_until_cancelled(self.leadership.acquired()).await;
        match acquired {
            None => Ok(None),
            Some(Ok(_)) => Ok(Some(self.leadership.clone())),
            Some(Err(_)) => {
                (&mut self.ended).await?;
                anyhow::bail!("the leader election ended before it began")
            }
        }
    }

    /// Gives the lease back, if it is ours: after the last write, for the next leader may begin at once.
    pub async fn give_up(self) {
        self.give_up.cancel();
        match tokio::time::timeout(GIVE_BACK, self.ended).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the lease was not given back"),
            Err(_) => tracing::warn!("the lease was not given back in time"),
        }
    }
}
