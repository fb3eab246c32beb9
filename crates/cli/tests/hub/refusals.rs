//! Tests of failures that the book's page of error messages doesn't show: unusual addresses and
//! redirects, proxies, a full disk.

use crate::{command, failed, fetch, fetch_with, text, WEIGHTS};
use candecode_remote::test_servers::hub::{story, Fault, Home, Hub, Large, COMMIT, REPO};

#[test]
fn redirects_that_lead_nowhere_are_reported() {
    for (location, says) in [
        ("location: /some/name/resolve/main/config.json", "its redirects never end"),
        ("location: ftp://127.0.0.1/config.json", "Header location is invalid"),
    ] {
        let hub = Hub::serve(story(), Large::Here);
        hub.break_next("HEAD", "config.json", usize::MAX, Fault::Status(302, location));
        failed(&fetch(&Home::new("nowhere"), &hub), &[says]);
    }
}

#[test]
fn an_address_that_is_not_one_is_reported() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("address"));
    for address in ["127.0.0.1:9", "'http://127.0.0.1'", "ftp://127.0.0.1", "http://a b"] {
        let says = format!("HF_ENDPOINT={address}: expected an address");
        failed(&fetch_with(&home, &hub, &[("HF_ENDPOINT", address)]), &[&says]);
    }
}

#[test]
fn a_host_without_an_address_is_named() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("unknown-host"));
    let output = fetch_with(&home, &hub, &[("HF_ENDPOINT", "http://candecode.invalid")]);
    failed(&output, &["no address was found for candecode.invalid"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("full"));
    let part = home.part("git-tokenizer.json");
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &part).unwrap(); // a device that is always full
    let says = ["could not fetch tokenizer.json: the disk is full", "set HF_HOME"];
    failed(&fetch(&home, &hub), &says);
    assert!(home.file("config.json").exists() && !home.file("tokenizer.json").exists());
    std::fs::remove_file(part).unwrap();
    text(&fetch(&home, &hub));
}

#[test]
fn a_configured_proxy_is_used_to_reach_the_hub() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("proxy"));
    for variable in ["HTTP_PROXY", "https_proxy", "ALL_PROXY"] {
        let _ = std::fs::remove_dir_all(&home.0);
        let mut fetch = command(REPO, &home, &hub, &["--where"]);
        fetch.env("HF_ENDPOINT", "http://hub.invalid").env(variable, &hub.address);
        text(&fetch.output().unwrap());
        let asked = hub.lines();
        assert_eq!(asked[0], "CONNECT hub.invalid:80", "{asked:?}");
        assert!(asked.contains(&format!("GET /{REPO}/resolve/{COMMIT}/{WEIGHTS}")), "{asked:?}");
    }
    let _ = std::fs::remove_dir_all(&home.0);
    let proxy = [("HTTP_PROXY", "http://127.0.0.1:9"), ("NO_PROXY", "127.0.0.1")];
    text(&fetch_with(&home, &hub, &proxy));
}
