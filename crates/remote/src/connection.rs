//! What all connections share: their settings, the certificates they trust, and why there is none.

use anyhow::{bail, Result};
use std::io;
use std::time::Duration;
use ureq::config::ConfigBuilder;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;
use ureq::{Agent, Error, Timeout};

/// How long to wait for a host's address, and for a connection to it.
const CONNECT: Duration = Duration::from_secs(15);

/// Returns the settings of a client that gives up after this much silence. It follows no redirects
/// and returns every response, whatever its status.
///
/// # Errors
/// If `SSL_CERT_FILE` or `SSL_CERT_DIR` names nothing that can be trusted.
pub fn settings(silence: Duration) -> Result<ConfigBuilder<AgentScope>> {
    Ok(Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_resolve(Some(silence.min(CONNECT)))
        .timeout_connect(Some(silence.min(CONNECT)))
        .timeout_recv_response(Some(silence))
        .timeout_per_read(Some(silence))
        .tls_config(TlsConfig::builder().root_certs(roots()?).build())
        .user_agent(concat!("candecode/", env!("CARGO_PKG_VERSION"))))
}

/// Returns the certificates to trust: those of `SSL_CERT_FILE` and `SSL_CERT_DIR`, as in OpenSSL,
/// or the system's, among which a company's own may be. A system without any gets Mozilla's.
fn roots() -> Result<RootCerts> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        for name in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
            if let Some(path) = std::env::var_os(name).filter(|path| !path.is_empty()) {
                let why = found.errors.first().map_or("it has none".into(), ToString::to_string);
                bail!("{name}={}: no certificates there ({why})", path.display());
            }
        }
        return Ok(RootCerts::WebPki);
    }
    Ok(found.certs.iter().map(|der| Certificate::from_der(der).to_owned()).into())
}

/// Returns true if a host of this name is this machine.
pub fn is_local(address: &Uri) -> bool {
    let host = address.host().unwrap_or_default().trim_matches(['[', ']']);
    let ip = host.parse::<std::net::IpAddr>();
    ip.map_or(host == "localhost" || host.ends_with(".localhost"), |ip| ip.is_loopback())
}

/// Why there is no connection, where that's certain and won't change by itself.
pub enum Reason {
    /// No address was found for the host's name.
    UnknownHost,
    /// The other side's certificate isn't trusted.
    Certificate,
    /// Nothing listens at that port.
    Refused,
}

/// Returns the reason for an error of a connection. None if another try might help.
pub fn reason(error: &Error) -> Option<Reason> {
    match error {
        Error::HostNotFound | Error::Timeout(Timeout::Resolve) => Some(Reason::UnknownHost),
        Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Some(Reason::Refused)
        }
        // The standard library has no kind for these.
        error => {
            let said = error.to_string();
            let says = |words| said.contains(words);
            if says("failed to lookup address information") {
                Some(Reason::UnknownHost)
            } else if says("invalid peer certificate") {
                Some(Reason::Certificate)
            } else {
                None
            }
        }
    }
}

/// Returns the host that a request to this address looks up: a proxy, if there is one.
pub fn looked_up(agent: &Agent, address: &Uri) -> String {
    let proxy = agent.config().proxy().filter(|proxy| !proxy.is_no_proxy(address));
    proxy.map_or(address.host().unwrap_or_default(), |proxy| proxy.host()).to_string()
}

/// Describes an error of a connection to `host`, and what to do: `otherwise`, if neither the name
/// nor the certificate is to blame.
pub fn explain(error: &Error, host: &str, otherwise: &str) -> String {
    let said = match error {
        Error::Io(error) => error.to_string(),
        other => other.to_string(),
    };
    match reason(error) {
        Some(Reason::UnknownHost) => {
            format!("(no address was found for {host}); is the name right, and is there a network?")
        }
        Some(Reason::Certificate) => format!(
            "({said}); if your organization signs certificates itself, set SSL_CERT_FILE to the \
             file with its own"
        ),
        _ => format!("({said}); {otherwise}"),
    }
}
