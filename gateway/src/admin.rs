//! The listener for those who run the gateway: is it alive, is it ready, what are its figures.
//!
//! It is for this machine alone, or behind keys of its own; the clients' open nothing here.

mod snapshot;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bifrost_shared::layout::{Counter, Gauge};
use bifrost_shared::snapshot::View;
use http::{Method, Request, StatusCode, Uri, header};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::access::Access;
use crate::app::App;
use crate::config::Config;
use crate::error::Error;
use crate::metrics::{self, Told};
use crate::routes::{answer_error, axum_json};
use crate::telemetry::Telemetry;

/// Connections that are served at once; more of them wait.
const CONNECTIONS_MAX: usize = 64;
/// How long a request's head may take, and a connection be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the acceptor rests when the system has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The listener. Dropped, it is gone.
pub struct Admin {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

struct Desk {
    access: Access,
    telemetry: Arc<Telemetry>,
    app: Arc<ArcSwap<App>>,
    draining: Arc<AtomicBool>,
}

impl Admin {
    /// Listens, on the caller's runtime. If nobody said where, and another gateway is there already, goes without.
    ///
    /// # Errors
    ///
    /// If the address can't be used.
    pub fn start(
        config: &Config,
        listen: impl FnOnce(SocketAddr) -> io::Result<TcpListener>,
        telemetry: Arc<Telemetry>,
        app: Arc<ArcSwap<App>>,
        draining: Arc<AtomicBool>,
    ) -> anyhow::Result<Option<Self>> {
        let admin = &config.admin;
        if !admin.enabled {
            return Ok(None);
        }
        let listener = match listen(admin.listen) {
            Ok(listener) => listener,
            Err(error) if admin.is_default && error.kind() == io::ErrorKind::AddrInUse => {
                tracing::warn!(address = %admin.listen, "the admin address is taken, going without: set admin.listen");
                return Ok(None);
            }
            Err(error) => {
                let context = format!("can't listen on {} (admin.listen)", admin.listen);
                return Err(error).context(context);
            }
        };
        let address = listener.local_addr()?;
        let desk = Desk {
            access: Access::admin(config)?,
            telemetry,
            app,
            draining,
        };
        let serving = tokio::spawn(serve(listener, router(Arc::new(desk))));
        Ok(Some(Self { address, serving }))
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let mut builder = http1::Builder::new();
                    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
                    let service = TowerToHyperService::new(router.clone());
                    connections.spawn(builder.serve_connection(TokioIo::new(stream), service));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

fn router(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/stats", get(stats))
        .route("/metrics", get(metrics))
        .route("/snapshot", get(snapshot::snapshot))
        // Probes carry no keys, and learn nothing that they could not tell from the outside.
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .fallback(nothing)
        .method_not_allowed_fallback(wrong_method)
        .with_state(desk)
}

async fn ready(State(desk): State<Arc<Desk>>) -> Response {
    if desk.draining.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    "ready\n".into_response()
}

async fn stats(State(desk): State<Arc<Desk>>, request: Request<Body>) -> Response {
    if let Err(error) = desk.access.admit(&request) {
        return answer_error(&error);
    }
    let telemetry = &desk.telemetry;
    let counter = |counter: &Counter| (counter.key().to_owned(), telemetry.counted(*counter));
    let gauge = |gauge: &Gauge| (gauge.key().to_owned(), telemetry.gauge(*gauge));
    axum_json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "ready": !desk.draining.load(Ordering::Relaxed),
        "counters": object(Counter::ALL.iter().map(counter)),
        "gauges": object(Gauge::ALL.iter().map(gauge)),
    }))
}

fn object(values: impl Iterator<Item = (String, u64)>) -> Map<String, Value> {
    values.map(|(name, value)| (name, value.into())).collect()
}

async fn metrics(State(desk): State<Arc<Desk>>, request: Request<Body>) -> Response {
    if let Err(error) = desk.access.admit(&request) {
        return answer_error(&error);
    }
    exposed(aside(move || desk.page()).await.flatten())
}

/// Does what takes milliseconds, off the runtime that takes clients' connections in. None after a panic.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// The page, or that there is none at the moment. Half of it would look like a restart to whoever computes rates.
fn exposed(page: Option<String>) -> Response {
    let Some(page) = page else {
        let soon = [(header::RETRY_AFTER, "1")];
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return (status, soon, "the figures are being written\n").into_response();
    };
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response()
}

impl Desk {
    /// What Prometheus reads. None if the segment's writer was put aside in the middle of its work for too long.
    fn page(&self) -> Option<String> {
        let (_, words) = self.telemetry.view();
        // Looked at anew: other settings give other names.
        let view = View::of(words).ok()?;
        let figures = view.figures(words)?;
        let app = self.app.load();
        let models = app.models().iter().enumerate().map(|(place, name)| {
            let asked = self.telemetry.asked(place);
            metrics::Model {
                name: name.clone(),
                requests: asked.requests,
                prompt_tokens: asked.prompt_tokens,
                completion_tokens: asked.completion_tokens,
            }
        });
        let models: Vec<_> = models.collect();
        Some(metrics::page(&Told {
            header: &view.header,
            names: &view.names,
            figures: &figures,
            models: &models,
        }))
    }
}

/// Whoever has no key does not even learn what is here.
async fn nothing(State(desk): State<Arc<Desk>>, request: Request<Body>) -> Response {
    refuse(&desk, &request, |method, uri| Error::UnknownRoute {
        method,
        path: uri.path().to_owned(),
    })
}

async fn wrong_method(State(desk): State<Arc<Desk>>, request: Request<Body>) -> Response {
    refuse(&desk, &request, |method, uri| Error::WrongMethod {
        method,
        path: uri.path().to_owned(),
    })
}

fn refuse(
    desk: &Desk,
    request: &Request<Body>,
    error: impl FnOnce(Method, &Uri) -> Error,
) -> Response {
    let error = match desk.access.admit(request) {
        Ok(_) => error(request.method().clone(), request.uri()),
        Err(refused) => refused,
    };
    answer_error(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_cannot_be_read_are_no_page_of_zeroes() {
        let answer = exposed(None);
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
    }
}
