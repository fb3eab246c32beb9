//! Tests of a folder's configuration, which two files hold.

use candecode_testing::{least_config, refused, Folder};
use serde_json::json;

#[test]
fn generation_config_eos_ids_take_precedence() {
    let folder = Folder::new("eos");
    let mut config = least_config("llama");
    config["eos_token_id"] = json!(3);
    folder.write("config.json", config.to_string());
    let eos = || candecode_formats::read_config(&folder.0).map(|config| config.eos_token_ids);
    assert_eq!(eos().unwrap(), [3]);
    folder.write("generation_config.json", r#"{"eos_token_id": [7, 8]}"#);
    assert_eq!(eos().unwrap(), [7, 8]);
    folder.write("generation_config.json", r#"{"eos_token_id": null}"#);
    assert_eq!(eos().unwrap(), [3]);
    folder.write("generation_config.json", r#"{"eos_token_id": "end"}"#);
    refused(eos(), &["generation_config.json", "eos_token_id is \"end\""]);
    folder.write("generation_config.json", "{");
    refused(eos(), &["generation_config.json"]);
}
