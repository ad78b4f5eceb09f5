//! Health checks in the form of Kubernetes components: a root that runs all of them and
//! a sub-path for each.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, RawQuery},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};

type Run = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// One named check. It must answer at once and may not block.
#[derive(Clone)]
pub struct Check {
    name: &'static str,
    run: Run,
}

/// The checks behind one path, in the order they are shown.
#[derive(Clone, Default)]
pub struct Checks(Vec<Check>);

/// What a request asked for.
#[derive(Default)]
struct Query {
    verbose: bool,
    excluded: Vec<String>,
}

// === impl Check ===

impl Check {
    /// A check that `run` decides; an error says why it fails.
    pub fn new(
        name: &'static str,
        run: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let run = Arc::new(run);
        Self { name, run }
    }
}

// === impl Checks ===

impl Checks {
    /// Adds a check.
    #[must_use]
    pub fn with(mut self, check: Check) -> Self {
        self.0.push(check);
        self
    }

    /// Serves `/NAME` and `/NAME/CHECK`. A check called like the path itself is always
    /// there: it passes as long as anybody answers.
    pub fn router(self, name: &'static str) -> Router {
        let mut checks = self.0;
        checks.insert(0, Check::new(name, || Ok(())));
        let checks = Arc::new(checks);
        let all = {
            let checks = Arc::clone(&checks);
            move |RawQuery(query): RawQuery| {
                let query = Query::parse(query.as_deref().unwrap_or_default());
                std::future::ready(all(name, &checks, &query))
            }
        };
        let one = move |Path(check): Path<String>| std::future::ready(one(&checks, &check));
        Router::new()
            .route(&format!("/{name}"), get(all.clone()))
            .route(&format!("/{name}/"), get(all))
            .route(&format!("/{name}/{{check}}"), get(one))
    }
}

// === impl Query ===

impl Query {
    fn parse(query: &str) -> Self {
        let mut parsed = Self::default();
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match key.as_ref() {
                "verbose" => parsed.verbose = true,
                "exclude" => parsed.excluded.push(value.into_owned()),
                _ => {}
            }
        }
        parsed
    }
}

fn all(path: &str, checks: &[Check], query: &Query) -> Response {
    let mut lines = String::new();
    let mut passed = true;
    for Check { name, run } in checks {
        let line = if query.excluded.iter().any(|excluded| excluded == name) {
            format!("[+]{name} excluded: ok\n")
        } else if let Err(reason) = run() {
            tracing::debug!(check = name, reason, "{path} check failed");
            passed = false;
            format!("[-]{name} failed: reason withheld\n")
        } else {
            format!("[+]{name} ok\n")
        };
        lines.push_str(&line);
    }
    let unknown: Vec<String> = query
        .excluded
        .iter()
        .filter(|excluded| checks.iter().all(|check| check.name != excluded.as_str()))
        .map(|excluded| format!("{excluded:?}"))
        .collect();
    if !unknown.is_empty() {
        lines.push_str("warn: some health checks cannot be excluded: no matches for ");
        lines.push_str(&unknown.join(","));
        lines.push('\n');
    }
    match (passed, query.verbose) {
        (true, false) => "ok".into_response(),
        (true, true) => format!("{lines}{path} check passed\n").into_response(),
        (false, _) => {
            let body = format!("{lines}{path} check failed\n");
            (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
        }
    }
}

fn one(checks: &[Check], name: &str) -> Response {
    let Some(check) = checks.iter().find(|check| check.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match (check.run)() {
        Ok(()) => "ok".into_response(),
        Err(reason) => {
            let body = format!("internal server error: {reason}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
        }
    }
}
