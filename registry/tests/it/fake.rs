//! A small API server in this process: just enough of lists, watches and discovery, and every way
//! of misbehaving the tests need.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    response::Response,
};
use data_encoding::BASE64URL_NOPAD;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

/// Serves until it is dropped, on a runtime of its own: a test may count its own tasks.
pub struct Fake {
    pub url: String,
    api: Arc<Api>,
    stop: Option<oneshot::Sender<()>>,
}

struct Api {
    inner: Mutex<Inner>,
    /// Changes with every write, and when watches have to end.
    changed: watch::Sender<u64>,
    watches: AtomicUsize,
}

#[derive(Default)]
struct Inner {
    version: u64,
    uid: String,
    /// By `group/version/plural`, then namespace and name.
    objects: BTreeMap<String, BTreeMap<(String, String), Value>>,
    events: Vec<Event>,
    /// Versions below this are expired.
    compacted: u64,
    /// Watches opened before this many cuts have to end.
    cuts: u64,
    /// `group/version` to kinds and plurals.
    served: BTreeMap<String, BTreeMap<String, String>>,
    tokens: BTreeSet<String>,
    /// What a token request is answered with.
    next_token: Option<String>,
    faults: Vec<(String, Fault)>,
    log: Vec<Call>,
    page: usize,
}

#[derive(Clone)]
struct Event {
    version: u64,
    kind: &'static str,
    resource: String,
    object: Value,
}

/// What the server does instead of answering.
#[derive(Clone)]
pub enum Fault {
    /// Never answers.
    Hang,
    /// Sends headers and the beginning of a body, and no more.
    Stall,
    /// A body of this many bytes.
    Huge(usize),
    /// This status, with a JSON status as body.
    Status(u16),
    /// This status, as plain text.
    Plain(u16),
    /// This status, with JSON that is no status as body.
    Gateway(u16),
    /// 429 with this `Retry-After`.
    Busy(&'static str),
    /// Answers properly after a while.
    Slow(Duration),
    /// Opens watches and ends them at once.
    EndWatches,
    /// Watches are refused with this status, and with a body that does not end.
    StallWatches(u16),
    /// Watches are refused with this status.
    RefuseWatches(u16),
}

/// A request the server got.
#[derive(Clone, Debug)]
pub struct Call {
    pub path: String,
    pub query: String,
    pub token: String,
    pub accept: String,
    pub agent: String,
}

// === impl Fake ===

impl Fake {
    /// A server with core, apps and a few other kinds, that accepts the token `good`.
    pub fn start() -> Self {
        let mut inner = Inner {
            version: 100,
            page: usize::MAX,
            tokens: ["good".to_owned()].into(),
            ..Inner::default()
        };
        let (ready, started) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        inner.serve("v1", "Secret", "secrets");
        inner.serve("v1", "ConfigMap", "configmaps");
        inner.serve("v1", "Namespace", "namespaces");
        inner.serve("apps/v1", "Deployment", "deployments");
        let api = Arc::new(Api {
            inner: Mutex::new(inner),
            changed: watch::Sender::new(0),
            watches: AtomicUsize::new(0),
        });
        let app = Router::new().fallback(answer).with_state(api.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                ready.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    _ = axum::serve(listener, app).into_future() => {}
                    _ = stopped => {}
                }
            });
        });
        let url = format!("http://{}", started.recv().unwrap());
        let fake = Self {
            api,
            stop: Some(stop),
            url,
        };
        fake.inner().uid = format!("uid-of-{}", fake.url);
        fake
    }

    pub fn config(&self) -> kube::Config {
        let mut config = kube::Config::new(self.url.parse().unwrap());
        config.auth_info.token = Some("good".to_owned().into());
        config
    }

    /// A kubeconfig for it.
    pub fn kubeconfig(&self, token: &str) -> String {
        kubeconfig(&self.url, token)
    }

    /// Creates or replaces an object; answers its version.
    pub fn put(&self, resource: &str, namespace: &str, name: &str, rest: Value) -> u64 {
        let version = self.inner().put(resource, namespace, name, rest);
        self.api.changed.send_modify(|count| *count += 1);
        version
    }

    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (namespace.to_owned(), name.to_owned());
        self.inner().objects.get(resource)?.get(&key).cloned()
    }

    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        self.inner().delete(resource, namespace, name);
        self.api.changed.send_modify(|count| *count += 1);
    }

    /// Writes a registration Secret.
    pub fn register(&self, name: &str, label: &str, data: &[(&str, &str)]) {
        let encode = |text: &str| data_encoding::BASE64.encode(text.as_bytes());
        let data: BTreeMap<_, _> = data
            .iter()
            .map(|(k, v)| ((*k).to_owned(), encode(v)))
            .collect();
        let labels = json!({target_registry::REGISTRATION_LABEL: label});
        let rest = json!({"metadata": {"labels": labels}, "data": data});
        self.put("v1/secrets", "clusters", name, rest);
    }

    pub fn serve(&self, group_version: &str, kind: &str, plural: &str) {
        self.inner().serve(group_version, kind, plural);
    }

    /// Takes a kind away: its objects go, its watches end, its paths answer 404.
    pub fn unserve(&self, group_version: &str, kind: &str) {
        {
            let mut inner = self.inner();
            let kinds = inner.served.get_mut(group_version).unwrap();
            let plural = kinds.remove(kind).unwrap();
            if kinds.is_empty() {
                inner.served.remove(group_version);
            }
            let resource = format!("{group_version}/{plural}");
            let names: Vec<_> = inner
                .objects
                .remove(&resource)
                .unwrap_or_default()
                .into_iter()
                .collect();
            for (_, object) in names {
                inner.version += 1;
                let event = Event {
                    version: inner.version,
                    kind: "DELETED",
                    resource: resource.clone(),
                    object,
                };
                inner.events.push(event);
            }
            inner.cuts += 1;
        }
        self.api.changed.send_modify(|count| *count += 1);
    }

    /// Misbehaves for paths that contain `path`, until [`Self::heal`].
    pub fn fail(&self, path: &str, fault: Fault) {
        self.inner().faults.push((path.to_owned(), fault));
    }

    pub fn heal(&self) {
        self.inner().faults.clear();
    }

    /// From now on it is another cluster.
    pub fn become_another(&self) {
        self.inner().uid.push_str("-anew");
    }

    /// Forgets the calls and events so far, but for the last.
    pub fn forget(&self) {
        let mut inner = self.inner();
        let keep = inner.log.len().saturating_sub(1);
        inner.log.drain(..keep);
        inner.log.shrink_to_fit();
        let keep = inner.events.len().saturating_sub(1);
        inner.events.drain(..keep);
        inner.events.shrink_to_fit();
    }

    /// Ends every open watch.
    pub fn cut(&self) {
        self.inner().cuts += 1;
        self.api.changed.send_modify(|count| *count += 1);
    }

    /// Forgets all history: a watch from any earlier version is answered with 410.
    pub fn compact(&self) {
        let mut inner = self.inner();
        inner.events.clear();
        inner.version += 1;
        inner.compacted = inner.version;
    }

    /// Which tokens are accepted from now on.
    pub fn accept(&self, tokens: &[&str]) {
        self.inner().tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
    }

    /// What a token request is answered with from now on.
    pub fn grant(&self, token: &str) {
        self.inner().next_token = Some(token.to_owned());
    }

    /// Objects per page of a list, whatever was asked for.
    pub fn set_page(&self, page: usize) {
        self.inner().page = page;
    }

    /// Requests so far whose path contains `path`.
    pub fn calls(&self, path: &str) -> Vec<Call> {
        self.inner()
            .log
            .iter()
            .filter(|call| call.path.contains(path))
            .cloned()
            .collect()
    }

    pub fn lists(&self, path: &str) -> usize {
        self.calls(path)
            .iter()
            .filter(|call| !call.query.contains("watch="))
            .count()
    }

    pub fn open_watches(&self) -> usize {
        self.api.watches.load(Ordering::SeqCst)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.api.inner.lock().unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }
}

/// Some CA, as real kubeconfigs have one; reading the operating system's would take longer than
/// most tests.
static CA: LazyLock<String> = LazyLock::new(|| {
    let pair = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).unwrap();
    data_encoding::BASE64.encode(pair.cert.pem().as_bytes())
});

pub fn kubeconfig(url: &str, token: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": url, "certificate-authority-data": *CA}}],
        "users": [{"name": "u", "user": {"token": token}}],
    })
    .to_string()
}

// === impl Call ===

impl Call {
    fn of(request: &Request) -> Self {
        let header = |name: &str| {
            let value = request
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        Self {
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            token: header("authorization")
                .trim_start_matches("Bearer ")
                .to_owned(),
            accept: header("accept"),
            agent: header("user-agent"),
        }
    }
}

// === impl Inner ===

impl Inner {
    fn serve(&mut self, group_version: &str, kind: &str, plural: &str) {
        let kinds = self.served.entry(group_version.to_owned()).or_default();
        kinds.insert(kind.to_owned(), plural.to_owned());
    }

    fn put(&mut self, resource: &str, namespace: &str, name: &str, mut object: Value) -> u64 {
        self.version += 1;
        let key = (namespace.to_owned(), name.to_owned());
        let objects = self.objects.entry(resource.to_owned()).or_default();
        let uid = match objects.get(&key) {
            Some(known) => known["metadata"]["uid"].clone(),
            None => json!(format!("{resource}/{namespace}/{name}/{}", self.version)),
        };
        let kind = if objects.contains_key(&key) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        object["metadata"]["name"] = json!(name);
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object["metadata"]["uid"] = uid;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        objects.insert(key, object.clone());
        let resource = resource.to_owned();
        self.events.push(Event {
            version: self.version,
            kind,
            resource,
            object,
        });
        self.version
    }

    fn delete(&mut self, resource: &str, namespace: &str, name: &str) {
        self.version += 1;
        let key = (namespace.to_owned(), name.to_owned());
        let object = self
            .objects
            .get_mut(resource)
            .and_then(|objects| objects.remove(&key));
        let mut object = object.unwrap();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let resource = resource.to_owned();
        self.events.push(Event {
            version: self.version,
            kind: "DELETED",
            resource,
            object,
        });
    }
}

// === the server ===

async fn answer(State(api): State<Arc<Api>>, request: Request) -> Response {
    let call = Call::of(&request);
    let method = request.method().clone();
    let body = axum::body::to_bytes(request.into_body(), usize::MAX).await;
    let body = body.unwrap_or_default();
    let (fault, accepted) = {
        let mut inner = api.inner.lock().unwrap();
        inner.log.push(call.clone());
        let fault = inner
            .faults
            .iter()
            .find(|(path, _)| call.path.contains(path));
        (
            fault.map(|(_, fault)| fault.clone()),
            inner.tokens.contains(&call.token),
        )
    };
    match fault {
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Stall) => {
            let begin = stream::once(async { Ok::<_, Infallible>(Bytes::from("{\"items\":[")) });
            return Response::new(Body::from_stream(begin.chain(stream::pending())));
        }
        Some(Fault::Huge(bytes)) => {
            let chunks =
                stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from(vec![b' '; 65_536])));
            return Response::new(Body::from_stream(chunks.take(bytes / 65_536)));
        }
        Some(Fault::Status(code)) => return status(code, "as told"),
        Some(Fault::Plain(code)) => {
            return Response::builder()
                .status(code)
                .body(Body::from("as told"))
                .unwrap();
        }
        Some(Fault::Gateway(code)) => {
            return Response::builder()
                .status(code)
                .body(Body::from(r#"{"message":"as told"}"#))
                .unwrap();
        }
        Some(Fault::Busy(after)) => {
            let mut busy = status(429, "too many requests");
            busy.headers_mut()
                .insert("retry-after", after.parse().unwrap());
            return busy;
        }
        Some(Fault::Slow(pause)) => tokio::time::sleep(pause).await,
        Some(Fault::EndWatches) if call.query.contains("watch=") => {
            return Response::new(Body::empty());
        }
        Some(Fault::StallWatches(code)) if call.query.contains("watch=") => {
            let begin = stream::once(async { Ok::<_, Infallible>(Bytes::from("{")) });
            let body = Body::from_stream(begin.chain(stream::pending()));
            return Response::builder().status(code).body(body).unwrap();
        }
        Some(Fault::RefuseWatches(code)) if call.query.contains("watch=") => {
            return status(code, "as told");
        }
        None | Some(Fault::EndWatches | Fault::StallWatches(_) | Fault::RefuseWatches(_)) => {}
    }
    if !accepted {
        return status(401, "Unauthorized");
    }
    if method != http::Method::GET
        && let Some(answer) = write(&api, &call, &body)
    {
        return answer;
    }
    route(&api, &call)
}

/// A token request, or an object that is written; everything else is no write to this server.
fn write(api: &Arc<Api>, call: &Call, body: &[u8]) -> Option<Response> {
    let parts: Vec<_> = call.path.trim_matches('/').split('/').collect();
    let body: Value = serde_json::from_slice(body).ok()?;
    match parts.as_slice() {
        [.., "serviceaccounts", _, "token"] => {
            let token = api.inner.lock().unwrap().next_token.clone()?;
            let mut answer = body;
            answer["status"] = json!({"token": token, "expirationTimestamp": end_of(&token)});
            Some(json_body(&answer))
        }
        ["api", "v1", "namespaces", namespace, "secrets", name] => {
            api.inner
                .lock()
                .unwrap()
                .put("v1/secrets", namespace, name, body.clone());
            api.changed.send_modify(|count| *count += 1);
            Some(json_body(&body))
        }
        _ => None,
    }
}

/// When a token ends by its own words.
fn end_of(token: &str) -> String {
    let claims = token.split('.').nth(1).unwrap();
    let claims = BASE64URL_NOPAD.decode(claims.as_bytes()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    let end = Timestamp::from_second(claims["exp"].as_i64().unwrap());
    end.unwrap().to_string()
}

fn route(api: &Arc<Api>, call: &Call) -> Response {
    let parts: Vec<_> = call.path.trim_matches('/').split('/').collect();
    let (group_version, rest) = match parts.as_slice() {
        ["readyz"] => return Response::new(Body::from("ok")),
        ["version"] => {
            let info = version_info();
            return json_body(&info);
        }
        ["api", version, rest @ ..] => ((*version).to_owned(), rest),
        ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
        _ => return status(404, "unknown path"),
    };
    let inner = api.inner.lock().unwrap();
    let Some(kinds) = inner.served.get(&group_version) else {
        let text = Body::from("404 page not found\n");
        return Response::builder().status(404).body(text).unwrap();
    };
    let (namespace, plural, name) = match *rest {
        [] => return json_body(&resources(&group_version, kinds)),
        ["namespaces", "kube-system"] => {
            let metadata = json!({"name": "kube-system", "uid": inner.uid});
            return json_body(
                &json!({"kind": "Namespace", "apiVersion": "v1", "metadata": metadata}),
            );
        }
        ["namespaces", namespace, plural] => (Some(namespace), plural, None),
        ["namespaces", namespace, plural, name] => (Some(namespace), plural, Some(name)),
        [plural] => (None, plural, None),
        _ => return status(404, "unknown path"),
    };
    if !kinds.values().any(|known| known == plural) {
        let text = Body::from("404 page not found\n");
        return Response::builder().status(404).body(text).unwrap();
    }
    let resource = format!("{group_version}/{plural}");
    let selects = selector(&call.query);
    let wanted = move |object: &Value| {
        namespace.is_none_or(|wanted| object["metadata"]["namespace"] == wanted)
            && selects.as_ref().is_none_or(|(key, value)| {
                object["metadata"]["labels"][key.as_str()] == value.as_str()
            })
    };
    let partial = call.accept.contains("PartialObjectMetadata");
    if let Some(name) = name {
        let key = (namespace.unwrap_or_default().to_owned(), name.to_owned());
        return match inner
            .objects
            .get(&resource)
            .and_then(|objects| objects.get(&key))
        {
            Some(object) => json_body(object),
            None => status(404, "not found"),
        };
    }
    if call.query.contains("watch=") {
        let from = parameter(&call.query, "resourceVersion")
            .unwrap()
            .parse()
            .unwrap();
        let namespace = namespace.map(str::to_owned);
        drop(inner);
        let selects = selector(&call.query);
        return watch_from(
            api.clone(),
            from,
            move |event: &Event| {
                event.resource == resource
                    && namespace
                        .as_deref()
                        .is_none_or(|n| event.object["metadata"]["namespace"] == n)
                    && selects.as_ref().is_none_or(|(key, value)| {
                        event.object["metadata"]["labels"][key.as_str()] == value.as_str()
                    })
            },
            partial,
        );
    }
    let objects = inner
        .objects
        .get(&resource)
        .into_iter()
        .flat_map(BTreeMap::values);
    let objects: Vec<_> = objects
        .filter(|o| wanted(o))
        .map(|o| stripped(o, partial))
        .collect();
    let from: usize = parameter(&call.query, "continue").map_or(0, |text| text.parse().unwrap());
    let limit = parameter(&call.query, "limit").map_or(usize::MAX, |text| text.parse().unwrap());
    let to = objects
        .len()
        .min(from.saturating_add(inner.page.min(limit)));
    let mut metadata = json!({"resourceVersion": inner.version.to_string()});
    if to < objects.len() {
        metadata["continue"] = json!(to.to_string());
    }
    json_body(&json!({
        "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": objects[from..to],
    }))
}

/// Counts an open watch for as long as it lives.
struct Open(Arc<Api>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::SeqCst);
    }
}

fn watch_from(
    api: Arc<Api>,
    from: u64,
    wanted: impl Fn(&Event) -> bool + Send + 'static,
    partial: bool,
) -> Response {
    let cuts = {
        let inner = api.inner.lock().unwrap();
        if from < inner.compacted {
            return status(410, "too old resource version");
        }
        inner.cuts
    };
    api.watches.fetch_add(1, Ordering::SeqCst);
    let changes = api.changed.subscribe();
    let state = (Open(api), changes, from, wanted);
    let lines = stream::unfold(state, move |(open, mut changes, from, wanted)| async move {
        loop {
            changes.borrow_and_update();
            let (lines, to) = {
                let inner = open.0.inner.lock().unwrap();
                let news = inner.events.iter().filter(|event| event.version > from);
                let lines: String = news
                    .filter(|event| wanted(event))
                    .map(|event| {
                        let object = stripped(&event.object, partial);
                        json!({"type": event.kind, "object": object}).to_string() + "\n"
                    })
                    .collect();
                if lines.is_empty() && inner.cuts > cuts {
                    return None;
                }
                (lines, inner.version)
            };
            if !lines.is_empty() {
                return Some((
                    Ok::<_, Infallible>(Bytes::from(lines)),
                    (open, changes, to, wanted),
                ));
            }
            if changes.changed().await.is_err() {
                return None;
            }
        }
    });
    Response::new(Body::from_stream(lines))
}

fn version_info() -> Value {
    json!({
        "major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    })
}

fn resources(group_version: &str, kinds: &BTreeMap<String, String>) -> Value {
    let resource = |(kind, plural): (&String, &String)| json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["list"]});
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": kinds.iter().map(resource).collect::<Vec<_>>(),
    })
}

fn stripped(object: &Value, partial: bool) -> Value {
    if partial {
        let (kind, version) = ("PartialObjectMetadata", "meta.k8s.io/v1");
        json!({"kind": kind, "apiVersion": version, "metadata": object["metadata"]})
    } else {
        object.clone()
    }
}

fn parameter(query: &str, name: &str) -> Option<String> {
    let pair = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(
        pair.replace("%3D", "=")
            .replace("%2F", "/")
            .replace("%3d", "=")
            .replace("%2f", "/"),
    )
}

fn selector(query: &str) -> Option<(String, String)> {
    let selector = parameter(query, "labelSelector")?;
    let (key, value) = selector.split_once('=')?;
    Some((key.to_owned(), value.to_owned()))
}

fn json_body(value: &Value) -> Response {
    Response::builder()
        .header("content-type", "application/json")
        .body(Body::from(value.to_string()))
        .unwrap()
}

fn status(code: u16, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": "", "message": message, "metadata": {},
    });
    let mut response = json_body(&body);
    *response.status_mut() = code.try_into().unwrap();
    response
}
