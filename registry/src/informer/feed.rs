//! The two requests a watched kind consists of.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, ObjectList, TypeMeta, WatchEvent, WatchParams},
    core::PartialObjectMeta,
};

use super::Payload;
use crate::{Kind, Pages, backoff::jittered};

/// Longest life of one watch, in seconds. Load balancers drop what is silent for 240 s or less.
const WATCH_SECONDS: u32 = 180;

/// After this much silence the connection of a watch is dead: the server should have ended it.
pub(super) const IDLE: Duration = Duration::from_secs(185);

/// What is listed and watched.
#[derive(Clone)]
pub(crate) struct Feed {
    pub(crate) kind: Kind,
    /// `None`: everywhere.
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Option<String>,
    pub(crate) payload: Payload,
}

pub(super) type Events = BoxStream<'static, Result<WatchEvent<DynamicObject>, kube::Error>>;

/// Objects per page of a list: metadata is small, whole objects are not.
const fn page_size(payload: Payload) -> u32 {
    match payload {
        Payload::Metadata => 500,
        Payload::Full => 100,
    }
}

// === impl Feed ===

impl Feed {
    /// The list, from its beginning.
    pub(super) fn pages(&self) -> Pages {
        Pages::new(ListParams {
            limit: Some(page_size(self.payload)),
            label_selector: self.selector.clone(),
            ..ListParams::default()
        })
    }

    /// One page of it.
    pub(super) async fn page(
        &self,
        client: &Client,
        params: ListParams,
    ) -> Result<ObjectList<DynamicObject>, kube::Error> {
        let (types, metadata, items) = match self.payload {
            Payload::Full => {
                let list = self.full(client).list(&params).await?;
                (list.types, list.metadata, list.items)
            }
            Payload::Metadata => {
                let list = self.partial(client).list(&params).await?;
                let items = list.items.into_iter().map(whole).collect();
                (list.types, list.metadata, items)
            }
        };
        let items = items
            .into_iter()
            .map(|object| typed(self.kind, object))
            .collect();
        Ok(ObjectList {
            types,
            metadata,
            items,
        })
    }

    /// What happens after `version`.
    pub(super) async fn watch(
        &self,
        client: &Client,
        version: &str,
    ) -> Result<Events, kube::Error> {
        // Not all at the same second for ever.
        let seconds = jittered(Duration::from_secs(WATCH_SECONDS.into())).as_secs();
        let params = WatchParams {
            label_selector: self.selector.clone(),
            timeout: Some(u32::try_from(seconds).unwrap_or(WATCH_SECONDS)),
            bookmarks: true,
            ..WatchParams::default()
        };
        let kind = self.kind;
        Ok(match self.payload {
            Payload::Full => {
                let events = self.full(client).watch(&params, version).await?;
                events
                    .map_ok(move |event| each(event, |o| typed(kind, o)))
                    .boxed()
            }
            Payload::Metadata => {
                let events = self.partial(client).watch(&params, version).await?;
                events
                    .map_ok(move |event| each(event, |o| typed(kind, whole(o))))
                    .boxed()
            }
        })
    }

    fn full(&self, client: &Client) -> Api<DynamicObject> {
        self.kind.api(client.clone(), self.namespace.as_deref())
    }

    fn partial(&self, client: &Client) -> Api<PartialObjectMeta<DynamicObject>> {
        let resource = self.kind.api_resource();
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }
}

fn each<A, B>(event: WatchEvent<A>, act: impl Fn(A) -> B) -> WatchEvent<B> {
    match event {
        WatchEvent::Added(object) => WatchEvent::Added(act(object)),
        WatchEvent::Modified(object) => WatchEvent::Modified(act(object)),
        WatchEvent::Deleted(object) => WatchEvent::Deleted(act(object)),
        WatchEvent::Bookmark(bookmark) => WatchEvent::Bookmark(bookmark),
        WatchEvent::Error(status) => WatchEvent::Error(status),
    }
}

fn whole(partial: PartialObjectMeta<DynamicObject>) -> DynamicObject {
    DynamicObject {
        types: None,
        metadata: partial.metadata,
        data: serde_json::Value::Object(serde_json::Map::new()),
    }
}

/// Items of a list do not say what they are, partial ones say something else.
fn typed(kind: Kind, mut object: DynamicObject) -> DynamicObject {
    object.types = Some(TypeMeta {
        api_version: kind.api_version(),
        kind: kind.kind.to_owned(),
    });
    object
}
