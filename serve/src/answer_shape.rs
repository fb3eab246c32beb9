//! Options that change the form of an answer, such as `echo`, and details in which OpenAI's answers differ from day 20's.

use candecode::day20_serve::{sse, Piece, Reply, Spelled};
use candecode::kit::request_body::Extras;
use candecode::kit::FinishReason;
use serde_json::{json, Value};

/// Turns day 20's answer to one request into what its client asked for.
pub struct AnswerShape {
    chat: bool,
    /// Text to put before each choice: its prompt, with `echo`.
    echoes: Vec<String>,
    /// Set with `include_stop_str_in_output`.
    stops: Option<Stops>,
    /// The log-probabilities serve only to find stop strings; the client didn't ask for them.
    hide_logprobs: bool,
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
    /// Creates the shape of an answer to prompts with these token counts, `n` choices each. `echoes` holds the prompts'
    /// texts, and is empty without `echo`. `stops` are the client's stop strings, then the template's.
    pub fn new(
        chat: bool,
        extras: &Extras,
        prompt_tokens: &[usize],
        n: usize,
        echoes: &[String],
        stops: (&[String], &[String]),
        logprobs: bool,
    ) -> Self {
        let choices = prompt_tokens.len() * n;
        let stops = extras.include_stop.then(|| Stops {
            own: stops.0.to_vec(),
            others: stops.1.to_vec(),
            ends: vec![Vec::new(); choices],
        });
        let of_choices = (0..choices).map(|i| prompt_tokens[i / n]).collect();
        Self {
            chat,
            echoes: (0..choices).map(|i| echoes.get(i / n).cloned().unwrap_or_default()).collect(),
            hide_logprobs: stops.is_some() && !logprobs,
            stops,
            prompt_tokens: extras.continuous_usage.then_some(of_choices),
        }
    }

    /// Adds the echo to a choice's first piece, and the stop string to its last.
    pub fn amend(&mut self, mut piece: Piece) -> Piece {
        let echo = self.echoes.get_mut(piece.index).map(std::mem::take).unwrap_or_default();
        if !echo.is_empty() {
            piece.text.insert_str(0, &echo);
        }
        if let (Some(stops), Some(logprobs)) = (&mut self.stops, &piece.logprobs) {
            let matched = stops.push(piece.index, &logprobs.chosen);
            if piece.finish == Some(FinishReason::Stop) {
                piece.text.push_str(matched.unwrap_or_default());
            }
        }
        if self.hide_logprobs {
            piece.logprobs = None;
        }
        piece
    }

    /// Returns the events for an amended piece.
    pub fn events(&self, reply: &mut Reply, piece: &Piece) -> String {
        let mut text = String::new();
        for chunk in reply.chunks(piece) {
            for mut chunk in self.parts(chunk) {
                if let Some(prompt_tokens) = &self.prompt_tokens {
                    let (prompt, new) =
                        (prompt_tokens[piece.index], reply.choices[piece.index].tokens);
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
    /// Appends a token to a choice. Returns the client's stop string that it completes, unless a template's starts earlier.
    fn push(&mut self, index: usize, token: &Spelled) -> Option<&str> {
        let end = self.ends.get_mut(index)?;
        end.extend(&token.bytes);
        let longest = self.own.iter().chain(&self.others).map(String::len).max().unwrap_or(0);
        let too_many = end.len().saturating_sub(longest + token.bytes.len());
        end.drain(..too_many);
        let before = end.len() - token.bytes.len();
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

    fn token(text: &str) -> Spelled {
        Spelled { token: text.to_string(), bytes: text.as_bytes().to_vec(), logprob: -0.5 }
    }

    fn stops(own: &[&str], others: &[&str]) -> Stops {
        let texts = |all: &[&str]| all.iter().map(|text| text.to_string()).collect();
        Stops { own: texts(own), others: texts(others), ends: vec![Vec::new(); 2] }
    }

    #[test]
    fn the_stop_string_that_begins_first_is_found() {
        let mut one = stops(&["END", "ND!", "D"], &[]);
        for text in ["The E", "N"] {
            assert_eq!(one.push(0, &token(text)), None);
        }
        assert_eq!(one.push(1, &token("xx")), None); // another choice
        assert_eq!(one.push(0, &token("D! It")), Some("END"));
        // The template's begins before the client's, and ended the text.
        let mut two = stops(&["b"], &["\na"]);
        assert_eq!(two.push(0, &token("x\n")), None);
        assert_eq!(two.push(0, &token("ab")), None);
        // Half a character in each token.
        let mut three = stops(&["é"], &[]);
        let half = |byte| Spelled { token: "\u{fffd}".into(), bytes: vec![byte], logprob: -0.5 };
        assert_eq!(three.push(0, &half(0xc3)), None);
        assert_eq!(three.push(0, &half(0xa9)), Some("é"));
    }

    #[test]
    fn json_has_no_line_separators() {
        let text = escaped(&json!({"text": "a\u{2028}b\u{2029}c\u{85}d"}).to_string());
        assert_eq!(text, r#"{"text":"a\u2028b\u2029c\u0085d"}"#);
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["text"], "a\u{2028}b\u{2029}c\u{85}d");
    }
}
