//! What the mock says instead of an answer, in OpenAI's form.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use super::answer::Dialect;
use super::body::Body;
use super::count::Ticket;
use super::message;

/// Why a request gets no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("this is no request that could be answered: {0}")]
    BadRequest(String),
    #[error("the request has more than {bytes_max} bytes, or broke off")]
    BadBody { bytes_max: usize },
    #[error("the mock has no {0}")]
    NoSuchRoute(String),
    #[error("rate limit reached, as the mock was told to say")]
    RateLimited { retry_after: Duration },
    #[error("the mock failed, as it was told to")]
    Failed,
    #[error("this key is answered with {0}, as the mock was told")]
    Told(StatusCode),
}

impl Refusal {
    /// Status, type and code, as OpenAI has them.
    fn facts(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::BadRequest(_) => (
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                "invalid_body",
            ),
            Self::BadBody { .. } => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "invalid_request_error",
                "body_too_large",
            ),
            Self::NoSuchRoute(_) => (
                StatusCode::NOT_FOUND,
                "invalid_request_error",
                "unknown_url",
            ),
            Self::RateLimited { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "requests",
                "rate_limit_exceeded",
            ),
            Self::Failed => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "server_error",
                "mock_failure",
            ),
            Self::Told(status) => {
                let kind = if status.is_server_error() {
                    "server_error"
                } else {
                    "invalid_request_error"
                };
                (*status, kind, "mock_manner")
            }
        }
    }

    /// In the form of `dialect`, as the answer to the request with that number.
    pub(super) fn into_response(
        self,
        dialect: Dialect,
        request: &str,
        ticket: Option<Ticket>,
    ) -> Response<Body> {
        let (status, kind, code) = self.facts();
        let words = self.to_string();
        let error = match dialect {
            Dialect::Chat => {
                json!({"error": {"message": words, "type": kind, "param": null, "code": code}})
                    .to_string()
            }
            Dialect::Messages => message::error(status.as_u16(), &words, request),
        };
        let mut response = Response::new(Body::whole(error, ticket));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Self::RateLimited { retry_after } = self {
            // OpenAI sends both; who knows only the older, whole seconds, comes back no earlier than told.
            let seconds = retry_after.as_millis().div_ceil(1_000);
            headers.insert(RETRY_AFTER, number(seconds));
            if dialect == Dialect::Chat {
                headers.insert("retry-after-ms", number(retry_after.as_millis()));
            }
        }
        response
    }
}

fn number(number: u128) -> HeaderValue {
    HeaderValue::try_from(number.to_string()).expect("digits can be a header")
}
