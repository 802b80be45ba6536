//! Figures as text, for pipes and scripts: the screen once, a line a second, or one JSON object.

pub(crate) mod json;

use std::path::PathBuf;

use bifrost_shared::layout::{Counter, Gauge};
use bifrost_shared::stage::{Series, Stage};

use crate::format;
use crate::model::observation::Trouble;
use crate::model::{Gateway, Model};
use crate::verdict::{self, Advice};
use crate::view::{self, Look};

/// The text of `--once` is as large as the tables with every row and column.
const SIZE: (u16, u16) = (100, 44);

/// The screen, once.
pub(crate) fn screen(model: &Model, look: Look) -> String {
    view::text(SIZE.0, SIZE.1, model, look)
}

/// The verdict as a monitoring system wants it, in one line of ASCII, and its exit status.
pub(crate) fn check(model: &Model) -> (String, u8) {
    let (advice, text) = match (model.gateway(), model.trouble()) {
        (Some(gateway), _) => {
            let (advice, text) = (gateway.verdict.advice, gateway.verdict.text());
            // The word stands in front already.
            let text = text.strip_prefix("UNKNOWN: ").unwrap_or(&text).to_owned();
            (advice, text)
        }
        (None, Some(trouble)) => {
            let (label, what, remedy) = (trouble.label(), trouble.what(), trouble.remedy());
            (Advice::Unknown, format!("{label}: {what}: {remedy}"))
        }
        (None, None) => (Advice::Unknown, "nobody has looked yet".to_owned()),
    };
    let (word, status) = match advice {
        Advice::Stay => ("OK", 0),
        Advice::Watch => ("WARNING", 1),
        Advice::Upgrade => ("CRITICAL", 2),
        Advice::Unknown | Advice::NoLimits => ("UNKNOWN", 3),
    };
    // What stands behind a bar would be read as figures.
    let text = format::ascii(&text).replace(['|', '\n'], " ");
    (format!("{word} - {text}"), status)
}

/// What there is at each path, a line each.
pub(crate) fn list(found: &[(PathBuf, Model)]) -> String {
    let line = |state: &str, pid: &str, age: &str, version: &str, path: &str| {
        format!("{state:<13}  {pid:>7}  {age:>8}  {version:<8}  {path}")
    };
    let mut lines = vec![line("STATE", "PID", "DATA AGE", "VERSION", "SEGMENT")];
    for (path, model) in found {
        let path = path.display().to_string();
        lines.push(match (model.gateway(), model.trouble()) {
            (Some(gateway), _) => {
                let (state, header) = (gateway.liveness.label(), gateway.header());
                let (pid, age) = (header.pid.to_string(), format::age(gateway.age()));
                line(state, &pid, &age, &header.build, &path)
            }
            (None, trouble) => line(trouble.map_or("", Trouble::label), "-", "-", "-", &path),
        });
    }
    lines.join("\n")
}

/// The gist in a line.
pub(crate) fn line(model: &Model, look: Look) -> String {
    let text = match (model.gateway(), model.trouble()) {
        (Some(gateway), _) => gist(model, gateway),
        (None, Some(trouble)) => {
            let at = format::clock(model.seen_at());
            format!("{at}  {}  {}", trouble.label(), trouble.what())
        }
        (None, None) => String::new(),
    };
    if look.ascii {
        format::ascii(&text)
    } else {
        text
    }
}

fn gist(model: &Model, gateway: &Gateway) -> String {
    let row = gateway.last_row();
    let time = |value| format::or_none(value, format::brief);
    let now = |series| time(row.and_then(|row| row.mean(series)));
    let queue_wait = Series::Stage(Stage::QueueWait);
    let load = row.map_or(0, verdict::load);
    let gauge = |gauge| gateway.gauge(gauge);
    let counter = |counter| gateway.counter(counter);
    let memory = format::or_none(gauge(Gauge::Rss), |rss| {
        format::percent(rss, gateway.header().memory_limit)
    });
    let total = model.in_window(gateway, &gateway.one_series(Series::Total));
    [
        format::clock(gateway.seen_at()),
        gateway.liveness.label().to_owned(),
        format!("queue wait {}", now(queue_wait)),
        format!("load {}", format::rate(load)),
        format!("memory {memory}"),
        format!("overhead {}", now(Series::Overhead)),
        format!("p99 {}", time(total.and_then(|it| it.p99))),
        format!(
            "in flight {}",
            format::or_none(gauge(Gauge::InFlight), format::count)
        ),
        format!(
            "lost {}",
            format::or_none(counter(Counter::Lost), format::count)
        ),
        gateway.verdict.text(),
    ]
    .join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture;
    use crate::model::observation::{Observation, Sight};

    const PLAIN: Look = Look {
        ascii: true,
        colour: false,
    };

    #[test]
    fn a_line_tells_the_gist() {
        let model = fixture::seen(fixture::page(2_950, 47_130));
        assert_eq!(
            line(&model, PLAIN),
            "12:00:00  LIVE  queue wait 51.4 us  load 2,950/s  memory 32%  overhead 63.4 us  p99 2.91 s  \
             in flight 6,430  lost 0  STAY on t3.medium: queue wait 47.1 us of 75 us; load 2,950 of 4,000/s; \
             memory 32% of 75%"
        );
    }

    #[test]
    fn a_check_is_one_plain_line_and_an_exit_status() {
        let mut other = fixture::header();
        (other.instance, other.vcpus) = ("t3.xlarge".into(), 4);
        let row = fixture::row(2_950, 47_130);
        let cases = vec![
            (
                fixture::seen(fixture::page(2_950, 47_130)),
                "OK",
                "STAY on t3.medium",
                0,
            ),
            (
                fixture::seen(fixture::page(3_790, 47_130)),
                "WARNING",
                "WATCH",
                1,
            ),
            (
                fixture::seen(fixture::page(3_790, 91_800)),
                "CRITICAL",
                "UPGRADE to t3.xlarge because",
                2,
            ),
            (
                fixture::seen(fixture::reading_of(&other, &[row])),
                "UNKNOWN",
                "NO LIMITS",
                3,
            ),
            (
                fixture::seen(fixture::reading(&[])),
                "UNKNOWN",
                "no second of the gateway is over yet",
                3,
            ),
            (
                fixture::absent(),
                "UNKNOWN",
                "NO GATEWAY: no segment in /run/bifrost",
                3,
            ),
            (Model::default(), "UNKNOWN", "nobody", 3),
        ];
        for (model, word, says, status) in cases {
            let (line, found) = check(&model);
            assert!(line.starts_with(&format!("{word} - {says}")), "{line}");
            assert!(line.is_ascii() && !line.contains(['|', '\n']), "{line}");
            assert_eq!(found, status, "{line}");
        }
    }

    #[test]
    fn a_list_has_a_line_for_each_segment() {
        let mut dead = fixture::reading(&[]);
        dead.alive = false;
        let path = |name: &str| PathBuf::from(name);
        let found = [
            (path("a.seg"), fixture::seen(fixture::reading(&[]))),
            (path("b.seg"), fixture::seen(dead)),
            (path("c.seg"), fixture::absent()),
        ];
        assert_eq!(
            list(&found),
            "STATE              PID  DATA AGE  VERSION   SEGMENT\n\
             LIVE              4711     0.3 s  0.1.0     a.seg\n\
             DEAD              4711     0.3 s  0.1.0     b.seg\n\
             NO GATEWAY           -         -  -         c.seg"
        );
    }

    #[test]
    fn without_a_gateway_the_line_says_where_it_was_sought() {
        let mut model = Model::default();
        assert_eq!(line(&model, PLAIN), "");
        model.absorb(Observation {
            at: 0,
            unix_ns: 0,
            sight: Sight::Nothing(Trouble::NoGateway {
                tried: vec!["here".into()],
            }),
        });
        assert_eq!(
            line(&model, PLAIN),
            "00:00:00  NO GATEWAY  no segment in here"
        );
    }

    #[test]
    fn the_screen_as_text_has_every_stage_and_no_keys() {
        let model = fixture::seen(fixture::page(2_950, 47_130));
        let text = screen(&model, PLAIN);
        for expected in [
            "LIVE",
            "STAY on t3.medium",
            "Back-off",
            "First byte",
            "xlarge",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
        assert!(!text.contains("q quit"));
    }
}
