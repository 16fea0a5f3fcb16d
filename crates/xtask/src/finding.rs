//! What a rule has to say: where, how bad, and the way out.

use std::fmt;

/// Whether a finding stops the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Advice; the build goes on.
    Warning,
    /// The rule is broken.
    Failure,
}

/// One place where a rule is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Relative to the project's root.
    pub path: String,
    /// Counted from 1; 0 is the file as a whole.
    pub line: usize,
    /// Advice or failure.
    pub severity: Severity,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Finding {
    pub(crate) fn failure(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line,
            severity: Severity::Failure,
            message: message.into(),
        }
    }

    pub(crate) fn warning(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line,
            severity: Severity::Warning,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Failure => "failure",
        };
        write!(f, "{severity}: {}", self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// How many of the findings stop the build.
#[must_use]
pub fn failures(findings: &[Finding]) -> usize {
    findings
        .iter()
        .filter(|finding| finding.severity == Severity::Failure)
        .count()
}
