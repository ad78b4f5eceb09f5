//! The Glance controller: what wakes it, how a pass is bounded, how a failed one comes back.
//!
//! [`reconcile`] is the pipeline, [`deletion`] the teardown, [`steps`] the work. What is rendered lives in
//! [`workload`] and [`database`], pure.

pub mod database;
pub mod deletion;
pub mod finalizers;
pub mod index;
pub mod job_metrics;
pub mod reconcile;
pub mod revisions;
#[cfg(test)]
pub(crate) mod specimen;
pub mod steps;
pub mod watches;
pub mod workload;

use std::sync::Arc;

use glance_api::glance::Glance;
use kube::runtime::controller::Action;
use tokio::sync::Semaphore;

use crate::{
    cluster::{cluster_label, placed_on},
    context::Context,
    controller::{self, Handler, Turn},
    pipeline::report::StepError,
};

/// The label of this controller in metrics and logs.
pub const CONTROLLER: &str = "glance";

/// Runs passes over Glances, bounded by the cluster they work on.
pub struct Controller {
    ctx: Arc<Context>,
    local: Semaphore,
}

// === impl Controller ===

impl Controller {
    /// At most `workers` passes over Glances of the hub itself at one time.
    pub fn new(ctx: Arc<Context>, workers: usize) -> Self {
        Self {
            ctx,
            local: Semaphore::new(workers),
        }
    }
}

impl Handler<Glance> for Controller {
    fn seen(&self, glance: &Glance) {
        self.ctx.router.glance_seen(glance);
    }

    fn gone(&self, glance: &Glance) {
        self.ctx.router.glance_gone(glance);
        reconcile::forget(&self.ctx, glance);
        if let Some(name) = placed_on(glance) {
            self.ctx.retire_unused(name);
        }
    }

    fn listed(&self) {
        self.ctx.glances.clear();
        self.ctx.router.glances_listed();
    }

    fn cluster(&self, glance: &Glance) -> String {
        cluster_label(glance).to_owned()
    }

    async fn admit(&self, glance: &Glance) -> Turn<'_> {
        controller::admit(&self.ctx, &self.local, placed_on(glance)).await
    }

    async fn pass(&self, glance: Arc<Glance>) -> Result<Action, StepError> {
        Box::pin(reconcile::reconcile(&self.ctx, glance)).await
    }
}
