//! Takes an answer's text apart, as it arrives: thoughts, what is said, and calls of tools.
//!
//! A model writes calls as text, in the form that its chat template taught it. Everything that
//! turns out not to be a call stays part of the answer. The text goes through once, whatever the
//! pieces it comes in.

use serde_json::Value;

const THINK: &str = "<think>";
const THOUGHT: &str = "</think>";
const CALL: &str = "<tool_call>";
const CALLED: &str = "</tool_call>";

/// The form of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerForm {
    /// The thoughts, if the template has any.
    pub thoughts: Thoughts,
    /// How calls are written.
    pub calls: CallForm,
    /// Whether only the first call counts (`parallel_tool_calls: false`).
    pub one_call: bool,
}

/// The place of `<think>`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Thoughts {
    /// Nowhere: it's a word like any other.
    #[default]
    None,
    /// At the start of the answer.
    Possible,
    /// At the end of the prompt, so the answer starts with a thought.
    Open,
}

/// How calls of tools are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CallForm {
    /// There are none.
    #[default]
    None,
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`: Hermes, Qwen 2.5 and 3.
    Tagged,
    /// `{"name": …, "parameters": …}`, anywhere, several divided by `;`: Llama 3.
    Json,
    /// The whole answer is a list of such objects: [`tools::schema`](super::tools::schema).
    List,
    /// The whole answer is the arguments of this tool.
    Named(String),
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text for the reader.
    Content(String),
    /// A thought.
    Reasoning(String),
    /// A call begins. Its arguments follow.
    Call { index: usize, name: String },
    /// The next piece of a call's arguments, as the model wrote them.
    Arguments { index: usize, text: String },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    Thought,
    Text,
    /// In a call, up to the end of its object.
    Call,
    /// After a call, before the next one or other text.
    Called,
}

/// Takes one answer apart.
#[derive(Debug, Clone, Default)]
pub struct AnswerParser {
    form: AnswerForm,
    /// Whether a call is only reported once it is complete and valid JSON. In a stream, it's
    /// reported as it arrives.
    whole: bool,
    state: State,
    /// Text that hasn't been taken apart yet.
    rest: String,
    /// Space that is only reported if more text of its kind follows.
    space: String,
    /// Whether space is dropped, up to the next text.
    trim: bool,
    /// Whether there is content.
    said: bool,
    call: Call,
    /// The number of calls so far.
    calls: usize,
    parts: Vec<Part>,
}

impl AnswerParser {
    /// Starts an answer in this form. `whole`: it's reported in one piece.
    pub fn new(form: AnswerForm, whole: bool) -> Self {
        Self { form, whole, ..Self::default() }
    }

    /// Whether a call makes this answer's finish reason `tool_calls`. As in OpenAI's API, it
    /// doesn't if the request named the tool.
    pub fn has_called(&self) -> bool {
        self.calls > 0 && !matches!(self.form.calls, CallForm::Named(_))
    }

    /// Takes the next text, and returns the parts that are certain now.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.rest.push_str(text);
        while self.step(false) {}
        std::mem::take(&mut self.parts)
    }

    /// Ends the answer, and returns what was held back.
    pub fn finish(&mut self) -> Vec<Part> {
        while self.step(true) {}
        if self.state == State::Call {
            self.no_call();
        }
        if self.state == State::Text && !self.trim {
            let space = std::mem::take(&mut self.space);
            self.add(Part::Content(space));
        }
        std::mem::take(&mut self.parts)
    }

    /// Takes some of the rest. Returns false if it needs more text.
    fn step(&mut self, last: bool) -> bool {
        match self.state {
            State::Start => self.start(last),
            State::Thought => {
                let tagged = self.form.calls == CallForm::Tagged;
                let marks = if tagged { &[THOUGHT, CALL][..] } else { &[THOUGHT] };
                let Some(found) = self.until(marks, last, Part::Reasoning) else { return false };
                self.rest.drain(..if found == THOUGHT { THOUGHT.len() } else { 0 });
                self.space.clear();
                (self.state, self.trim) = (State::Text, true);
                true
            }
            State::Text => self.text(last),
            State::Call => self.in_call(),
            State::Called => {
                let text = self.rest.trim_start_matches([' ', '\t', '\r', '\n', ';', ',']);
                self.rest = text.strip_prefix(CALLED).unwrap_or(text).to_string();
                let more = !self.rest.is_empty() && (last || !CALLED.starts_with(&self.rest));
                if more {
                    (self.state, self.trim) = (State::Text, true);
                }
                more
            }
        }
    }

    fn start(&mut self, last: bool) -> bool {
        let begun = self.rest.trim_start();
        let thinks = begun.starts_with(THINK);
        if self.form.thoughts != Thoughts::None && !thinks && !last && THINK.starts_with(begun) {
            return false;
        }
        let open = self.form.thoughts == Thoughts::Open;
        self.state = State::Text;
        if open || (thinks && self.form.thoughts != Thoughts::None) {
            self.rest = begun.strip_prefix(THINK).unwrap_or(begun).to_string();
            (self.state, self.trim) = (State::Thought, true);
        }
        true
    }

    fn text(&mut self, last: bool) -> bool {
        let mark = match &self.form.calls {
            CallForm::None => None,
            CallForm::Tagged => Some(CALL),
            CallForm::Json => Some("{"),
            CallForm::List => {
                let start = self.rest.find('{').unwrap_or(self.rest.len());
                self.rest.drain(..start);
                self.state = State::Call;
                return !self.rest.is_empty();
            }
            CallForm::Named(name) => {
                let name = name.clone();
                if self.calls == 0 && !self.rest.is_empty() {
                    self.calls = 1;
                    self.add(Part::Call { index: 0, name });
                }
                let text = std::mem::take(&mut self.rest);
                self.add(Part::Arguments { index: 0, text });
                return false;
            }
        };
        let found = self.until(mark.as_slice(), last, Part::Content).is_some();
        if found {
            self.state = State::Call;
        }
        found
    }

    /// Reports the rest up to the first of these marks, which it returns. Without one, reports
    /// everything that can't be the beginning of a mark.
    fn until(
        &mut self,
        marks: &[&'static str],
        last: bool,
        part: fn(String) -> Part,
    ) -> Option<&'static str> {
        let found = marks.iter().filter_map(|mark| Some((self.rest.find(mark)?, *mark))).min();
        let held = |mark: &&str| {
            let longest = mark.len().min(self.rest.len() + 1);
            (1..longest).rev().find(|n| self.rest.ends_with(&mark[..*n])).unwrap_or(0)
        };
        let end = match found {
            Some((at, _)) => at,
            None if last => self.rest.len(),
            None => self.rest.len() - marks.iter().map(held).max().unwrap_or(0),
        };
        let text: String = self.rest.drain(..end).collect();
        let text = if self.trim { text.trim_start() } else { &text };
        let bare = match self.form == AnswerForm::default() {
            true => text,
            false => text.trim_end(),
        };
        if !bare.is_empty() {
            let said = std::mem::take(&mut self.space) + bare;
            self.trim = false;
            self.add(part(said));
        }
        self.space.push_str(&text[bare.len()..]);
        found.map(|(_, mark)| mark)
    }

    /// Takes the text of a call.
    fn in_call(&mut self) -> bool {
        let text = std::mem::take(&mut self.rest);
        for (at, c) in text.char_indices() {
            let in_tag = self.form.calls == CallForm::Tagged && self.call.text.len() < CALL.len();
            let step = if in_tag { Scan::More } else { self.call.scan(c) };
            self.call.text.push(c);
            match step {
                Scan::More => continue,
                Scan::Done if self.is_call() => {
                    self.report_call();
                    self.calls += 1;
                    self.call = Call::default();
                    // Text before and after a call is one content.
                    self.space = if self.said { "\n" } else { "" }.to_string();
                    self.state = State::Called;
                }
                Scan::Done | Scan::Bad => self.no_call(),
            }
            self.rest = text[at + c.len_utf8()..].to_string();
            return true;
        }
        if !self.whole || matches!(self.form.calls, CallForm::List) {
            self.report_call();
        }
        false
    }

    /// Whether the object that has just ended is a call.
    fn is_call(&self) -> bool {
        let object = match self.form.calls {
            CallForm::Tagged => &self.call.text[CALL.len()..],
            _ => &self.call.text,
        };
        let begun = self.call.name.is_some() && self.call.has_arguments;
        begun && (!self.whole || serde_json::from_str::<Value>(object).is_ok())
    }

    /// Reports the call's name, once its arguments have begun, and their next piece.
    fn report_call(&mut self) {
        let Some(name) = self.call.name.clone().filter(|_| self.call.has_arguments) else { return };
        let index = self.calls;
        let text = std::mem::take(&mut self.call.arguments);
        if !std::mem::replace(&mut self.call.reported, true) {
            self.add(Part::Call { index, name });
        }
        self.add(Part::Arguments { index, text });
    }

    /// Turns a failed call back into text, unless its name has been reported.
    fn no_call(&mut self) {
        let call = std::mem::take(&mut self.call);
        self.state = State::Text;
        if call.reported || self.form.calls == CallForm::List {
            self.calls += usize::from(call.reported);
            return; // of a list, only the end can be missing
        }
        let text = std::mem::take(&mut self.space) + &call.text;
        self.trim = false;
        self.add(Part::Content(text));
    }

    /// Reports a part, unless it's empty or of a call that doesn't count.
    fn add(&mut self, part: Part) {
        let (text, index) = match &part {
            Part::Content(text) | Part::Reasoning(text) => (text, 0),
            Part::Call { index, name } => (name, *index),
            Part::Arguments { index, text } => (text, *index),
        };
        let counts = index == 0 || !self.form.one_call;
        if counts && !text.is_empty() {
            self.said |= matches!(part, Part::Content(_));
            self.parts.push(part);
        }
    }
}

/// The effect of one character on a call.
enum Scan {
    More,
    /// The end of the object.
    Done,
    /// This isn't a call.
    Bad,
}

/// A JSON object with a name and arguments, read character by character. Only its outermost level
/// is interpreted.
#[derive(Debug, Clone, Default)]
struct Call {
    /// Everything so far.
    text: String,
    name: Option<String>,
    /// Pieces of the arguments that haven't been reported.
    arguments: String,
    has_arguments: bool,
    /// Whether the name has been reported.
    reported: bool,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// A string of the outermost level, as it's written.
    string: String,
    /// The key whose value comes next.
    key: Option<String>,
    in_arguments: bool,
}

impl Call {
    fn scan(&mut self, c: char) -> Scan {
        let outer = self.depth == 1;
        if self.in_arguments
            && (self.in_string || !outer || !(c.is_whitespace() || ",}".contains(c)))
        {
            self.arguments.push(c);
            self.has_arguments = true;
        }
        if self.in_string {
            self.in_string = self.escaped || c != '"';
            self.escaped = c == '\\' && !self.escaped;
            if outer {
                self.string.push(c);
            }
            if outer && !self.in_string && self.key.as_deref() == Some("name") {
                let name: String = serde_json::from_str(&self.string).unwrap_or_default();
                if name.is_empty() {
                    return Scan::Bad;
                }
                self.name = Some(name);
            }
            return Scan::More;
        }
        match c {
            '{' | '[' if self.depth > 0 || c == '{' => self.depth += 1,
            '}' | ']' if self.depth > 1 => self.depth -= 1,
            '}' if outer => return Scan::Done,
            '"' if self.depth > 0 => {
                self.in_string = true;
                self.string = "\"".to_string();
            }
            ':' if outer && self.key.is_none() => {
                let key: String = serde_json::from_str(&self.string).unwrap_or_default();
                // Other objects are answers.
                if !["name", "arguments", "parameters", "type", "id"].contains(&key.as_str()) {
                    return Scan::Bad;
                }
                let arguments = key == "arguments" || key == "parameters";
                self.in_arguments = arguments && !self.has_arguments;
                self.key = Some(key);
            }
            ',' if outer => (self.key, self.in_arguments) = (None, false),
            c if self.depth == 0 && !c.is_whitespace() => return Scan::Bad,
            _ => {}
        }
        Scan::More
    }
}
