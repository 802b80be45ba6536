//! How a mock treats a key: one that is slow, refused, limited, or that nothing good comes of.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// It is answered after that time.
    Delay(Duration),
    /// It is turned away with this status at once.
    Status(u16),
    /// It is told to come back later, by a 429 with `Retry-After`.
    Limited,
    /// It is never answered.
    Stall,
    /// Its connection breaks in the middle of the answer.
    Cut,
}

impl FromStr for Manner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        match (name, value) {
            ("limited", "") => Ok(Self::Limited),
            ("stall", "") => Ok(Self::Stall),
            ("cut", "") => Ok(Self::Cut),
            ("delay", delay) => {
                let delay = humantime::parse_duration(delay);
                delay.map(Self::Delay).map_err(|error| error.to_string())
            }
            ("status", status) => match status.parse() {
                Ok(status @ 400..=599) => Ok(Self::Status(status)),
                _ => Err(format!("{status:?} is no status from 400 to 599")),
            },
            _ => Err(format!(
                "{text:?} is none of delay:TIME, status:CODE, limited, stall, cut"
            )),
        }
    }
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delay(delay) => write!(f, "delay:{}", humantime::format_duration(*delay)),
            Self::Status(status) => write!(f, "status:{status}"),
            Self::Limited => f.write_str("limited"),
            Self::Stall => f.write_str("stall"),
            Self::Cut => f.write_str("cut"),
        }
    }
}

/// A key, and what becomes of its requests: `KEY=MANNER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyManner {
    key: String,
    manner: Manner,
}

impl FromStr for KeyManner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A key may end in equals signs, and a manner has none.
        let (key, manner) = text.rsplit_once('=').ok_or("expected `KEY=MANNER`")?;
        Ok(Self {
            key: key.to_owned(),
            manner: manner.parse()?,
        })
    }
}

impl fmt::Display for KeyManner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.manner)
    }
}

/// The manner of the key that a request carries, if it has one of its own.
pub(super) fn of(keys: &[KeyManner], headers: &HeaderMap) -> Option<Manner> {
    if keys.is_empty() {
        return None;
    }
    let bearer = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
    let plain = || headers.get("x-api-key")?.to_str().ok();
    let key = bearer.or_else(plain)?;
    keys.iter().find(|it| it.key == key).map(|it| it.manner)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_manner_is_read_as_it_is_written_or_refused() {
        for text in [
            "sk=a=delay:3s",
            "sk=status:401",
            "sk=limited",
            "sk=stall",
            "sk=cut",
        ] {
            assert_eq!(text.parse::<KeyManner>().unwrap().to_string(), text);
        }
        for wrong in [
            "sk",
            "sk=",
            "sk=slow",
            "sk=delay:",
            "sk=status:200",
            "sk=stall:1s",
        ] {
            assert!(wrong.parse::<KeyManner>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_key_is_found_in_either_header() {
        let keys = ["a=stall", "b=cut"].map(|text| text.parse().unwrap());
        let check = |name: &'static str, value: &'static str, expected| {
            let headers =
                HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))]);
            assert_eq!(of(&keys, &headers), expected, "{name}: {value}");
        };
        check("authorization", "Bearer b", Some(Manner::Cut));
        check("x-api-key", "a", Some(Manner::Stall));
        check("authorization", "Bearer c", None);
        check("authorization", "a", None);
    }
}
