//! Lists page by page.

use std::time::Duration;

use kube::api::{ListParams, ObjectList};

use crate::{backoff::jittered, client::AnswerTooLong, failure::cause};

/// Objects and pages of one list that are followed. No honest cluster has so many of one kind; a list that never ends would
/// take all memory, or all time.
const MOST: usize = 500_000;

/// How often a page is asked for again that was too long only beside others, and after which pause.
const AGAIN: (u32, Duration) = (10, Duration::from_millis(200));

/// Follows a list to its end. A page that is longer than this client holds is asked for again in smaller ones.
///
/// ```no_run
/// # use kube::{Api, api::ListParams};
/// # use k8s_openapi::api::core::v1::Secret;
/// # async fn names(api: Api<Secret>) -> Result<Vec<String>, kube::Error> {
/// let mut names = Vec::new();
/// let mut pages = target_registry::Pages::new(ListParams::default().limit(500));
/// while let Some(page) = pages.next(|params| {
///     let api = api.clone();
///     async move { api.list_metadata(&params).await }
/// }).await? {
///     names.extend(page.items.into_iter().filter_map(|secret| secret.metadata.name));
/// }
/// # Ok(names)
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Pages {
    params: ListParams,
    taken: usize,
    ended: bool,
}

// === impl Pages ===

impl Pages {
    /// Follows the list of these parameters from its beginning. Its limit is that of a page.
    pub fn new(params: ListParams) -> Self {
        Self {
            params,
            taken: 0,
            ended: false,
        }
    }

    /// The next page, got by `fetch`; `None` after the last.
    ///
    /// # Errors
    ///
    /// What `fetch` fails with; also when the list does not end. An expired list has to be begun anew.
    pub async fn next<K, F>(
        &mut self,
        fetch: impl Fn(ListParams) -> F,
    ) -> Result<Option<ObjectList<K>>, kube::Error>
    where
        K: Clone,
        F: Future<Output = Result<ObjectList<K>, kube::Error>>,
    {
        if self.ended {
            return Ok(None);
        }
        let mut tries = 0;
        let page = loop {
            let error = match fetch(self.params.clone()).await {
                Ok(page) => break page,
                Err(error) => error,
            };
            match (cause::<AnswerTooLong>(&error), self.params.limit) {
                (Some(AnswerTooLong::Together(_)), _) if tries < AGAIN.0 => {
                    tries += 1;
                    tokio::time::sleep(jittered(AGAIN.1)).await;
                }
                (Some(AnswerTooLong::Bytes(_) | AnswerTooLong::Values(_)), Some(limit @ 2..)) => {
                    self.params.limit = Some(limit / 2);
                }
                _ => return Err(error),
            }
        };
        self.taken += page.items.len().max(1);
        let token = page.metadata.continue_.clone().filter(|t| !t.is_empty());
        if token.is_some() && self.taken > MOST {
            return Err(kube::Error::Service("the list does not end".into()));
        }
        self.ended = token.is_none();
        self.params.continue_token = token;
        Ok(Some(page))
    }

    /// Objects of one page, by now.
    pub fn limit(&self) -> Option<u32> {
        self.params.limit
    }
}

#[cfg(test)]
mod tests {
    use kube::{
        api::{ListMeta, TypeMeta},
        core::Status,
    };

    use super::*;

    fn page(items: usize, token: Option<&str>) -> ObjectList<usize> {
        ObjectList {
            types: TypeMeta::default(),
            metadata: ListMeta {
                continue_: token.map(str::to_owned),
                ..ListMeta::default()
            },
            items: (0..items).collect(),
        }
    }

    #[tokio::test]
    async fn a_page_that_is_too_long_is_asked_for_in_smaller_ones() {
        let mut pages = Pages::new(ListParams::default().limit(100));
        let fetch = |params: ListParams| async move {
            match (params.limit, params.continue_token.as_deref()) {
                (Some(limit), _) if limit > 30 => {
                    Err(kube::Error::Service(AnswerTooLong::Bytes(1).into()))
                }
                (Some(25), None) => Ok(page(25, Some("more"))),
                (Some(25), Some("more")) => Ok(page(5, Some(""))),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(pages.next(fetch).await.unwrap().unwrap().items.len(), 25);
        assert_eq!(pages.next(fetch).await.unwrap().unwrap().items.len(), 5);
        assert!(pages.next(fetch).await.unwrap().is_none());
        assert_eq!(pages.limit(), Some(25), "not too long again and again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_is_too_long_beside_others_is_asked_for_again_as_it_is() {
        let mut pages = Pages::new(ListParams::default().limit(100));
        let tries = std::cell::Cell::new(0);
        let fetch = |params: ListParams| {
            tries.set(tries.get() + 1);
            let few = tries.get() < 3;
            async move {
                assert_eq!(params.limit, Some(100));
                if few {
                    return Err(kube::Error::Service(AnswerTooLong::Together(1).into()));
                }
                Ok(page(100, None))
            }
        };
        assert!(pages.next(fetch).await.unwrap().is_some());
        assert_eq!(tries.get(), 3);
    }

    #[tokio::test]
    async fn other_failures_are_no_reason_to_ask_again() {
        let mut pages = Pages::new(ListParams::default().limit(100));
        let fetch = |_| async {
            let gone = Status::failure("gone", "Expired").with_code(410);
            Err::<ObjectList<usize>, _>(kube::Error::Api(gone.boxed()))
        };
        assert!(pages.next(fetch).await.is_err());
        let huge = |_| async {
            Err::<ObjectList<usize>, _>(kube::Error::Service(AnswerTooLong::Bytes(1).into()))
        };
        assert!(pages.next(huge).await.is_err(), "one object is too long");
        assert_eq!(pages.limit(), Some(1));
    }

    #[tokio::test]
    async fn a_list_without_end_is_given_up() {
        let mut pages = Pages::new(ListParams::default().limit(200_000));
        let fetch = |_| async { Ok(page(200_000, Some("more"))) };
        assert!(pages.next(fetch).await.is_ok());
        assert!(pages.next(fetch).await.is_ok());
        assert!(pages.next(fetch).await.is_err());
    }
}
