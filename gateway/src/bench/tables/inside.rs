//! Parts of the gateway by themselves: its queue where it is nearly full, and the choice of a key.

use super::success;
use crate::bench::figure::{Figure, Table, Unit, median};
use crate::bench::picks::Pick;
use crate::bench::queued::{Pair, Queued, Wait};

/// The wait for a permit as the gateway records it, beside what its clients see of it.
pub(in crate::bench) fn queued(queued: &Queued) -> Table {
    let each = |of: fn(&Pair) -> Option<f64>| queued.rounds.iter().filter_map(of);
    let wait = |label: &str, of: fn(&Wait) -> f64| {
        let pairs = queued.rounds.iter();
        let (recorded, seen): (Vec<_>, Vec<_>) = pairs
            .filter_map(|it| Some((of(&it.recorded()?), of(&it.seen()?))))
            .unzip();
        Figure::new(label, Unit::Ns, recorded).against([median(&seen)])
    };
    let share = |pair: &Pair, permits: Option<u32>| Some(pair.taken()? / f64::from(permits?));
    let permits = queued.setup.permits;
    let busy = queued.rounds.iter().filter_map(|it| share(it, permits));
    Table {
        title: "Beside the page: at the queue's limit".to_owned(),
        note: format!(
            "{}. *Here* is the wait as the gateway records it; clients see it as the time of a request beyond the provider's own, less the median (the mean, for the mean) of the same load on a gateway with permits to spare.",
            queued.setup.words()
        ),
        beside: vec![],
        references: vec!["clients"],
        figures: vec![
            Figure::new(
                "Success",
                Unit::Share,
                each(|it| Some(success(&it.limited.load))),
            ),
            Figure::new("Permits taken, on average", Unit::Share, busy),
            wait("Queue wait, mean", |it| it.mean),
            wait("Queue wait, p99", |it| it.p99),
        ],
    }
}

/// What choosing a key takes.
pub(in crate::bench) fn picks(picks: &[Pick]) -> Table {
    let figure = |pick: &Pick| {
        let keys = if pick.keys == 1 { "key" } else { "keys" };
        Figure::new(format!("Of {} {keys}", pick.keys), Unit::Ns, [pick.ns])
    };
    Table {
        title: "Key selection by itself".to_owned(),
        note: "The gateway's own code in the benchmark's process, with all keys healthy: a random number, the pick, its counts, and the key given back; the fastest of 31 batches. The stage of that name has a request's cold caches in it, and its stamps.".to_owned(),
        beside: vec![],
        references: vec![],
        figures: picks.iter().map(figure).collect(),
    }
}
