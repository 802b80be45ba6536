//! What an EC2 instance knows of itself: its type, and what happens when its CPU credits are spent.
//!
//! Its metadata service tells the type. It does not tell the credit mode, so that is read from a tag of the instance,
//! where the instance has it and its metadata show tags. The client is a few lines of HTTP/1.1: whoever answers at that
//! address is not trusted, and can cost a start no more than the time it is given.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use bifrost_shared::layout::{CreditMode, is_instance_type};
use memchr::memmem;

/// Where the metadata service of every instance is.
pub const METADATA: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), 80);
/// All that a start may spend on asking. In a container that is one hop too far away nobody answers.
pub const PATIENCE: Duration = Duration::from_millis(800);
/// The tag that tells the credit mode: `standard` or `unlimited`.
pub const CREDIT_MODE_TAG: &str = "bifrost-credit-mode";

/// Where the kernel shows what the machine's firmware says of it.
const FIRMWARE: &str = "/sys/class/dmi/id";
/// What that is on EC2, for everything on Nitro: the burstable types from t3 on are. Older types show Xen's own names,
/// and their UUID begins with `ec2` as one in 4,096 others does, so they are not taken for EC2.
const VENDOR: &str = "Amazon EC2";
/// An answer is some dozen bytes, and a head.
const ANSWER_BYTES_MAX: usize = 8 * 1024;
/// A token is 56 characters.
const TOKEN_BYTES_MAX: usize = 512;

/// What is known of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Instance {
    /// Its type, such as `t3.medium`.
    pub kind: Option<String>,
    /// What happens when its credits are spent.
    pub credit_mode: Option<CreditMode>,
}

/// Whether this machine is an EC2 instance, as far as its firmware says.
#[must_use]
pub fn is_on_ec2() -> bool {
    is_of_ec2(Path::new(FIRMWARE))
}

fn is_of_ec2(firmware: &Path) -> bool {
    let says = |name: &str| fs::read_to_string(firmware.join(name)).unwrap_or_default();
    ["sys_vendor", "board_vendor"]
        .iter()
        .any(|name| says(name).trim() == VENDOR)
}

/// Asks the metadata service at `at`, within `patience` in all. A credit mode that can't be found out is not an error.
///
/// # Errors
///
/// When the service does not answer in time, or not with an instance type.
pub fn ask(at: SocketAddr, patience: Duration) -> io::Result<Instance> {
    let service = Service {
        at,
        deadline: Instant::now() + patience,
    };
    let token = service.answer(
        "PUT /latest/api/token",
        "X-aws-ec2-metadata-token-ttl-seconds: 60\r\nContent-Length: 0",
    )?;
    // It goes into a head of ours.
    if token.is_empty()
        || token.len() > TOKEN_BYTES_MAX
        || !token.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(io::Error::other("the token is none"));
    }
    let token = format!("X-aws-ec2-metadata-token: {token}");
    let kind = service.answer("GET /latest/meta-data/instance-type", &token)?;
    if !is_instance_type(&kind) {
        return Err(io::Error::other("the instance type is none"));
    }
    let tag = format!("GET /latest/meta-data/tags/instance/{CREDIT_MODE_TAG}");
    let credit_mode = match service.answer(&tag, &token).as_deref() {
        Ok("standard") => Some(CreditMode::Standard),
        Ok("unlimited") => Some(CreditMode::Unlimited),
        // There is no such tag, tags are not shown, or it says something else.
        _ => None,
    };
    Ok(Instance {
        kind: Some(kind),
        credit_mode,
    })
}

/// Somebody to ask.
struct Service {
    at: SocketAddr,
    /// Of all questions together.
    deadline: Instant,
}

impl Service {
    /// The body of the answer to one question, which is asked on a connection of its own.
    fn answer(&self, line: &str, header: &str) -> io::Result<String> {
        let mut connection = TcpStream::connect_timeout(&self.at, self.left()?)?;
        connection.set_write_timeout(Some(self.left()?))?;
        let host = self.at.ip();
        let question =
            format!("{line} HTTP/1.1\r\nHost: {host}\r\n{header}\r\nConnection: close\r\n\r\n");
        connection.write_all(question.as_bytes())?;
        let mut answer = vec![];
        let mut part = [0; 1024];
        loop {
            connection.set_read_timeout(Some(self.left()?))?;
            let has_ended = match connection.read(&mut part) {
                Ok(count) => {
                    answer.extend_from_slice(&part[..count]);
                    count == 0
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => false,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(late()),
                Err(error) => return Err(error),
            };
            if let Some(body) = body(&answer, has_ended)? {
                return Ok(body);
            }
            if answer.len() > ANSWER_BYTES_MAX {
                return Err(io::Error::other("the answer is too long"));
            }
        }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.checked_duration_since(Instant::now());
        left.filter(|left| !left.is_zero()).ok_or_else(late)
    }
}

fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "no answer in time")
}

/// The body of a whole answer that says 200; none while it isn't whole.
fn body(answer: &[u8], has_ended: bool) -> io::Result<Option<String>> {
    let no_http = || io::Error::other("the answer is no HTTP");
    let Some(end) = memmem::find(answer, b"\r\n\r\n") else {
        return if has_ended { Err(no_http()) } else { Ok(None) };
    };
    let head = str::from_utf8(&answer[..end]).map_err(|_| no_http())?;
    let status = head
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1)?.parse::<u16>().ok())
        .ok_or_else(no_http)?;
    if status != 200 {
        return Err(io::Error::other(format!("the answer is a {status}")));
    }
    let length = head.lines().skip(1).find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().ok())?
    });
    let body = &answer[end + 4..];
    let whole = match length {
        Some(length) => body.get(..length),
        None => has_ended.then_some(body),
    };
    match whole {
        Some(body) => Ok(Some(String::from_utf8_lossy(body).into_owned())),
        None if has_ended => Err(io::Error::other("the answer broke off")),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const TYPE: &str = "/latest/meta-data/instance-type";
    const TAG: &str = "/latest/meta-data/tags/instance/bifrost-credit-mode";

    fn ok(body: &str) -> String {
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    }

    /// A metadata service that gives a token to who asks properly, and to who shows it what `answer` says of a path.
    fn service(answer: impl Fn(&str) -> String + Send + 'static) -> SocketAddr {
        serve(move |mut connection| {
            let head = head_of(&mut connection);
            let has = |header: &str| head.lines().any(|line| line.eq_ignore_ascii_case(header));
            let path = head.split(' ').nth(1).unwrap();
            let text = if head.starts_with("PUT /latest/api/token ") {
                assert!(has("X-aws-ec2-metadata-token-ttl-seconds: 60"), "{head}");
                ok("AQAE==")
            } else if has("X-aws-ec2-metadata-token: AQAE==") {
                answer(path)
            } else {
                "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_owned()
            };
            let _ = connection.write_all(text.as_bytes());
        })
    }

    /// Lets `meet` have each connection, until the test is over.
    fn serve(meet: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(move || listener.incoming().flatten().for_each(meet));
        at
    }

    fn head_of(connection: &mut TcpStream) -> String {
        let mut head = vec![];
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && connection.read(&mut byte).unwrap_or(0) > 0 {
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }

    fn asked(at: SocketAddr) -> Result<Instance, String> {
        ask(at, Duration::from_secs(20)).map_err(|error| error.to_string())
    }

    #[test]
    fn an_instance_is_told_its_type_and_by_a_tag_its_credit_mode() {
        for (tag, credit_mode) in [
            (ok("unlimited"), Some(CreditMode::Unlimited)),
            (ok("standard"), Some(CreditMode::Standard)),
            (ok("Unlimited!"), None),
            (
                "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nNot Found".to_owned(),
                None,
            ),
        ] {
            let at = service(move |path| match path {
                TYPE => ok("t3.medium"),
                TAG => tag.clone(),
                _ => panic!("nobody should ask for {path}"),
            });
            let kind = Some("t3.medium".to_owned());
            assert_eq!(asked(at), Ok(Instance { kind, credit_mode }));
        }
    }

    #[test]
    fn an_answer_without_a_length_goes_on_to_its_end() {
        let at = service(|_| "HTTP/1.0 200 OK\r\n\r\nt4g.small".to_owned());
        assert_eq!(asked(at).unwrap().kind.as_deref(), Some("t4g.small"));
    }

    #[test]
    fn what_is_no_proper_answer_is_said_to_be_none() {
        for (answer, complaint) in [
            ("HTTP/1.1 401 Unauthorized\r\n\r\n", "the answer is a 401"),
            ("HTTP/1.1 2000000 Much\r\n\r\n", "the answer is no HTTP"),
            ("SSH-2.0-nonsense", "the answer is no HTTP"),
            ("SSH-2.0-nonsense\r\n\r\n", "the answer is no HTTP"),
            ("", "the answer is no HTTP"),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nt3",
                "the answer broke off",
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", "the instance type is none"),
            ("HTTP/1.1 200 OK\r\n\r\na b", "the instance type is none"),
            (
                "HTTP/1.1 200 OK\r\n\r\n\u{1b}[31m",
                "the instance type is none",
            ),
        ] {
            let at = service(|_| answer.to_owned());
            assert_eq!(asked(at), Err(complaint.to_owned()), "{answer:?}");
        }
        let at = service(|_| ok(&"x".repeat(33)));
        assert_eq!(asked(at), Err("the instance type is none".to_owned()));
    }

    #[test]
    fn a_token_that_would_add_to_our_head_is_not_sent() {
        for token in ["", "a\r\nX-Forwarded-For: b", "a b"] {
            let at = serve(move |mut connection| {
                let head = head_of(&mut connection);
                assert!(head.starts_with("PUT"), "{head}");
                let _ = connection.write_all(ok(token).as_bytes());
            });
            assert_eq!(asked(at), Err("the token is none".to_owned()));
        }
    }

    #[test]
    fn an_answer_without_end_is_cut_off_long_before_the_time_is() {
        let at = serve(|mut connection| while connection.write_all(&[b'x'; 4096]).is_ok() {});
        assert_eq!(asked(at), Err("the answer is too long".to_owned()));
    }

    #[test]
    fn neither_silence_nor_a_byte_now_and_then_costs_more_than_the_time_there_is() {
        let patience = Duration::from_millis(60);
        let silent =
            serve(|mut connection| while connection.read(&mut [0]).is_ok_and(|n| n > 0) {});
        let dripping = serve(|mut connection| {
            let pause = Some(Duration::from_millis(5));
            connection.set_read_timeout(pause).unwrap();
            while connection.write_all(b"H").is_ok() {
                let _ = connection.read(&mut [0; 999]);
            }
        });
        for at in [silent, dripping] {
            let begun = Instant::now();
            let error = ask(at, patience).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            // A single wait that began anew with each byte would go on for ever.
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
    }

    #[test]
    fn only_the_vendors_of_ec2_are_taken_for_it() {
        let firmware = tempfile::tempdir().unwrap();
        let says = |name: &str, text: &str| fs::write(firmware.path().join(name), text).unwrap();
        assert!(!is_of_ec2(firmware.path()), "where there is no firmware");
        says("product_uuid", "ec2e1916-9099-7caf-fd21-012345abcdef\n");
        says("sys_vendor", "QEMU\n");
        assert!(!is_of_ec2(firmware.path()));
        says("board_vendor", "Amazon EC2\n");
        assert!(is_of_ec2(firmware.path()));
    }
}
