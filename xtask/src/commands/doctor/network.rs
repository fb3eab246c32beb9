//! Whether the hub can be reached, and what is in the way.

use super::Finding::{self, Bad, Good, Note};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::time::Duration;

/// A name server or a proxy that is silent for longer is in the way.
const PATIENCE: Duration = Duration::from_secs(4);

/// Where a proxy is asked for, in the order in which the downloads look.
const PROXIES: [&str; 6] =
    ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];

/// One or two lines; only a proxy that does not answer is bad, for it also stops cargo.
pub fn findings() -> Vec<Finding> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let hub = set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_string());
    let host = host(&hub, 443);
    let proxy = PROXIES.into_iter().find_map(|name| Some((name, set(name)?)));
    let round = ["NO_PROXY", "no_proxy"].into_iter().find_map(set);
    let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
    let spared = round.is_some_and(|list| spares(&list, name));
    let Some((variable, value)) = proxy.filter(|_| !spared) else {
        return vec![match reach(&host) {
            Ok(()) => Good(format!("the hub can be reached: {host}")),
            Err(why) => Note(format!(
                "the hub ({host}) cannot be reached: {why}. Only models that are not embedded need it"
            )),
        }];
    };
    let through = self::host(&value, 80);
    vec![match reach(&through) {
        Ok(()) => Note(format!("downloads go through a proxy, {through}, as {variable} says")),
        Err(why) => Bad(
            format!("{variable} names a proxy that does not answer, {through}: {why}; downloads will fail or hang"),
            format!("correct {variable}, or unset it; NO_PROXY={name} goes round it for the hub alone"),
        ),
    }]
}

/// Host and port of an address, `http://user:secret@proxy:3128/path`. What is secret in it is not shown.
fn host(url: &str, port: u16) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let port = if url.starts_with("socks") { 1080 } else { port };
    let rest = rest.split(['/', '?']).next().unwrap_or_default();
    let place = rest.rsplit('@').next().unwrap_or_default();
    let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port {
        place.to_string()
    } else {
        format!("{place}:{port}")
    }
}

/// Whether a list as in `NO_PROXY` has a host.
fn spares(list: &str, name: &str) -> bool {
    list.split(',').map(str::trim).any(|entry| {
        let entry = entry.trim_start_matches("*.").trim_start_matches('.');
        entry == "*"
            || (!entry.is_empty() && (name == entry || name.ends_with(&format!(".{entry}"))))
    })
}

/// Opens a connection and closes it. The name is looked up on a thread of its own: it may take minutes.
fn reach(host: &str) -> Result<(), String> {
    let (send, receive) = channel();
    let place = host.to_string();
    std::thread::spawn(move || {
        let attempt = || {
            let address = place.to_socket_addrs()?.next();
            let address =
                address.ok_or_else(|| std::io::Error::other("the name has no address"))?;
            TcpStream::connect_timeout(&address, PATIENCE).map(drop)
        };
        let _ = send.send(attempt().map_err(|e: std::io::Error| e.to_string()));
    });
    receive.recv_timeout(PATIENCE).unwrap_or_else(|_| Err("no answer".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_secrets_left_out() {
        assert_eq!(host("https://huggingface.co", 443), "huggingface.co:443");
        assert_eq!(host("http://me:secret@proxy.local:3128/x", 80), "proxy.local:3128");
        assert_eq!(host("socks5://proxy", 80), "proxy:1080");
        assert_eq!(host("proxy", 80), "proxy:80");
    }

    #[test]
    fn a_list_spares_a_host_and_what_is_below_it() {
        assert!(spares("localhost, .co", "huggingface.co") && spares("*", "x"));
        assert!(spares("huggingface.co", "cdn.huggingface.co"));
        assert!(!spares("face.co,", "huggingface.co"));
    }

    #[test]
    fn nobody_answers_on_a_closed_port() {
        assert!(reach("127.0.0.1:1").is_err());
    }
}
