//! Tests of how messages show text from files and clients.

use candecode_kit::error::{describe, quoted, shown};

#[test]
fn an_error_message_escapes_control_characters() {
    for (text, want) in [
        ("qwen2", "qwen2"),
        ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
        ("two\nlines\r\t\0", "two\\nlines\\r\\t\\0"),
        ("\u{9b}2J \u{7f}", "\\u{9b}2J \\u{7f}"), // C1 and DEL
        ("\u{202e}gnp.exe\u{2028}", "\\u{202e}gnp.exe\\u{2028}"), // text direction, line separator
        ("it's \"C:\\x\" e\u{301} 日 हि 🦙", "it's \"C:\\x\" e\u{301} 日 हि 🦙"),
    ] {
        assert_eq!(shown(text), want);
        assert_eq!(quoted(text), format!("\"{want}\""));
    }
}

#[test]
fn an_error_message_truncates_long_values() {
    assert_eq!(shown("é".repeat(200)), "é".repeat(200));
    assert_eq!(shown("é".repeat(1_000_000)), "é".repeat(200) + "…");
    let shape = shown(format_args!("{:?}", vec![1; 100_000]));
    assert!(shape.starts_with("[1, 1, ") && shape.chars().count() == 201);
    // Escapes are longer than the characters they replace, so the limit must apply to them as well.
    assert!(shown("\u{202e}".repeat(1_000_000)).len() < 2000);
}

#[test]
fn describe_escapes_control_characters() {
    let error = anyhow::anyhow!("a \u{1b}[2J of its own\nand a second line").context("\u{9d}file");
    assert_eq!(describe(&error), "\\u{9d}file: a \\u{1b}[2J of its own\nand a second line");
}
