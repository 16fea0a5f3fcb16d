//! Which bytes of a Rust source are code, comment or literal: enough for rustfmt'd code, no more.
//!
//! Not a parser. It knows comments (nested), strings (escaped, raw, byte, C), and tells a
//! character literal from a lifetime; every rule that looks for words or braces stands on it.

/// What a byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Code,
    Comment,
    Literal,
}

/// The class of every byte of `text`.
pub(crate) fn classify(text: &str) -> Vec<Class> {
    let bytes = text.as_bytes();
    let mut classes = vec![Class::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let (end, class) = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => (line_end(bytes, at), Class::Comment),
            b'/' if bytes.get(at + 1) == Some(&b'*') => (block_end(bytes, at), Class::Comment),
            b'"' => (string_end(bytes, at), Class::Literal),
            b'r' if starts_word(bytes, at) => match raw_end(bytes, at) {
                Some(end) => (end, Class::Literal),
                None => (at + 1, Class::Code),
            },
            b'\'' => match char_end(text, at) {
                Some(end) => (end, Class::Literal),
                None => (at + 1, Class::Code),
            },
            _ => (at + 1, Class::Code),
        };
        classes[at..end].fill(class);
        at = end;
    }
    classes
}

/// The same length, with every byte that is not code replaced by a space (newlines stay).
pub(crate) fn code_only(text: &str) -> Vec<u8> {
    let classes = classify(text);
    let blank = |(&byte, class): (&u8, Class)| match class {
        Class::Code => byte,
        _ if byte == b'\n' => byte,
        _ => b' ',
    };
    text.as_bytes().iter().zip(classes).map(blank).collect()
}

/// The line, counted from 1, that byte `at` is on.
pub(crate) fn line_of(text: &[u8], at: usize) -> usize {
    1 + text[..at].iter().filter(|&&byte| byte == b'\n').count()
}

pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A raw string's `r` may follow `b` or `c`, and nothing else that could be a name.
fn starts_word(bytes: &[u8], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|index| bytes[index]);
    match before(1) {
        Some(b'b' | b'c') => before(2).is_none_or(|byte| !is_word(byte)),
        other => other.is_none_or(|byte| !is_word(byte)),
    }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    let length = bytes[at..].iter().position(|&byte| byte == b'\n');
    length.map_or(bytes.len(), |length| at + length)
}

fn block_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn raw_end(bytes: &[u8], start: usize) -> Option<usize> {
    let hashes = bytes[start + 1..]
        .iter()
        .take_while(|&&byte| byte == b'#')
        .count();
    let open = start + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut at = open + 1;
    while at < bytes.len() {
        let closes = bytes[at] == b'"'
            && bytes[at + 1..]
                .iter()
                .take(hashes)
                .filter(|&&byte| byte == b'#')
                .count()
                == hashes;
        at += 1;
        if closes {
            return Some(at + hashes);
        }
    }
    Some(bytes.len())
}

/// `'a'` and `'\n'` are literals, `'a` is a lifetime.
fn char_end(text: &str, start: usize) -> Option<usize> {
    let mut rest = text[start + 1..].char_indices();
    let (_, first) = rest.next()?;
    if first == '\\' {
        rest.next()?;
        return rest
            .find(|&(_, c)| c == '\'')
            .map(|(at, _)| start + 1 + at + 1);
    }
    let (at, second) = rest.next()?;
    (second == '\'').then_some(start + 1 + at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left when all that is not code is taken out, with one space for any number.
    fn check(text: &str, code: &str) {
        let found = String::from_utf8(code_only(text)).expect("blanks keep UTF-8 whole");
        assert_eq!(found.len(), text.len());
        assert_eq!(found.split_whitespace().collect::<Vec<_>>().join(" "), code);
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        check("a // { \nb", "a b");
        check("a /* x /* y */ } */ b", "a b");
        check(r#"f("}\"{", c"x")"#, "f( , c )");
    }

    #[test]
    fn a_raw_string_ends_at_its_own_hashes() {
        check("r#\"a \" b\"# + x", "+ x");
        check("br\"}\" + x", "b + x");
        check("for \"}\" in", "for in");
    }

    #[test]
    fn a_lifetime_is_code_and_a_character_is_not() {
        check("&'a str", "&'a str");
        check("'{' '\\'' 'é'", "");
    }

    #[test]
    fn lines_count_from_one() {
        assert_eq!(line_of(b"a\nb\nc", 0), 1);
        assert_eq!(line_of(b"a\nb\nc", 4), 3);
    }
}
