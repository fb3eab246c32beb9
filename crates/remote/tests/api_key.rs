//! Tests that the key of `--endpoint` stays with the server. Run with
//! `cargo test --package candecode-remote --features test-servers`.

use candecode_kit::SamplingParams;
use candecode_remote::endpoint::{Client, Prompt, Request, Server, What};
use candecode_remote::test_servers::hub::{story, Fault, Hub, Large, REPO};

/// A server that redirects everything to another one never makes the client send its key there,
/// nor its prompt.
#[test]
fn a_redirect_to_another_server_goes_without_the_key() {
    let there = Hub::serve(story(), Large::Here);
    for code in [301, 302, 303, 307, 308] {
        for host in [there.address.clone(), there.address.replace("127.0.0.1", "localhost")] {
            let hub = Hub::serve(story(), Large::Here);
            let to = Fault::Status(code, format!("location: {host}/v1/models").leak());
            hub.break_next("GET", "v1/models", usize::MAX, to);
            hub.break_next("POST", "v1/completions", usize::MAX, to);
            let address = format!("{}/{REPO}/resolve/main", hub.address);
            let client = Client::new(&address, Some("sk-secret")).unwrap();
            let _ = client.models();
            let server = Server { model: "m".into(), owned_by: String::new() };
            let (params, prompt) = (SamplingParams::default(), Prompt::Text("a secret".into()));
            let what = What::Completion { prompt: &prompt, n: 1, with_ids: false };
            let request = Request { server: &server, params: &params, what };
            let answer: Vec<_> = client.ask(&request, || false).collect();
            assert!(answer.iter().any(|event| event.is_err()));
            let asked = hub.asked();
            assert_eq!(asked.len(), 2, "{asked:?}");
            assert!(asked.iter().all(|asked| asked.headers.contains("bearer sk-secret")));
        }
    }
    let asked = there.asked();
    assert!(!asked.is_empty());
    for asked in asked {
        assert!(
            asked.line.starts_with("GET ") && !asked.headers.contains("sk-secret"),
            "{asked:?}"
        );
    }
}
