//! What can be done about a trigger, and what another instance would change. Prices are on-demand ones of us-east-1 in
//! dollars an hour, from public price tables as of 2026.

use bifrost_shared::layout::CreditMode;

use super::judge::worst_first;
use super::seconds::{Seconds, mean};
use super::{Judged, Level, Trigger};

/// What the page measured there: queue wait 28 times less, overhead 5 times less.
const XLARGE: &str = "a t3.xlarge ($0.1664/h against $0.0416, us-east-1 in 2026) had a queue wait of 1.67 µs against \
                      47.13 µs and an overhead of 11 µs against 59 µs at the page's load";
/// The cheaper way to steady processors.
const FLEX: &str = "a c7i-flex.large ($0.0848/h, us-east-1 in 2026) has as many vCPU and as much memory, and no CPU credits to run out of";
/// For memory alone.
const MORE_MEMORY: &str =
    "an m7i-flex.large ($0.0958/h, us-east-1 in 2026) has 8 GiB, a t3.xlarge ($0.1664/h) 16";

/// One remedy for each trigger that is breached or watched, worst first; credits before all where they are what is short:
/// nothing else helps as long as the processors are held back.
pub(super) fn all(
    triggers: &[Judged],
    seconds: &Seconds,
    credits: Option<CreditMode>,
) -> Vec<String> {
    let pressing = [Level::Breach, Level::Watch]
        .into_iter()
        .flat_map(|level| worst_first(triggers, level));
    let mut pressing: Vec<_> = pressing.collect();
    let is_spent =
        |judged: &Judged| judged.trigger == Trigger::CreditRunway && judged.now == Some(0);
    pressing.sort_by_key(|judged| !is_spent(judged));
    let all = pressing.into_iter();
    all.map(|judged| of(judged.trigger, seconds, credits))
        .collect()
}

fn of(trigger: Trigger, seconds: &Seconds, credits: Option<CreditMode>) -> String {
    match trigger {
        Trigger::QueueWait if is_full(seconds) => {
            "queue wait: every place at a provider is taken, and another instance would not change that; raise the \
             provider's concurrency, or spread the load over another provider or key"
                .to_owned()
        }
        Trigger::QueueWait => format!("queue wait: places are free, so it is the processors that are short; {XLARGE}"),
        Trigger::Load => format!("load: move before it grows; {FLEX}; {XLARGE}"),
        Trigger::Memory => format!(
            "memory: lower client.buffer_size and server.body_budget_mb, or move; {MORE_MEMORY}"
        ),
        Trigger::Overhead => {
            "overhead: the stage that it comes from stands against the page's in the stage table".to_owned()
        }
        Trigger::SchedulerDelay => format!(
            "scheduler delay: something keeps the processors from the gateway; look at steal and at the machine's other \
             processes; {FLEX}"
        ),
        Trigger::CreditRunway => match credits {
            Some(CreditMode::Unlimited) => {
                format!("CPU credits: from then on surplus is charged at $0.05 a vCPU-hour; {FLEX}")
            }
            _ => format!(
                "CPU credits: then the instance is held to its baseline until it has earned new ones; lower the load, \
                 switch to unlimited, or move; {FLEX}"
            ),
        },
    }
}

/// Whether requests wait because all places are taken, rather than for a processor.
fn is_full(seconds: &Seconds) -> bool {
    mean(seconds.minute().map(|second| second.waiting)) > Some(0)
}
