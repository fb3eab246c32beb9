//! Tests of transfers that break, are slow, arrive damaged, or come from another host.

use crate::{
    command, failed, fetch, fetch_with, get, local, ranges, run, text, weights, write, WEIGHTS,
};
use candecode_remote::test_servers::hub::{sha256, story, Fault, Home, Hub, Large, COMMIT, REPO};
use candecode_remote::test_servers::loopback::NOWHERE;
use candecode_testing::copy_of;
use std::process::Stdio;
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
fn only_files_a_model_needs_are_fetched() {
    let (dir, home) = (copy_of("story-230k", "more-served"), Home::new("more"));
    for more in ["pytorch_model.bin", "README.md", "onnx.bin", "model.safetensors.index.json"] {
        dir.write(more, "not needed");
    }
    let hub = Hub::serve(&dir.0, Large::Here);
    text(&fetch(&home, &hub));
    let files = std::fs::read_dir(home.file(WEIGHTS).parent().unwrap()).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    files.sort();
    let [config, more] = ["config.json", "generation_config.json"];
    assert_eq!(files, [config, more, WEIGHTS, "tokenizer.json", "tokenizer_config.json"]);
}

#[test]
fn a_renamed_repository_is_found() {
    let (hub, home) = (Hub::serve(story(), Large::Elsewhere), Home::new("renamed"));
    assert_eq!(text(&run("old/name", &home, &hub)), local(&home, &hub));
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

#[test]
fn a_killed_download_leaves_no_half_written_weights() {
    let stall = Fault::Stall(100_000, Duration::from_secs(60));
    let hub = Hub::serve(story(), Large::Here).fault("GET", WEIGHTS, 1, stall);
    let home = Home::new("killed");
    let mut child = command(REPO, &home, &hub, &["--where"]).stderr(Stdio::null()).spawn().unwrap();
    let part = format!("{}.candecode.part", sha256(&weights()));
    while !home.blobs().contains(&(part.clone(), 100_000)) {
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!home.file(WEIGHTS).exists());
    hub.asked();
    assert_eq!(text(&run(REPO, &home, &hub)), local(&home, &hub));
    assert_eq!(ranges(&hub, WEIGHTS), [100_000]);
}

/// Only a broken connection leads to another request, not a silent one.
#[test]
fn a_slow_server_is_tolerated_and_a_stalled_one_times_out() {
    let hub = Hub::serve(story(), Large::Here)
        .fault("GET", WEIGHTS, 1, Fault::Stall(100_000, Duration::from_secs(60)))
        .fault("GET", WEIGHTS, 1, Fault::Drip);
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
        .fault("HEAD", WEIGHTS, 1, Fault::Status(503, "retry-after: Wed, 21 Oct 2015 07:28:00 GMT"))
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
        ("retry-after: Wed, 21 Oct 2099 07:28:00 GMT", 1, "wait until Wed, 21 Oct 2099"),
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

/// How a mirror answers for a file of the hub: the faults by method.
type Manner<'a> = dyn Fn(&Hub, &str) -> Vec<(&'static str, Fault)> + 'a;

/// Caching proxies and mirrors ignore ranges, leave out lengths, mark `ETag`s as weak, and redirect
/// to full addresses. Python's `huggingface_hub` downloads from all of them.
#[test]
fn a_model_comes_through_mirrors_and_caches() {
    let whole = |method, fault| vec![(method, fault)];
    let moved = |code, hub: &Hub, file: &str| {
        let to = format!("location: {}/{REPO}/resolve/{COMMIT}/{file}", hub.address).leak();
        vec![("HEAD", Fault::Status(code, to)), ("GET", Fault::Status(code, to))]
    };
    let mirrors: [&Manner<'_>; 8] = [
        &|_, _| whole("GET", Fault::NoRanges),
        &|_, _| whole("GET", Fault::NoContentRange),
        &|_, _| whole("HEAD", Fault::NoLength),
        &|_, _| whole("HEAD", Fault::WeakTag),
        &|hub, file| moved(301, hub, file),
        &|hub, file| moved(302, hub, file),
        &|hub, file| moved(307, hub, file),
        &|hub, file| moved(308, hub, file),
    ];
    for (number, mirror) in mirrors.iter().enumerate() {
        let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("mirror"));
        hub.break_next("GET", WEIGHTS, 1, Fault::Cut(100_000));
        for file in ["config.json", "tokenizer.json", "generation_config.json", WEIGHTS] {
            for (method, fault) in mirror(&hub, file) {
                hub.break_next(method, file, 1, fault);
            }
        }
        let output = run(REPO, &home, &hub);
        assert_eq!(text(&output), local(&home, &hub), "mirror {number}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("damaged"), "mirror {number}: {said}");
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

#[test]
fn an_empty_file_counts_as_missing() {
    let dir = copy_of("story-230k", "empty-served");
    dir.write("chat_template.jinja", "");
    let (hub, home) = (Hub::serve(&dir.0, Large::Here), Home::new("empty"));
    text(&fetch(&home, &hub));
    assert!(!home.file("chat_template.jinja").exists());
    hub.asked();
    text(&fetch(&home, &hub));
    assert!(hub.lines().is_empty(), "nothing is asked of a model that is there");
}
