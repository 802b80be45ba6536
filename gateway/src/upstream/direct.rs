//! The plain way to a provider: HTTP/1.1 over TCP or TLS, on hyper's own connections and a pool of ours.
//!
//! An open connection has no task of its own: the request that uses it drives it. Sending, waiting for the answer and
//! reading its body are one task with the client's connection, so that an answer costs one wake-up, and a request that
//! is dropped takes its connection along at once.
//!
//! A request goes on another connection only if the one it met had been closed meanwhile and not a byte of the request
//! was written. Whether another attempt may be made after anything else is the pipeline's to say.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::SizeHint;
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::Failed;
use crate::error::Cause;

mod dial;
mod link;
mod pool;

pub(super) use dial::Dial;
use link::Link;
use pool::{Claim, Pool};

type Request = http::Request<Full<Bytes>>;

/// A way to one host.
pub(super) struct Direct {
    dial: Arc<Dial>,
    pool: Arc<Pool>,
}

/// An answer's body, still to come. At its end the connection is free for another request.
pub(super) struct Body {
    incoming: Incoming,
    link: Option<Box<Link>>,
    pool: Arc<Pool>,
}

impl Direct {
    /// Connections as `dial` opens them; none is open yet.
    pub(super) fn new(dial: Dial) -> Self {
        Self {
            dial: Arc::new(dial),
            pool: Arc::default(),
        }
    }

    /// Sends `request` and waits for the answer's head, if need be by a new connection and by no other. Tells, too, how
    /// long opening a connection took; zero if one was open.
    #[expect(
        clippy::manual_async_fn,
        reason = "an argument that an `async fn` changes has room in its future twice, and each request in flight has one"
    )]
    pub(super) fn send(
        &self,
        mut request: Request,
        mut by_a_new_one: bool,
    ) -> impl Future<Output = Result<(http::Response<Body>, Duration), Failed>> {
        async move {
            loop {
                let pooled = (!by_a_new_one).then(|| self.pool.take()).flatten();
                let was_pooled = pooled.is_some();
                let (mut link, connect) = match pooled {
                    Some(link) => (link, Duration::ZERO),
                    // In a box: it takes more room than all else here, and is seldom there.
                    None => Box::pin(self.open(by_a_new_one))
                        .await
                        .map_err(Failed::ToConnect)?,
                };
                let mut error = match link.ask(request).await {
                    Ok(response) => {
                        let body = |incoming| self.body(incoming, link);
                        return Ok((response.map(body), connect));
                    }
                    Err(error) => error,
                };
                match error.take_message() {
                    Some(unsent) if connect.is_zero() => request = unsent,
                    _ => return Err(Failed::Later(error.into_error().into())),
                }
                // One that came free a moment ago had ended, too: the next may be no better.
                by_a_new_one = !was_pooled;
            }
        }
    }

    /// A connection: a new one, or one that another request has done with before that is open. What was begun to be
    /// opened is then for the next request. Given up, it would be begun for ever: something comes free within most TLS
    /// handshakes (measured at 150/s with handshakes of 100 ms: 1,108 begun, 92 finished, and waited for by all).
    async fn open(&self, by_a_new_one: bool) -> Result<(Box<Link>, Duration), Cause> {
        let since = Instant::now();
        let mut freed = (!by_a_new_one).then(|| self.pool.claim());
        let place = tokio::select! {
            biased;
            Some(link) = freed_link(&mut freed) => return Ok((link, Duration::ZERO)),
            place = self.dial.place() => place?,
        };
        let mut opening = Box::pin(Arc::clone(&self.dial).open(place));
        tokio::select! {
            biased;
            Some(link) = freed_link(&mut freed) => {
                let pool = Arc::clone(&self.pool);
                // It ends with the connect timeout, and with the runtime at the latest.
                tokio::spawn(async move {
                    if let Ok(Ok(opened)) = opening.await {
                        pool.put(opened);
                    }
                });
                Ok((link, Duration::ZERO))
            }
            opened = &mut opening => {
                let link = opened.unwrap_or_else(|_| Err(self.dial.timed_out()))?;
                // Never zero, which would say that it was open.
                Ok((link, since.elapsed().max(Duration::from_nanos(1))))
            }
        }
    }

    fn body(&self, incoming: Incoming, link: Box<Link>) -> Body {
        Body {
            incoming,
            link: Some(link),
            pool: Arc::clone(&self.pool),
        }
    }
}

/// One that comes free, for who would take it.
async fn freed_link(claim: &mut Option<Claim>) -> Option<Box<Link>> {
    match claim {
        Some(claim) => claim.given().await,
        None => None,
    }
}

impl Body {
    /// The next bytes; none at the body's proper end.
    pub(super) fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, hyper::Error>>> {
        let data = match &mut self.link {
            Some(link) => ready!(link.poll_data(&mut self.incoming, context)),
            None => return Poll::Ready(None),
        };
        if data.is_none()
            && let Some(mut link) = self.link.take()
            && link.is_free()
        {
            self.pool.put(link);
        }
        Poll::Ready(data)
    }

    /// What is still to come, as far as it is known.
    pub(super) fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.incoming)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};

    use tokio::net::TcpListener;

    use super::*;
    use crate::upstream::connect::Door;
    use crate::upstream::names::Names;
    use crate::upstream::trust::Trust;

    /// The way to a provider that accepts, and says nothing.
    async fn direct() -> (Direct, TcpListener) {
        let provider = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", provider.local_addr().unwrap());
        let url = reqwest::Url::parse(&url).unwrap();
        let patience = Duration::from_mins(1);
        let opening = (Names::new(), Door::new(1, patience));
        let tls = Trust::new().unwrap().of(None).unwrap();
        let dial = Dial::new(&url, &tls, &opening, patience).unwrap();
        (Direct::new(dial), provider)
    }

    /// Polls `opening` once: it is under way then.
    async fn begin(opening: Pin<&mut impl Future>) {
        let mut opening = Some(opening);
        std::future::poll_fn(|context| {
            let begun = opening.take().map(|opening| opening.poll(context));
            assert!(begun.is_none_or(|begun| begun.is_pending()));
            Poll::Ready(())
        })
        .await;
    }

    async fn pooled(direct: &Direct) -> Box<Link> {
        let pooled = async {
            loop {
                if let Some(link) = direct.pool.take() {
                    return link;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), pooled)
            .await
            .expect("it comes into the pool")
    }

    #[tokio::test]
    async fn a_connection_that_is_no_longer_needed_is_there_for_the_next_request() {
        let (direct, provider) = direct().await;
        let freed = direct.open(false).await.unwrap().0;
        provider.accept().await.unwrap();
        {
            let mut opening = pin!(direct.open(false));
            begin(opening.as_mut()).await;
            direct.pool.put(freed);
            let (_freed, connect) = opening.await.unwrap();
            assert_eq!(connect, Duration::ZERO, "it was open");
        }
        let _opened = pooled(&direct).await;
        provider.accept().await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_came_free_for_somebody_who_has_left_is_kept() {
        let (direct, _provider) = direct().await;
        let freed = direct.open(false).await.unwrap().0;
        let waiting = direct.pool.claim();
        direct.pool.put(freed);
        assert!(direct.pool.take().is_none(), "it was given away");
        drop(waiting);
        assert!(direct.pool.take().is_some());
    }

    #[tokio::test]
    async fn who_wants_a_new_connection_gets_no_other() {
        let (direct, provider) = direct().await;
        let freed = direct.open(false).await.unwrap().0;
        let _other_end = provider.accept().await.unwrap();
        let mut opening = pin!(direct.open(true));
        begin(opening.as_mut()).await;
        direct.pool.put(freed);
        let (_new, connect) = opening.await.unwrap();
        assert!(!connect.is_zero());
        assert!(direct.pool.take().is_some(), "the other is still there");
    }
}
