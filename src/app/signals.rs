//! What `SIGTERM` and `SIGINT` do.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The first signal stops, the second kills.
pub fn stop(stop: &CancellationToken) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = stop.clone();
    tokio::spawn(async move {
        for times in 0.. {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if times > 0 {
                tracing::warn!("told to stop again: ending at once");
                std::process::exit(1);
            }
            tracing::info!("stopping: running passes may finish");
            stop.cancel();
        }
    });
    Ok(())
}
