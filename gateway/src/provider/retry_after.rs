//! How long a provider asks to be left alone, in each of the forms that are met.

use std::time::{Duration, SystemTime};

use http::HeaderMap;

/// More than a day is no wait.
const LONGEST: Duration = Duration::from_hours(24);

/// The wait that the headers ask for: milliseconds before seconds before a date. What is negative, no number, or in
/// the past asks for nothing.
#[must_use]
pub fn of_headers(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return seconds(millis / 1_000.0);
    }
    let told = text("retry-after")?;
    match told.parse::<f64>() {
        Ok(number) => seconds(number),
        Err(_) => httpdate::parse_http_date(told)
            .ok()?
            .duration_since(now)
            .ok(),
    }
}

/// The wait that a body tells, as Gemini's `"retryDelay": "34s"`.
#[must_use]
pub fn of_body(body: &[u8]) -> Option<Duration> {
    let at = memchr::memmem::find(body, b"\"retryDelay\"")?;
    let rest = std::str::from_utf8(body.get(at + 12..(at + 64).min(body.len()))?).ok()?;
    let value = rest
        .trim_start()
        .strip_prefix(':')?
        .trim_start()
        .strip_prefix('"')?;
    seconds(value.split_once("s\"")?.0.parse().ok()?)
}

fn seconds(number: f64) -> Option<Duration> {
    (number > 0.0).then(|| {
        Duration::try_from_secs_f64(number)
            .unwrap_or(LONGEST)
            .min(LONGEST)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read_and_nonsense_asks_for_nothing() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777); // Sun, 06 Nov 1994 08:49:37 GMT
        let check = |headers: &[(&'static str, &'static str)], expected: Option<u64>| {
            let headers: HeaderMap = headers
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect();
            assert_eq!(
                of_headers(&headers, now),
                expected.map(Duration::from_millis),
                "{headers:?}"
            );
        };
        check(&[("retry-after", "7")], Some(7_000));
        check(&[("retry-after", "0.25")], Some(250));
        check(
            &[("retry-after", "9"), ("retry-after-ms", "120")],
            Some(120),
        );
        check(
            &[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")],
            Some(10_000),
        );
        check(&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")], None);
        check(&[("retry-after", "-3")], None);
        check(&[("retry-after", "NaN")], None);
        check(&[("retry-after", "soon")], None);
        check(&[], None);
    }

    #[test]
    fn a_number_beyond_all_bounds_is_no_panic() {
        let headers: HeaderMap = [("retry-after".parse().unwrap(), "1e300".parse().unwrap())]
            .into_iter()
            .collect();
        assert_eq!(of_headers(&headers, SystemTime::now()), Some(LONGEST));
    }

    #[test]
    fn a_bodys_hint_is_found() {
        assert_eq!(
            of_body(br#"{"error":{"details":[{"retryDelay": "34.5s"}]}}"#),
            Some(Duration::from_millis(34_500))
        );
        assert_eq!(of_body(br#"{"retryDelay":"#), None);
    }
}
