//! What two transcripts differ in, with the lines around it.

/// Lines shown before and after a difference.
const CONTEXT: usize = 3;

/// Lines only expected begin with `-`, lines only found with `+`; what is far from both is left
/// out.
pub(crate) fn lines(expected: &str, found: &str) -> String {
    let marked = mark(
        &expected.lines().collect::<Vec<_>>(),
        &found.lines().collect::<Vec<_>>(),
    );
    let near = |index: usize| {
        let around = index.saturating_sub(CONTEXT)..(index + CONTEXT + 1).min(marked.len());
        marked[around].iter().any(|(mark, _)| *mark != ' ')
    };
    let mut text = String::new();
    let mut last = None;
    for index in (0..marked.len()).filter(|index| near(*index)) {
        if last.map_or(0, |last| last + 1) != index {
            text += "    ...\n";
        }
        let (mark, line) = marked[index];
        text += &format!("  {mark} {line}\n");
        last = Some(index);
    }
    text
}

/// Marks each line by where it is, by the longest sequence of lines that both have.
fn mark<'a>(expected: &[&'a str], found: &[&'a str]) -> Vec<(char, &'a str)> {
    // `common[a][b]`: the longest sequence in what follows `a` and `b`.
    let mut common = vec![vec![0_usize; found.len() + 1]; expected.len() + 1];
    for a in (0..expected.len()).rev() {
        for b in (0..found.len()).rev() {
            common[a][b] = if expected[a] == found[b] {
                common[a + 1][b + 1] + 1
            } else {
                common[a + 1][b].max(common[a][b + 1])
            };
        }
    }
    let (mut a, mut b) = (0, 0);
    let mut marked = Vec::new();
    while a < expected.len() || b < found.len() {
        if a < expected.len() && b < found.len() && expected[a] == found[b] {
            marked.push((' ', expected[a]));
            (a, b) = (a + 1, b + 1);
        } else if b == found.len() || a < expected.len() && common[a + 1][b] >= common[a][b + 1] {
            marked.push(('-', expected[a]));
            a += 1;
        } else {
            marked.push(('+', found[b]));
            b += 1;
        }
    }
    marked
}
