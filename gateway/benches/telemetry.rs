//! What telemetry costs a request on the hot path: the very code that serves requests, from the stopwatch's start to the
//! push into the lane, while the exporter empties it. The budget is 200 ns, the mean of warm requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bifrost_gateway::clock::Clock;
use bifrost_gateway::config;
use bifrost_gateway::stopwatch::{Sink, Watches};
use bifrost_gateway::telemetry::self_test;
use bifrost_shared::layout::Counter;
use bifrost_shared::segment::Readers;
use bifrost_shared::thresholds::Thresholds;
use criterion::{Criterion, Throughput};

fn main() {
    let scratch = tempfile::tempdir().expect("a place for the segment");
    let settings = config::Telemetry {
        enabled: true,
        segment: Some(PathBuf::from(scratch.path()).join("bench.seg")),
        readers: Readers::Owner,
        thresholds: Thresholds::default(),
        instance: None,
        credit_mode: None,
        instance_metadata: config::InstanceMetadata::Off,
    };
    let clock = Clock::new();
    let (telemetry, exporter) = self_test::start(&settings, &clock).expect("an exporter");
    let watches = Arc::new(Watches {
        clock,
        sink: Arc::clone(&telemetry) as Arc<dyn Sink>,
    });
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("telemetry");
    group.throughput(Throughput::Elements(1));
    group.bench_function("request", |bencher| {
        bencher.iter_custom(|requests| {
            let rounds = requests.div_ceil(self_test::ROUND as u64);
            let mut spent = Duration::ZERO;
            for _ in 0..rounds {
                // The exporter's turn: a full lane would make the push the cheaper one.
                std::thread::sleep(Duration::from_millis(55));
                spent += self_test::time_requests(&watches);
            }
            let each = spent.as_nanos() / u128::from(rounds * self_test::ROUND as u64);
            Duration::from_nanos(u64::try_from(each * u128::from(requests)).unwrap_or(u64::MAX))
        });
    });
    group.finish();
    criterion.final_summary();
    drop(exporter);
    println!(
        "records lost meanwhile: {}",
        telemetry.counted(Counter::Lost)
    );
}
