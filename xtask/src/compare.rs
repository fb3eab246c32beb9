//! Two texts beside each other, line by line.

/// The shortest way from one text to the other, by the longest common subsequence of their lines.
pub fn lines<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<(char, &'a str)> {
    // common[i][j]: how many lines a[i..] and b[j..] have in common
    let mut common = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = match a[i] == b[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut way) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            way.push((' ', a[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < a.len() && (j == b.len() || common[i + 1][j] >= common[i][j + 1]) {
            way.push(('-', a[i]));
            i += 1;
        } else {
            way.push(('+', b[j]));
            j += 1;
        }
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_keeps_what_is_common() {
        assert_eq!(
            lines(&["a", "b", "c"], &["a", "x", "c"]),
            [(' ', "a"), ('-', "b"), ('+', "x"), (' ', "c")]
        );
    }
}
