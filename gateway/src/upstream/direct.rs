//! The plain way to a provider: HTTP/1.1 over TCP or TLS, on hyper's own connections and a pool of ours.
//!
//! A connection has no task of its own: the request that uses it drives it. Sending, waiting for the answer and reading
//! its body are one task with the client's connection, so that an answer costs one wake-up, and a request that is
//! dropped takes its connection along at once.
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
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Failed;
use crate::error::Cause;

mod dial;
mod link;
mod pool;

pub(super) use dial::Dial;
use link::Link;
use pool::Pool;

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

    /// Sends `request` and waits for the answer's head. Tells, too, how long opening a connection took; zero if one was
    /// open.
    #[expect(
        clippy::manual_async_fn,
        reason = "an argument that an `async fn` changes has room in its future twice, and each request in flight has one"
    )]
    pub(super) fn send(
        &self,
        mut request: Request,
    ) -> impl Future<Output = Result<(http::Response<Body>, Duration), Failed>> {
        async move {
            loop {
                let (mut link, connect) = match self.pool.take() {
                    Some(link) => (link, Duration::ZERO),
                    // In a box: it takes more room than all else here, and is seldom there.
                    None => Box::pin(self.open()).await.map_err(Failed::ToConnect)?,
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
                    _ => {
                        if connect.is_zero() {
                            self.pool.doubt();
                        }
                        return Err(Failed::Later(error.into_error().into()));
                    }
                }
            }
        }
    }

    /// A connection: a new one, or one that another request has done with before that is open.
    async fn open(&self) -> Result<(Box<Link>, Duration), Cause> {
        let since = Instant::now();
        let mut freed = self.pool.next();
        tokio::select! {
            biased;
            Some(link) = freed.given() => Ok((link, Duration::ZERO)),
            // Never zero, which would say that it was open.
            opened = self.opened() => Ok((opened?, since.elapsed().max(Duration::from_nanos(1)))),
        }
    }

    /// A new connection. Once begun it is opened to the end, for the next request if this one has found another or has
    /// left: as many are needed as are begun, and given up they would be begun for ever.
    async fn opened(&self) -> Result<Box<Link>, Cause> {
        let place = self.dial.place().await?;
        let (dial, pool) = (Arc::clone(&self.dial), Arc::clone(&self.pool));
        let (give, given) = oneshot::channel();
        tokio::spawn(async move {
            if let Err(Ok(unwanted)) = give.send(dial.open(place).await) {
                pool.put(unwanted);
            }
        });
        given.await?
    }

    fn body(&self, incoming: Incoming, link: Box<Link>) -> Body {
        Body {
            incoming,
            link: Some(link),
            pool: Arc::clone(&self.pool),
        }
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
        let patience = Duration::from_secs(60);
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
        tokio::time::timeout(Duration::from_secs(60), pooled)
            .await
            .expect("it comes into the pool")
    }

    #[tokio::test]
    async fn a_connection_that_is_no_longer_needed_is_there_for_the_next_request() {
        let (direct, provider) = direct().await;
        let freed = direct.open().await.unwrap().0;
        provider.accept().await.unwrap();
        {
            let mut opening = pin!(direct.open());
            begin(opening.as_mut()).await;
            direct.pool.put(freed);
            let (_freed, connect) = opening.await.unwrap();
            assert_eq!(connect, Duration::ZERO, "it was open");
        }
        let _opened = pooled(&direct).await;
        provider.accept().await.unwrap();
        {
            let mut left = pin!(direct.open());
            begin(left.as_mut()).await;
        }
        let _opened = pooled(&direct).await;
        provider.accept().await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_came_free_for_somebody_who_has_left_is_kept() {
        let (direct, _provider) = direct().await;
        let freed = direct.open().await.unwrap().0;
        let waiting = direct.pool.next();
        direct.pool.put(freed);
        assert!(direct.pool.take().is_none(), "it was given away");
        drop(waiting);
        assert!(direct.pool.take().is_some());
    }
}
