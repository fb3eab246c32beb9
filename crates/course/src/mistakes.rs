//! The known mistakes of a day: edits that turn the reference into a wrong solution, or into
//! another correct one.

use anyhow::{ensure, Result};
use serde::Deserialize;

/// The known mistakes of a day, and the variants that are correct.
#[derive(Clone, Debug, Deserialize)]
pub struct Mistakes {
    /// The mistakes. The day's checks must catch each of them, and tell it apart from the others.
    #[serde(default, rename = "mistake")]
    pub mistakes: Vec<Mistake>,
    /// Other correct solutions, which must pass.
    #[serde(default, rename = "variant")]
    pub variants: Vec<Variant>,
}

/// A known mistake.
#[derive(Clone, Debug, Deserialize)]
pub struct Mistake {
    /// Its name, which is also the name of a module.
    pub name: String,
    /// The diagnosis that a failing check prints.
    pub diagnosis: String,
    /// The change that makes the mistake.
    #[serde(flatten)]
    pub change: Change,
}

/// Another correct solution.
#[derive(Clone, Debug, Deserialize)]
pub struct Variant {
    /// Its name, which is also the name of a module.
    pub name: String,
    /// The change from the reference.
    #[serde(flatten)]
    pub change: Change,
}

/// A change to the reference: one edit or several, in order.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Entry")]
pub struct Change {
    /// The edits.
    pub edits: Vec<Edit>,
}

/// A place in the reference, and the code that replaces it.
#[derive(Clone, Debug, Deserialize)]
pub struct Edit {
    /// The code to replace, which must occur exactly once.
    pub find: String,
    /// The code to put there.
    pub replace: String,
}

/// A change as it is written: `find` and `replace`, or a list of `edits`.
#[derive(Deserialize)]
struct Entry {
    find: Option<String>,
    replace: Option<String>,
    edits: Option<Vec<Edit>>,
}

impl TryFrom<Entry> for Change {
    type Error = &'static str;

    fn try_from(entry: Entry) -> Result<Change, Self::Error> {
        match (entry.find, entry.replace, entry.edits) {
            (Some(find), Some(replace), None) => Ok(Change { edits: vec![Edit { find, replace }] }),
            (None, None, Some(edits)) => Ok(Change { edits }),
            _ => Err("an entry needs `find` and `replace`, or `edits`"),
        }
    }
}

impl Change {
    /// Returns `source`, the day's reference, with every edit applied.
    ///
    /// # Errors
    /// If a `find` doesn't occur exactly once.
    pub fn applied_to(&self, source: &str) -> Result<String> {
        let mut code = source.to_string();
        for edit in &self.edits {
            let (find, replace) = (edit.find.trim_matches('\n'), edit.replace.trim_matches('\n'));
            let times = code.matches(find).count();
            ensure!(times == 1, "`find` must match once, but matches {times} times: {find}");
            code = code.replacen(find, replace, 1);
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str) -> Change {
        let entry = format!("[[mistake]]\nname = \"x\"\ndiagnosis = \"y\"\n{text}");
        toml::from_str::<Mistakes>(&entry).unwrap().mistakes.remove(0).change
    }

    #[test]
    fn edits_apply_in_order_and_each_must_match_once() {
        let one = change("find = \"a\"\nreplace = \"b\"");
        assert_eq!(one.applied_to("1 a 2").unwrap(), "1 b 2");
        for (source, times) in [("a a", 2), ("b", 0)] {
            let error = one.applied_to(source).unwrap_err().to_string();
            assert_eq!(error, format!("`find` must match once, but matches {times} times: a"));
        }
        let two = "edits = [{ find = \"a\", replace = \"b\" }, { find = \"b\", replace = \"c\" }]";
        assert_eq!(change(two).applied_to("a").unwrap(), "c");
    }

    #[test]
    fn an_incomplete_entry_is_an_error() {
        for (text, missing) in [
            ("[[mistake]]\nname = \"x\"\nfind = \"a\"\nreplace = \"b\"", "`diagnosis`"),
            ("[[variant]]\nname = \"x\"\nfind = \"a\"", "`find` and `replace`, or `edits`"),
        ] {
            let error = toml::from_str::<Mistakes>(text).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }
}
