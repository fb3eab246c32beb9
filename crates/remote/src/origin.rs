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

/// Returns the address that a `Location` header leads to from `base`: a whole address, or a path on
/// the same host. None if it is anything else.
fn resolve(base: &Uri, location: &str) -> Option<Uri> {
    let whole = if location.starts_with('/') {
        format!("{}://{}{location}", base.scheme_str()?, base.authority()?)
    } else {
        location.to_string()
    };
    let uri: Uri = whole.parse().ok()?;
    Origin::of(&uri).map(|_| uri)
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
    fn a_location_is_an_address_or_a_path() {
        let base: Uri = "http://hub:8080/owner/name/file?x=1".parse().unwrap();
        let found = |location| resolve(&base, location).map(|uri| uri.to_string());
        let cdn = "https://cdn/file?sign=%2Fa";
        assert_eq!(found(cdn).as_deref(), Some(cdn));
        let path = "/cache/file?u=http://cdn/";
        assert_eq!(found(path).as_deref(), Some("http://hub:8080/cache/file?u=http://cdn/"));
        for invalid in ["ftp://cdn/file", "file:///etc/passwd", "http://", "http://a b/", "http:x"]
        {
            assert_eq!(found(invalid), None, "{invalid}");
        }
    }
}
