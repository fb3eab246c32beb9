//! `Retry-After`: how long a busy server wants its clients to wait.

use std::time::{Duration, SystemTime};
use ureq::http::HeaderMap;

/// The longest wait that is obeyed, over all attempts of a request. If a server wants more, the
/// user decides.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How long to wait before the next try.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    time: Duration,
    /// As the server says it: `2 s`, or `until Wed, 21 Oct 2026 07:28:00 GMT`.
    pub said: String,
}

impl Wait {
    /// Reads the header (RFC 9110, section 10.2.3): seconds, or a date. None if there is none, or
    /// it's neither.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get("retry-after")?.to_str().ok()?.trim();
        if let Ok(date) = httpdate::parse_http_date(value) {
            let time = date.duration_since(SystemTime::now()).unwrap_or_default();
            return Some(Self { time, said: format!("until {}", httpdate::fmt_http_date(date)) });
        }
        let seconds: f64 = value.parse().ok()?;
        let time = Duration::try_from_secs_f64(seconds).ok()?;
        Some(Self { time, said: format!("{seconds} s") })
    }

    /// Returns the time to wait, unless it's too long.
    pub fn bounded(&self) -> Option<Duration> {
        Some(self.time).filter(|time| *time <= LONGEST_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(value: &str) -> Option<Wait> {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", value.parse().unwrap());
        Wait::of(&headers)
    }

    #[test]
    fn a_wait_is_seconds_or_a_date() {
        let seconds = |value| wait(value).map(|wait| (wait.said, wait.time.as_millis()));
        assert_eq!(seconds(" 2 "), Some(("2 s".into(), 2000)));
        assert_eq!(seconds("0.5"), Some(("0.5 s".into(), 500)));
        let past = "Wed, 21 Oct 2015 07:28:00 GMT";
        assert_eq!(seconds(past), Some((format!("until {past}"), 0)));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(30));
        let soon = wait(&soon).and_then(|wait| wait.bounded()).map(|time| time.as_secs());
        assert!(matches!(soon, Some(28..=30)), "{soon:?}");
        for none in ["", "soon", "-1", "NaN", "inf", "1e400"] {
            assert_eq!(wait(none), None, "{none}");
        }
        for long in ["61", "1e300", "Wed, 21 Oct 2099 07:28:00 GMT"] {
            assert!(wait(long).is_none_or(|wait| wait.bounded().is_none()), "{long}");
        }
    }
}
