//! Figures as text, for pipes and scripts: the screen once, a line a second, or one JSON object.

pub(crate) mod json;

use bifrost_shared::layout::{Counter, Gauge};
use bifrost_shared::stage::{Series, Stage};

use crate::format;
use crate::model::{Gateway, Model};
use crate::verdict;
use crate::view::{self, Look};

/// The text of `--once` is as large as the tables with every row and column.
const SIZE: (u16, u16) = (100, 44);

/// The screen, once.
pub(crate) fn screen(model: &Model, look: Look) -> String {
    view::text(SIZE.0, SIZE.1, model, look)
}

/// The gist in a line.
pub(crate) fn line(model: &Model, look: Look) -> String {
    let text = match (model.gateway(), model.trouble()) {
        (Some(gateway), _) => gist(model, gateway),
        (None, Some(trouble)) => format!("{}  {}", trouble.label(), trouble.what()),
        (None, None) => String::new(),
    };
    if look.ascii {
        format::ascii(&text)
    } else {
        text
    }
}

fn gist(model: &Model, gateway: &Gateway) -> String {
    let row = gateway.rows().back();
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
    use crate::model::observation::{Observation, Sight, Trouble};

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
        assert_eq!(line(&model, PLAIN), "NO GATEWAY  no segment in here");
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
