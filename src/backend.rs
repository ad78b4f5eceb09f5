//! The `GlanceBackend` controller: single writer of a backend's status.

pub mod reconcile;

use std::sync::Arc;

use glance_api::{backend::GlanceBackend, conditions, glance::Glance};
use kube::{ResourceExt, runtime::controller::Action};
use tokio::sync::Semaphore;

use crate::{
    cluster::{cluster_label, placed_on},
    context::Context,
    controller::{self, Handler, Turn},
    pipeline::report::StepError,
};

/// The label of this controller in metrics and logs.
pub const CONTROLLER: &str = "glancebackend";

/// Runs passes over backends, bounded by the cluster of their Glance.
pub struct Controller {
    ctx: Arc<Context>,
    local: Semaphore,
}

// === impl Controller ===

impl Controller {
    /// At most `workers` passes over backends of the hub's own Glances at one time.
    pub fn new(ctx: Arc<Context>, workers: usize) -> Self {
        Self {
            ctx,
            local: Semaphore::new(workers),
        }
    }

    fn parent(&self, backend: &GlanceBackend) -> Option<Arc<Glance>> {
        let namespace = backend.namespace().unwrap_or_default();
        let name = &backend.spec.glance_ref.name;
        self.ctx.router.glance(&namespace, name)
    }
}

impl Handler<GlanceBackend> for Controller {
    fn seen(&self, backend: &GlanceBackend) {
        self.ctx.router.backend_seen(backend);
    }

    fn gone(&self, backend: &GlanceBackend) {
        self.ctx.router.backend_gone(backend);
        let uid = backend.uid().unwrap_or_default();
        self.ctx.backends.forget(&uid);
        self.ctx.failures.forget(&uid);
        self.ctx.metrics.forget_backend(
            &backend.name_any(),
            &backend.namespace().unwrap_or_default(),
            &[
                conditions::CREDENTIALS_READY,
                conditions::CONFIG_PROJECTED,
                conditions::READY,
            ],
        );
    }

    fn listed(&self) {
        self.ctx.backends.clear();
        self.ctx.router.backends_listed();
    }

    fn cluster(&self, backend: &GlanceBackend) -> String {
        // Without its Glance a backend lives nowhere yet.
        self.parent(backend)
            .map(|parent| cluster_label(&parent).to_owned())
            .unwrap_or_default()
    }

    async fn admit(&self, backend: &GlanceBackend) -> Turn<'_> {
        let parent = self.parent(backend);
        let cluster = parent.as_deref().and_then(placed_on);
        controller::admit(&self.ctx, &self.local, cluster).await
    }

    async fn pass(&self, backend: Arc<GlanceBackend>) -> Result<Action, StepError> {
        reconcile::reconcile(&self.ctx, backend).await
    }
}
