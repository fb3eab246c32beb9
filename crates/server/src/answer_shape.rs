//! Options that change the form of an answer, such as `echo`, and details of OpenAI's answers that `Reply` leaves out.

use crate::openai::{sse, ApiRequest, ChoiceDelta, Endpoint, Reply};
use candecode::day20_serve::Piece;
use candecode::engine::Engine;
use candecode::kit::FinishReason;
use serde_json::{json, Value};
use std::sync::Arc;

/// Turns the answer to one request into what its client asked for.
pub struct AnswerShape {
    engine: Arc<Engine>,
    chat: bool,
    /// Whether the client asked for log-probabilities.
    logprobs: bool,
    /// Text to put before each choice: its prompt, with `echo`.
    echoes: Vec<String>,
    /// Set with `include_stop_str_in_output`.
    stops: Option<Stops>,
    /// Prompt tokens of each choice, with `continuous_usage_stats`.
    prompt_tokens: Option<Vec<usize>>,
}

/// The stop strings of a request, and the last bytes of each choice.
struct Stops {
    /// The client's own, which stay in the text.
    own: Vec<String>,
    /// The template's, which don't.
    others: Vec<String>,
    /// The last bytes of each choice: enough for the longest stop string and a token.
    ends: Vec<Vec<u8>>,
}

impl AnswerShape {
    /// Creates the shape of an answer to prompts with these token counts. `echoes` holds the prompts'
    /// texts, and is empty without `echo`. `template_stops` are the stop strings of a chat's template.
    pub fn new(
        engine: Arc<Engine>,
        request: &ApiRequest,
        prompt_tokens: &[usize],
        echoes: &[String],
        template_stops: &[String],
    ) -> Self {
        let n = request.n;
        let choices = prompt_tokens.len() * n;
        let stops = request.extras.include_stop.then(|| Stops {
            own: request.params.stop.clone(),
            others: template_stops.to_vec(),
            ends: vec![Vec::new(); choices],
        });
        let of_choices = (0..choices).map(|i| prompt_tokens[i / n]).collect();
        Self {
            engine,
            chat: request.endpoint == Endpoint::Chat,
            logprobs: request.logprobs.is_some(),
            echoes: (0..choices).map(|i| echoes.get(i / n).cloned().unwrap_or_default()).collect(),
            stops,
            prompt_tokens: request.extras.continuous_usage.then_some(of_choices),
        }
    }

    /// Spells a piece. Adds the echo to a choice's first, and the stop string to its last.
    pub fn spell(&mut self, piece: Piece) -> ChoiceDelta {
        let id = piece.token.id;
        let mut delta = ChoiceDelta::new(piece, self.engine.tokenizer(), self.logprobs);
        let echo = self.echoes.get_mut(delta.index).map(std::mem::take).unwrap_or_default();
        if !echo.is_empty() {
            delta.text.insert_str(0, &echo);
        }
        if let Some(stops) = &mut self.stops {
            let matched = stops.push(delta.index, &self.engine.tokenizer().token_bytes(id));
            if delta.finish == Some(FinishReason::Stop) {
                delta.text.push_str(matched.unwrap_or_default());
            }
        }
        delta
    }

    /// Returns the events for a piece that has been spelled.
    pub fn events(&self, reply: &mut Reply, delta: &ChoiceDelta) -> String {
        let mut text = String::new();
        for chunk in reply.chunks(delta) {
            for mut chunk in self.parts(chunk) {
                if let Some(prompt_tokens) = &self.prompt_tokens {
                    let (prompt, new) = (prompt_tokens[delta.index], delta.tokens);
                    chunk["usage"] = json!({
                        "prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new,
                    });
                }
                text += &sse(&chunk);
            }
        }
        escaped(&text)
    }

    /// Splits an event that both has text and ends its choice. Some clients ignore text in the event with the
    /// `finish_reason`, because OpenAI's has none.
    fn parts(&self, mut chunk: Value) -> Vec<Value> {
        let choice = &mut chunk["choices"][0];
        self.complete(choice);
        let has_text = match self.chat {
            true => choice["delta"]["content"].is_string(),
            false => choice["text"] != "",
        };
        if !has_text || choice["finish_reason"].is_null() {
            return vec![chunk];
        }
        let mut last = chunk.clone();
        chunk["choices"][0]["finish_reason"] = Value::Null;
        last["choices"][0]["logprobs"] = Value::Null;
        match self.chat {
            true => last["choices"][0]["delta"] = json!({}),
            false => last["choices"][0]["text"] = json!(""),
        }
        vec![chunk, last]
    }

    /// The whole answer.
    pub fn whole(&self, reply: &mut Reply) -> String {
        let mut answer = reply.whole();
        for choice in answer["choices"].as_array_mut().into_iter().flatten() {
            self.complete(choice);
            if self.chat {
                choice["message"]["refusal"] = Value::Null;
            }
        }
        escaped(&answer.to_string())
    }

    /// Adds the fields of a choice that OpenAI's specification requires.
    fn complete(&self, choice: &mut Value) {
        if self.chat && choice["logprobs"].is_object() {
            choice["logprobs"]["refusal"] = Value::Null;
        }
    }
}

impl Stops {
    /// Appends a token's bytes to a choice. Returns the client's stop string that it completes, unless a template's starts earlier.
    fn push(&mut self, index: usize, bytes: &[u8]) -> Option<&str> {
        let end = self.ends.get_mut(index)?;
        end.extend(bytes);
        let longest = self.own.iter().chain(&self.others).map(String::len).max().unwrap_or(0);
        let too_many = end.len().saturating_sub(longest + bytes.len());
        end.drain(..too_many);
        let before = end.len() - bytes.len();
        let begins = |stop: &String| {
            let all = end.windows(stop.len().max(1)).enumerate();
            let complete_now = |at: usize| at + stop.len() > before;
            all.filter(|(at, found)| complete_now(*at) && *found == stop.as_bytes())
                .map(|(at, _)| at)
                .next()
        };
        let first = self
            .own
            .iter()
            .filter_map(|stop| Some((begins(stop)?, stop)))
            .min_by_key(|(at, _)| *at)?;
        let earlier = self.others.iter().filter_map(begins).any(|at| at < first.0);
        (!earlier).then_some(first.1.as_str())
    }
}

/// Escapes Unicode's line separators in JSON: some clients split a stream's lines at them.
fn escaped(json: &str) -> String {
    json.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029").replace('\u{85}', "\\u0085")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(own: &[&str], others: &[&str]) -> Stops {
        let texts = |all: &[&str]| all.iter().map(|text| text.to_string()).collect();
        Stops { own: texts(own), others: texts(others), ends: vec![Vec::new(); 2] }
    }

    #[test]
    fn the_stop_string_that_begins_first_is_found() {
        let mut one = stops(&["END", "ND!", "D"], &[]);
        for text in ["The E", "N"] {
            assert_eq!(one.push(0, text.as_bytes()), None);
        }
        assert_eq!(one.push(1, "xx".as_bytes()), None); // another choice
        assert_eq!(one.push(0, "D! It".as_bytes()), Some("END"));
        // The template's begins before the client's, and ended the text.
        let mut two = stops(&["b"], &["\na"]);
        assert_eq!(two.push(0, "x\n".as_bytes()), None);
        assert_eq!(two.push(0, "ab".as_bytes()), None);
        // Half a character in each token.
        let mut three = stops(&["é"], &[]);
        assert_eq!(three.push(0, &[0xc3]), None);
        assert_eq!(three.push(0, &[0xa9]), Some("é"));
    }

    #[test]
    fn json_has_no_line_separators() {
        let text = escaped(&json!({"text": "a\u{2028}b\u{2029}c\u{85}d"}).to_string());
        assert_eq!(text, r#"{"text":"a\u2028b\u2029c\u0085d"}"#);
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["text"], "a\u{2028}b\u{2029}c\u{85}d");
    }
}
