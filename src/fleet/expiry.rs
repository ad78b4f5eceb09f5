//! Says ahead of time that a cluster is spoken to with something that expires.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use target_registry::{Cause, ClusterState};
use tokio_util::sync::CancellationToken;

use super::about;
use crate::{context::Context, pipeline::notice::Notice};

/// Reason of the events ahead of the end.
const CREDENTIAL_EXPIRING: &str = "CredentialExpiring";
/// Reason of the event at the end.
const CREDENTIAL_EXPIRED: &str = "CredentialExpired";

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Longest pause between two looks: clocks are set, and machines sleep.
const LOOK: Duration = Duration::from_hours(1);

/// How near the end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Far,
    Month,
    Week,
    Day,
    Over,
}

/// Looks at every registration until it is stopped.
pub async fn run(ctx: Arc<Context>, clusters_namespace: String, stop: CancellationToken) {
    let looking = async {
        let mut published = ctx.registry.published();
        let mut objects = ctx.registry.target_clusters_changed();
        let mut said: HashMap<(String, Timestamp), Stage> = HashMap::new();
        loop {
            published.mark_unchanged();
            objects.mark_unchanged();
            let mut next = LOOK;
            let mut known = HashMap::new();
            for state in ctx.registry.snapshot() {
                let Some(end) = expiry(&state) else { continue };
                let renews = renews(&ctx, &state);
                let falls_short = state.cause == Some(Cause::CredentialExpiring);
                if renews && !falls_short && end > ctx.now() {
                    // Put off in time: a token that lives for an hour is always near its end.
                    continue;
                }
                let why = Some(state.detail.as_str()).filter(|_| renews && falls_short);
                let key = (state.name.clone(), end);
                let (stage, pause) = judge(ctx.now(), end);
                next = next.min(pause);
                let before = said.get(&key).copied().unwrap_or(Stage::Far);
                let object = about(&ctx, &clusters_namespace, &state.name);
                match object.filter(|_| stage > before) {
                    Some(object) => {
                        ctx.publisher
                            .publish(&object, notice(&state.name, stage, end, why));
                        known.insert(key, stage);
                    }
                    None => {
                        known.insert(key, before);
                    }
                }
            }
            said = known;
            tokio::select! {
                changed = published.changed() => if changed.is_err() { return },
                changed = objects.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(next) => {}
            }
        }
    };
    stop.run_until_cancelled(looking).await;
}

fn expiry(state: &ClusterState) -> Option<Timestamp> {
    let credential = state.credential.as_ref()?;
    credential.expires_at.as_ref().map(|time| time.0)
}

/// Whether its token is to be renewed.
fn renews(ctx: &Context, state: &ClusterState) -> bool {
    let object = ctx.registry.target_cluster(&state.name);
    object.is_some_and(|object| object.spec.renew_credentials == Some(true))
}

/// How near the end is, and when it will be nearer.
fn judge(now: Timestamp, end: Timestamp) -> (Stage, Duration) {
    let left = end.duration_since(now);
    let steps = [
        (DAY * 30, Stage::Far),
        (DAY * 7, Stage::Month),
        (DAY, Stage::Week),
        (SignedDuration::ZERO, Stage::Day),
    ];
    for (from, stage) in steps {
        if left > from {
            let pause = Duration::try_from(left - from).unwrap_or_default();
            return (stage, pause + Duration::from_secs(1));
        }
    }
    (Stage::Over, LOOK)
}

fn notice(cluster: &str, stage: Stage, end: Timestamp, why: Option<&str>) -> Notice {
    let mut advice = "write a new one into the registration Secret".to_owned();
    if let Some(why) = why {
        advice.push_str(", or let it be renewed (");
        advice.push_str(why);
        advice.push(')');
    }
    match stage {
        Stage::Over => Notice::warning(
            CREDENTIAL_EXPIRED,
            format!("the credential of cluster {cluster:?} has expired at {end}: {advice}"),
        ),
        Stage::Week | Stage::Day => Notice::warning(
            CREDENTIAL_EXPIRING,
            format!("the credential of cluster {cluster:?} expires at {end}: {advice}"),
        ),
        Stage::Far | Stage::Month => Notice::normal(
            CREDENTIAL_EXPIRING,
            format!("the credential of cluster {cluster:?} expires at {end}: {advice} until then"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::pipeline::notice::NoticeType;

    #[rstest]
    #[case::far(31 * 24, Stage::Far, 24)]
    #[case::a_month(30 * 24, Stage::Month, 23 * 24)]
    #[case::a_week(6 * 24, Stage::Week, 5 * 24)]
    #[case::a_day(24, Stage::Day, 24)]
    #[case::over(-1, Stage::Over, 1)]
    fn the_end_is_seen_a_month_a_week_and_a_day_ahead(
        #[case] hours: i64,
        #[case] stage: Stage,
        #[case] next: u64,
    ) {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (judged, pause) = judge(now, now + SignedDuration::from_hours(hours));
        assert_eq!(judged, stage);
        let (least, most) = (next * 3600, next * 3600 + 1);
        assert!((least..=most).contains(&pause.as_secs()), "{pause:?}");
    }

    #[test]
    fn only_what_is_near_is_a_warning() {
        let end = Timestamp::from_second(1_800_000_000).unwrap();
        assert_eq!(
            notice("blue", Stage::Month, end, None).type_,
            NoticeType::Normal
        );
        assert_eq!(
            notice("blue", Stage::Week, end, None).type_,
            NoticeType::Warning
        );
        let over = notice("blue", Stage::Over, end, None);
        assert_eq!(over.reason, "CredentialExpired");
        assert!(over.message.contains("blue"), "{}", over.message);
        let day = notice("blue", Stage::Day, end, Some("tokens are forbidden"));
        assert!(day.message.ends_with("(tokens are forbidden)"));
    }
}
