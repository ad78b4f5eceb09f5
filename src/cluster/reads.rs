//! Child objects as they are: from the watches where those can be trusted, else from the API server.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api,
    api::{ListParams, ObjectList},
    core::{DynamicObject, PartialObjectMeta},
};
use target_registry::{Kind, Pages, Readiness};

use super::{Target, inputs::metadata_only, ownership::Claim};
use crate::pipeline::report::StepError;

/// Objects of one page of a list; of metadata, which is small.
pub(super) const PAGE: u32 = 500;

// === impl Target (reads) ===

impl Target {
    /// The live child of this name, if there is one and it is this Glance's.
    pub async fn child(
        &self,
        kind: &Kind,
        name: &str,
    ) -> Result<Option<Arc<DynamicObject>>, StepError> {
        let live = match self.view.readiness(kind, Some(self.namespace())).await {
            Readiness::Synced => self
                .view
                .informer(kind)
                .and_then(|informer| informer.get(Some(self.namespace()), name)),
            Readiness::NotServed => None,
            Readiness::Forbidden(_) | Readiness::Failing(_) => {
                self.read(kind, name).await?.map(Arc::new)
            }
        };
        Ok(live.filter(|object| self.owner.claim(&object.metadata) == Claim::Mine))
    }

    /// All children of a kind, metadata at least.
    pub async fn children(&self, kind: &Kind) -> Result<Vec<Arc<DynamicObject>>, StepError> {
        self.children_by_prefix(kind, "").await
    }

    /// The children of a kind whose names begin with `prefix`, metadata at least. For kinds of which a namespace has
    /// many: each Glance looks at its own.
    pub async fn children_by_prefix(
        &self,
        kind: &Kind,
        prefix: &str,
    ) -> Result<Vec<Arc<DynamicObject>>, StepError> {
        let namespace = self.namespace();
        let all = match self.view.readiness(kind, Some(namespace)).await {
            Readiness::Synced => self
                .view
                .informer(kind)
                .map(|informer| informer.list_by_prefix(Some(namespace), prefix))
                .unwrap_or_default(),
            Readiness::NotServed => Vec::new(),
            Readiness::Forbidden(_) | Readiness::Failing(_) => self.list_metadata(kind).await?,
        };
        Ok(all
            .into_iter()
            .filter(|object| {
                object
                    .metadata
                    .name
                    .as_deref()
                    .unwrap_or_default()
                    .starts_with(prefix)
            })
            .filter(|object| self.owner.claim(&object.metadata) == Claim::Mine)
            .collect())
    }

    /// The object of this name as it is now, ours or not.
    pub async fn read(&self, kind: &Kind, name: &str) -> Result<Option<DynamicObject>, StepError> {
        match self.api(kind).get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(StepError::from(error).context(&format!(
                "getting {} {}/{name}",
                kind.kind,
                self.namespace()
            ))),
        }
    }

    /// Metadata of the object of this name as it is now. A cluster that does not serve the kind has none: it answers
    /// with a 404 in plain text, which `kube` takes for an error of its own.
    pub async fn read_metadata(
        &self,
        kind: &Kind,
        name: &str,
    ) -> Result<Option<ObjectMeta>, StepError> {
        match self.api(kind).get_metadata(name).await {
            Ok(live) => Ok(Some(live.metadata)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The API of a kind in the CR's namespace.
    pub fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.cluster.client(),
            self.namespace(),
            &kind.api_resource(),
        )
    }

    /// One page of a list of the CR's namespace.
    pub(super) async fn metadata_page(
        &self,
        kind: &Kind,
        params: ListParams,
    ) -> Result<ObjectList<PartialObjectMeta<DynamicObject>>, kube::Error> {
        self.api(kind).list_metadata(&params).await
    }

    async fn list_metadata(&self, kind: &Kind) -> Result<Vec<Arc<DynamicObject>>, StepError> {
        let mut pages = Pages::new(ListParams::default().limit(PAGE));
        let mut all = Vec::new();
        loop {
            let page = pages.next(|params| self.metadata_page(kind, params));
            let page = page.await.map_err(|error| {
                StepError::from(error).context(&format!(
                    "listing {}s in {}",
                    kind.kind,
                    self.namespace()
                ))
            })?;
            let Some(page) = page else { return Ok(all) };
            let items = page.items.into_iter();
            all.extend(items.map(|item| Arc::new(metadata_only(kind, item.metadata))));
        }
    }
}
