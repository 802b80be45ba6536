//! One question by HTTP/1.1, with a deadline over all of it and a bound on the answer.
//!
//! There is no TLS: between machines a tunnel does that better, and it brings its own keys.

use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// A head is not longer.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Where a gateway's admin listener is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    host: String,
    port: u16,
}

impl Url {
    /// The address that a user writes.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let form = "expected http://HOST:PORT, such as http://127.0.0.1:8081";
        if text.starts_with("https://") {
            return Err("there is no TLS here: open a tunnel, ssh -N -L 8081:127.0.0.1:8081 HOST, and use http://127.0.0.1:8081".to_owned());
        }
        let rest = text.strip_prefix("http://").ok_or(form)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or(form)?;
        let port = port.parse().map_err(|_| form)?;
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let is_host = |text: &str, others: &str| {
            let is_fine = |sign: char| sign.is_ascii_alphanumeric() || others.contains(sign);
            !text.is_empty() && text.chars().all(is_fine)
        };
        let (host, is_fine) = match bare {
            Some(address) => (address, is_host(address, ":.")),
            None => (host, is_host(host, "-._")),
        };
        if !is_fine {
            return Err(form.to_owned());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }

    /// Host and port, as the `Host` header has them.
    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

/// What opens the admin listener. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// A key, if a header can carry it.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let is_fine = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_fine.then(|| Self(text.to_owned()))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// An answer: its status and its body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// What may be used up by an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// From looking the host up to the last byte; the look-up itself can't be cut short.
    pub(crate) time: Duration,
    /// Of head and body.
    pub(crate) bytes: usize,
}

/// Asks for `target`.
pub(crate) fn get(
    url: &Url,
    target: &str,
    key: Option<&Key>,
    limits: Limits,
) -> io::Result<Answer> {
    let until = Instant::now() + limits.time;
    let mut stream = connect(url, until)?;
    let authority = url.authority();
    let mut request = format!(
        "GET {target} HTTP/1.1\r\nhost: {authority}\r\naccept: application/json\r\nconnection: close\r\n"
    );
    if let Some(Key(key)) = key {
        request.push_str("authorization: Bearer ");
        request.push_str(key);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    stream.set_write_timeout(Some(left(until)?))?;
    stream.write_all(request.as_bytes())?;
    let mut text = vec![];
    let mut part = [0; 16 << 10];
    while whole(&text)?.is_none() {
        stream.set_read_timeout(Some(left(until)?))?;
        let read = match stream.read(&mut part) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(too_late()),
            Err(error) => return Err(error),
        };
        text.extend_from_slice(&part[..read]);
        if text.len() > limits.bytes {
            return Err(invalid("the answer is too long"));
        }
    }
    at_end(&text)
}

fn connect(url: &Url, until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "its name has no address");
    for address in (url.host.as_str(), url.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(until)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(too_late())
    } else {
        Ok(left)
    }
}

fn too_late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "it did not answer in time")
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason)
}

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Told(usize),
    Chunked,
    ToTheEnd,
}

/// The status, the body's length, and where it begins. None while the head is not all there.
fn head(text: &[u8]) -> io::Result<Option<(u16, Length, usize)>> {
    let end = text.windows(4).take(HEAD_BYTES_MAX);
    let Some(end) = end.into_iter().position(|it| it == b"\r\n\r\n") else {
        if text.len() > HEAD_BYTES_MAX || !b"HTTP/1.".iter().zip(text).all(|(a, b)| a == b) {
            return Err(invalid("what answers does not speak HTTP"));
        }
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&text[..end]);
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first
        .strip_prefix("HTTP/1.")
        .and_then(|it| it.get(2..5)?.parse().ok())
        .ok_or_else(|| invalid("what answers does not speak HTTP"))?;
    let mut length = Length::ToTheEnd;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            length = Length::Chunked;
        } else if name.eq_ignore_ascii_case("content-length") && length != Length::Chunked {
            let told = value
                .parse()
                .map_err(|_| invalid("its length is no number"))?;
            length = Length::Told(told);
        }
    }
    Ok(Some((status, length, end + 4)))
}

/// The answer, if all of it is there.
fn whole(text: &[u8]) -> io::Result<Option<Answer>> {
    let Some((status, length, begin)) = head(text)? else {
        return Ok(None);
    };
    let body = &text[begin..];
    let body = match length {
        Length::Told(length) => body.get(..length).map(<[u8]>::to_vec),
        // What ends so is worth taking apart; anything else has its end when the connection has.
        Length::Chunked if body.ends_with(b"0\r\n\r\n") => unchunked(body)?,
        Length::Chunked | Length::ToTheEnd => None,
    };
    Ok(body.map(|body| Answer { status, body }))
}

/// The answer, of which nothing more will come.
fn at_end(text: &[u8]) -> io::Result<Answer> {
    if let Some(answer) = whole(text)? {
        return Ok(answer);
    }
    let (status, body) = match head(text)? {
        Some((status, Length::ToTheEnd, begin)) => (status, Some(text[begin..].to_vec())),
        Some((status, Length::Chunked, begin)) => (status, unchunked(&text[begin..])?),
        _ => (0, None),
    };
    let broke_off = || io::Error::new(ErrorKind::UnexpectedEof, "the answer broke off");
    let body = body.ok_or_else(broke_off)?;
    Ok(Answer { status, body })
}

/// What chunks hold; none while the last one is missing.
fn unchunked(mut rest: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut body = vec![];
    loop {
        let Some(end) = rest.windows(2).position(|it| it == b"\r\n") else {
            return Ok(None);
        };
        let size = String::from_utf8_lossy(&rest[..end]);
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| invalid("a chunk has no size"))?;
        let from = end + 2;
        let Some(chunk) = from.checked_add(size).and_then(|to| rest.get(from..to)) else {
            return Ok(None);
        };
        if size == 0 {
            return Ok(Some(body));
        }
        body.extend_from_slice(chunk);
        rest = rest.get(from + size + 2..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const LIMITS: Limits = Limits {
        time: Duration::from_secs(20),
        bytes: 1_000,
    };

    /// Asks a server that gives this answer, or none at all; and says what it was asked.
    fn ask(
        answer: Option<&[u8]>,
        key: Option<&Key>,
        limits: Limits,
    ) -> (io::Result<Answer>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let url = Url::parse(&format!("http://{address}")).unwrap();
        thread::scope(|scope| {
            let serving = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = vec![0; 4_096];
                let mut read = 0;
                while !asked[..read].ends_with(b"\r\n\r\n") {
                    read += stream.read(&mut asked[read..]).unwrap();
                }
                match answer {
                    // Whoever asked may have had enough.
                    Some(answer) => drop(stream.write_all(answer)),
                    None => drop(stream.read(&mut [0])),
                }
                String::from_utf8(asked[..read].to_vec()).unwrap()
            });
            let answer = get(&url, "/snapshot?since=7", key, limits);
            (answer, serving.join().unwrap())
        })
    }

    fn answers(answer: &str) -> io::Result<Answer> {
        ask(Some(answer.as_bytes()), None, LIMITS).0
    }

    #[test]
    fn an_answer_ends_where_it_says() {
        for (answer, status, body) in [
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbodymore",
                200,
                "body",
            ),
            ("HTTP/1.1 401 \r\nContent-Length: 0\r\n\r\n", 401, ""),
            ("HTTP/1.0 200 OK\r\n\r\nto the end", 200, "to the end"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbod\r\nA;x=y\r\ny, at last\r\n0\r\n\r\n",
                200,
                "body, at last",
            ),
        ] {
            let expected = Answer {
                status,
                body: body.into(),
            };
            assert_eq!(answers(answer).unwrap(), expected, "{answer}");
        }
    }

    #[test]
    fn what_is_no_whole_answer_is_refused() {
        let long = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{}",
            "x".repeat(9_999)
        );
        let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(9_999));
        let head = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(HEAD_BYTES_MAX));
        for (answer, reason) in [
            ("", "broke off"),
            ("HTTP/1.1 200 OK\r\n", "broke off"),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nbody",
                "broke off",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nbody",
                "broke off",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
                "broke off",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nbody\r\n",
                "no size",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nbody",
                "no number",
            ),
            ("HTTP/1.1 two\r\n\r\n", "does not speak HTTP"),
            ("SSH-2.0-OpenSSH_9.6\r\n", "does not speak HTTP"),
            (&long, "too long"),
            (&endless, "too long"),
            (&head, "too long"),
        ] {
            let error = answers(answer).unwrap_err().to_string();
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }

    #[test]
    fn who_says_nothing_is_not_waited_for_beyond_the_deadline() {
        let time = Duration::from_millis(50);
        let error = ask(None, None, Limits { time, ..LIMITS }).0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn the_key_goes_into_its_header_and_nowhere_else() {
        let key = Key::new("ak-1").unwrap();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let asked = ask(Some(answer), Some(&key), LIMITS).1;
        assert!(asked.starts_with("GET /snapshot?since=7 HTTP/1.1\r\nhost: 127.0.0.1:"));
        assert!(
            asked.contains("\r\nauthorization: Bearer ak-1\r\n"),
            "{asked}"
        );
        assert_eq!(asked.matches("ak-1").count(), 1);
        assert!(!ask(Some(answer), None, LIMITS).1.contains("authorization"));
        assert_eq!(format!("{key:?}"), "Key(…)");
        for bad in ["", "a b", "a\r\nx: y", "schlüssel"] {
            assert_eq!(Key::new(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_address_is_host_and_port() {
        for (text, shown) in [
            ("http://127.0.0.1:8081", "http://127.0.0.1:8081"),
            (
                "http://gateway-1.internal:80/",
                "http://gateway-1.internal:80",
            ),
            ("http://[::1]:8081", "http://[::1]:8081"),
        ] {
            assert_eq!(Url::parse(text).unwrap().to_string(), shown);
        }
        for (text, reason) in [
            ("https://a:1", "no TLS here"),
            ("127.0.0.1:8081", "http://HOST:PORT"),
            ("http://127.0.0.1", "http://HOST:PORT"),
            ("http://:1", "http://HOST:PORT"),
            ("http://a:65536", "http://HOST:PORT"),
            ("http://user:secret@a:1", "http://HOST:PORT"),
            ("http://a b:1", "http://HOST:PORT"),
            ("http://a\r\nx:1", "http://HOST:PORT"),
            ("http://a:1/path", "http://HOST:PORT"),
            ("http://::1:8081", "http://HOST:PORT"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(
                error.contains(reason) && !error.contains("secret"),
                "{text}: {error}"
            );
        }
    }
}
