//! Tests of transfers that break, are slow, arrive damaged, or come from another host.

use crate::{
    command, failed, fetch, fetch_with, get, local, ranges, run, text, weights, write, WEIGHTS,
};
use candecode_remote::test_servers::hub::{sha256, story, Fault, Home, Hub, Large, COMMIT, REPO};
use candecode_remote::test_servers::loopback::NOWHERE;
use std::time::Duration;

#[test]
fn a_model_is_fetched_and_then_needs_no_network() {
    let (mut hub, home) = (Hub::serve(story(), Large::Here), Home::new("fetch"));
    let want = local(&home, &hub);
    assert!(hub.lines().is_empty(), "a folder asks nobody");
    let output = run(REPO, &home, &hub);
    assert_eq!(text(&output), want);
    let said = String::from_utf8(output.stderr).unwrap();
    let kilobytes = weights().len() as f64 / 1e3;
    assert!(said.contains(&format!("fetching {WEIGHTS} ({kilobytes:.1} kB)")), "{said}");
    let asked = hub.lines();
    for file in ["config.json", "tokenizer.json", "generation_config.json", WEIGHTS] {
        let times = asked.iter().filter(|line| **line == get(file)).count();
        assert_eq!(times, 1, "{file}: {asked:?}");
    }
    assert!(!asked.iter().any(|line| line.contains("index.json")), "{asked:?}");
    assert_eq!(text(&run(REPO, &home, &hub)), want);
    assert!(hub.lines().is_empty(), "nothing is asked of a model that is there");
    hub.address = NOWHERE.into();
    assert_eq!(text(&run(REPO, &home, &hub)), want, "from the cache, nobody listening");
    assert_eq!(text(&write(command(REPO, &home, &hub, &["--offline"]))), want);
}

#[test]
fn a_broken_download_resumes_where_it_stopped() {
    let hub = Hub::serve(story(), Large::Here)
        .fault("GET", WEIGHTS, 1, Fault::Cut(100_000))
        .fault("GET", WEIGHTS, 1, Fault::Cut(0))
        .fault("GET", WEIGHTS, 1, Fault::Cut(50_000));
    let home = Home::new("broken");
    assert_eq!(text(&run(REPO, &home, &hub)), local(&home, &hub));
    assert_eq!(ranges(&hub, WEIGHTS), [0, 100_000, 100_000, 150_000]);
}

#[test]
fn the_next_run_resumes_an_abandoned_download() {
    let hub = Hub::serve(story(), Large::Here).fault("GET", WEIGHTS, 1, Fault::Cut(100_000)).fault(
        "GET",
        WEIGHTS,
        4,
        Fault::Status(503, "retry-after: 0"),
    );
    let home = Home::new("given-up");
    failed(
        &fetch(&home, &hub),
        &["the hub is busy or in trouble (503)", "what came so far is kept"],
    );
    let part = format!("{}.candecode.part", sha256(&weights()));
    assert!(home.blobs().contains(&(part, 100_000)), "{:?}", home.blobs());
    assert!(!home.file(WEIGHTS).exists(), "half of it is there to be loaded");
    let offline = command(REPO, &home, &hub, &["--offline", "-p", "Once"]).output().unwrap();
    failed(&offline, &["some/name is not in the cache", "--offline or HF_HUB_OFFLINE is set"]);
    hub.asked();
    assert_eq!(text(&run(REPO, &home, &hub)), local(&home, &hub));
    assert_eq!(ranges(&hub, WEIGHTS), [100_000]);
}

/// Only a broken connection leads to another request, not a silent one.
#[test]
fn a_stalled_server_times_out() {
    let stall = Fault::Stall(100_000, Duration::from_secs(60));
    let hub = Hub::serve(story(), Large::Here).fault("GET", WEIGHTS, 1, stall);
    let (home, patience) = (Home::new("slow"), [("HF_HUB_DOWNLOAD_TIMEOUT", "4")]);
    let says = ["nothing has arrived from http://127.0.0.1", "for 4 s", "what came so far is kept"];
    failed(&fetch_with(&home, &hub, &patience), &says);
    text(&fetch_with(&home, &hub, &patience));
    assert_eq!(ranges(&hub, WEIGHTS), [0, 100_000]);
}

#[test]
fn a_busy_or_failing_server_is_asked_again_when_it_says() {
    let hub = Hub::serve(story(), Large::Here)
        .fault("HEAD", "config.json", 2, Fault::Status(429, "retry-after: 2"))
        .fault("GET", "tokenizer.json", 1, Fault::Status(500, "x: y"))
        .fault("GET", WEIGHTS, 1, Fault::Status(502, "retry-after: soon"));
    let (home, began) = (Home::new("busy"), std::time::Instant::now());
    let output = run(REPO, &home, &hub);
    assert_eq!(text(&output), local(&home, &hub));
    assert!(began.elapsed().as_secs() >= 4);
    // Waits that are longer than usual are announced.
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors.matches("asks to wait 2 s").count(), 2, "{errors}");
}

#[test]
fn fetching_gives_up_on_a_server_that_stays_busy_or_asks_for_long_patience() {
    for (headers, tries, says) in [
        ("retry-after: 0", 5, "(429); what came so far is kept"),
        ("retry-after: 61", 1, "(429); it asks to wait 61 s"),
    ] {
        let busy = Fault::Status(429, headers);
        let hub = Hub::serve(story(), Large::Here).fault("HEAD", "config.json", 9, busy);
        failed(&fetch(&Home::new("stays-busy"), &hub), &["could not fetch config.json", says]);
        assert_eq!(hub.lines().len(), tries, "tries");
    }
}

#[test]
fn a_complete_part_is_not_fetched_again() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("complete-part"));
    let part = home.part(&sha256(&weights()));
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::fs::write(&part, weights()).unwrap();
    assert_eq!(text(&run(REPO, &home, &hub)), local(&home, &hub));
    assert!(ranges(&hub, WEIGHTS).is_empty());
    assert!(!part.exists());
}

/// Caching proxies and mirrors ignore ranges, leave out lengths, mark `ETag`s as weak, and redirect
/// to full addresses. Python's `huggingface_hub` downloads from all of them.
#[test]
fn a_model_comes_through_mirrors_and_caches() {
    for (method, fault) in [
        ("GET", Some(Fault::NoRanges)),
        ("HEAD", Some(Fault::NoLength)),
        ("HEAD", Some(Fault::WeakTag)),
        ("HEAD", None),
    ] {
        let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("mirror"));
        hub.break_next("GET", WEIGHTS, 1, Fault::Cut(100_000));
        for file in ["config.json", "tokenizer.json", "generation_config.json", WEIGHTS] {
            let to = format!("location: {}/{REPO}/resolve/{COMMIT}/{file}", hub.address).leak();
            hub.break_next(method, file, 1, fault.unwrap_or(Fault::Status(301, to)));
        }
        let output = run(REPO, &home, &hub);
        assert_eq!(text(&output), local(&home, &hub));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("damaged"), "{said}");
        let asked = hub.asked();
        let plain = |headers: &str| headers.contains("accept-encoding: identity");
        assert!(asked.iter().all(|asked| plain(&asked.headers)), "{asked:?}");
    }
}

#[test]
fn a_damaged_download_is_retried_once() {
    for (fault, says) in
        [(Fault::OtherBytes, "its sha256 is"), (Fault::OtherLength, "bytes long, and should be")]
    {
        let hub = Hub::serve(story(), Large::Here).fault("GET", WEIGHTS, 1, fault);
        let home = Home::new("damaged-once");
        let output = run(REPO, &home, &hub);
        assert_eq!(text(&output), local(&home, &hub));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(says) && said.contains("fetching it again"), "{said}");
        assert_eq!(ranges(&hub, WEIGHTS), [0, 0], "from its beginning");

        let hub = Hub::serve(story(), Large::Here).fault("GET", WEIGHTS, 9, fault);
        let home = Home::new("damaged-twice");
        failed(&fetch(&home, &hub), &["it came damaged twice", says]);
        assert_eq!(ranges(&hub, WEIGHTS).len(), 2);
        let left = home.blobs();
        assert!(left.iter().all(|(name, _)| name.starts_with("git-")), "{left:?}");
        assert!(!home.file(WEIGHTS).exists());
    }
}
