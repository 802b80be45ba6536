//! Every stage of a request, in order. The only file that knows the order.

use std::sync::Arc;
use std::time::Duration;

use bifrost_shared::layout::Counter;
use bifrost_shared::stage::Stage;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::time::Instant;

use crate::app::{App, Backend};
use crate::budget::Share;
use crate::call::Call;
use crate::config::Retries;
use crate::error::{Error, Facts, Next};
use crate::keys::{Lease, NoKey, Tried};
use crate::provider::{Reach, Target};
use crate::queue::Permit;
use crate::relay::{Relay, Stream};
use crate::stopwatch::Stopwatch;
use crate::upstream::{Common, Request, Response, Upstream};

/// Bytes of an answer that is held whole. A larger one has to be streamed.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of an error answer that are read, and how long they are waited for.
const REFUSAL_BYTES_MAX: usize = 1 << 20;
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// What one runtime has of its own: connections to the providers.
pub struct Worker {
    /// What it shares with the others.
    pub app: Arc<App>,
    upstreams: Vec<Arc<Upstream>>,
}

/// The head of an answer to the client.
pub struct Head {
    /// Its status.
    pub status: StatusCode,
    /// Those of the provider's headers that the client gets.
    pub headers: HeaderMap,
    /// The provider that answered, by name.
    pub provider: Option<HeaderValue>,
    /// How long each stage took, up to the answer's beginning.
    pub timing: Option<String>,
}

/// What is held until the last byte.
pub struct Held {
    _permit: Permit,
    _lease: Lease,
    _share: Share,
}

/// One request on its way through the stages.
struct Asking<'a> {
    call: Call<'a>,
    /// When it began.
    since: Instant,
    /// How long its client waits, if it said so.
    patience: Option<Duration>,
    /// The room that its body and its answer take.
    share: &'a mut Share,
    watch: &'a mut Stopwatch,
}

/// What an attempt brought, and the place and the key that it holds.
type Answered = (Head, Answer, (Permit, Lease));

impl Asking<'_> {
    /// When it has to be answered, if a provider may take `total`: the client may shorten that, and not lengthen it.
    fn deadline(&self, total: Duration) -> Instant {
        self.since + self.patience.map_or(total, |patience| patience.min(total))
    }
}

enum Answer {
    Whole(Bytes),
    Stream(Box<Stream>),
}

/// A request to `target`, as its dialect has it. Made once, sent as often as attempts are made.
struct Encoded(Bytes);

impl Worker {
    /// Connections to the providers of `app`, for one runtime.
    ///
    /// # Errors
    ///
    /// If a certificate file or a proxy can't be used.
    pub fn new(app: Arc<App>, common: &Common) -> anyhow::Result<Self> {
        Self {
            app: Arc::clone(&app),
            upstreams: vec![],
        }
        .renewed(app, common)
    }

    /// Connections to the providers of `app`, which comes after the present one. Open ones are kept to providers whose
    /// settings stay the same, unless they name a file: what it holds may have changed.
    ///
    /// # Errors
    ///
    /// If a certificate file or a proxy can't be used.
    pub fn renewed(&self, app: Arc<App>, common: &Common) -> anyhow::Result<Self> {
        let mut upstreams = vec![];
        for Backend {
            name,
            settings,
            dialect,
            ..
        } in app.providers.iter().map(AsRef::as_ref)
        {
            let before = self.app.providers.iter().zip(&self.upstreams);
            let kept = before
                .filter(|(backend, _)| backend.name == *name && backend.settings == *settings)
                .find(|_| settings.ca_file.is_none())
                .map(|(_, upstream)| Arc::clone(upstream));
            upstreams.push(match kept {
                Some(upstream) => upstream,
                None => Arc::new(
                    Upstream::new(settings, dialect.path(), common)
                        .map_err(|error| error.context(format!("provider `{name}`")))?,
                ),
            });
        }
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
        mut share: Share,
        (reach, patience): (&Reach, Option<Duration>),
        cut: impl Future<Output = ()>,
        mut watch: Stopwatch,
    ) -> Result<(Head, Relay<Held>), Error> {
        let asking = Call::parse(&body).map(|call| Asking {
            call,
            since: Instant::now(),
            patience,
            share: &mut share,
            watch: &mut watch,
        });
        let answered = match asking {
            Ok(asking) => tokio::select! {
                biased;
                answered = self.ask(asking, reach) => answered,
                () = cut => Err(Error::Draining),
            },
            Err(error) => Err(error),
        };
        let answered = answered.and_then(|(head, answer, place)| {
            drop(body);
            Ok((head, Self::held(&answer, place, share)?, answer))
        });
        match answered {
            Ok((mut head, held, answer)) => {
                head.timing = self.app.tells_timing.then(|| {
                    watch.enter(Stage::ResponseWriting);
                    watch.timing()
                });
                watch.record.status = head.status.as_u16();
                let relay = match answer {
                    Answer::Whole(body) => Relay::whole(body, held, watch),
                    Answer::Stream(stream) => {
                        Relay::stream(stream, held, watch).telling_timing(self.app.tells_timing)
                    }
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

    async fn ask(&self, mut asking: Asking<'_>, reach: &Reach) -> Result<Answered, Error> {
        let catalogue = &self.app.catalogue;
        let first = catalogue.serving(&asking.call.model)?;
        if !catalogue.is_within(reach, &first) {
            return Err(Error::ModelNotAllowed(asking.call.model.to_string()));
        }
        let error = match self.ask_provider(&first, &mut asking).await {
            Err(error) if error.facts().next != Next::Nothing => error,
            ended => return ended,
        };
        let others = catalogue.fallbacks(&first, asking.call.fallbacks.iter().map(AsRef::as_ref));
        for target in others
            .iter()
            .filter(|target| catalogue.is_within(reach, target))
        {
            asking.watch.record.fallbacks = asking.watch.record.fallbacks.saturating_add(1);
            self.app.count(Counter::Fallbacks);
            match self.ask_provider(target, &mut asking).await {
                Err(Error::Deadline) => break,
                Err(_) => {}
                answered => return answered,
            }
        }
        // The first provider's reason is the one that the client can act on.
        Err(error)
    }

    async fn ask_provider(
        &self,
        target: &Target,
        asking: &mut Asking<'_>,
    ) -> Result<Answered, Error> {
        let backend = &self.app.providers[target.provider];
        let upstream = &self.upstreams[target.provider];
        asking.watch.model = backend.model_place(&target.model);
        let deadline = asking.deadline(backend.settings.timeouts.total);
        if Instant::now() >= deadline {
            return Err(Error::Deadline);
        }
        let mut encoded = None;
        let mut tried = Tried::default();
        let mut failed: Option<Error> = None;
        let mut permit = backend.admit(deadline, asking.watch).await?;
        for attempt in 0.. {
            asking.watch.enter(Stage::KeySelection);
            let chosen = backend
                .keys
                .lease(&target.model, &tried, Instant::now, fastrand::f64());
            let has_broken = matches!(failed, Some(Error::Broken(_)));
            let lease = match (chosen, failed) {
                (Ok(lease), _) => lease,
                (Err(_), Some(error)) => return Err(backend.last_word(error, &target.model)),
                (Err(none), None) => return Err(out_of_keys(&none, target)),
            };
            if attempt > 0 {
                self.app.count(Counter::Retries);
            }
            asking.watch.record.provider = u16::try_from(backend.slot).unwrap_or(u16::MAX);
            asking.watch.record.key = u16::try_from(lease.place).unwrap_or(u16::MAX);
            asking.watch.record.attempts = asking.watch.record.attempts.saturating_add(1);

            let Encoded(body) = encoded
                .get_or_insert_with(|| encode(backend, &asking.call, &target.model, asking.watch));

            asking.watch.enter(Stage::RequestSetup);
            let request = upstream
                .request(backend.keys.credentials(&lease), body.clone())
                .by_a_new_connection(has_broken);

            asking.watch.enter(Stage::HttpRequest);
            let before = asking.share.bytes();
            let error = match backend.attempt(upstream, request, deadline, asking).await {
                Ok((head, answer)) => {
                    backend.keys.succeeded(&lease);
                    return Ok((head, answer, (permit, lease)));
                }
                Err(error) => error,
            };

            asking.watch.enter(Stage::ErrorHandling);
            asking.share.set(before)?;
            self.app.tally(&error);
            backend
                .keys
                .failed(&lease, &target.model, &error, &mut tried, Instant::now());
            let Some(pause) = pause(&backend.settings.retries, attempt, error.facts()) else {
                return Err(backend.last_word(error, &target.model));
            };
            let turn = backend
                .another_turn(permit, pause, deadline, asking.watch)
                .await;
            match turn {
                Some(again) => permit = again,
                // That the line is full by now, or time is over, is not what the request failed of.
                None => return Err(error),
            }
            failed = Some(error);
        }
        Err(Error::Internal)
    }

    /// The models of all providers, as `provider/model`: those that the settings list, or else those that the provider
    /// lists itself. A provider that can't be asked is left out.
    pub async fn models(&self) -> Vec<String> {
        let mut names = vec![];
        for (backend, upstream) in self.app.providers.iter().zip(&self.upstreams) {
            let models = if backend.settings.models.is_empty() {
                backend.ask_models(upstream).await
            } else {
                backend.settings.models.clone()
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
    /// A place, when it is this request's turn.
    async fn admit(&self, deadline: Instant, watch: &mut Stopwatch) -> Result<Permit, Error> {
        watch.enter(Stage::QueueWait);
        watch.record.waiting = u32::try_from(self.queue.waiting()).unwrap_or(u32::MAX);
        self.queue.admit(deadline).await
    }

    /// The place for another attempt after `pause`; none where time or room for that is not left. A place is kept only
    /// without a pause: others may go while this one waits.
    async fn another_turn(
        &self,
        permit: Permit,
        pause: Duration,
        deadline: Instant,
        watch: &mut Stopwatch,
    ) -> Option<Permit> {
        if pause.is_zero() {
            return Some(permit);
        }
        if Instant::now() + pause >= deadline {
            return None;
        }
        drop(permit);
        watch.enter(Stage::BackOff);
        tokio::time::sleep(pause).await;
        self.admit(deadline, watch).await.ok()
    }

    /// What the client is told when nothing is left to be tried here. That a key was refused is no matter of the
    /// client's: its own credentials are fine. A rate limit is over when the first key is back.
    fn last_word(&self, mut error: Error, model: &str) -> Error {
        match (error.facts().next, &mut error) {
            (Next::GoodKey, _) => Error::CredentialsExhausted,
            (Next::OtherKey, Error::Answered(answered)) => {
                let now = Instant::now();
                let back = self.keys.soonest_back(model, now);
                answered.retry_after = back
                    .map(|back| back.duration_since(now))
                    .or(answered.retry_after);
                error
            }
            _ => error,
        }
    }

    /// One attempt: a whole answer, or the beginning of a stream.
    async fn attempt(
        &self,
        upstream: &Upstream,
        request: Request,
        deadline: Instant,
        asking: &mut Asking<'_>,
    ) -> Result<(Head, Answer), Error> {
        let Asking {
            call, share, watch, ..
        } = asking;
        let mut response = upstream.send(request, deadline).await?;
        watch.connected(response.connect);
        watch.record.provider_time = time_told(&response.headers);
        if !response.status.is_success() {
            // What the error says is worth a moment; that it came at all is what counts.
            let moment = deadline.min(Instant::now() + REFUSAL_PATIENCE);
            let body = response
                .body
                .whole(moment, up_to(REFUSAL_BYTES_MAX))
                .await
                .unwrap_or_default();
            watch.enter(Stage::ErrorHandling);
            return Err(Error::Answered(Box::new(self.dialect.refusal(
                response.status,
                &response.headers,
                body,
            ))));
        }
        let mut headers = passed_on(&response.headers);
        if let header::Entry::Occupied(encoding) = headers.entry(header::CONTENT_ENCODING)
            && encoding.get() == "identity"
        {
            encoding.remove();
        }
        let head = Head {
            status: response.status,
            headers,
            provider: self.told.clone(),
            timing: None,
        };
        match (call.stream, is_event_stream(&response)) {
            (true, true) => {
                let hide_usage = self.settings.stream_usage && call.hides_usage();
                let stream =
                    Stream::open(response.body, self.dialect, hide_usage, deadline).await?;
                Ok((head, Answer::Stream(Box::new(stream))))
            }
            (false, true) => Err(Error::WrongAnswer("an event stream that nobody asked for")),
            (_, false) => {
                let mut fits = up_to(ANSWER_BYTES_MAX);
                let hold = |bytes| fits(bytes).and_then(|()| share.grow(bytes));
                let body = response.body.whole(deadline, hold).await?;
                watch.enter(Stage::ResponseParsing);
                if !head.headers.contains_key(header::CONTENT_ENCODING) {
                    let usage = self.dialect.answer(&body)?;
                    watch.record.prompt_tokens = usage.prompt_tokens;
                    watch.record.completion_tokens = usage.completion_tokens;
                }
                if call.stream {
                    return Err(Error::WrongAnswer(
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
        let Some(lease) = self.keys.any_healthy(Instant::now()) else {
            return vec![];
        };
        let listed = async {
            let mut response = upstream
                .send(
                    upstream.models_request(self.keys.credentials(&lease)),
                    deadline,
                )
                .await?;
            if !response.status.is_success() {
                return Err(Error::BadAnswer("no list of models"));
            }
            let body = response
                .body
                .whole(deadline, up_to(ANSWER_BYTES_MAX))
                .await?;
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

/// Lets pieces pass that do not exceed `bytes_max` together.
fn up_to(bytes_max: usize) -> impl FnMut(usize) -> Result<(), Error> {
    let mut left = bytes_max;
    move |bytes| {
        let fits = left
            .checked_sub(bytes)
            .ok_or(Error::WrongAnswer("larger than the gateway holds"));
        fits.map(|rest| left = rest)
    }
}

/// The request's body in the provider's form, each step under its own stage.
fn encode(backend: &Backend, call: &Call<'_>, model: &str, watch: &mut Stopwatch) -> Encoded {
    let dialect = backend.dialect;
    watch.enter(Stage::MessageFormatting);
    let mut edits = dialect.messages(call);

    watch.enter(Stage::ParamsPreparation);
    edits.append(&mut dialect.params(call, model));
    if backend.settings.stream_usage {
        edits.extend(dialect.usage(call));
    }

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

fn out_of_keys(none: &NoKey, target: &Target) -> Error {
    match none {
        NoKey::NotForModel => Error::NoKeyForModel(target.model.clone()),
        NoKey::Resting(until) => Error::KeysResting {
            retry_after: until.duration_since(Instant::now()),
        },
        NoKey::Refused | NoKey::AllTried => Error::CredentialsExhausted,
    }
}

fn is_event_stream(response: &Response) -> bool {
    const KIND: &[u8] = b"text/event-stream";
    let kind = response.headers.get(header::CONTENT_TYPE);
    let beginning = kind.and_then(|kind| kind.as_bytes().get(..KIND.len()));
    beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(KIND))
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
