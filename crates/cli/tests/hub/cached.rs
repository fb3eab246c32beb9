//! Tests of the cache's contents: complete, half-written, shared with another process, and listed.

use crate::{command, failed, fetch, fetch_with, get, local, ranges, run, text, weights, WEIGHTS};
use candecode_remote::test_servers::hub::{story, Fault, Home, Hub, Large, COMMIT, REPO};
use candecode_remote::test_servers::loopback::NOWHERE;
use candecode_testing::{sharded, Folder};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn a_second_process_waits_and_does_not_fetch_again() {
    let hub = Hub::serve(story(), Large::Here).fault("GET", WEIGHTS, 1, Fault::Hold(100_000));
    let home = Home::new("two");
    let start = || {
        let mut run = command(REPO, &home, &hub, &["--where"]);
        run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let first = start();
    while !home.blobs().iter().any(|(_, length)| *length == 100_000) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut second = start();
    let mut said = BufReader::new(second.stderr.take().unwrap()).lines();
    let line = said.next().unwrap().unwrap();
    assert_eq!(line, "waiting: another process is fetching some/name");
    hub.release();
    let (first, second) = (first.wait_with_output().unwrap(), second.wait_with_output().unwrap());
    assert_eq!(text(&first), text(&second), "the same folder");
    assert_eq!(ranges(&hub, WEIGHTS), [0], "fetched once");
    assert_eq!(text(&run(REPO, &home, &hub)), local(&home, &hub));
}

/// The tests of a program run side by side, and several may choose the same name.
#[test]
fn two_folders_of_one_name_are_two() {
    let (caches, folders) =
        ([(); 2].map(|()| Home::new("twice")), [(); 2].map(|()| Folder::new("twice")));
    assert!(caches[0].0 != caches[1].0 && folders[0].0 != folders[1].0);
}

/// Damages a cached model with `harm`, and checks that it is repaired by fetching exactly
/// `fetched`.
#[track_caller]
fn mended(test: &str, harm: impl FnOnce(&Home), offline: &[&str], fetched: &[&str]) {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new(test));
    text(&fetch(&home, &hub));
    hub.asked();
    harm(&home);
    if !offline.is_empty() {
        failed(&command(REPO, &home, &hub, &["--offline", "--where"]).output().unwrap(), offline);
    }
    assert_eq!(text(&run(REPO, &home, &hub)), local(&home, &hub));
    let asked: Vec<_> = hub.lines().into_iter().filter(|line| line.starts_with("GET")).collect();
    assert_eq!(asked, fetched.iter().map(|file| get(file)).collect::<Vec<_>>());
}

fn truncate(file: &Path, len: u64) {
    std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(len).unwrap();
}

#[test]
fn a_half_written_cache_is_repaired() {
    let cut = ["some/name is not whole in the cache", "model.safetensors is missing or cut short"];
    mended("cut", |home| truncate(&home.file(WEIGHTS), 100_000), &cut, &[WEIGHTS]);
    mended("cut-header", |home| truncate(&home.file(WEIGHTS), 4), &cut, &[WEIGHTS]);
    let empty = ["tokenizer.json is missing or cut short", "fetch it once without"];
    mended("empty", |home| truncate(&home.file("tokenizer.json"), 0), &empty, &["tokenizer.json"]);
    let json = |home: &Home| truncate(&home.file("tokenizer.json"), 1000);
    mended("cut-json", json, &empty, &["tokenizer.json"]);
    let blob = |home: &Home| std::fs::canonicalize(home.file(WEIGHTS)).unwrap();
    mended("no-blob", |home| std::fs::remove_file(blob(home)).unwrap(), &cut, &[WEIGHTS]);
    // Only the link is lost. The blob has the hash that its name says, so it's used.
    let unlink = |home: &Home| std::fs::remove_file(home.file(WEIGHTS)).unwrap();
    mended("no-link", unlink, &cut, &[]);
    // Interrupted before the download was marked as complete.
    let unsaid = |home: &Home| std::fs::remove_file(home.repo().join("refs/main")).unwrap();
    mended("no-ref", unsaid, &["some/name is not in the cache"], &[]);
    let empty = |home: &Home| std::fs::write(home.repo().join("refs/main"), "").unwrap();
    mended("empty-ref", empty, &["some/name is not in the cache"], &[]);
}

/// A cache that was copied from another machine may have links to nowhere in place of any file.
#[cfg(unix)]
#[test]
fn links_that_lead_nowhere_are_replaced() {
    let dead = |file: &Path| {
        let _ = std::fs::remove_file(file);
        std::os::unix::fs::symlink("/elsewhere/blobs/abc", file).unwrap();
    };
    let lost = ["tokenizer.json is missing or cut short"];
    let tokenizer = |home: &Home| dead(&home.file("tokenizer.json"));
    mended("dead-link", tokenizer, &lost, &["tokenizer.json"]);
    let optional = |home: &Home| dead(&home.file("generation_config.json"));
    mended("dead-optional", optional, &[], &["generation_config.json"]);
    mended("dead-weights", |home| dead(&home.file(WEIGHTS)), &[], &[]);
    let blob = |home: &Home| dead(&std::fs::canonicalize(home.file("tokenizer.json")).unwrap());
    mended("dead-blob", blob, &lost, &["tokenizer.json"]);
    mended("dead-ref", |home| dead(&home.repo().join("refs/main")), &[], &[]);
    let part = |home: &Home| {
        tokenizer(home);
        dead(&home.part("git-tokenizer.json"));
    };
    mended("dead-part", part, &lost, &["tokenizer.json"]);
    let absent = |home: &Home| {
        let absent = home.repo().join(".no_exist").join(COMMIT).join("chat_template.jinja");
        dead(&absent);
    };
    mended("dead-absent", absent, &[], &[]);
    let circle = |home: &Home| {
        let file = home.file("tokenizer.json");
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("tokenizer.json", file).unwrap();
    };
    mended("link-to-itself", circle, &lost, &["tokenizer.json"]);
}

#[test]
fn a_corrupted_blob_whose_link_is_lost_is_fetched_again() {
    let harm = |home: &Home| {
        let blob = std::fs::canonicalize(home.file(WEIGHTS)).unwrap();
        let mut bytes = weights();
        bytes[200_000] ^= 1;
        std::fs::write(blob, bytes).unwrap();
        std::fs::remove_file(home.file(WEIGHTS)).unwrap();
    };
    mended("other-bytes", harm, &[], &[WEIGHTS]);
}

#[test]
fn an_oversized_partial_download_is_discarded() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("long-part"));
    let part = home.part("git-config.json");
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::fs::write(&part, [b' '; 9999]).unwrap();
    let output = run(REPO, &home, &hub);
    assert_eq!(text(&output), local(&home, &hub));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("config.json came damaged (more is on disk than it is long"), "{said}");
}

#[test]
fn a_sharded_model_is_fetched_shard_by_shard() {
    let (served, home) = (Folder::new("shards-served"), Home::new("shards"));
    sharded(&served, 3);
    let hub = Hub::serve(&served.0, Large::Elsewhere);
    assert_eq!(text(&run(REPO, &home, &hub)), local(&home, &hub));
    hub.asked();
    assert_eq!(text(&run(REPO, &home, &hub)), local(&home, &hub));
    assert!(hub.lines().is_empty());
    std::fs::remove_file(home.file("model-00002-of-00003.safetensors")).unwrap();
    let offline = command(REPO, &home, &hub, &["--offline", "--where"]).output().unwrap();
    failed(&offline, &["not whole in the cache: model-00002-of-00003.safetensors is missing"]);
    std::fs::remove_file(served.0.join("model-00002-of-00003.safetensors")).unwrap();
    failed(
        &fetch(&Home::new("no-shard"), &hub),
        &["could not fetch model-00002-of-00003.safetensors"],
    );
}

/// A cache filled by another program may lack files that affect the text. They are fetched if there
/// is a network.
#[test]
fn files_that_another_program_did_not_cache_are_fetched() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("others"));
    let want = text(&run(REPO, &home, &hub));
    std::fs::remove_file(home.file("generation_config.json")).unwrap();
    hub.asked();
    assert_eq!(text(&run(REPO, &home, &hub)), want);
    assert!(home.file("generation_config.json").exists());
    assert!(!hub.lines().iter().any(|line| line.contains(WEIGHTS)));
}

/// If only optional files are missing, the model loads, whatever keeps them away.
#[test]
fn a_model_loads_without_unavailable_optional_files() {
    let (mut hub, home) = (Hub::serve(story(), Large::Here), Home::new("optional"));
    let want = text(&run(REPO, &home, &hub));
    std::fs::remove_file(home.file("generation_config.json")).unwrap();
    let runs_though = |hub: &Hub, why: &str| {
        let output = run(REPO, &home, hub);
        assert_eq!(text(&output), want);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("using only the cache") && said.contains(why), "{said}");
    };
    hub.break_next("HEAD", "generation_config.json", 1, Fault::Login);
    runs_though(&hub, "is there no login page in between?");
    let endless = Fault::Status(302, "location: /some/name/resolve/main/generation_config.json");
    hub.break_next("HEAD", "generation_config.json", usize::MAX, endless);
    runs_though(&hub, "its redirects never end");
    // Like a read-only cache: no lock can be made.
    let locks = home.0.join("hub/.locks");
    std::fs::remove_dir_all(&locks).unwrap();
    std::fs::write(&locks, "a file in the way").unwrap();
    runs_though(&hub, "could not be written to");
    std::fs::remove_file(&locks).unwrap();
    hub.address = NOWHERE.into();
    let why = "some/name: could not fetch generation_config.json: http://127.0.0.1";
    runs_though(&hub, why);
}

#[test]
fn environment_variables_move_the_cache() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("elsewhere-cache"));
    let place = |name: &str| home.0.join(name).to_str().unwrap().to_string();
    let (there, user) = (place("another"), place("user"));
    for (variables, cache) in [
        ([("HF_HUB_CACHE", &*there), ("HUGGINGFACE_HUB_CACHE", "/nowhere")], "another"),
        ([("HUGGINGFACE_HUB_CACHE", &*there), ("HF_HUB_CACHE", "")], "another"),
        ([("HF_HOME", "$HERE/hf"), ("HERE", &*there)], "another/hf/hub"),
        ([("HF_HOME", ""), ("XDG_CACHE_HOME", &*user)], "user/huggingface/hub"),
        ([("HF_HOME", "~/moved"), ("HOME", &*user)], "user/moved/hub"),
    ] {
        let dir = text(&fetch_with(&home, &hub, &variables));
        let want = home.0.join(cache).join("models--some--name/snapshots").join(COMMIT);
        assert_eq!(Path::new(dir.trim()), want);
    }
}

#[test]
fn cached_models_are_listed_with_their_sizes() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("list"));
    let list = || text(&command(REPO, &home, &hub, &["--models"]).output().unwrap());
    let before = list();
    for line in ["story-3m", "story-230k", "story-gpt2-1m", "nothing yet"] {
        assert!(before.contains(line), "{before}");
    }
    text(&fetch(&home, &hub));
    let line = |text: &str| {
        text.lines().find(|line| line.contains("some/name")).unwrap().trim().to_string()
    };
    let words: Vec<String> = line(&list()).split_whitespace().map(String::from).collect();
    let files = std::fs::read_dir(story()).unwrap();
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(words, ["some/name", &format!("{:.1}", bytes as f64 / 1e3), "kB"]);
    std::fs::remove_file(home.file("tokenizer.json")).unwrap();
    assert!(line(&list()).ends_with("not whole: no tokenizer.json"));
    std::fs::remove_dir_all(&home.0).unwrap();
    hub.break_next("GET", WEIGHTS, 1, Fault::Cut(400_000));
    hub.break_next("GET", WEIGHTS, 9, Fault::Status(503, "retry-after: 0"));
    failed(&fetch(&home, &hub), &["try again later"]);
    let (list, says) = (list(), "not whole: a download was broken off; 400.0 kB of it on the way");
    assert!(line(&list).ends_with(says), "{list}");
}

/// As in Python, `TRANSFORMERS_OFFLINE` counts only if `HF_HUB_OFFLINE` isn't set.
#[test]
fn environment_variables_forbid_the_network() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("offline"));
    let variables = |hub, other| [("HF_HUB_OFFLINE", hub), ("TRANSFORMERS_OFFLINE", other)];
    failed(&fetch_with(&home, &hub, &variables("1", "0")), &["HF_HUB_OFFLINE is set"]);
    failed(&fetch_with(&home, &hub, &variables("", "1")), &["TRANSFORMERS_OFFLINE is set"]);
    assert!(hub.lines().is_empty());
    text(&fetch_with(&home, &hub, &variables("0", "1")));
}
