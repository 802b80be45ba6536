//! Figures as people read them: the unit chosen by the size, thousands separated, ratios rather than percent slower.

/// What a figure that is not there reads.
pub(crate) const NONE: &str = "-";

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds of a second.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Past this many seconds a time is only said to be longer: no request takes a day, and columns have a width.
const SECONDS_MAX: u64 = 99_999;

/// A figure as `text` tells it, where there is one.
pub(crate) fn or_none(value: Option<u64>, text: impl FnOnce(u64) -> String) -> String {
    value.map_or(NONE.to_owned(), text)
}

/// A number with its thousands separated.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time of `ns` nanoseconds with two decimals, as in `47.13 µs`; whole below a microsecond.
pub(crate) fn duration(ns: u64) -> String {
    time(ns, |_| 2)
}

/// A measured time less `floor`, what the clock's own readings take of it, as in `47.12 µs`. What is left but not above
/// the floor is noise, and only said to be no more. Zero is exact: the clock was not read.
pub(crate) fn measured(ns: u64, floor: u64) -> String {
    match above(ns, floor) {
        Some(rest) => duration(rest),
        None => format!("<= {}", duration(floor)),
    }
}

/// How many times `reference` fits into a measured time less `floor`.
pub(crate) fn measured_ratio(ns: u64, floor: u64, reference: u64) -> String {
    match above(ns, floor) {
        Some(rest) => ratio(rest, reference),
        None => format!("<={}", ratio(floor, reference)),
    }
}

/// `ns` less `floor`; none where that tells nothing.
const fn above(ns: u64, floor: u64) -> Option<u64> {
    match ns.saturating_sub(floor) {
        _ if ns == 0 => Some(0),
        rest if rest <= floor => None,
        rest => Some(rest),
    }
}

/// A time of `ns` nanoseconds with three significant digits, as in `47.1 µs`; whole below a microsecond.
pub(crate) fn brief(ns: u64) -> String {
    time(ns, significant_decimals)
}

fn time(ns: u64, decimals: fn(u64) -> usize) -> String {
    if ns / SECOND > SECONDS_MAX {
        return format!(">{} s", count(SECONDS_MAX));
    }
    if ns < MICROSECOND {
        return format!("{ns} ns");
    }
    let units = [
        (MICROSECOND, MILLISECOND, "µs"),
        (MILLISECOND, SECOND, "ms"),
        (SECOND, u64::MAX, "s"),
    ];
    let mut text = String::new();
    for (unit, next, name) in units {
        if ns < next {
            text = scaled(ns, unit, decimals(ns / unit));
            // 999.999 µs rounds to 1000.00: then the next unit says it better.
            if !text.starts_with("1,000") || name == "s" {
                return format!("{text} {name}");
            }
        }
    }
    text
}

/// An amount of memory with three significant digits, as in `1.31 GB`. Units are powers of ten, as on the benchmark
/// page.
pub(crate) fn bytes(value: u64) -> String {
    let units = [
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
        (1_000, "kB"),
    ];
    match units.into_iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => {
            let text = scaled(value, unit, significant_decimals(value / unit));
            format!("{text} {name}")
        }
        None => format!("{value} B"),
    }
}

/// A figure without decimals that say nothing: `75 µs` for `75.0 µs`.
pub(crate) fn plain(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text.to_owned(),
    }
}

/// Requests a second.
pub(crate) fn rate(value: u64) -> String {
    format!("{}/s", count(value))
}

/// How many times `reference` fits into `value`, as in `1.95x`.
pub(crate) fn ratio(value: u64, reference: u64) -> String {
    let Some(hundredths) = hundredths(value, reference) else {
        return NONE.to_owned();
    };
    match hundredths {
        0..1_000 => format!("{}.{:02}x", hundredths / 100, hundredths % 100),
        1_000..10_000 => format!("{}.{}x", hundredths / 100, hundredths % 100 / 10),
        10_000..100_000 => format!("{}x", hundredths / 100),
        _ => ">999x".to_owned(),
    }
}

/// `value` as whole percent of `whole`.
pub(crate) fn percent(value: u64, whole: u64) -> String {
    match hundredths(value, whole) {
        None => NONE.to_owned(),
        Some(percent) if percent > 999 => ">999%".to_owned(),
        Some(percent) => format!("{percent}%"),
    }
}

/// The same with a tenth where that is more than a trifle of a small share: `97%`, `3.1%`, `<0.1%`.
pub(crate) fn share(value: u64, whole: u64) -> String {
    let thousandths = u128::from(value) * 1_000;
    match thousandths.checked_div(u128::from(whole)) {
        None => NONE.to_owned(),
        Some(0) if value > 0 => "<0.1%".to_owned(),
        Some(permille @ 0..100) => format!("{}.{}%", permille / 10, permille % 10),
        Some(_) => percent(value, whole),
    }
}

/// A stretch of time in its two largest units, as in `2h13m` or `4m02s`.
pub(crate) fn span(ns: u64) -> String {
    let seconds = ns / SECOND;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m{:02}s", seconds % 60),
        3_600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{}d{:02}h", count(days), hours % 24),
    }
}

/// How long ago something was, in tenths of a second while that tells anything.
pub(crate) fn age(ns: u64) -> String {
    if ns < 60 * SECOND {
        format!("{}.{} s", ns / SECOND, ns % SECOND / (SECOND / 10))
    } else {
        span(ns)
    }
}

/// The time of day, UTC, of a moment since the Unix epoch.
pub(crate) fn clock(unix_ns: u64) -> String {
    let seconds = unix_ns / SECOND % 86_400;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

/// The same to the millisecond.
pub(crate) fn moment(unix_ns: u64) -> String {
    let thousandths = unix_ns % SECOND / MILLISECOND;
    format!("{}.{thousandths:03}", clock(unix_ns))
}

/// A moment, UTC, as file names have it: `20261130T120000Z`.
pub(crate) fn stamp(unix_ns: u64) -> String {
    let seconds = unix_ns / SECOND;
    let (year, month, day) = date(seconds / 86_400);
    let clock = clock(unix_ns).replace(':', "");
    format!("{year:04}{month:02}{day:02}T{clock}Z")
}

/// The Gregorian date that is so many days after 1970-01-01: Hinnant's `civil_from_days`, in which a year begins in
/// March, so that a leap day is its last.
const fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year_of_era + (month <= 2) as u64;
    (year, month, day)
}

/// `text` in ASCII, each of our own signs by its nearest likeness, a stranger's by a question mark.
pub(crate) fn ascii(text: &str) -> String {
    text.chars().map(ascii_of).collect()
}

/// The likeness of one character in ASCII.
pub(crate) const fn ascii_of(sign: char) -> char {
    match sign {
        '\0'..='\x7f' => sign,
        'µ' => 'u',
        '·' | '░' | '▁' | '▂' => '.',
        '\u{2800}' => ' ',
        '\u{2801}'..='\u{28ff}' => '*',
        '▃' | '▄' | '─' => '-',
        '▅' | '▆' => '=',
        '▇' | '█' => '#',
        '│' | '┃' | '┤' => '|',
        '┌' | '┐' | '└' | '┘' => '+',
        '…' => '~',
        _ => '?',
    }
}

/// Decimals that make three significant digits of a number with that whole part.
const fn significant_decimals(whole: u64) -> usize {
    match whole {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    }
}

/// `value / unit`, rounded to so many decimals, at most two.
fn scaled(value: u64, unit: u64, decimals: usize) -> String {
    let power: u128 = [1, 10, 100][decimals.min(2)];
    let parts = (u128::from(value) * power + u128::from(unit) / 2) / u128::from(unit);
    let whole = count(u64::try_from(parts / power).unwrap_or(u64::MAX));
    if decimals == 0 {
        return whole;
    }
    format!("{whole}.{:0decimals$}", parts % power)
}

/// `value / whole` in hundredths, rounded. None for no whole.
fn hundredths(value: u64, whole: u64) -> Option<u64> {
    let whole = u128::from(whole);
    let hundredths = (u128::from(value) * 100 + whole / 2).checked_div(whole)?;
    Some(u64::try_from(hundredths).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_unit_of_its_size() {
        for (ns, long, short) in [
            (0, "0 ns", "0 ns"),
            (999, "999 ns", "999 ns"),
            (1_000, "1.00 µs", "1.00 µs"),
            (47_130, "47.13 µs", "47.1 µs"),
            (104_400, "104.40 µs", "104 µs"),
            (999_994, "999.99 µs", "1.00 ms"),
            (999_999, "1.00 ms", "1.00 ms"),
            (11_300_000, "11.30 ms", "11.3 ms"),
            (999_999_999, "1.00 s", "1.00 s"),
            (2_120_000_000, "2.12 s", "2.12 s"),
            (1_234_000_000_000, "1,234.00 s", "1,234 s"),
            (u64::MAX, ">99,999 s", ">99,999 s"),
        ] {
            assert_eq!((duration(ns).as_str(), brief(ns).as_str()), (long, short));
        }
    }

    #[test]
    fn what_is_not_above_the_clocks_floor_is_no_figure() {
        for (ns, floor, text) in [
            (0, 10, "0 ns"),
            (1, 10, "<= 10 ns"),
            (10, 10, "<= 10 ns"),
            (20, 10, "<= 10 ns"),
            (21, 10, "11 ns"),
            (47_130, 10, "47.12 µs"),
            (5, 0, "5 ns"),
            (0, 0, "0 ns"),
            (u64::MAX, 10, ">99,999 s"),
        ] {
            assert_eq!(measured(ns, floor), text, "{ns} {floor}");
        }
        assert_eq!(measured_ratio(42, 10, 16), "2.00x");
        assert_eq!(measured_ratio(12, 10, 16), "<=0.63x");
        assert_eq!(measured_ratio(0, 10, 16), "0.00x");
    }

    #[test]
    fn a_plain_figure_has_no_idle_decimals() {
        for (text, expected) in [
            ("75.0 µs", "75 µs"),
            ("3.00 GB", "3 GB"),
            ("1.50 ms", "1.5 ms"),
            ("100 ns", "100 ns"),
            ("4,000/s", "4,000/s"),
        ] {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn memory_is_told_in_the_pages_units() {
        for (value, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (13_000_000, "13.0 MB"),
            (1_312_790_000, "1.31 GB"),
            (u64::MAX, "18,446,744 TB"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn ratios_and_shares_never_outgrow_their_columns() {
        for (value, whole, times, share) in [
            (91_800, 47_130, "1.95x", "195%"),
            (1, 3, "0.33x", "33%"),
            (0, 5, "0.00x", "0%"),
            (5, 0, "-", "-"),
            (12_345, 1_000, "12.3x", ">999%"),
            (u64::MAX, 1, ">999x", ">999%"),
        ] {
            assert_eq!(ratio(value, whole), times);
            assert_eq!(percent(value, whole), share);
        }
    }

    #[test]
    fn a_small_share_is_not_told_as_none() {
        for (value, whole, text) in [
            (0, 9, "0.0%"),
            (1, 0, "-"),
            (1, 10_000, "<0.1%"),
            (31, 1_000, "3.1%"),
            (97, 100, "97%"),
            (u64::MAX, 1, ">999%"),
        ] {
            assert_eq!(share(value, whole), text);
        }
    }

    #[test]
    fn stretches_show_their_two_largest_units() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (242, "4m02s"),
            (7_980, "2h13m"),
            (90_000, "1d01h"),
        ] {
            assert_eq!(span(seconds * SECOND), text);
        }
        assert_eq!(age(340_000_000), "0.3 s");
        assert_eq!(clock(86_399 * SECOND), "23:59:59");
        assert_eq!(moment(86_399 * SECOND + 1_234_567), "23:59:59.001");
    }

    #[test]
    fn a_stamp_is_right_at_the_ends_of_months_and_years() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (951_868_799, "20000229T235959Z"),
            (951_868_800, "20000301T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
            (1_735_689_600, "20250101T000000Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(stamp(seconds * SECOND), text);
        }
    }

    #[test]
    fn thousands_are_separated() {
        for (value, text) in [(0, "0"), (999, "999"), (15_000, "15,000")] {
            assert_eq!(count(value), text);
        }
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(rate(4_000), "4,000/s");
    }

    #[test]
    fn ascii_keeps_our_signs_readable() {
        assert_eq!(ascii("47 µs █░│ 世…"), "47 us #.| ?~");
    }
}
