//! Values as people write them: `30s`, `64 MiB`, `unlimited`.

use std::time::Duration;

/// Words that mean zero, for sizes and durations alike.
const ZERO: [&str; 3] = ["disabled", "unlimited", "none"];

/// `true` or `false`.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("is neither true nor false".into()),
    }
}

/// A number, with `_` between digits allowed.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    let digits: String = text.trim().chars().filter(|c| *c != '_').collect();
    digits.parse().map_err(|_| "is no number".into())
}

/// A number and the rest, without spaces around.
fn split(text: &str) -> Result<(u64, &str), String> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '_')
        .unwrap_or(text.len());
    Ok((number(&text[..end])?, text[end..].trim()))
}

/// Bytes: a number with `B`, `KB`, `KiB`, `MB`, `MiB`, `GB`, `GiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    if ZERO.contains(&text.trim().to_ascii_lowercase().as_str()) {
        return Ok(0);
    }
    let what = || format!("is no size such as \"64 MiB\" or \"512 B\": {text:?}");
    let (count, unit) = split(text).map_err(|_| what())?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "kib" => 1 << 10,
        "mb" => 1_000_000,
        "mib" => 1 << 20,
        "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        _ => return Err(what()),
    };
    count.checked_mul(unit).ok_or_else(what)
}

/// A time span: one or more numbers with `us`, `ms`, `s`, `m`, `h`, `days`; a bare number is
/// taken only if it is 0.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if ZERO.contains(&text.trim().to_ascii_lowercase().as_str()) {
        return Ok(Duration::ZERO);
    }
    let what = || format!("is no duration such as \"500ms\" or \"1 m\": {text:?}");
    let (mut rest, mut sum) = (text.trim(), Duration::ZERO);
    if rest.is_empty() {
        return Err(what());
    }
    while !rest.is_empty() {
        let (count, after) = split(rest).map_err(|_| what())?;
        let end = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let micros = match &after[..end] {
            "us" => 1,
            "ms" => 1_000,
            "s" | "sec" | "second" | "seconds" => 1_000_000,
            "m" | "min" | "minute" | "minutes" => 60_000_000,
            "h" | "hour" | "hours" => 3_600_000_000,
            "d" | "day" | "days" => 86_400_000_000,
            "" if count == 0 => 0,
            _ => return Err(what()),
        };
        let part = count
            .checked_mul(micros)
            .map(Duration::from_micros)
            .ok_or_else(what)?;
        sum = sum.checked_add(part).ok_or_else(what)?;
        rest = after[end..].trim();
    }
    Ok(sum)
}

/// Edits (insert, remove, replace, swap of neighbours) between two words.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = vec![];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_both_kinds_of_units() {
        for (text, bytes) in [
            ("64 MiB", 64 << 20),
            ("2 MB", 2_000_000),
            ("512", 512),
            ("1_000 B", 1_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        assert_eq!(size("unlimited"), Ok(0));
        for text in ["", "MiB", "64 Mib/s", "-1 B", "99999999999999 GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_with_and_without_spaces() {
        for (text, millis) in [
            ("500ms", 500),
            ("1 m", 60_000),
            ("2m 30s", 150_000),
            ("7 days", 604_800_000),
            ("0", 0),
            ("disabled", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "5 parsecs", "5s x"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn distance_counts_typing_errors() {
        assert_eq!(distance("address", "address"), 0);
        assert_eq!(distance("adress", "address"), 1);
        assert_eq!(distance("adderss", "address"), 1);
        assert_eq!(distance("tcp", "quic"), 4);
        assert_eq!(distance("", "abc"), 3);
    }
}
