//! Every way a request can end early, once each, and what the rest of the gateway needs to know of it.
//!
//! Whose fault it was decides the outcome that the record shows; the status and the code are API and never change; the
//! message is for the client, so it names no host, no URL and no secret. An error prints its own level only: what
//! caused it is for the log, by `source`.

use std::time::Duration;

use bifrost_shared::record::{Fault, Outcome};
use bytes::Bytes;
use http::StatusCode;
use serde_json::json;

/// What is behind an error, for the log.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a request did not get the answer it asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body can't be understood.
    #[error("{0}")]
    BadRequest(String),
    /// A field is missing or has the wrong form.
    #[error("{message}")]
    BadField {
        /// The field's name.
        param: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// The body is compressed in a way that we don't read.
    #[error("the request body's encoding `{0}` is not supported: send it uncompressed")]
    UnsupportedEncoding(String),
    /// The body is larger than the limit.
    #[error("the request body exceeds the limit of {limit_bytes} bytes")]
    TooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// The client stopped sending in the middle of its body.
    #[error("the request body did not arrive in time")]
    BodyTimeout,
    /// The client broke off its body.
    #[error("the request body broke off")]
    BodyBroken,
    /// The client showed no key, and the gateway asks for one.
    #[error("no client key: send one as `Authorization: Bearer <key>` or `x-api-key: <key>`")]
    NoClientKey,
    /// The client's key is none that the gateway knows.
    #[error("the client key is not known here")]
    WrongClientKey,
    /// It looks as if a web page had sent the request, and without client keys nothing tells its right from others'.
    #[error("{0}")]
    Foreign(Foreign),
    /// The client's key does not reach that far.
    #[error("this client key may not ask for the model `{0}`")]
    ModelNotAllowed(String),
    /// No provider serves the model.
    #[error("the model `{0}` does not exist here: ask `/v1/models` for those that do")]
    UnknownModel(String),
    /// Several providers serve the model's bare name.
    #[error("the model `{model}` is served by several providers: write {choices}")]
    AmbiguousModel {
        /// The name asked for.
        model: String,
        /// The full names, in words.
        choices: String,
    },
    /// Nothing is served at the path.
    #[error("there is nothing at {method} {path}")]
    UnknownRoute {
        /// The request's method.
        method: http::Method,
        /// The request's path.
        path: String,
    },
    /// The path is served, but not by this method.
    #[error("{path} does not take {method}")]
    WrongMethod {
        /// The request's method.
        method: http::Method,
        /// The request's path.
        path: String,
    },
    /// As many requests as may wait are waiting.
    #[error("{waiting} requests are already waiting for this provider")]
    QueueFull {
        /// How many.
        waiting: usize,
        /// When a place is likely.
        retry_after: Duration,
    },
    /// No place came free in time.
    #[error("no place came free within {} ms", waited.as_millis())]
    QueueTimeout {
        /// How long it waited.
        waited: Duration,
        /// When a place is likely.
        retry_after: Duration,
    },
    /// The bodies that are held already leave no room for this one.
    #[error("{held_bytes} bytes of other requests are being held already")]
    OverBudget {
        /// How many.
        held_bytes: usize,
    },
    /// The gateway is stopping.
    #[error("the gateway is shutting down")]
    Draining,
    /// All keys are rate-limited.
    #[error("every key for this model is rate-limited")]
    KeysResting {
        /// When the first is back.
        retry_after: Duration,
    },
    /// All keys were refused by the provider.
    #[error("the provider refuses every key")]
    CredentialsExhausted,
    /// No key may be used for the model.
    #[error("no key of this provider may be used for the model `{0}`")]
    NoKeyForModel(String),
    /// The provider could not be reached.
    #[error("the provider can't be reached: {kind}")]
    Unreachable {
        /// In which way.
        kind: Unreachable,
        /// What the client library says; it may name the host.
        #[source]
        source: Cause,
    },
    /// The connection to the provider broke, or what came was no HTTP.
    #[error("the connection to the provider broke")]
    Broken(#[source] Option<Cause>),
    /// The provider took the request and said nothing in time.
    #[error("the provider did not answer within {} ms", waited.as_millis())]
    Silent {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The time that the client, or the settings, allow for a request is over.
    #[error("the request's time is over")]
    Deadline,
    /// The provider answered, but not with what was asked for.
    #[error("the provider's answer is {0}")]
    BadAnswer(&'static str),
    /// The provider answered with something else, and would again.
    #[error("the provider's answer is {0}")]
    WrongAnswer(&'static str),
    /// The provider answered with an error.
    #[error("the provider answered {}", .0.status)]
    Answered(Box<Answered>),
    /// A bug of ours.
    #[error("the gateway failed on this request")]
    Internal,
}

/// What a request has that no program needs to send, and every web page's has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// A page's address.
    Origin,
    /// The name of a host that is not ours.
    Host,
    /// A body that is not declared as JSON, which a page may send anywhere.
    Body,
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Origin => {
                "requests of web pages are refused while no client keys are set: set BIFROST_CLIENT_KEYS"
            }
            Self::Host => {
                "the request's host is not this gateway's address: use that, name the host in server.hosts, or set \
                 BIFROST_CLIENT_KEYS"
            }
            Self::Body => "the body is not declared as JSON: add the header `content-type: application/json`",
        })
    }
}

/// How a provider could not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachable {
    /// Its name does not resolve.
    Dns,
    /// Nothing accepts connections there.
    Refused,
    /// TLS could not be agreed upon, or its certificate is not trusted.
    Tls,
    /// No connection within the time allowed.
    Timeout,
    /// Another way.
    Other,
}

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Dns => "its name does not resolve",
            Self::Refused => "the connection was refused",
            Self::Tls => "TLS could not be agreed upon",
            Self::Timeout => "connecting took too long",
            Self::Other => "the connection failed",
        })
    }
}

/// A provider's error answer.
#[derive(Debug)]
pub struct Answered {
    /// Its status; never a success.
    pub status: StatusCode,
    /// Its body, if it is an error object in the client's form already: it is passed on as it is.
    pub body: Option<Bytes>,
    /// Its content encoding, which the body still has.
    pub encoding: Option<http::HeaderValue>,
    /// Its message, as far as it could be made out.
    pub message: String,
    /// Its `code`, or `type`, as far as it could be made out: tells a quota from a rate limit.
    pub code: Option<String>,
    /// How long it asks to be left alone.
    pub retry_after: Option<Duration>,
}

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The client's.
    Client,
    /// Ours: by policy, or by mistake.
    Gateway,
    /// The provider's.
    Provider,
}

/// What may be tried after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing: it would fail the same way.
    Nothing,
    /// The next provider of the fallback list.
    Fallback,
    /// The same again after a pause, then fallbacks.
    Retry,
    /// Another key at once, then fallbacks: this one is at its limit.
    OtherKey,
    /// Another key at once, then fallbacks: this one is refused.
    GoodKey,
}

/// What the rest of the gateway needs to know of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Whose fault it is.
    pub blame: Blame,
    /// The status that the client gets.
    pub status: StatusCode,
    /// The code that the client gets: API, and never changed.
    pub code: &'static str,
    /// What may be tried.
    pub next: Next,
}

impl Error {
    /// One row a variant: adding a variant without deciding all four does not compile.
    #[must_use]
    pub fn facts(&self) -> Facts {
        use Blame::{Client, Gateway, Provider};
        use Next::{Fallback, Nothing, Retry};
        #[rustfmt::skip] // a table, and to be read as one
        let (blame, status, code, next) = match self {
            Self::BadRequest(_) | Self::BadField { .. } | Self::BodyBroken
                                          => (Client,   StatusCode::BAD_REQUEST,           "invalid_request",       Nothing),
            Self::UnsupportedEncoding(_)  => (Client,   StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding", Nothing),
            Self::TooLarge { .. }         => (Client,   StatusCode::PAYLOAD_TOO_LARGE,     "request_too_large",     Nothing),
            Self::BodyTimeout             => (Client,   StatusCode::REQUEST_TIMEOUT,       "request_timeout",       Nothing),
            Self::NoClientKey | Self::WrongClientKey
                                          => (Client,   StatusCode::UNAUTHORIZED,          "invalid_api_key",       Nothing),
            Self::Foreign(_)              => (Client,   StatusCode::FORBIDDEN,             "browser_refused",       Nothing),
            Self::ModelNotAllowed(_)      => (Client,   StatusCode::FORBIDDEN,             "model_not_allowed",     Nothing),
            Self::UnknownModel(_)         => (Client,   StatusCode::NOT_FOUND,             "model_not_found",       Nothing),
            Self::AmbiguousModel { .. }   => (Client,   StatusCode::BAD_REQUEST,           "ambiguous_model",       Nothing),
            Self::UnknownRoute { .. }     => (Client,   StatusCode::NOT_FOUND,             "not_found",             Nothing),
            Self::WrongMethod { .. }      => (Client,   StatusCode::METHOD_NOT_ALLOWED,    "method_not_allowed",    Nothing),
            Self::QueueFull { .. }        => (Gateway,  StatusCode::SERVICE_UNAVAILABLE,   "queue_full",            Fallback),
            Self::QueueTimeout { .. }     => (Gateway,  StatusCode::SERVICE_UNAVAILABLE,   "queue_timeout",         Fallback),
            Self::OverBudget { .. }       => (Gateway,  StatusCode::SERVICE_UNAVAILABLE,   "over_memory_budget",    Nothing),
            Self::Draining                => (Gateway,  StatusCode::SERVICE_UNAVAILABLE,   "draining",              Nothing),
            Self::KeysResting { .. }      => (Provider, StatusCode::TOO_MANY_REQUESTS,     "keys_resting",          Fallback),
            Self::CredentialsExhausted    => (Provider, StatusCode::BAD_GATEWAY,           "credentials_exhausted", Fallback),
            Self::NoKeyForModel(_)        => (Client,   StatusCode::NOT_FOUND,             "model_not_found",       Fallback),
            Self::Unreachable { .. }      => (Provider, StatusCode::BAD_GATEWAY,           "provider_unreachable",  Retry),
            Self::Broken(_)               => (Provider, StatusCode::BAD_GATEWAY,           "provider_broken",       Retry),
            Self::Silent { .. }           => (Provider, StatusCode::GATEWAY_TIMEOUT,       "provider_timeout",      Fallback),
            Self::Deadline                => (Provider, StatusCode::GATEWAY_TIMEOUT,       "deadline_exceeded",     Nothing),
            Self::BadAnswer(_)            => (Provider, StatusCode::BAD_GATEWAY,           "bad_provider_answer",   Retry),
            Self::WrongAnswer(_)          => (Provider, StatusCode::BAD_GATEWAY,           "bad_provider_answer",   Fallback),
            Self::Answered(answered)      => return answered.facts(),
            Self::Internal                => (Gateway,  StatusCode::INTERNAL_SERVER_ERROR, "internal_error",        Nothing),
        };
        Facts {
            blame,
            status,
            code,
            next,
        }
    }

    /// The outcome that the record shows.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if matches!(self, Self::BodyBroken) {
            // It went away in the middle of what it had to say.
            return Outcome::Cancelled;
        }
        match self.facts().blame {
            Blame::Client => Outcome::Rejected,
            Blame::Gateway => Outcome::Refused,
            Blame::Provider => Outcome::Failed,
        }
    }

    /// Its class, which the record shows and counters count by.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::BadRequest(_)
            | Self::BadField { .. }
            | Self::UnsupportedEncoding(_)
            | Self::TooLarge { .. }
            | Self::BodyTimeout
            | Self::BodyBroken
            | Self::UnknownModel(_)
            | Self::AmbiguousModel { .. }
            | Self::UnknownRoute { .. }
            | Self::WrongMethod { .. }
            | Self::NoKeyForModel(_) => Fault::Request,
            Self::NoClientKey
            | Self::WrongClientKey
            | Self::Foreign(_)
            | Self::ModelNotAllowed(_) => Fault::Access,
            Self::QueueFull { .. } => Fault::QueueFull,
            Self::QueueTimeout { .. } => Fault::QueueTimeout,
            Self::OverBudget { .. } => Fault::Memory,
            Self::Draining => Fault::Draining,
            Self::KeysResting { .. } => Fault::KeysResting,
            Self::CredentialsExhausted => Fault::Credentials,
            Self::Unreachable { .. } => Fault::Connect,
            Self::Broken(_) => Fault::Broken,
            Self::Silent { .. } => Fault::Silent,
            Self::Deadline => Fault::Deadline,
            Self::BadAnswer(_) | Self::WrongAnswer(_) => Fault::Answer,
            Self::Answered(answered) if answered.status == StatusCode::TOO_MANY_REQUESTS => {
                Fault::RateLimited
            }
            Self::Answered(_) => Fault::Status,
            Self::Internal => Fault::Internal,
        }
    }

    /// Whether a deadline ended it.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::BodyTimeout
                | Self::QueueTimeout { .. }
                | Self::Silent { .. }
                | Self::Deadline
                | Self::Unreachable {
                    kind: Unreachable::Timeout,
                    ..
                }
        )
    }

    /// When the client may come again, if that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::QueueFull { retry_after, .. }
            | Self::QueueTimeout { retry_after, .. }
            | Self::KeysResting { retry_after } => Some(*retry_after),
            Self::Answered(answered) => answered.retry_after,
            Self::OverBudget { .. } | Self::Draining => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// The body that the client gets, in the OpenAI form.
    #[must_use]
    pub fn openai_body(&self) -> Bytes {
        let (message, param) = match self {
            Self::Answered(answered) => {
                if let Some(body) = &answered.body {
                    return body.clone();
                }
                (answered.message.clone(), None)
            }
            Self::BadField { param, .. } => (self.to_string(), Some(*param)),
            Self::UnknownModel(_)
            | Self::NoKeyForModel(_)
            | Self::AmbiguousModel { .. }
            | Self::ModelNotAllowed(_) => (self.to_string(), Some("model")),
            _ => (self.to_string(), None),
        };
        let facts = self.facts();
        let kind = match (facts.status, facts.blame) {
            (StatusCode::TOO_MANY_REQUESTS, _) => "rate_limit_error",
            (_, Blame::Client) => "invalid_request_error",
            (_, Blame::Gateway) => "gateway_error",
            (_, Blame::Provider) => "provider_error",
        };
        let code = match self {
            Self::Answered(answered) => answered.code.as_deref().unwrap_or(facts.code),
            _ => facts.code,
        };
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
            .to_string()
            .into()
    }
}

impl Answered {
    /// Providers' statuses by what helps against them (`design.md` §7). 529 is "overloaded" and 498 "no capacity": not
    /// registered, and met in the wild.
    fn facts(&self) -> Facts {
        let quota = self
            .code
            .as_deref()
            .is_some_and(|code| code.contains("insufficient_quota"));
        let (blame, next) = match self.status.as_u16() {
            401 | 402 => (Blame::Provider, Next::GoodKey),
            429 if quota => (Blame::Provider, Next::GoodKey),
            403 | 429 => (Blame::Provider, Next::OtherKey),
            408 | 409 | 424 | 498 | 500..=599 => (Blame::Provider, Next::Retry),
            400..=499 => (Blame::Client, Next::Nothing),
            _ => (Blame::Provider, Next::Fallback),
        };
        // A redirect is never followed, and means nothing to the client: the provider is set up wrongly. So does what is
        // no status of an error.
        let status = if self.status.is_client_error() || self.status.is_server_error() {
            self.status
        } else {
            StatusCode::BAD_GATEWAY
        };
        Facts {
            blame,
            status,
            code: "provider_error",
            next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, code: Option<&str>) -> Error {
        Error::Answered(Box::new(Answered {
            status: StatusCode::from_u16(status).unwrap(),
            body: None,
            encoding: None,
            message: "so it is".to_owned(),
            code: code.map(str::to_owned),
            retry_after: None,
        }))
    }

    #[test]
    fn a_providers_status_decides_what_may_be_tried() {
        let check = |status, code, next, blame| {
            let facts = answered(status, code).facts();
            assert_eq!(
                (facts.next, facts.blame),
                (next, blame),
                "{status} {code:?}"
            );
        };
        check(400, None, Next::Nothing, Blame::Client);
        check(404, None, Next::Nothing, Blame::Client);
        check(401, None, Next::GoodKey, Blame::Provider);
        check(402, None, Next::GoodKey, Blame::Provider);
        check(403, None, Next::OtherKey, Blame::Provider);
        check(429, None, Next::OtherKey, Blame::Provider);
        check(
            429,
            Some("insufficient_quota"),
            Next::GoodKey,
            Blame::Provider,
        );
        check(408, None, Next::Retry, Blame::Provider);
        check(500, None, Next::Retry, Blame::Provider);
        check(529, None, Next::Retry, Blame::Provider);
    }

    #[test]
    fn a_redirect_reaches_the_client_as_502() {
        assert_eq!(answered(302, None).facts().status, StatusCode::BAD_GATEWAY);
        assert_eq!(answered(999, None).facts().status, StatusCode::BAD_GATEWAY);
    }

    #[test]
    fn the_body_is_an_openai_error_object() {
        let error = Error::BadField {
            param: "model",
            message: "`model` is missing".to_owned(),
        };
        let body: serde_json::Value = serde_json::from_slice(&error.openai_body()).unwrap();
        assert_eq!(
            body,
            json!({"error": {
                "message": "`model` is missing",
                "type": "invalid_request_error",
                "param": "model",
                "code": "invalid_request"
            }})
        );
    }
}
