//! Tests of the protocol.

mod protocol_answers;
mod protocol_requests;
mod request_fields;

/// Asserts that `got` is `want`, for this input.
#[track_caller]
fn equal<T: std::fmt::Debug + PartialEq>(input: &str, got: T, want: &T) {
    assert_eq!(&got, want, "{input}");
}
