//! The project keeps its own rules: `cargo xtask tidy`, as a test.

#[test]
fn the_project_is_tidy() {
    let tree = xtask::Tree::read(&xtask::root()).expect("the project is readable");
    let findings = xtask::tidy(&tree);
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(xtask::failures(&findings), 0, "\n{}\n", lines.join("\n"));
}
