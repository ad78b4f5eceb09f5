//! One LIST for all teardowns that wait for it.
//!
//! A teardown lists every kind without a selector, and must see what was there when it began. Many at once want the same
//! list: whoever asked before a list began may take its answer, so that a hundred teardowns cost a few lists and not a
//! hundred of each kind, each as long as the namespace is full.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use target_registry::Kind;

use crate::pipeline::report::StepError;

/// What a list came to.
pub type Listed = Result<Arc<Vec<ObjectMeta>>, StepError>;

/// Kind and namespace of a list.
type Key = (&'static str, &'static str, String);

/// The lists of one cluster that are under way.
#[derive(Debug, Default)]
pub struct SharedLists {
    /// Orders requests and lists: the beginning of a list is later than every request it answers.
    clock: AtomicU64,
    under_way: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<Option<Answer>>>>>,
}

#[derive(Debug)]
struct Answer {
    begun: u64,
    listed: Listed,
}

// === impl SharedLists ===

impl SharedLists {
    /// A list of this kind that began after this call: somebody else's, or the one that `list` makes.
    pub async fn of(
        &self,
        kind: Kind,
        namespace: &str,
        list: impl Future<Output = Result<Vec<ObjectMeta>, StepError>>,
    ) -> Listed {
        let asked = self.now();
        let key = (kind.group, kind.plural, namespace.to_owned());
        let turn = Arc::clone(self.lock().entry(key.clone()).or_default());
        let mut answer = turn.lock().await;
        let listed = match &*answer {
            Some(answer) if answer.begun > asked => answer.listed.clone(),
            _ => {
                let begun = self.now();
                let listed = list.await.map(Arc::new);
                *answer = Some(Answer {
                    begun,
                    listed: listed.clone(),
                });
                listed
            }
        };
        drop(answer);
        let mut under_way = self.lock();
        // The map, and this call: nobody waits, and the list goes with the last one.
        if Arc::strong_count(&turn) <= 2 {
            under_way.remove(&key);
        }
        listed
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<tokio::sync::Mutex<Option<Answer>>>>> {
        // Nothing in between can panic with the map half written.
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::join_all;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{cluster::kinds::SECRET, pipeline::report::ErrorKind};

    const TAKES: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn teardowns_at_one_time_share_lists_that_began_after_they_asked() {
        let (lists, begun) = (SharedLists::default(), AtomicU64::new(0));
        let start = Instant::now();
        let ask = async |delay: u64| {
            sleep(Duration::from_millis(delay)).await;
            let asked = Instant::now();
            let list = async {
                begun.fetch_add(1, Ordering::SeqCst);
                let name = format!("{}", start.elapsed().as_millis());
                sleep(TAKES).await;
                Ok(vec![ObjectMeta {
                    name: Some(name),
                    ..ObjectMeta::default()
                }])
            };
            let listed = lists.of(SECRET, "tenant", list).await.unwrap();
            let first: u128 = listed[0].name.as_deref().unwrap().parse().unwrap();
            assert!(first >= (asked - start).as_millis(), "{first} {asked:?}");
        };
        join_all((0..50).map(|number| ask(number * 10))).await;
        assert_eq!(
            begun.load(Ordering::SeqCst),
            2,
            "the first, and one for all others"
        );
        assert!(lists.lock().is_empty(), "nothing is kept for nobody");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_fails_for_all_who_wait_and_not_one_after_another() {
        let lists = SharedLists::default();
        let start = Instant::now();
        let ask = async || {
            let list = async {
                sleep(TAKES).await;
                Err(StepError::new(ErrorKind::Timeout, "no answer"))
            };
            lists.of(SECRET, "tenant", list).await.unwrap_err()
        };
        join_all((0..50).map(|_| ask())).await;
        assert!(start.elapsed() <= TAKES * 2, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_leaves_its_turn_to_the_next() {
        let lists = SharedLists::default();
        let hang = lists.of(SECRET, "tenant", std::future::pending());
        assert!(tokio::time::timeout(TAKES, hang).await.is_err());
        let listed = lists.of(SECRET, "tenant", async { Ok(Vec::new()) }).await;
        assert!(listed.unwrap().is_empty());
    }
}
