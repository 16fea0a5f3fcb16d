//! Finds marks and planted bugs in source text, for the build script; it must never do more than
//! read, and it knows of Rust only comments, literals and parentheses.

/// The names of all `sometimes!("…")` and `sometimes!(condition, "…")` in `source`.
pub(crate) fn marks(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut reader = Reader::new(source);
    while reader.seek("sometimes!(") {
        names.extend(reader.last_literal());
    }
    names
}

/// The numbers of all `planted::bug(…)` in `source`.
pub(crate) fn planted(source: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut reader = Reader::new(source);
    while reader.seek("planted::bug(") {
        let digits = reader.rest().split(')').next().unwrap_or_default();
        numbers.extend(digits.trim().parse::<u32>());
    }
    numbers
}

/// The constants of error codes in `source`, but for its tests.
pub(crate) fn codes(source: &str) -> Vec<String> {
    let product = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut names = Vec::new();
    let mut reader = Reader::new(product);
    while reader.seek("ErrorCode::") {
        let rest = reader.rest();
        let end = rest.find(|c: char| !(c.is_ascii_uppercase() || c == '_'));
        let name = &rest[..end.unwrap_or(rest.len())];
        if name.len() > 1 {
            names.push(name.into());
        }
    }
    names
}

/// The names by which checkers of `source` fail.
pub(crate) fn checkers(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let lines = source.lines().map(str::trim);
    for line in lines {
        let rest = line.strip_prefix("const CHECK: &str = \"");
        names.extend(
            rest.and_then(|rest| rest.strip_suffix("\";"))
                .map(String::from),
        );
    }
    names
}

/// A place in a source text.
struct Reader<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    const fn new(source: &'a str) -> Self {
        Self { source, at: 0 }
    }

    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    /// Goes behind the next `word` of the code, if there is one.
    fn seek(&mut self, word: &str) -> bool {
        while !self.rest().is_empty() {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return true;
            }
            self.step();
        }
        false
    }

    /// Behind an opening parenthesis: the last string literal before the closing one.
    fn last_literal(&mut self) -> Option<String> {
        let mut depth = 1;
        let mut last = None;
        while depth > 0 && !self.rest().is_empty() {
            match self.rest().as_bytes()[0] {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            last = self.step().or(last);
        }
        last
    }

    /// Over one comment, literal or character; what the literal says, if it is a string.
    fn step(&mut self) -> Option<String> {
        let rest = self.rest();
        if rest.starts_with("//") {
            self.at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("'\"'") {
            self.at += 3;
        } else if let Some(text) = rest.strip_prefix('"') {
            let mut escaped = false;
            let closing = |byte: u8| {
                let closes = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                closes
            };
            let size = text.bytes().position(closing).unwrap_or(text.len());
            self.at += size + 2;
            return Some(text[..size].to_owned());
        } else {
            self.at += rest.chars().next().map_or(1, char::len_utf8);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_with_and_without_a_condition_and_over_lines() {
        let source = r#"
            base::sometimes!("area: one");
            // base::sometimes!("area: in a comment");
            sometimes!(list.len() > (3), "area: two");
            let text = "sometimes!(\"area: in a literal\")";
            base::sometimes!(
                quote == '"' || name == "other",
                "area: three"
            );
        "#;
        assert_eq!(marks(source), ["area: one", "area: two", "area: three"]);
    }

    #[test]
    fn numbers_of_planted_bugs_are_found() {
        let source = "if base::planted::bug(7) { /* planted::bug(8) is */ }\n// planted::bug(9)\n\
                      let wrong = planted::bug(12) && other;";
        assert_eq!(planted(source), [7, 8, 12]);
    }

    #[test]
    fn an_unfinished_text_ends() {
        assert!(marks("sometimes!(\"x").len() <= 1);
        assert!(marks("sometimes!(").is_empty());
        assert!(planted("planted::bug(").is_empty());
    }

    #[test]
    fn checkers_are_found_by_the_name_that_they_fail_with() {
        let source = "const CHECK: &str = \"views\";\nconst OTHER: &str = \"no\";";
        assert_eq!(checkers(source), ["views"]);
    }

    #[test]
    fn codes_are_those_that_the_product_names() {
        let source = "a(ErrorCode::OK); ErrorCode::TOPIC_FULL, ErrorCode::from(1) // ErrorCode::NO
            \n#[cfg(test)] mod tests { ErrorCode::ERROR }";
        assert_eq!(codes(source), ["OK", "TOPIC_FULL"]);
    }
}
