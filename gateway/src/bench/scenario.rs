//! The loads that `run` knows by name, and the shapes that it measures beside them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The page's delay: 1.5 s × U(0.6, 1.4).
const PAGE_DELAY: Duration = Duration::from_millis(1_500);
const PAGE_SPREAD: f64 = 0.4;

/// Shapes that are loads at a rate are measured no longer than this: there are several.
pub(super) const SHAPE_TIME_MAX: Duration = Duration::from_secs(10);

/// A handshake takes some 0.8 ms of processor time on both sides together, so that nobody opens 5,000 connections with TLS
/// a second on two processors that the provider and the load share. The load rises as slowly as lets them.
const TLS_RISE: Duration = Duration::from_secs(10);
const TLS_WARM_UP: Duration = Duration::from_secs(12);

/// A load that `run` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Name {
    /// The benchmark page's load on its t3.medium: 5,000 a second, answers of 1,407 bytes after 1.5 s; some 10 minutes
    #[value(name = "t3.medium")]
    T3Medium,
    /// The same on its t3.xlarge: answers of 10,563 bytes, larger queue and pool
    #[value(name = "t3.xlarge")]
    T3Xlarge,
    /// A small load for half a minute, to see that everything works
    #[value(name = "quick")]
    Quick,
    /// Only how cost grows with load and with the size of prompts and answers; some 10 minutes
    #[value(name = "growth")]
    Growth,
}

impl Name {
    /// The name on the command line.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::T3Medium => "t3.medium",
            Self::T3Xlarge => "t3.xlarge",
            Self::Quick => "quick",
            Self::Growth => "growth",
        }
    }

    /// The gateway's profile that goes with it.
    pub(super) const fn profile(self) -> &'static str {
        match self {
            Self::T3Xlarge => "t3.xlarge",
            _ => "t3.medium",
        }
    }
}

/// How a load's requests follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum Pace {
    /// So many a second, independently of each other.
    Rate(u32),
    /// So many connections, each asking again once it was answered.
    Connections(u32),
    /// The same with so many streams on each, and then no more.
    Streams { connections: u32, each: u32 },
}

/// One thing to measure: a load, and the provider it meets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) name: String,
    pub(super) pace: Pace,
    /// What is due is sent at each tick only; none for each at its time.
    pub(super) tick: Option<Duration>,
    /// The provider's delay on average, and how far it varies to either side (a share of it).
    pub(super) delay: Duration,
    pub(super) spread: f64,
    /// The provider is elsewhere, and has its own delay and answers instead.
    #[serde(default)]
    pub(super) elsewhere: bool,
    pub(super) prompt_bytes: u32,
    pub(super) answer_bytes: u32,
    pub(super) warm_up: Duration,
    /// How long, of the warm-up, the rate takes to rise evenly from nothing; zero for a load that begins at its rate.
    #[serde(default)]
    pub(super) rise: Duration,
    pub(super) time: Duration,
    pub(super) rounds: u32,
    pub(super) profile: String,
    /// The provider speaks TLS to the gateway.
    #[serde(default)]
    pub(super) tls: bool,
    /// So many requests may be with the provider at once; none for the gateway's own default.
    #[serde(default)]
    pub(super) permits: Option<u32>,
}

impl Setup {
    /// The load of a scenario.
    pub(super) fn page(name: Name) -> Self {
        let page = Self {
            name: name.label().to_owned(),
            pace: Pace::Rate(5_000),
            tick: None,
            delay: PAGE_DELAY,
            spread: PAGE_SPREAD,
            elsewhere: false,
            prompt_bytes: 133,
            answer_bytes: 1_407,
            warm_up: Duration::from_secs(4),
            rise: Duration::ZERO,
            time: Duration::from_secs(20),
            rounds: 3,
            profile: name.profile().to_owned(),
            tls: false,
            permits: None,
        };
        match name {
            Name::T3Medium | Name::Growth => page,
            Name::T3Xlarge => Self {
                answer_bytes: 10_563,
                ..page
            },
            Name::Quick => Self {
                pace: Pace::Rate(400),
                delay: Duration::from_millis(50),
                warm_up: Duration::from_millis(500),
                time: Duration::from_secs(2),
                rounds: 1,
                ..page
            },
        }
    }

    /// What the page does not measure: one connection, as fast as 64 go, streams, and its own load before a provider that
    /// speaks TLS, as all real ones do.
    pub(super) fn shapes(&self) -> [Self; 4] {
        let is_quick = self.is_quick();
        let shape = |name: &str, pace| Self {
            name: name.to_owned(),
            pace,
            delay: Duration::ZERO,
            spread: 0.0,
            warm_up: Duration::from_millis(if is_quick { 200 } else { 1_000 }),
            time: Duration::from_secs(if is_quick { 1 } else { 4 }),
            ..self.clone()
        };
        let (connections, each) = if is_quick { (10, 1) } else { (200, 3) };
        [
            shape("one connection", Pace::Connections(1)),
            shape("64 connections", Pace::Connections(64)),
            Self {
                warm_up: Duration::ZERO,
                ..shape("streams", Pace::Streams { connections, each })
            },
            Self {
                name: "TLS to the provider".to_owned(),
                tls: true,
                rise: if is_quick { self.warm_up } else { TLS_RISE },
                warm_up: if is_quick { self.warm_up } else { TLS_WARM_UP },
                time: self.time.min(SHAPE_TIME_MAX),
                ..self.clone()
            },
        ]
    }

    pub(super) fn is_quick(&self) -> bool {
        self.name == Name::Quick.label()
    }

    /// How many requests are in flight at once, on average, by Little's law.
    pub(super) fn in_flight(&self) -> f64 {
        match self.pace {
            Pace::Rate(rate) => f64::from(rate) * self.delay.as_secs_f64(),
            Pace::Connections(connections) | Pace::Streams { connections, .. } => {
                f64::from(connections)
            }
        }
    }

    /// How long the provider takes at most.
    pub(super) fn delay_max(&self) -> Duration {
        self.delay.mul_f64(1.0 + self.spread)
    }

    /// What it is, in words.
    pub(super) fn words(&self) -> String {
        let pace = match self.pace {
            Pace::Rate(rate) if let Some(tick) = self.tick => {
                format!(
                    "{rate} requests a second, sent every {}",
                    humantime::format_duration(tick)
                )
            }
            Pace::Rate(rate) => format!("{rate} requests a second"),
            Pace::Connections(1) => "1 connection, as fast as it goes".to_owned(),
            Pace::Connections(connections) => {
                format!("{connections} connections, as fast as they go")
            }
            Pace::Streams { connections, each } => {
                format!(
                    "{connections} streams at once, {each} after each other, 50 events 20 ms apart"
                )
            }
        };
        let delay = if self.elsewhere {
            "the delay of the provider elsewhere".to_owned()
        } else if self.delay.is_zero() {
            "no delay".to_owned()
        } else if self.spread > 0.0 {
            let delay = humantime::format_duration(self.delay);
            format!(
                "a delay of {delay} × U({:.1}, {:.1})",
                1.0 - self.spread,
                1.0 + self.spread
            )
        } else {
            format!("a delay of {}", humantime::format_duration(self.delay))
        };
        let tls = if self.tls {
            "; TLS to the provider, and none on the direct way"
        } else {
            ""
        };
        let rise = if self.rise.is_zero() {
            String::new()
        } else {
            let rise = humantime::format_duration(self.rise);
            format!("; risen from nothing within {rise}, before it is measured")
        };
        let permits = self.permits.map_or(String::new(), |permits| {
            format!("; {permits} of them at the provider at once")
        });
        format!("{pace}; {delay}{tls}{rise}{permits}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_s_load_has_7500_requests_in_flight() {
        let in_flight = Setup::page(Name::T3Medium).in_flight();
        assert!((in_flight - 7_500.0).abs() < 1e-6, "{in_flight}");
        let words = Setup::page(Name::T3Medium).words();
        assert_eq!(
            words,
            "5000 requests a second; a delay of 1s 500ms × U(0.6, 1.4)"
        );
        let elsewhere = Setup {
            elsewhere: true,
            ..Setup::page(Name::T3Medium)
        };
        assert_eq!(
            elsewhere.words(),
            "5000 requests a second; the delay of the provider elsewhere"
        );
    }
}
