//! How long CPU credits last, in a line. It says itself that it is an estimate.

use bifrost_shared::credits::Credits;
use bifrost_shared::layout::CreditMode;
use ratatui::text::Line;

use super::cut;
use crate::format;

/// What there is room to say.
pub(super) fn line(credits: &Credits, width: u16) -> Line<'static> {
    Line::from(cut(&text(credits), width.into()))
}

fn text(credits: &Credits) -> String {
    let balance = credits.balance;
    let outlook = match credits.runway_ns {
        None => "they last".to_owned(),
        Some(runway) => {
            let within = match (runway.low, runway.high) {
                (_, 0) => "out now".to_owned(),
                (0, high) => format!("out within {}", format::span(high)),
                (low, high) => {
                    format!("out in {} to {}", format::span(low), format::span(high))
                }
            };
            format!("{within}{}", afterwards(credits))
        }
    };
    format!(
        "CPU credits, estimated: {} to {:.0} of {}; at {:.0}% CPU {outlook}",
        lowest(balance.low),
        balance.high,
        credits.instance.balance_max,
        credits.used_permille / 10.0,
    )
}

/// Below zero are credits that were borrowed.
fn lowest(balance: f64) -> String {
    if balance < -0.5 {
        format!("{:.0} borrowed", -balance)
    } else {
        format!("{:.0}", balance.abs())
    }
}

fn afterwards(credits: &Credits) -> String {
    match credits.mode {
        CreditMode::Standard => {
            let baseline = format::percent(credits.instance.baseline_permille, 1_000);
            format!(", then throttled to {baseline}")
        }
        CreditMode::Unlimited => ", then surplus is charged".to_owned(),
        CreditMode::Unknown => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use bifrost_shared::credits::{Bounds, Burstable};

    use super::*;
    use crate::format::SECOND;

    #[test]
    fn it_says_what_comes_after_the_credits_and_that_it_is_an_estimate() {
        let hours = |low: u64, high: u64| {
            let [low, high] = [low, high].map(|hours| hours * 3_600 * SECOND);
            Some(Bounds { low, high })
        };
        for (mode, runway_ns, expected) in [
            (
                CreditMode::Standard,
                hours(0, 8),
                "out within 8h00m, then throttled to 20%",
            ),
            (
                CreditMode::Unlimited,
                hours(1, 8),
                "out in 1h00m to 8h00m, then surplus is charged",
            ),
            (CreditMode::Unknown, hours(0, 0), "out now"),
            (CreditMode::Unlimited, None, "they last"),
        ] {
            let credits = Credits {
                instance: Burstable::named("t3.medium").unwrap(),
                mode,
                balance: Bounds {
                    low: -5.2,
                    high: 570.8,
                },
                used_permille: 720.0,
                runway_ns,
                observed_ns: 1,
            };
            assert_eq!(
                text(&credits),
                format!("CPU credits, estimated: 5 borrowed to 571 of 576; at 72% CPU {expected}")
            );
        }
    }
}
