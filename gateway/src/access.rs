//! Who may ask: client keys, and what stands in for them while there are none.
//!
//! Keys are compared by their HMAC under a key of this process. Whoever guesses can't choose what is compared, so how
//! long a look-up takes tells nothing, however many keys there are.
//!
//! Without client keys the gateway serves whoever reaches it, and on a desk that is every web page that a browser there
//! shows. Such requests give themselves away: by an `Origin`, by the name of another host (DNS rebinding), or by a body
//! that is no JSON (which needs no permission of a browser's). No program has to send any of them.

use std::collections::HashMap;
use std::net::IpAddr;

use anyhow::anyhow;
use http::{HeaderMap, Method, Request, header};
use ring::hmac;
use ring::rand::SystemRandom;

use crate::config::{self, ClientKey};
use crate::error::{Error, Foreign};
use crate::provider::Reach;

/// The door: who is let in, and to what.
pub struct Access {
    keys: Keys,
    /// What a client without a key may ask for.
    all: Reach,
    hosts: Hosts,
}

/// Client keys, none of which is there in the clear.
pub struct Keys {
    secret: hmac::Key,
    by_tag: HashMap<Tag, Reach>,
}

type Tag = [u8; 32];

/// The hosts that a client may take the gateway for.
struct Hosts {
    /// The address that it listens on; any if it is none in particular.
    address: IpAddr,
    names: Vec<String>,
}

impl Access {
    /// The front door's, which is at `address`.
    ///
    /// # Errors
    ///
    /// If the system gives no random numbers.
    pub fn front(config: &config::Config, address: IpAddr) -> anyhow::Result<Self> {
        Self::new(&config.client_keys, address, &config.server.hosts)
    }

    /// The admin listener's.
    ///
    /// # Errors
    ///
    /// If the system gives no random numbers.
    pub fn admin(config: &config::Config) -> anyhow::Result<Self> {
        Self::new(&config.admin.keys, config.admin.listen.ip(), &[])
    }

    fn new(keys: &[ClientKey], address: IpAddr, hosts: &[String]) -> anyhow::Result<Self> {
        Ok(Self {
            keys: Keys::new(keys)?,
            all: Reach::default(),
            hosts: Hosts {
                address,
                names: hosts.to_vec(),
            },
        })
    }

    /// What the client may ask for.
    ///
    /// # Errors
    ///
    /// [`Error::NoClientKey`] and [`Error::WrongClientKey`]; while there are no client keys, [`Error::Foreign`].
    pub fn admit<B>(&self, request: &Request<B>) -> Result<&Reach, Error> {
        if self.keys.by_tag.is_empty() {
            return match self.foreign(request) {
                Some(foreign) => Err(Error::Foreign(foreign)),
                None => Ok(&self.all),
            };
        }
        self.keys.of(request.headers())
    }

    /// What shows that a web page sent `request`, or had it sent.
    fn foreign<B>(&self, request: &Request<B>) -> Option<Foreign> {
        let headers = request.headers();
        // A picture on a page has no origin; but only browsers say how its site is related to ours.
        let is_of_page = headers
            .get("sec-fetch-site")
            .is_some_and(|site| site != "none");
        if is_of_page || headers.contains_key(header::ORIGIN) {
            return Some(Foreign::Origin);
        }
        let named = headers.get(header::HOST).map(|host| host.to_str().ok());
        let authority = request.uri().authority().map(|host| Some(host.as_str()));
        if [named, authority]
            .into_iter()
            .flatten()
            .any(|host| !host.is_some_and(|host| self.hosts.are_met_by(host)))
        {
            return Some(Foreign::Host);
        }
        let has_body = request.method() != Method::GET && request.method() != Method::HEAD;
        (has_body && !is_json(headers)).then_some(Foreign::Body)
    }
}

impl Keys {
    fn new(keys: &[ClientKey]) -> anyhow::Result<Self> {
        let secret = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| anyhow!("the system gives no random numbers"))?;
        let by_tag = keys
            .iter()
            .map(|key| {
                let tag = tag(&secret, key.value.expose().as_bytes());
                (tag, Reach::new(&key.models))
            })
            .collect();
        Ok(Self { secret, by_tag })
    }

    /// Clients disagree on where the key belongs, and some send more than one.
    fn of(&self, headers: &HeaderMap) -> Result<&Reach, Error> {
        let bearer = headers.get(header::AUTHORIZATION).map(|value| {
            let value = value.as_bytes();
            match value.split_at_checked(b"bearer ".len()) {
                Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"bearer ") => key,
                _ => value,
            }
        });
        let others =
            ["x-api-key", "api-key"].map(|name| headers.get(name).map(http::HeaderValue::as_bytes));
        let shown = bearer.into_iter().chain(others.into_iter().flatten());
        let mut shown = shown
            .map(<[u8]>::trim_ascii)
            .filter(|key| !key.is_empty())
            .peekable();
        if shown.peek().is_none() {
            return Err(Error::NoClientKey);
        }
        shown
            .find_map(|key| self.by_tag.get(&tag(&self.secret, key)))
            .ok_or(Error::WrongClientKey)
    }
}

fn tag(secret: &hmac::Key, key: &[u8]) -> Tag {
    let tag = hmac::sign(secret, key);
    tag.as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

impl Hosts {
    /// Whether `host`, with or without a port, is this gateway. A name that somebody else's DNS answers for is not, and a
    /// name without a dot is nobody else's.
    fn are_met_by(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            let (address, own) = (address.to_canonical(), self.address.to_canonical());
            return address == own || address.is_loopback() || own.is_unspecified();
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let is_bound_here = self.address.to_canonical().is_loopback();
        name == "localhost"
            || name.ends_with(".localhost")
            || (!is_bound_here && !name.is_empty() && !name.contains('.'))
            || self.names.iter().any(|own| own.eq_ignore_ascii_case(&name))
    }
}

/// `application/json`, or a kind of it, with or without parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| {
        let essence = kind.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json") || is_kind_of_json(essence)
    })
}

fn is_kind_of_json(essence: &str) -> bool {
    let essence = essence.to_ascii_lowercase();
    essence.starts_with("application/") && essence.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn key(name: &str, value: &str, models: &[&str]) -> ClientKey {
        ClientKey {
            name: name.to_owned(),
            value: Secret::new(value),
            models: models.iter().map(|model| (*model).to_owned()).collect(),
        }
    }

    fn access(keys: &[ClientKey], address: &str, hosts: &[&str]) -> Access {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        Access::new(keys, address.parse().unwrap(), &hosts).unwrap()
    }

    fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let request = Request::builder().method(method).uri(uri);
        headers
            .iter()
            .fold(request, |request, (name, value)| {
                request.header(*name, *value)
            })
            .body(())
            .unwrap()
    }

    /// `Ok` with whether it may ask for `openai/gpt`, or the error's code and status.
    fn admitted(access: &Access, headers: &[(&str, &str)]) -> Result<bool, (&'static str, u16)> {
        match access.admit(&request("POST", "/v1/chat/completions", headers)) {
            Ok(reach) => Ok(reach.allows("openai/gpt")),
            Err(error) => Err((error.facts().code, error.facts().status.as_u16())),
        }
    }

    #[test]
    fn a_key_is_taken_from_wherever_clients_put_it() {
        let keys = [
            key("one", "sk-one", &[]),
            key("two", "sk-two", &["openai/other"]),
        ];
        let access = access(&keys, "0.0.0.0", &[]);
        let wrong = Err(("invalid_api_key", 401));
        for (headers, expected) in [
            (&[("authorization", "Bearer sk-one")][..], Ok(true)),
            (&[("authorization", "bearer  sk-one ")], Ok(true)),
            (&[("authorization", "sk-one")], Ok(true)),
            (&[("x-api-key", "sk-two")], Ok(false)),
            (&[("api-key", "sk-one")], Ok(true)),
            (
                &[("authorization", "Bearer unused"), ("x-api-key", "sk-one")],
                Ok(true),
            ),
            (&[("authorization", "Bearer sk-on")], wrong),
            (&[("authorization", "Bearer sk-onee")], wrong),
            (&[("authorization", "Bearer SK-ONE")], wrong),
            (&[("authorization", "Basic sk-one")], wrong),
            (&[("authorization", "Bearer ")], wrong),
            (&[("authorization", "")], wrong),
            (&[("x-api-key", "")], wrong),
            (&[], wrong),
        ] {
            assert_eq!(admitted(&access, headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn with_client_keys_a_browser_is_as_good_as_any() {
        let access = access(&[key("one", "sk-one", &[])], "127.0.0.1", &[]);
        let headers = [
            ("x-api-key", "sk-one"),
            ("origin", "https://app.example"),
            ("host", "gateway.example"),
        ];
        assert_eq!(admitted(&access, &headers), Ok(true));
    }

    #[test]
    fn without_client_keys_what_a_web_page_sends_is_refused() {
        let access = access(&[], "127.0.0.1", &["gateway.lan"]);
        let json = ("content-type", "application/json");
        let refused = Err(("browser_refused", 403));
        for (headers, expected) in [
            (&[json][..], Ok(true)),
            (&[json, ("host", "127.0.0.1:8080")], Ok(true)),
            (&[json, ("host", "localhost:8080")], Ok(true)),
            (&[json, ("host", "LOCALHOST.")], Ok(true)),
            (&[json, ("host", "[::1]:8080")], Ok(true)),
            (&[json, ("host", "gateway.lan:8080")], Ok(true)),
            (
                &[("content-type", "application/json; charset=utf-8")],
                Ok(true),
            ),
            (&[json, ("authorization", "Bearer whatever")], Ok(true)),
            (&[json, ("origin", "https://evil.example")], refused),
            (&[json, ("origin", "null")], refused),
            (&[json, ("sec-fetch-site", "cross-site")], refused),
            (&[json, ("host", "evil.example")], refused),
            (&[json, ("host", "localhost.evil.example")], refused),
            (&[json, ("host", "10.0.0.1:8080")], refused),
            (&[json, ("host", "gateway:8080")], refused),
            (&[json, ("host", "")], refused),
            (&[("content-type", "text/plain")], refused),
            (
                &[("content-type", "application/x-www-form-urlencoded")],
                refused,
            ),
            (&[("content-type", "text/plain; application/json")], refused),
            (&[], refused),
        ] {
            assert_eq!(admitted(&access, headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn the_host_of_a_whole_url_counts_as_well() {
        let access = access(&[], "127.0.0.1", &[]);
        let ask = |uri: &str| {
            access
                .admit(&request("GET", uri, &[("host", "localhost")]))
                .is_ok()
        };
        assert!(ask("http://127.0.0.1:8080/v1/models"));
        assert!(!ask("http://evil.example/v1/models"));
    }

    #[test]
    fn an_address_for_all_is_met_by_addresses_and_names_that_no_stranger_has() {
        let access = access(&[], "0.0.0.0", &[]);
        let ask = |host: &str| {
            access
                .admit(&request("GET", "/v1/models", &[("host", host)]))
                .is_ok()
        };
        for (host, expected) in [
            ("10.0.0.1:8080", true),
            ("gateway:8080", true),
            ("evil.example:8080", false),
        ] {
            assert_eq!(ask(host), expected, "{host}");
        }
    }
}
