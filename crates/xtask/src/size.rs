//! How long a file and a function may be: advice at 700 and 70 lines, a failure at more than
//! 1,200 and 120.
//!
//! A file that is better long says so, with its reason: `// tidy: long — a table of 300 codes`.
//! A function's lines are those from its `fn` to its closing brace.

use crate::{Finding, Tree, scan};

const FILE_WARN: usize = 700;
const FILE_FAIL: usize = 1_200;
const FUNCTION_WARN: usize = 70;
const FUNCTION_FAIL: usize = 120;

const _: () = assert!(FILE_WARN < FILE_FAIL && FUNCTION_WARN < FUNCTION_FAIL);

/// The rule.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.rust() {
        if is_excused(&file.text) {
            continue;
        }
        let lines = file.text.lines().count();
        let limits = Limits {
            warn: FILE_WARN,
            fail: FILE_FAIL,
        };
        findings.extend(limits.judge(&file.path, 0, "the file", lines));
        let limits = Limits {
            warn: FUNCTION_WARN,
            fail: FUNCTION_FAIL,
        };
        for function in functions(&file.text) {
            let name = format!("fn {}", function.name);
            findings.extend(limits.judge(&file.path, function.line, &name, function.lines));
        }
    }
}

struct Limits {
    warn: usize,
    fail: usize,
}

impl Limits {
    fn judge(&self, path: &str, line: usize, name: &str, lines: usize) -> Option<Finding> {
        if lines > self.fail {
            let message = format!(
                "{name} has {lines} lines, more than {}: split it by phase, or write \
                 `// tidy: long — reason`",
                self.fail
            );
            return Some(Finding::failure(path, line, message));
        }
        let message = format!("{name} has {lines} lines, more than {}", self.warn);
        (lines > self.warn).then(|| Finding::warning(path, line, message))
    }
}

fn is_excused(text: &str) -> bool {
    text.lines().any(|line| {
        let reason = line.trim_start().strip_prefix("// tidy: long");
        reason.is_some_and(|reason| reason.chars().any(char::is_alphanumeric))
    })
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Every function with a body, nested ones too.
fn functions(text: &str) -> Vec<Function> {
    let code = scan::code_only(text);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(keyword) = find_keyword(&code, at) {
        at = keyword + 2;
        let Some(name) = name_after(&code, at) else {
            continue;
        };
        let Some(open) = body_start(&code, at) else {
            continue;
        };
        let close = matching_brace(&code, open);
        let line = scan::line_of(&code, keyword);
        let lines = scan::line_of(&code, close) - line + 1;
        found.push(Function { name, line, lines });
    }
    found
}

/// The next `fn` that stands alone.
fn find_keyword(code: &[u8], from: usize) -> Option<usize> {
    (from..code.len().saturating_sub(2)).find(|&at| {
        code[at..].starts_with(b"fn")
            && (at == 0 || !scan::is_word(code[at - 1]))
            && code[at + 2] == b' '
    })
}

fn name_after(code: &[u8], from: usize) -> Option<String> {
    let name: Vec<u8> = code[from..]
        .iter()
        .skip(1)
        .copied()
        .take_while(|&byte| scan::is_word(byte))
        .collect();
    if name.is_empty() {
        None
    } else {
        String::from_utf8(name).ok()
    }
}

/// Where the body opens; `None` for a declaration, which ends in `;` outside all brackets.
fn body_start(code: &[u8], from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, &byte) in code.iter().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn matching_brace(code: &[u8], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, &byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    code.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Severity, failures};

    fn findings(text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        check(&Tree::of(&[("crates/wire/src/x.rs", text)]), &mut findings);
        findings
    }

    fn function_of(lines: usize) -> String {
        format!(
            "fn long(a: [u8; 4]) {{\n{}}}\n",
            "    step();\n".repeat(lines - 2)
        )
    }

    #[test]
    fn a_short_file_and_function_pass() {
        assert!(findings(&function_of(FUNCTION_WARN)).is_empty());
        assert!(findings(&"// x\n".repeat(FILE_WARN)).is_empty());
    }

    #[test]
    fn the_first_limit_warns_and_the_second_fails() {
        for lines in [FUNCTION_WARN + 1, FUNCTION_FAIL] {
            assert_eq!(findings(&function_of(lines))[0].severity, Severity::Warning);
        }
        let found = findings(&function_of(FUNCTION_FAIL + 1));
        assert_eq!(found[0].severity, Severity::Failure);
        assert!(
            found[0].message.contains("fn long has 121 lines"),
            "{found:?}"
        );
        assert_eq!(failures(&findings(&"// x\n".repeat(FILE_FAIL))), 0);
        assert_eq!(failures(&findings(&"// x\n".repeat(FILE_FAIL + 1))), 1);
    }

    #[test]
    fn a_reason_excuses_and_its_absence_does_not() {
        let long = function_of(FUNCTION_FAIL + 1);
        assert!(findings(&format!("// tidy: long — one table\n{long}")).is_empty());
        assert_eq!(failures(&findings(&format!("// tidy: long — \n{long}"))), 1);
    }

    #[test]
    fn braces_in_literals_and_declarations_do_not_count() {
        let text =
            "fn a() {\n    f('{', \"{\");\n}\ntrait T {\n    fn b(&self) -> u8;\n}\nfn c() {}\n";
        let found: Vec<(String, usize)> = functions(text)
            .into_iter()
            .map(|function| (function.name, function.lines))
            .collect();
        assert_eq!(found, [("a".into(), 3), ("c".into(), 1)]);
    }

    #[test]
    fn a_function_pointer_is_not_a_function() {
        assert!(functions("type Rule = fn (u8) -> u8;\nconst F: fn(u8) = g;\n").is_empty());
    }
}
