//! Waiting for clusters and for the operator, with a clock that people see.

use std::time::{Duration, Instant};

use super::{Session, error::Error};

/// How often we look.
const INTERVAL: Duration = Duration::from_millis(300);

/// Looks until there is an answer; until then what was seen is shown beside the clock. Fails when
/// the user's time is up, or when looking fails.
pub async fn until<T>(
    session: &Session,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<Result<T, String>, Error>,
) -> Result<T, Error> {
    let started = Instant::now();
    let limit = session.common.timeout;
    let mut last = String::new();
    loop {
        session.progress.say(&if last.is_empty() {
            what.to_owned()
        } else {
            format!("{what} ({last})")
        });
        match look().await? {
            Ok(answer) => return Ok(answer),
            Err(seen) => last = seen,
        }
        if started.elapsed() >= limit {
            return Err(Error::Timeout {
                what: what.to_owned(),
                seconds: limit.as_secs(),
                last,
            });
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
