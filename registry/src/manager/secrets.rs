//! The watch of the registration Secrets.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use tokio::sync::mpsc;

use super::Message;
use crate::{
    Cluster, Kind, Payload,
    informer::{
        Phase,
        feed::Feed,
        leg::{self, Full, Sink},
    },
    is_registration,
    renewal::Renewed,
};

const SECRET: Kind = Kind::namespaced("", "v1", "Secret", "secrets");

/// Hands every Secret of the namespace to the owner and keeps none.
struct IntoOwner {
    inbox: mpsc::UnboundedSender<Message>,
    /// Registrations of the list that is under way.
    listed: Mutex<BTreeSet<String>>,
    phase: Mutex<Phase>,
}

/// Watches the Secrets of one namespace of the hub, without a selector: the label is judged in
/// code, so that its removal is noticed as such.
pub(super) fn watch(
    hub: &Arc<Cluster>,
    namespace: String,
    inbox: mpsc::UnboundedSender<Message>,
) -> impl Future<Output = ()> + Send + use<> {
    let legs = hub.legs();
    let feed = Feed {
        kind: SECRET,
        namespace: Some(namespace),
        selector: None,
        payload: Payload::Full,
    };
    let sink = IntoOwner {
        inbox,
        listed: Mutex::default(),
        phase: Mutex::new(Phase::Starting),
    };
    async move { leg::supervise(|| legs.leg(feed.clone()), &sink).await }
}

// === impl IntoOwner ===

impl IntoOwner {
    fn tell(&self, message: Message) {
        // The owner ends only when the registry is stopped, and this watch with it.
        let _ = self.inbox.send(message);
    }

    fn read(&self, object: DynamicObject) {
        let Some(name) = object.metadata.name.clone() else {
            return;
        };
        if Renewed::is_labelled(&object.metadata) {
            let secret = object.try_parse::<Secret>().ok();
            if let Some(renewed) = secret.as_ref().and_then(Renewed::read) {
                self.tell(Message::Renewed(Box::new(renewed)));
            }
            return;
        }
        if !is_registration(&object.metadata) {
            self.tell(Message::Removed(name));
            return;
        }
        self.listed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.clone());
        if let Ok(secret) = object.try_parse() {
            self.tell(Message::Secret(Box::new(secret)));
        } else {
            // Not the text of the error, it may quote a value.
            tracing::error!(cluster = name, "the registration Secret cannot be decoded");
        }
    }
}

impl Sink for IntoOwner {
    fn begin(&self) {
        self.listed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    fn put(&self, object: DynamicObject, _listed: bool) -> Result<(), Full> {
        self.read(object);
        Ok(())
    }

    fn remove(&self, object: DynamicObject) {
        if let Some(name) = object.metadata.name {
            self.tell(Message::Removed(name));
        }
    }

    fn end(&self) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        self.tell(Message::Listed(std::mem::take(&mut *listed)));
    }

    fn forget(&self) {}

    fn served(&self) {}

    fn gone(&self) {}

    fn phase(&self, phase: Phase) {
        let mut now = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        if *now == phase {
            return;
        }
        match &phase {
            Phase::Forbidden(reason) | Phase::Failing(reason) => {
                tracing::error!(%reason, "cannot watch the registration Secrets");
            }
            Phase::Synced if !matches!(*now, Phase::Starting) => {
                tracing::info!("watching the registration Secrets again");
            }
            _ => {}
        }
        *now = phase;
    }
}
