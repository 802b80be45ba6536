//! A report as a run makes it, for tests.

use std::time::Duration;

use super::about::About;
use super::growth::{self, Cell};
use super::hold::{Bound, Hold};
use super::measure::{Measured, Round, Through};
use super::picks::Pick;
use super::queued::{self, Pair, Queued};
use super::report::{FORMAT, Report, StartUp};
use super::scenario::{Name, Setup};
use super::tally::{Counts, LoadReport, SecondRow, Spread};
use super::watch::{Inside, Look, SeriesRow, Usage};

fn spread(mean: f64) -> Spread {
    Spread {
        count: 100_000,
        mean,
        p50: mean * 0.9,
        p90: mean * 1.5,
        p99: mean * 3.0,
        p999: mean * 4.0,
        max: mean * 5.0,
    }
}

/// A load of 100,000 requests in 20 s, whose hops took so many µs on average.
pub(super) fn load(hop_us: f64) -> LoadReport {
    let counts = Counts {
        sent: 100_000,
        ok: 100_000,
        ..Counts::default()
    };
    let row = SecondRow {
        ok: 5_000,
        failed: 0,
        p50: Some(1.5e9),
        p99: Some(2.0e9),
        hop_p50: Some(hop_us * 1e3),
        hop_p99: Some(hop_us * 3e3),
    };
    LoadReport {
        what: "5000 a second".to_owned(),
        url: "http://127.0.0.1:8080".to_owned(),
        all: counts.clone(),
        measured: counts,
        seconds: 21.5,
        rate: 5_000.0,
        latency: spread(1.5e9 + hop_us * 1e3),
        hop: spread(hop_us * 1e3),
        first_event: Spread::default(),
        late: spread(20e3),
        answer_bytes: 1_407.0,
        request_bytes: 133.0,
        events: 0,
        own_cpu_us: 35.0,
        timeline: vec![row; 20],
        distribution: vec![(100_000, 50_000), (200_000, 50_000)],
    }
}

pub(super) fn through(hop_us: f64, cpu_us: f64) -> Through {
    let series = |key: &str, in_overhead, mean, medium, xlarge| SeriesRow {
        key: key.to_owned(),
        label: key.replace('_', " "),
        is_stage: key != "overhead",
        in_overhead,
        count: 100_000,
        mean,
        p50: mean,
        p99: mean * 3,
        max: mean * 9,
        medium,
        xlarge,
    };
    let look = |second: u32| Look {
        seconds: second.into(),
        rss: 200_000_000,
    };
    Through {
        load: load(hop_us),
        usage: Usage {
            cpu_seconds: cpu_us / 10.0,
            cores: cpu_us / 200.0,
            rss_before: 10_000_000,
            rss_peak: 235_000_000,
            rss_after: 200_000_000,
            descriptors_max: 15_020,
            looks: (0..20).map(look).collect(),
        },
        inside: Some(Inside {
            series: vec![
                series("queue_wait", true, 100, Some(47_130), Some(1_670)),
                series("json_marshaling", false, 550, Some(63_470), Some(26_800)),
                series("overhead", false, 3_000, Some(59_200), Some(11_000)),
            ],
            in_process: spread(20e3),
            http_less_service: spread(150e3),
            started: 100_000,
            completed: 100_000,
            in_flight_max: 7_500,
            buffer_size: 15_000,
            pool_size: 10_000,
            ..Inside::default()
        }),
        verdict: Some("STAY - all is well".to_owned()),
        rss_idle: Some(16_000_000),
        provider_counted: Some(100_000),
        handshakes: 0,
        resumed: 0,
    }
}

/// A queue in which requests waited 9.9 ms on average, and one with permits to spare.
pub(super) fn queued() -> Queued {
    let setup = queued::setup(&Setup::page(Name::T3Medium));
    let mut limited = through(10_250.0, 65.0);
    limited.load.rate = 950.0;
    let inside = limited.inside.as_mut().expect("a gateway tells it");
    let waits = &mut inside.series[0];
    (waits.mean, waits.p99) = (9_900_000, 29_700_000);
    let mut total = waits.clone();
    total.key = "total".to_owned();
    total.mean = 109_900_000;
    inside.series.push(total);
    let free = through(250.0, 65.0);
    Queued {
        setup,
        rounds: vec![Pair { limited, free }],
    }
}

/// A run of two rounds in which the gateway added 150 and 170 µs on average, and nginx 100.
pub(super) fn report() -> Report {
    let page = Setup {
        rounds: 2,
        ..Setup::page(Name::T3Medium)
    };
    let round = |hop_us| Round {
        direct: load(100.0),
        gateway: through(hop_us, 65.0),
        nginx: Some(Through {
            inside: None,
            verdict: None,
            ..through(200.0, 50.0)
        }),
    };
    let rounds = vec![round(250.0), round(270.0)];
    let shapes = page.shapes().map(|setup| Measured {
        setup,
        rounds: rounds.clone(),
    });
    Report {
        format: FORMAT,
        about: About {
            command: "run t3.medium --nginx".to_owned(),
            cpu: "a processor".to_owned(),
            vcpus: 2,
            memory: 4_000_000_000,
            gateway: "bifrost-gateway 0.1.0".to_owned(),
            gateway_bytes: 8_000_000,
            nginx: Some("nginx/1.22.1".to_owned()),
            ..About::default()
        },
        page: Some(Measured {
            setup: page,
            rounds,
        }),
        shapes: shapes.into(),
        queued: Some(queued()),
        picks: vec![Pick {
            keys: 100,
            ns: 12.5,
        }],
        start: Some(StartUp {
            cold: vec![4e6, 5e6, 9e6],
            rss: vec![6e6; 3],
        }),
        hold: Some(Hold {
            rate: 6_000,
            bound: Bound::Failed(6_300),
            tries: 5,
        }),
        growth: growth::setups()
            .into_iter()
            .take(2)
            .map(|setup| Cell {
                setup: Setup {
                    time: Duration::from_secs(10),
                    ..setup
                },
                through: through(250.0, 65.0),
            })
            .collect(),
        notes: vec!["something was left out".to_owned()],
    }
}
