//! Durations and sizes as people write them in topic options: `7days 12h`, `1.5 GiB`.
//!
//! Integer arithmetic only: the value ends up in replicated state.

/// Microseconds of a duration text such as `90s`, `1h 30m` or plain microseconds.
pub(crate) fn duration_micros(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Ok(micros) = text.parse() {
        return Some(micros);
    }
    let mut total: u128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, unit, tail) = quantity(rest)?;
        let nanos = number
            .parse::<u128>()
            .ok()?
            .checked_mul(unit_nanos(unit)?)?;
        total = total.checked_add(nanos)?;
        rest = tail;
    }
    if text.is_empty() {
        return None;
    }
    u64::try_from(total / 1000).ok()
}

/// Bytes of a size text such as `10 MB`, `1.5GiB` or plain bytes.
pub(crate) fn size_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, unit, tail) = quantity(text)?;
    if !tail.is_empty() {
        return None;
    }
    let unit = unit_bytes(unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut total = whole.parse::<u128>().ok()?.checked_mul(unit)?;
    if !fraction.is_empty() {
        let digits = u32::try_from(fraction.len())
            .ok()
            .filter(|&digits| digits <= 9)?;
        total = total.checked_add(fraction.parse::<u128>().ok()? * unit / 10_u128.pow(digits))?;
    }
    u64::try_from(total).ok()
}

/// The leading number, the unit after it, and what follows.
fn quantity(text: &str) -> Option<(&str, &str, &str)> {
    let number_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(number_end);
    let rest = rest.trim_start();
    let unit_end = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    let (unit, tail) = rest.split_at(unit_end);
    (!number.is_empty()).then(|| (number, unit, tail.trim_start()))
}

fn unit_nanos(unit: &str) -> Option<u128> {
    const SECOND: u128 = 1_000_000_000;
    const DAY: u128 = 86_400 * SECOND;
    Some(match unit {
        "ns" | "nsec" | "nanos" => 1,
        "us" | "usec" | "micros" => 1000,
        "ms" | "msec" | "millis" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600 * SECOND,
        "d" | "day" | "days" => DAY,
        "w" | "week" | "weeks" => 7 * DAY,
        // A month is 30.44 days, a year 365.25.
        "M" | "month" | "months" => 2_630_016 * SECOND,
        "y" | "year" | "years" => 31_557_600 * SECOND,
        _ => return None,
    })
}

fn unit_bytes(unit: &str) -> Option<u128> {
    const UNITS: [(&str, u128); 10] = [
        ("", 1),
        ("b", 1),
        ("kb", 1000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("tb", 1_000_000_000_000),
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("tib", 1 << 40),
    ];
    UNITS
        .iter()
        .find(|(name, _)| unit.eq_ignore_ascii_case(name))
        .map(|&(_, bytes)| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_written() {
        for (text, micros) in [
            ("0", Some(0)),
            ("1500", Some(1500)),
            ("90s", Some(90_000_000)),
            ("1h 30m", Some(5_400_000_000)),
            ("1day2h", Some(93_600_000_000)),
            (" 2 weeks ", Some(1_209_600_000_000)),
            ("999ns", Some(0)),
            ("1 month", Some(2_630_016_000_000)),
            ("", None),
            ("s", None),
            ("1.5h", None),
            ("-1s", None),
            ("5 parsecs", None),
            ("18446744073709551616", None),
            ("600000 years", None),
        ] {
            assert_eq!(duration_micros(text), micros, "{text:?}");
        }
    }

    #[test]
    fn sizes_read_as_written() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("512", Some(512)),
            ("10 MB", Some(10_000_000)),
            ("1GiB", Some(1 << 30)),
            ("1.5 gib", Some(3 << 29)),
            ("18446744073709551615", Some(u64::MAX)),
            ("", None),
            ("1.", Some(1)),
            ("1..5 kb", None),
            ("GiB", None),
            ("1 GiB extra", None),
            ("18446744073709551616", None),
            ("16777216 TiB", None),
            ("1.0123456789 kb", None),
        ] {
            assert_eq!(size_bytes(text), bytes, "{text:?}");
        }
    }
}
