//! One fleet for all tests of a binary, started by the first that needs it.
//!
//! Tests are plain functions that hand an async body to [`run`]. All of them share one
//! runtime, since the fleet's tasks and connections must outlive the test that made them.
//! When the process ends, in whatever way, its children end too (see [`crate::process`]).

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::LazyLock,
};

use anyhow::Result;
use tokio::{runtime::Runtime, sync::OnceCell};

use crate::{
    fleet::{Fleet, Shape},
    patience,
};

/// The targets of the shared fleet: `edge-1` and `edge-2`.
const TARGETS: usize = 2;

#[allow(
    clippy::expect_used,
    reason = "without a runtime no test can even say what is wrong"
)]
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("the operating system gives us threads")
});

static FLEET: OnceCell<Result<Fleet, String>> = OnceCell::const_new();

/// Runs a test on the shared fleet. A failure keeps the folder with all logs and says
/// where it is.
#[track_caller]
pub fn run(body: impl AsyncFnOnce(&'static Fleet) -> Result<()>) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        RUNTIME.block_on(async {
            let fleet = FLEET
                .get_or_init(async || {
                    // Test runs beside each other take turns.
                    let shape = Shape {
                        patience: patience::seconds(600),
                        ..Shape::targets(TARGETS)
                    };
                    Fleet::start(shape).await.map_err(|e| format!("{e:#}"))
                })
                .await
                .as_ref()
                .map_err(|cause| anyhow::anyhow!("the fleet did not start: {cause}"))?;
            body(fleet).await
        })
    }));
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            show();
            // One cause per line, without the backtrace that `{error:?}` would bring.
            let causes: Vec<_> = error.chain().map(ToString::to_string).collect();
            panic!("{}", causes.join("\n"));
        }
        Err(panic) => {
            show();
            resume_unwind(panic);
        }
    }
}

/// Runs a body that needs the runtime and not the fleet.
pub fn block_on<T>(body: impl Future<Output = T>) -> T {
    RUNTIME.block_on(body)
}

fn show() {
    if let Some(Ok(fleet)) = FLEET.get() {
        fleet.folder().keep();
        eprintln!(
            "the logs of the fleet are kept in {}",
            fleet.folder().path().display()
        );
    }
}
