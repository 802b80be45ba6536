//! Every stage of a request, in order. The only file that knows the order.

use std::sync::Arc;
use std::time::Duration;

use bifrost_shared::layout::Counter;
use bifrost_shared::stage::Stage;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use tokio::time::Instant;

use crate::budget::{Budget, Share};
use crate::call::Call;
use crate::config::{Config, Retries, Timeouts};
use crate::error::{Error, Facts, Next};
use crate::keys::{Keys, Lease, NoKey, Tried};
use crate::provider::{Catalogue, Provider, Reach, Target, dialect};
use crate::queue::{Permit, Queue};
use crate::relay::{Relay, Stream};
use crate::stopwatch::Stopwatch;
use crate::upstream::{Request, Response, Tls, Upstream};

/// Bytes of an answer that is held whole. A larger one has to be streamed.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of an error answer that are read.
const REFUSAL_BYTES_MAX: usize = 1 << 20;

/// What all runtimes share: which providers there are, their places and their keys.
pub struct App {
    providers: Vec<Backend>,
    catalogue: Catalogue,
    /// Bytes of bodies that may be held.
    pub budget: Arc<Budget>,
    count: Box<dyn Fn(Counter) + Send + Sync>,
}

struct Backend {
    name: String,
    dialect: &'static dyn Provider,
    queue: Queue,
    keys: Keys,
    retries: Retries,
    timeouts: Timeouts,
    models: Vec<String>,
}

/// What one runtime has of its own: connections to the providers.
pub struct Worker {
    /// What it shares with the others.
    pub app: Arc<App>,
    upstreams: Vec<Upstream>,
}

/// The head of an answer to the client.
pub struct Head {
    /// Its status.
    pub status: StatusCode,
    /// Those of the provider's headers that the client gets.
    pub headers: HeaderMap,
    /// The provider that answered, by name.
    pub provider: String,
}

/// What is held until the last byte.
pub struct Held {
    _permit: Permit,
    _lease: Lease,
    _share: Share,
}

enum Answer {
    Whole(Bytes),
    Stream(Stream),
}

/// A request to `target`, as its dialect has it. Made once, sent as often as attempts are made.
struct Encoded(Bytes);

impl App {
    /// The providers of `config`. `count` counts what no record does.
    ///
    /// # Errors
    ///
    /// If a key can't be sent.
    pub fn new(config: &Config, count: Box<dyn Fn(Counter) + Send + Sync>) -> anyhow::Result<Self> {
        let backend = |(name, provider): (&String, &crate::config::Provider)| {
            Ok(Backend {
                name: name.clone(),
                dialect: dialect(provider.kind),
                queue: Queue::new(
                    provider.concurrency,
                    config.client.buffer_size,
                    provider.timeouts.queue,
                ),
                keys: Keys::new(&provider.keys, provider.rest.clone())?,
                retries: provider.retries.clone(),
                timeouts: provider.timeouts.clone(),
                models: provider.models.clone(),
            })
        };
        Ok(Self {
            providers: config
                .providers
                .iter()
                .map(backend)
                .collect::<anyhow::Result<_>>()?,
            catalogue: Catalogue::new(&config.providers),
            budget: Arc::new(Budget::new(
                config.server.body_budget_bytes.unwrap_or(usize::MAX),
            )),
            count,
        })
    }

    /// Requests that wait for a provider, and places that are taken, over all providers.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let queues = self.providers.iter().map(|backend| &backend.queue);
        queues.fold((0, 0), |(waiting, taken), queue| {
            (waiting + queue.waiting(), taken + queue.taken())
        })
    }

    /// Providers and their keys, by configured name.
    #[must_use]
    pub fn names(&self) -> Vec<(String, Vec<String>)> {
        let keys = |keys: &Keys| keys.names().map(str::to_owned).collect();
        self.providers
            .iter()
            .map(|backend| (backend.name.clone(), keys(&backend.keys)))
            .collect()
    }
}

impl Worker {
    /// Connections to the providers of `config`, for one runtime.
    ///
    /// # Errors
    ///
    /// If a certificate file or a proxy can't be used.
    pub fn new(app: Arc<App>, config: &Config, tls: &Tls) -> anyhow::Result<Self> {
        let upstream = |(name, provider): (&String, &crate::config::Provider)| {
            Upstream::new(provider, dialect(provider.kind).path(), tls)
                .map_err(|error| error.context(format!("provider `{name}`")))
        };
        let upstreams = config
            .providers
            .iter()
            .map(upstream)
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { app, upstreams })
    }

    /// Answers the chat in `body`, or says why not; either way the stopwatch is told. `reach` is what the client may ask
    /// for, `patience` how long it waits, if it said so. When `cut` is done, the answer is that the gateway stops.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn chat(
        &self,
        body: Bytes,
        share: Share,
        (reach, patience): (&Reach, Option<Duration>),
        cut: impl Future<Output = ()>,
        mut watch: Stopwatch,
    ) -> Result<(Head, Relay<Held>), Error> {
        let answered = tokio::select! {
            biased;
            answered = self.ask(&body, reach, patience, &mut watch) => answered,
            () = cut => Err(Error::Draining),
        };
        let answered = answered.and_then(|(head, answer, place)| {
            drop(body);
            Ok((head, Self::held(&answer, place, share)?, answer))
        });
        match answered {
            Ok((head, held, answer)) => {
                watch.record.status = head.status.as_u16();
                let relay = match answer {
                    Answer::Whole(body) => Relay::whole(body, held, watch),
                    Answer::Stream(stream) => Relay::stream(stream, held, watch),
                };
                Ok((head, relay))
            }
            Err(error) => {
                watch.failed(&error);
                Err(error)
            }
        }
    }

    /// What is held until the last byte: no longer the request's body, but the answer's.
    fn held(
        answer: &Answer,
        (permit, lease): (Permit, Lease),
        mut share: Share,
    ) -> Result<Held, Error> {
        let bytes = match answer {
            Answer::Whole(body) => body.len(),
            Answer::Stream(_) => 0,
        };
        share.set(bytes)?;
        Ok(Held {
            _permit: permit,
            _lease: lease,
            _share: share,
        })
    }

    async fn ask(
        &self,
        body: &Bytes,
        reach: &Reach,
        patience: Option<Duration>,
        watch: &mut Stopwatch,
    ) -> Result<(Head, Answer, (Permit, Lease)), Error> {
        let since = Instant::now();
        let call = Call::parse(body)?;
        let first = self.app.catalogue.serving(&call.model)?;
        if !self.app.catalogue.is_within(reach, &first) {
            return Err(Error::ModelNotAllowed(call.model.to_string()));
        }
        let error = match self
            .ask_provider(&first, &call, since, patience, watch)
            .await
        {
            Err(error) if error.facts().next != Next::Nothing => error,
            ended => return ended,
        };
        for target in self
            .app
            .catalogue
            .fallbacks(&first, call.fallbacks.iter().map(AsRef::as_ref))
        {
            if !self.app.catalogue.is_within(reach, &target) {
                continue;
            }
            watch.record.fallbacks = watch.record.fallbacks.saturating_add(1);
            (self.app.count)(Counter::Fallbacks);
            if let Ok(answered) = self
                .ask_provider(&target, &call, since, patience, watch)
                .await
            {
                return Ok(answered);
            }
        }
        // The first provider's reason is the one that the client can act on.
        Err(error)
    }

    async fn ask_provider(
        &self,
        target: &Target,
        call: &Call<'_>,
        since: Instant,
        patience: Option<Duration>,
        watch: &mut Stopwatch,
    ) -> Result<(Head, Answer, (Permit, Lease)), Error> {
        let backend = &self.app.providers[target.provider];
        let upstream = &self.upstreams[target.provider];
        let deadline = since
            + patience.map_or(backend.timeouts.total, |patience| {
                patience.min(backend.timeouts.total)
            });
        let mut encoded = None;
        let mut tried = Tried::default();
        let mut failed: Option<Error> = None;
        for attempt in 0.. {
            watch.enter(Stage::QueueWait);
            watch.record.waiting = u32::try_from(backend.queue.waiting()).unwrap_or(u32::MAX);
            let permit = backend.queue.admit(deadline).await?;

            watch.enter(Stage::KeySelection);
            let lease =
                match backend
                    .keys
                    .lease(&target.model, &tried, Instant::now(), fastrand::f64())
                {
                    Ok(lease) => lease,
                    Err(none) => return Err(out_of_keys(&none, target, failed)),
                };
            watch.record.provider = u16::try_from(target.provider).unwrap_or(u16::MAX);
            watch.record.key = u16::try_from(lease.index).unwrap_or(u16::MAX);
            watch.record.attempts = watch.record.attempts.saturating_add(1);

            let Encoded(body) =
                encoded.get_or_insert_with(|| encode(backend.dialect, call, &target.model, watch));

            watch.enter(Stage::RequestSetup);
            let request = upstream.request(lease.credentials.clone(), body.clone());

            watch.enter(Stage::HttpRequest);
            let error = match backend
                .attempt(upstream, request, call, deadline, watch)
                .await
            {
                Ok((head, answer)) => {
                    backend.keys.succeeded(&lease);
                    return Ok((head, answer, (permit, lease)));
                }
                Err(error) => error,
            };

            watch.enter(Stage::ErrorHandling);
            self.app.tally(&error);
            backend
                .keys
                .failed(&lease, &target.model, &error, &mut tried, Instant::now());
            let Some(pause) = pause(&backend.retries, attempt, error.facts()) else {
                return Err(exhausted(error));
            };
            if Instant::now() + pause >= deadline {
                return Err(error);
            }
            failed = Some(error);
            // Others may go while this one waits.
            drop(permit);
            watch.enter(Stage::BackOff);
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            (self.app.count)(Counter::Retries);
        }
        Err(Error::Internal)
    }

    /// The models of all providers, as `provider/model`: those that the settings list, or else those that the provider
    /// lists itself. A provider that can't be asked is left out.
    pub async fn models(&self) -> Vec<String> {
        let mut names = vec![];
        for (backend, upstream) in self.app.providers.iter().zip(&self.upstreams) {
            let models = if backend.models.is_empty() {
                backend.ask_models(upstream).await
            } else {
                backend.models.clone()
            };
            names.extend(
                models
                    .into_iter()
                    .map(|model| format!("{}/{model}", backend.name)),
            );
        }
        names
    }
}

impl Backend {
    /// One attempt: a whole answer, or the beginning of a stream.
    async fn attempt(
        &self,
        upstream: &Upstream,
        request: Request,
        call: &Call<'_>,
        deadline: Instant,
        watch: &mut Stopwatch,
    ) -> Result<(Head, Answer), Error> {
        let mut response = upstream.send(request, deadline).await?;
        watch.record.provider_time = time_told(&response.headers);
        if !response.status.is_success() {
            // What the error says is worth a moment; that it came at all is what counts.
            let body = response
                .body
                .whole(REFUSAL_BYTES_MAX, deadline)
                .await
                .unwrap_or_default();
            watch.enter(Stage::ErrorHandling);
            return Err(Error::Answered(Box::new(self.dialect.refusal(
                response.status,
                &response.headers,
                body,
            ))));
        }
        let head = Head {
            status: response.status,
            headers: passed_on(&response.headers),
            provider: self.name.clone(),
        };
        match (call.stream, is_event_stream(&response)) {
            (true, true) => {
                let stream =
                    Stream::open(response.body, self.dialect, call.hides_usage(), deadline).await?;
                Ok((head, Answer::Stream(stream)))
            }
            (false, true) => Err(Error::BadAnswer("an event stream that nobody asked for")),
            (_, false) => {
                let body = response.body.whole(ANSWER_BYTES_MAX, deadline).await?;
                watch.enter(Stage::ResponseParsing);
                if !head.headers.contains_key(header::CONTENT_ENCODING) {
                    let usage = self.dialect.answer(&body)?;
                    watch.record.prompt_tokens = usage.prompt_tokens;
                    watch.record.completion_tokens = usage.completion_tokens;
                }
                if call.stream {
                    return Err(Error::BadAnswer(
                        "no event stream, though one was asked for",
                    ));
                }
                Ok((head, Answer::Whole(body)))
            }
        }
    }

    async fn ask_models(&self, upstream: &Upstream) -> Vec<String> {
        #[derive(serde::Deserialize)]
        struct List {
            data: Vec<Model>,
        }
        #[derive(serde::Deserialize)]
        struct Model {
            id: String,
        }
        const PATIENCE: Duration = Duration::from_secs(5);
        let deadline = Instant::now() + PATIENCE;
        let Ok(lease) = self
            .keys
            .lease("", &Tried::default(), Instant::now(), fastrand::f64())
        else {
            return vec![];
        };
        let listed = async {
            let mut response = upstream
                .send(upstream.models_request(lease.credentials), deadline)
                .await?;
            if !response.status.is_success() {
                return Err(Error::BadAnswer("no list of models"));
            }
            let body = response.body.whole(ANSWER_BYTES_MAX, deadline).await?;
            serde_json::from_slice::<List>(&body).map_err(|_| Error::BadAnswer("no list of models"))
        };
        match listed.await {
            Ok(list) => list.data.into_iter().map(|model| model.id).collect(),
            Err(error) => {
                tracing::warn!(provider = self.name, %error, "the provider's models can't be listed");
                vec![]
            }
        }
    }
}

impl App {
    /// Counts what a failed attempt was.
    fn tally(&self, error: &Error) {
        let facts = error.facts();
        let kind = match error {
            Error::Silent { .. } | Error::Deadline => Counter::Timeouts,
            Error::Answered(answered) if answered.status == StatusCode::TOO_MANY_REQUESTS => {
                Counter::RateLimited
            }
            _ if facts.status.is_server_error() => Counter::ProviderErrors,
            _ => return,
        };
        (self.count)(kind);
    }
}

/// The request's body in the provider's form, each step under its own stage.
fn encode(dialect: &dyn Provider, call: &Call<'_>, model: &str, watch: &mut Stopwatch) -> Encoded {
    watch.enter(Stage::MessageFormatting);
    let mut edits = dialect.messages(call);

    watch.enter(Stage::ParamsPreparation);
    edits.append(&mut dialect.params(call, model));

    watch.enter(Stage::RequestBody);
    let body = call.splice(&mut edits);

    watch.enter(Stage::JsonMarshaling);
    Encoded(body.to_bytes())
}

/// How long to wait before another attempt at the same provider; none if there is to be none. `attempt` is the number
/// of those that went before.
fn pause(retries: &Retries, attempt: u32, facts: Facts) -> Option<Duration> {
    if attempt >= retries.max {
        return None;
    }
    match facts.next {
        Next::Nothing | Next::Fallback => None,
        Next::GoodKey | Next::OtherKey => Some(Duration::ZERO),
        Next::Retry => {
            let ceiling = retries
                .backoff_initial
                .saturating_mul(1 << attempt.min(20))
                .min(retries.backoff_max);
            Some(ceiling.mul_f64(fastrand::f64()))
        }
    }
}

fn out_of_keys(none: &NoKey, target: &Target, failed: Option<Error>) -> Error {
    if let Some(error) = failed {
        return exhausted(error);
    }
    match none {
        NoKey::NotForModel => Error::NoKeyForModel(target.model.clone()),
        NoKey::Resting(until) => Error::KeysResting {
            retry_after: until.duration_since(Instant::now()),
        },
        NoKey::Refused | NoKey::AllTried => Error::CredentialsExhausted,
    }
}

/// A refused key is no matter of the client's: its own credentials are fine.
fn exhausted(error: Error) -> Error {
    if error.facts().next == Next::GoodKey {
        Error::CredentialsExhausted
    } else {
        error
    }
}

fn is_event_stream(response: &Response) -> bool {
    let kind = response
        .headers
        .get(header::CONTENT_TYPE)
        .map(header::HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with(b"text/event-stream"))
}

/// How long the provider says that it worked, nanoseconds: OpenAI's `openai-processing-ms`, decimals allowed.
fn time_told(headers: &HeaderMap) -> u64 {
    let told = headers
        .get("openai-processing-ms")
        .and_then(|value| value.to_str().ok());
    let millis = told
        .and_then(|text| text.parse::<f64>().ok())
        .unwrap_or(0.0);
    Duration::try_from_secs_f64(millis / 1_000.0)
        .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The provider's headers that mean something to the client. All else, cookies and connection matters first, stays.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    const NAMES: [header::HeaderName; 2] = [header::CONTENT_TYPE, header::CONTENT_ENCODING];
    const PREFIXES: [&str; 3] = ["x-ratelimit-", "openai-", "anthropic-ratelimit-"];
    let mut passed = HeaderMap::with_capacity(8);
    for (name, value) in headers {
        if NAMES.contains(name)
            || PREFIXES
                .iter()
                .any(|prefix| name.as_str().starts_with(prefix))
        {
            passed.append(name.clone(), value.clone());
        }
    }
    passed
}
