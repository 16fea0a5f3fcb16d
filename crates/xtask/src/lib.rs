//! What the compiler and clippy do not check: which crate may know which, how long a file may
//! grow, which words the project does not use, that links and named tests exist.
//!
//! ```text
//!   Tree (paths and texts, read once) ──▶ one function per rule ──▶ Findings
//! ```
//!
//! Each rule is a small module with a passing and a failing example as its tests. A failure names
//! the way out. To change a rule, change its table here and say why in the commit.
//!
//! **Invariant:** a rule never reads the disk; it sees the [`Tree`] only.

mod columns;
mod edges;
mod finding;
mod header;
mod links;
mod named;
mod no_std;
mod scan;
mod seeds;
mod size;
mod tree;
mod words;

pub use finding::{Finding, Severity, failures};
pub use tree::{File, Tree, root};

/// Every rule over the whole tree, sorted by place.
#[must_use]
pub fn tidy(tree: &Tree) -> Vec<Finding> {
    let rules: [fn(&Tree, &mut Vec<Finding>); 9] = [
        edges::check,
        no_std::check,
        header::check,
        size::check,
        columns::check,
        words::check,
        links::check,
        seeds::check,
        named::check,
    ];
    let mut findings = Vec::new();
    for rule in rules {
        rule(tree, &mut findings);
    }
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}
