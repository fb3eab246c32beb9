//! Tests of a folder's tokenizer.

use candecode_testing::{refused, story, Folder};

#[test]
fn a_missing_or_invalid_tokenizer_is_refused() {
    let folder = Folder::new("no-tokenizer");
    refused(candecode_formats::read_tokenizer(&folder.0), &["no tokenizer.json"]);
    let whole = std::fs::read(story("story-230k").join("tokenizer.json")).unwrap();
    folder.write("tokenizer.json", &whole[..400]);
    refused(candecode_formats::read_tokenizer(&folder.0), &["tokenizer.json", "not a tokenizer"]);
}
