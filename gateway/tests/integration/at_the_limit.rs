//! At the limit, at full size: for eight seconds half as much again comes as the provider can do, and every request's
//! fate is looked at from all sides.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bifrost_shared::record::{Outcome, Record};
use bifrost_shared::stage::Stage;

use crate::client::{Answer, Client, ask, chat};
use crate::gateway::Gateway;
use crate::provider::{COMPLETION, Provider, Step, json};

/// The provider has 100 places and works a second on each request.
const SERVICE: Duration = Duration::from_secs(1);
const RATE: u32 = 150;
const REQUESTS: u32 = RATE * 8;
/// A hundred requests come, begin and end within two thirds of a second each time, so that waits grow by a third of a
/// second from one hundred to the next. Patience ends between two of these, and the line is full at about that time:
/// both refusals occur.
const PATIENCE: Duration = Duration::from_millis(1_200);

/// What the machine may add to anything that is timed. Measured on two cores that a soak had as well: 25 ms at most, for
/// the first connections, and 6 ms at the 99th percentile. A third of the step between two waits, it hides none.
const DAWDLE: Duration = Duration::from_millis(110);

/// A request as its client saw it.
struct Fate {
    number: u32,
    sent: Instant,
    answered: Instant,
    answer: Answer,
}

impl Fate {
    fn took(&self) -> Duration {
        self.answered - self.sent
    }

    fn is_served(&self) -> bool {
        self.answer.status == 200
    }

    fn is_refused_by(&self, code: &str) -> bool {
        !self.is_served() && self.answer.json()["error"]["code"] == code
    }

    /// When its client may come again, by the header that every client reads.
    fn may_come_again(&self) -> Instant {
        let seconds = self.answer.header("retry-after").unwrap();
        self.answered + Duration::from_secs(seconds.parse().unwrap())
    }
}

/// Sends a request; its answer comes later, so that the next one can be sent, but not before this one is on its way.
async fn send(gateway: &Gateway, number: u32) -> impl Future<Output = Fate> + use<> {
    let sent = Instant::now();
    let mut client = Client::connect(gateway.address).await;
    client
        .send_chat(
            &format!("x-request-id: {number:016x}\r\n"),
            chat(&format!("openai/{number}")),
        )
        .await;
    async move {
        let answer = client.answer().await;
        Fate {
            number,
            sent,
            answered: Instant::now(),
            answer,
        }
    }
}

#[tokio::test]
async fn half_as_much_again_as_the_provider_can_do_is_served_in_turn_or_refused_in_time() {
    let mut works = json(200, COMPLETION);
    works.insert(0, Step::Work(SERVICE));
    let provider = Provider::always(works).await;
    let settings = [
        ("PROVIDERS__OPENAI__CONCURRENCY", "100"),
        ("PROVIDERS__OPENAI__TIMEOUTS__QUEUE", "1200ms"),
        ("CLIENT__BUFFER_SIZE", "160"),
        // With several, connections are taken in no order.
        ("SERVER__WORKERS", "1"),
    ];
    let gateway = Gateway::start(&provider, &settings);
    let mut pace = tokio::time::interval(Duration::from_secs(1) / RATE);
    let mut asked = tokio::task::JoinSet::new();
    for number in 0..REQUESTS {
        pace.tick().await;
        asked.spawn(send(&gateway, number).await);
    }
    let over = Instant::now();
    let mut fates = vec![];
    // Nobody else comes from here on, and whoever is refused now comes again when it was told to.
    let mut again = tokio::task::JoinSet::new();
    while let Some(fate) = asked.join_next().await {
        let fate = fate.unwrap();
        if !fate.is_served() && fate.answered >= over {
            let address = gateway.address;
            let then = fate.may_come_again();
            again.spawn(async move {
                tokio::time::sleep_until(then.into()).await;
                ask(address, &chat("openai/again")).await.status
            });
        }
        fates.push(fate);
    }
    let again = again.join_all().await;
    let (_, records) = gateway.stop().await;
    let records: HashMap<u64, Record> = records.into_iter().map(|one| (one.id, one)).collect();
    assert_eq!(records.len(), REQUESTS as usize + again.len());
    let began: Vec<(u32, Instant)> = provider
        .seen()
        .iter()
        .filter(|seen| !seen.body.contains("again"))
        .map(|seen| (number(&seen.body), seen.at))
        .collect();

    let [full, late] = ["queue_full", "queue_timeout"].map(|code| {
        let refused = fates.iter().filter(|fate| fate.is_refused_by(code));
        refused.collect::<Vec<_>>()
    });
    assert!(
        full.len() > 20 && late.len() > 20,
        "{} and {}",
        full.len(),
        late.len()
    );
    assert_eq!(began.len() + full.len() + late.len(), REQUESTS as usize);

    in_turn(&fates, &began);
    waits_agree(&fates, &records);
    in_time(&full, &late, &records);
    times_come_true(&fates, &began);
    assert!(!again.is_empty());
    assert!(again.iter().all(|status| *status == 200), "{again:?}");
}

/// The provider sees requests in the order in which they came.
fn in_turn(fates: &[Fate], began: &[(u32, Instant)]) {
    let sent: HashMap<u32, Instant> = fates.iter().map(|fate| (fate.number, fate.sent)).collect();
    let mut latest = sent[&began[0].0];
    let mut overtaken = vec![];
    for (number, _) in began {
        let sent = sent[number];
        if sent < latest {
            overtaken.push((*number, latest - sent));
        }
        latest = latest.max(sent);
    }
    assert!(
        overtaken.iter().all(|(_, by)| *by < DAWDLE),
        "{overtaken:?}"
    );
}

/// How long a request waited in line is what its client waited beyond the provider's work.
fn waits_agree(fates: &[Fate], records: &HashMap<u64, Record>) {
    let served = fates.iter().filter(|fate| fate.is_served());
    let mut more: Vec<Duration> = served
        .map(|fate| {
            let record = records[&u64::from(fate.number)];
            assert_eq!(record.outcome, Outcome::Completed);
            let told = Duration::from_nanos(record.stage(Stage::QueueWait));
            let took = fate.took();
            took.checked_sub(SERVICE + told).unwrap_or_else(|| {
                panic!("it took {took:?}, of which {told:?} are said to be in line")
            })
        })
        .collect();
    more.sort_unstable();
    let part = |percent: usize| more[(more.len() - 1) * percent / 100];
    assert!(
        part(99) < DAWDLE,
        "{:?} at the median, {:?} at the 99th percentile",
        part(50),
        part(99)
    );
}

/// Who finds the line full is told at once, and who stands in it too long, when that is so.
fn in_time(full: &[&Fate], late: &[&Fate], records: &HashMap<u64, Record>) {
    for (fates, wait) in [(full, Duration::ZERO), (late, PATIENCE)] {
        for fate in fates {
            let record = records[&u64::from(fate.number)];
            assert_eq!((fate.answer.status, record.status), (503, 503));
            assert_eq!(
                (record.outcome, record.ended_in),
                (Outcome::Refused, Stage::QueueWait)
            );
            let told = Duration::from_nanos(record.stage(Stage::QueueWait));
            let seen = fate.took();
            assert!(
                wait <= told && told <= seen && seen < wait + DAWDLE,
                "refused after {seen:?}, said to be {told:?}"
            );
        }
    }
}

/// When the time is over that a refused client was told, all who stood in line before it have begun: a place is its.
fn times_come_true(fates: &[Fate], began: &[(u32, Instant)]) {
    for refused in fates.iter().filter(|fate| !fate.is_served()) {
        let before = began.iter().filter(|(number, _)| *number < refused.number);
        let (last, then) = (before.map(|(_, at)| *at).max(), refused.may_come_again());
        assert!(
            last < Some(then + DAWDLE),
            "request {} came again too soon",
            refused.number
        );
    }
}

/// The number that a chat carries as its model.
fn number(body: &str) -> u32 {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["model"].as_str().unwrap().parse().unwrap()
}
