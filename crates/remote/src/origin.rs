//! Where a request goes: the scheme, host and port of an address, and the address that a redirect
//! leads to.

use ureq::http::{HeaderMap, Uri};

/// Maximum number of redirects per request.
pub const REDIRECTS: usize = 10;

/// A redirect to an address that can't be read.
pub struct InvalidLocation;

/// Returns the address that a response redirects to. None if it isn't a redirect.
pub fn redirect(
    base: &Uri,
    status: u16,
    headers: &HeaderMap,
) -> Result<Option<Uri>, InvalidLocation> {
    match headers.get("location").filter(|_| matches!(status, 301 | 302 | 303 | 307 | 308)) {
        None => Ok(None),
        Some(location) => {
            let next = location.to_str().ok().and_then(|location| resolve(base, location));
            next.map(Some).ok_or(InvalidLocation)
        }
    }
}

/// Scheme, host and port. Secrets go only where all three are equal.
#[derive(PartialEq)]
pub struct Origin(String, String, u16);

impl Origin {
    /// Returns the origin of an address. None if the address isn't complete, or its scheme isn't
    /// HTTP's.
    pub fn of(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let usual = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let host = uri.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
        Some(Self(scheme, host, uri.port_u16().unwrap_or(usual)))
    }
}

/// Returns the address that a `Location` header leads to from `base`: a whole address, or one
/// relative to `base` (RFC 3986, section 4.2). None if it is invalid.
fn resolve(base: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default().trim();
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    let before_path = location.split(['/', '?']).next().unwrap_or_default();
    let whole = if before_path.contains(':') {
        location.to_string()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else {
        let path = base.path();
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let target = match location.chars().next() {
            None => base.path_and_query()?.to_string(),
            Some('/') => without_dots(location),
            Some('?') => format!("{path}{location}"),
            Some(_) => without_dots(&format!("{folder}/{location}")),
        };
        format!("{scheme}://{authority}{target}")
    };
    let uri: Uri = whole.parse().ok()?;
    Origin::of(&uri).map(|_| uri)
}

/// Removes `.` and `..` from a path (RFC 3986, section 5.2.4), and leaves its query as it is.
fn without_dots(target: &str) -> String {
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').skip(1) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    if path.ends_with("/.") || path.ends_with("/..") {
        parts.push("");
    }
    format!("/{}{query}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(address: &str) -> Option<Origin> {
        Origin::of(&address.parse().unwrap())
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let hub = || origin("https://huggingface.co/a/b");
        assert!(hub().is_some());
        for same in ["https://huggingface.co", "HTTPS://HuggingFace.co:443/other?x"] {
            assert!(origin(same) == hub(), "{same}");
        }
        for other in [
            "http://huggingface.co",
            "http://huggingface.co:443",
            "https://huggingface.co:8443",
            "https://cdn.huggingface.co",
            "https://huggingface.co.example.com",
            "https://huggingface.co@example.com",
            "https://huggingface.com",
        ] {
            assert!(origin(other).is_some() && origin(other) != hub(), "{other}");
        }
        assert!(origin("ftp://huggingface.co").is_none());
        assert!(origin("/a/b").is_none());
    }

    #[test]
    fn five_statuses_redirect() {
        let base: Uri = "http://hub/a".parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("location", "/b".parse().unwrap());
        let moved = |status| redirect(&base, status, &headers).ok().unwrap();
        let found: Vec<u16> = (200..600).filter(|status| moved(*status).is_some()).collect();
        assert_eq!(found, [301, 302, 303, 307, 308]);
        headers.insert("location", "ftp://cdn/b".parse().unwrap());
        assert!(redirect(&base, 302, &headers).is_err());
        assert!(redirect(&base, 302, &HeaderMap::new()).ok().unwrap().is_none());
    }

    #[test]
    fn a_location_is_whole_or_relative() {
        let base: Uri = "http://hub:8080/owner/name/file?x=1".parse().unwrap();
        for (location, want) in [
            ("https://cdn/file?sign=%2Fa#part", "https://cdn/file?sign=%2Fa"),
            ("//cdn:90/file", "http://cdn:90/file"),
            ("/cache/file?u=http://cdn/", "http://hub:8080/cache/file?u=http://cdn/"),
            ("other", "http://hub:8080/owner/name/other"),
            ("./other", "http://hub:8080/owner/name/other"),
            ("../other/file", "http://hub:8080/owner/other/file"),
            ("/../../a/./b/..", "http://hub:8080/a/"),
            ("?y=2", "http://hub:8080/owner/name/file?y=2"),
            ("", "http://hub:8080/owner/name/file?x=1"),
        ] {
            let found = resolve(&base, location).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), Some(want), "{location}");
        }
        for invalid in ["ftp://cdn/file", "file:///etc/passwd", "http://", "http://a b/", "http:x"]
        {
            assert_eq!(resolve(&base, invalid), None, "{invalid}");
        }
    }
}
