//! Variables of the environment that Python's `huggingface_hub` obeys: where the cache and the
//! token are, and what is forbidden.

use anyhow::{Context as _, Result};
use std::path::PathBuf;

/// Returns the cache folder: `HF_HUB_CACHE` or `HUGGINGFACE_HUB_CACHE`, or else `hub` in `HF_HOME`,
/// or else `hub` in `~/.cache/huggingface`.
///
/// # Errors
/// If there is no home folder and no variable that names a cache.
pub fn folder() -> Result<PathBuf> {
    let hub = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
    let hub = hub.or_else(|| Some(home()?.join("hub")));
    hub.context("there is no home folder for the hub's cache; set HF_HOME")
}

/// Returns the token: `HF_TOKEN` or `HUGGING_FACE_HUB_TOKEN`, or the one that `hf auth login`
/// stored in `HF_TOKEN_PATH`, or else in `HF_HOME`. `HF_HUB_CACHE` doesn't move it. None if
/// [`forbids_token`] forbids it.
pub fn token() -> Option<String> {
    if forbids_token() {
        return None;
    }
    let plain = |token: String| {
        let token = token.replace(['\r', '\n'], "").trim().to_string();
        Some(token).filter(|token| !token.is_empty())
    };
    let named = |variable| std::env::var(variable).ok().and_then(plain);
    let stored = || {
        let file = path("HF_TOKEN_PATH").or_else(|| Some(home()?.join("token")))?;
        plain(std::fs::read_to_string(file).ok()?)
    };
    named("HF_TOKEN").or_else(|| named("HUGGING_FACE_HUB_TOKEN")).or_else(stored)
}

/// Returns true if `HF_HUB_DISABLE_IMPLICIT_TOKEN` forbids sending a token that the command itself
/// doesn't name. No flag names one, so that is every token.
pub fn forbids_token() -> bool {
    is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")
}

/// Returns the variable that forbids using the network, if any: `HF_HUB_OFFLINE`, or, if that isn't
/// set, `TRANSFORMERS_OFFLINE`.
pub fn forbids_network() -> Option<&'static str> {
    let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().find(set).filter(|name| is_on(name))
}

/// Returns true if a variable is set to anything but a word that means no.
pub fn is_on(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| {
        let value = value.to_string_lossy().trim().to_ascii_lowercase();
        !matches!(value.as_str(), "" | "0" | "false" | "no" | "off")
    })
}

/// Returns `HF_HOME`, or else `~/.cache/huggingface`.
fn home() -> Option<PathBuf> {
    let cache = || path("XDG_CACHE_HOME").or_else(|| Some(std::env::home_dir()?.join(".cache")));
    path("HF_HOME").or_else(|| Some(cache()?.join("huggingface")))
}

/// Returns the path in a variable, if it is set and not empty. As in Python, `~` at its start is
/// the home folder, and `$NAME` is another variable: not every shell or tool that sets variables
/// expands them.
fn path(variable: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty())?;
    let path = match value.to_str() {
        Some(text) => PathBuf::from(expanded(text, |name| std::env::var(name).ok())),
        None => PathBuf::from(value),
    };
    match path.strip_prefix("~") {
        Ok(rest) => Some(std::env::home_dir()?.join(rest)),
        Err(_) => Some(path),
    }
}

/// Replaces `$NAME` and `${NAME}` by the values of these variables. Unknown ones stay as they are.
fn expanded(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        let after = &rest[at + 1..];
        let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = after.find(|c| !letter(c)).unwrap_or(after.len());
        let (name, left) = braced.unwrap_or_else(|| after.split_at(end));
        done += &rest[..at];
        match value(name).filter(|_| !name.is_empty()) {
            Some(value) => done += &value,
            None => done += &rest[at..rest.len() - left.len()],
        }
        rest = left;
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::expanded;

    #[test]
    fn variables_in_a_path_are_expanded_as_in_python() {
        let value = |name: &str| match name {
            "HOME" => Some("/home/me".to_string()),
            "USER_1" => Some("me$HOME".to_string()),
            _ => None,
        };
        for (text, want) in [
            ("/plain", "/plain"),
            ("$HOME/hf", "/home/me/hf"),
            ("${HOME}hf/$USER_1", "/home/mehf/me$HOME"),
            ("$NOBODY/${NOBODY}/$", "$NOBODY/${NOBODY}/$"),
            ("a$$HOME${HOME", "a$/home/me${HOME"),
            ("é$HOMEé", "é/home/meé"),
        ] {
            assert_eq!(expanded(text, value), want, "{text}");
        }
    }
}
