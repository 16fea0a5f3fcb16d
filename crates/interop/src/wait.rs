//! Waiting for a condition, with a bound: the only place that sleeps.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// How long to leave the condition alone between two looks at it.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks `check` until it has an answer.
///
/// # Panics
/// If there is none within `limit`; `what` names what was waited for.
pub async fn until<T>(what: &str, limit: Duration, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = check().await {
            return answer;
        }
        assert!(begin.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// The same for a thread that must not be async.
pub(crate) fn until_blocking<T>(
    what: &str,
    limit: Duration,
    mut check: impl FnMut() -> Option<T>,
) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = check() {
            return answer;
        }
        assert!(begin.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(PAUSE);
    }
}

/// Runs `future` to its end.
///
/// # Panics
/// If it does not end within `limit`; `what` names it.
pub async fn within<T>(what: &str, limit: Duration, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(answer) => answer,
        Err(_) => panic!("{what}: not within {limit:?}"),
    }
}
