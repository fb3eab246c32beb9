//! What a server says of itself.

/// A model that a server offers.
pub struct Server {
    /// The model's name on the server.
    pub model: String,
    /// The software that serves it, as the server reports it: `vllm`, `llamacpp`, …
    pub owned_by: String,
}
