//! How long a burstable instance's CPU credits last. All of it is an estimate: the balance is known to the hypervisor
//! alone, and nothing on the instance can ask it, so it is put between two bounds.
//!
//! One credit is one vCPU at 100 % for a minute. An instance earns them at a fixed rate up to a day's worth, and spends
//! them as its processors work. From the first second that is known, both bounds take the same income and expense: the
//! lower begins with an empty balance, the upper with a full one. They meet where one of them reaches its end.
//!
//! Not known, and left out: surplus credits that were owed before the first second.

use std::collections::VecDeque;
use std::time::Duration;

use crate::layout::{CreditMode, Gauge};
use crate::snapshot::Row;

/// Seconds whose mean is the present use.
const USE_ROWS: usize = 60;
const NS_PER_HOUR: f64 = 3.6e12;

/// A burstable instance type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burstable {
    /// Its processors.
    pub vcpus: u64,
    /// Credits that it earns an hour.
    pub earned_per_hour: u64,
    /// The largest balance: what it earns in a day.
    pub balance_max: u64,
    /// What each processor may do for ever, thousandths.
    pub baseline_permille: u64,
}

/// Sizes of T3, T3a and T4g, which do not differ in this: vCPU, credits an hour, largest balance, baseline of each vCPU
/// in thousandths. From the table in "Key concepts for burstable performance instances" of the Amazon EC2 user guide.
#[rustfmt::skip] // a table, and to be read as one
const SIZES: [(&str, u64, u64, u64, u64); 7] = [
    ("nano",    2,   6,   144,  50),
    ("micro",   2,  12,   288, 100),
    ("small",   2,  24,   576, 200),
    ("medium",  2,  24,   576, 200),
    ("large",   2,  36,   864, 300),
    ("xlarge",  4,  96, 2_304, 400),
    ("2xlarge", 8, 192, 4_608, 400),
];

impl Burstable {
    /// The instance type of that name; none where it is another, or has no credits. T2 is left out: its launch credits
    /// and its baselines follow other rules.
    #[must_use]
    pub fn named(instance: &str) -> Option<Self> {
        let (family, size) = instance.split_once('.')?;
        if !["t3", "t3a", "t4g"].contains(&family) {
            return None;
        }
        let &(_, vcpus, earned_per_hour, balance_max, baseline_permille) =
            SIZES.iter().find(|(name, ..)| *name == size)?;
        Some(Self {
            vcpus,
            earned_per_hour,
            balance_max,
            baseline_permille,
        })
    }

    /// Credits that the balance loses an hour with the processors used to `permille` on average; negative where it
    /// grows.
    #[must_use]
    pub fn net_per_hour(&self, permille: f64) -> f64 {
        60.0 * self.vcpus as f64 * permille / 1_000.0 - self.earned_per_hour as f64
    }
}

/// Something between two bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds<T> {
    /// At least so much.
    pub low: T,
    /// At most so much.
    pub high: T,
}

/// What can be said of an instance's credits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Credits {
    /// The instance.
    pub instance: Burstable,
    /// What happens when they are spent.
    pub mode: CreditMode,
    /// The balance. Below zero are surplus credits: an unlimited instance borrows up to a day's worth, and what is
    /// borrowed beyond is charged.
    pub balance: Bounds<f64>,
    /// How much of the processors is used, thousandths: the mean of the last minute.
    pub used_permille: f64,
    /// How long the balance lasts at that use, nanoseconds. None while it grows.
    pub runway_ns: Option<Bounds<u64>>,
    /// How long was looked at, nanoseconds.
    pub observed_ns: u64,
}

/// Follows an instance's balance from second to second.
#[derive(Debug, Clone)]
pub struct Estimator {
    instance: Burstable,
    mode: CreditMode,
    balance: Bounds<f64>,
    /// Duration in nanoseconds, and use in thousandths, of the last seconds.
    last: VecDeque<(u64, u64)>,
    observed_ns: u64,
}

impl Estimator {
    /// An estimator for an instance of that type; none where it has no credits, or is not known.
    #[must_use]
    pub fn new(instance: &str, mode: CreditMode) -> Option<Self> {
        let instance = Burstable::named(instance)?;
        Some(Self {
            instance,
            mode,
            balance: Bounds {
                low: 0.0,
                high: instance.balance_max as f64,
            },
            last: VecDeque::new(),
            observed_ns: 0,
        })
    }

    /// Takes the next second.
    pub fn absorb(&mut self, row: &Row) {
        // Stolen time counts as busy, and is just the time that no credit was spent on.
        let used = row.gauge(Gauge::HostCpu);
        let used = used.saturating_sub(row.gauge(Gauge::Steal)).min(1_000);
        let hours = row.duration as f64 / NS_PER_HOUR;
        let lost = self.instance.net_per_hour(used as f64) * hours;
        let most = self.instance.balance_max as f64;
        let least = match self.mode {
            CreditMode::Unlimited => -most,
            CreditMode::Standard | CreditMode::Unknown => 0.0,
        };
        for bound in [&mut self.balance.low, &mut self.balance.high] {
            *bound = (*bound - lost).clamp(least, most);
        }
        self.observed_ns = self.observed_ns.saturating_add(row.duration);
        self.last.push_back((row.duration, used));
        if self.last.len() > USE_ROWS {
            self.last.pop_front();
        }
    }

    /// What can be said now; nothing before the first second.
    #[must_use]
    pub fn credits(&self) -> Option<Credits> {
        let (used, time) = self.last.iter().fold((0.0, 0.0), |(used, time), row| {
            let duration = row.0 as f64;
            (used + duration * row.1 as f64, time + duration)
        });
        if time == 0.0 {
            return None;
        }
        let used_permille = used / time;
        let lost = self.instance.net_per_hour(used_permille);
        let runway = |balance: f64| nanoseconds(balance.max(0.0) / lost * 3_600.0);
        Some(Credits {
            instance: self.instance,
            mode: self.mode,
            balance: self.balance,
            used_permille,
            runway_ns: (lost > 0.0).then(|| Bounds {
                low: runway(self.balance.low),
                high: runway(self.balance.high),
            }),
            observed_ns: self.observed_ns,
        })
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    let duration = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000_000;

    fn row(minutes: u64, used: u64, stolen: u64) -> Row {
        let mut row = Row {
            duration: minutes * MINUTE,
            ..Row::default()
        };
        row.gauges[Gauge::HostCpu.index()] = used;
        row.gauges[Gauge::Steal.index()] = stolen;
        row
    }

    fn after(mode: CreditMode, rows: &[Row]) -> Credits {
        let mut estimator = Estimator::new("t3.medium", mode).unwrap();
        for row in rows {
            estimator.absorb(row);
        }
        estimator.credits().unwrap()
    }

    #[track_caller]
    fn is(found: f64, expected: f64) {
        assert!((found - expected).abs() < 0.01, "{found}, not {expected}");
    }

    #[test]
    fn each_type_earns_its_baseline_and_keeps_a_day_of_it() {
        for (size, ..) in SIZES {
            for family in ["t3", "t3a", "t4g"] {
                let it = Burstable::named(&format!("{family}.{size}")).unwrap();
                assert_eq!(
                    it.earned_per_hour * 1_000,
                    it.vcpus * it.baseline_permille * 60
                );
                assert_eq!(it.balance_max, it.earned_per_hour * 24);
            }
        }
        for instance in [
            "c7i.large",
            "t2.medium",
            "t3.metal",
            "t3",
            "",
            "t3.medium.x",
        ] {
            assert_eq!(Burstable::named(instance), None, "{instance}");
        }
    }

    #[test]
    fn a_t3_medium_at_work_has_the_runway_that_its_table_says() {
        // From 576 credits: net loss an hour, and the minutes that they last.
        for (used, lost, minutes) in [
            (300_u32, 12.0, 2_880.0),
            (500, 36.0, 960.0),
            (750, 66.0, 523.64),
            (1_000, 96.0, 360.0),
        ] {
            let medium = Burstable::named("t3.medium").unwrap();
            is(medium.net_per_hour(f64::from(used)), lost);
            let mut estimator = Estimator::new("t3.medium", CreditMode::Standard).unwrap();
            estimator.absorb(&row(1, used.into(), 0));
            estimator.balance.high = 576.0;
            let runway = estimator.credits().unwrap().runway_ns.unwrap();
            is(runway.high as f64 / MINUTE as f64, minutes);
            assert_eq!(runway.low, 0);
        }
    }

    #[test]
    fn at_its_baseline_or_below_the_balance_lasts_for_ever() {
        for used in [0, 200] {
            let credits = after(CreditMode::Standard, &[row(1, used, 0)]);
            assert_eq!(credits.runway_ns, None, "{used}");
        }
        assert!(
            after(CreditMode::Standard, &[row(1, 201, 0)])
                .runway_ns
                .is_some()
        );
    }

    #[test]
    fn both_bounds_take_what_is_earned_and_spent_and_meet_at_an_end() {
        let idle = after(CreditMode::Standard, &[row(60, 0, 0)]);
        is(idle.balance.low, 24.0);
        is(idle.balance.high, 576.0);
        let busy = after(CreditMode::Standard, &[row(60, 0, 0), row(15, 1_000, 0)]);
        is(busy.balance.low, 0.0);
        is(busy.balance.high, 552.0);
        let spent = after(CreditMode::Standard, &[row(400, 1_000, 0)]);
        assert_eq!(
            spent.balance,
            Bounds {
                low: 0.0,
                high: 0.0
            }
        );
        assert_eq!(spent.observed_ns, 400 * MINUTE);
    }

    #[test]
    fn what_an_unlimited_instance_borrows_is_paid_back_first() {
        let borrowed = after(CreditMode::Unlimited, &[row(60, 1_000, 0)]);
        is(borrowed.balance.low, -96.0);
        is(borrowed.balance.high, 480.0);
        assert_eq!(borrowed.runway_ns.unwrap().low, 0);
        let rows = [row(60, 1_000, 0), row(60, 0, 0)];
        is(after(CreditMode::Unlimited, &rows).balance.low, -72.0);
        let charged = after(CreditMode::Unlimited, &[row(9_000, 1_000, 0)]);
        is(charged.balance.low, -576.0);
    }

    #[test]
    fn stolen_time_is_not_paid_for() {
        // A throttled instance: all of it looks busy, and a fifth of it runs.
        let credits = after(CreditMode::Standard, &[row(60, 1_000, 800)]);
        is(credits.used_permille, 200.0);
        is(credits.balance.high, 576.0);
    }

    #[test]
    fn the_use_is_the_last_minutes_by_the_length_of_its_seconds() {
        let mut rows = vec![row(9, 1_000, 0)];
        rows.extend((0..58).map(|_| row(1, 0, 0)));
        rows.push(row(58, 500, 0));
        rows.push(row(58, 500, 0));
        is(after(CreditMode::Standard, &rows).used_permille, 333.33);
    }

    #[test]
    fn no_second_is_too_odd_to_take() {
        let mut estimator = Estimator::new("t3.nano", CreditMode::Unknown).unwrap();
        assert_eq!(estimator.credits(), None);
        estimator.absorb(&Row::default());
        assert_eq!(estimator.credits(), None, "a second without length");
        for _ in 0..3 {
            estimator.absorb(&Row {
                duration: u64::MAX,
                gauges: [u64::MAX; crate::layout::GAUGES_ROOM],
                ..Row::default()
            });
        }
        let credits = estimator.credits().unwrap();
        assert!(credits.balance.low.is_finite() && credits.balance.high.is_finite());
    }
}
