//! A small part of JSON Schema, for day 14's last challenge.

/// What a JSON text must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schema {
    /// A whole number, such as `-12`.
    Integer,
    /// A string with at most `max_length` characters, none of which needs an escape: no quotation
    /// mark, no backslash, and no character below U+0020.
    String {
        /// The maximum number of characters.
        max_length: usize,
    },
    /// One of these strings, none of which needs an escape.
    Enum(Vec<String>),
    /// A list.
    Array {
        /// What every item must be.
        items: Box<Schema>,
        /// The minimum number of items.
        min_items: usize,
        /// The maximum number of items, at least `min_items`.
        max_items: usize,
    },
    /// An object with exactly these properties in this order. No name needs an escape.
    Object(Vec<(String, Schema)>),
}
