//! A simulated server on the loopback interface that speaks OpenAI's protocol. It has no model: it
//! sends a fixed text, with the fault that a test selects.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// How a server answers.
#[derive(Clone, Copy, PartialEq)]
pub enum Manner {
    /// Correctly, with this `owned_by` in its list of models.
    Well(&'static str),
    /// Correctly, with lists of tokens along with the text, as in llama.cpp.
    WithTokens,
    /// Only with the API key `right`.
    Key,
    /// With two models in its list.
    TwoModels,
    /// Without a list of models.
    NoList,
    /// With this status and body for every completion request.
    Status(u16, &'static str, &'static str),
    /// With an HTML page, like an unrelated program.
    Page,
    /// Closes the connection in the middle of the stream.
    Breaks,
    /// Ends the stream properly, but before the text is complete.
    EndsEarly,
    /// Not at all: it keeps the connection open.
    Silent,
    /// Sends an error in the stream.
    ErrorInside,
    /// Streams this over and over as the text.
    Endless(&'static str),
    /// Lists a model with this name, which is escaped as in JSON.
    Named(&'static str),
}

/// A completion request: its path and body.
#[derive(Clone)]
pub struct Question {
    pub path: String,
    pub body: String,
}

/// A server that runs until the test ends.
pub struct OpenAiServer {
    pub address: String,
    questions: Arc<Mutex<Vec<Question>>>,
}

impl OpenAiServer {
    pub fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let questions = Arc::new(Mutex::new(Vec::new()));
        let noted = questions.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let noted = noted.clone();
                std::thread::spawn(move || {
                    let _ = answer(stream.unwrap(), manner, &noted);
                });
            }
        });
        Self { address, questions }
    }

    /// Returns the completion requests so far.
    pub fn questions(&self) -> Vec<Question> {
        self.questions.lock().unwrap().clone()
    }
}

/// Answers the requests of one connection.
fn answer(
    mut stream: TcpStream,
    manner: Manner,
    noted: &Mutex<Vec<Question>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut headers = String::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            headers.push_str(&line.to_ascii_lowercase());
        }
        let length = headers.lines().find_map(|line| line.strip_prefix("content-length:"));
        let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
        reader.read_exact(&mut body)?;
        let path = first.split(' ').nth(1).unwrap_or_default().to_string();
        let has_key = headers.contains("authorization: bearer right");
        if manner == Manner::Key && !has_key {
            let said = r#"{"error":{"message":"Incorrect API key provided","type":"auth"}}"#;
            whole(&mut stream, "401 Unauthorized", "", said)?;
        } else if first.starts_with("GET") {
            models(&mut stream, manner)?;
        } else {
            let body = String::from_utf8(body).unwrap();
            noted.lock().unwrap().push(Question { path: path.clone(), body });
            text(&mut stream, manner, path.contains("chat"))?;
            if matches!(manner, Manner::Breaks) {
                return Ok(());
            }
        }
    }
}

fn whole(stream: &mut TcpStream, status: &str, headers: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

fn models(stream: &mut TcpStream, manner: Manner) -> std::io::Result<()> {
    let model = |name: &str, owner: &str| {
        format!(r#"{{"id":"{name}","object":"model","owned_by":"{owner}"}}"#)
    };
    let list = match manner {
        Manner::Page => {
            return whole(stream, "200 OK", "", "<html>The router's settings</html>");
        }
        Manner::NoList => {
            return whole(stream, "404 Not Found", "", r#"{"detail":"Not Found"}"#);
        }
        Manner::TwoModels => format!("{},{}", model("small", "x"), model("large", "x")),
        Manner::WithTokens => model("small", "llamacpp"),
        Manner::Well(owner) => model("small", owner),
        Manner::Named(name) => model(name, "vllm"),
        _ => model("small", "vllm"),
    };
    whole(stream, "200 OK", "", &format!(r#"{{"object":"list","data":[{list}]}}"#))
}

/// Streams the text " a dog." in two events.
fn text(stream: &mut TcpStream, manner: Manner, chat: bool) -> std::io::Result<()> {
    if manner == Manner::Silent {
        loop {
            std::thread::park();
        }
    }
    if let Manner::Status(code, headers, body) = manner {
        return whole(stream, &format!("{code} No"), headers, body);
    }
    let event = |piece: &str, id: u32, finish: &str| {
        let text = match chat {
            true => format!(r#""delta":{{"content":"{piece}"}}"#),
            false => format!(r#""text":"{piece}""#),
        };
        let tokens = match manner {
            Manner::WithTokens => format!(
                r#","logprobs":{{"content":[{{"id":{id},"token":"{piece}","logprob":-0.5}}]}}"#
            ),
            _ => String::new(),
        };
        let choice = format!(r#"{{"index":0,{text}{tokens},"finish_reason":{finish}}}"#);
        format!("data: {{\"choices\":[{choice}]}}\n\n")
    };
    let mut events = vec![event(" a", 5, "null"), event(" dog.", 9, "\"stop\"")];
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}}"#;
    events.push(format!("data: {usage}\n\n"));
    events.push("data: [DONE]\n\n".into());
    match manner {
        Manner::Breaks | Manner::EndsEarly => events.truncate(1),
        Manner::ErrorInside => {
            let said = r#"{"error":{"message":"the engine has died","code":500}}"#;
            events.truncate(1);
            events.push(format!("data: {said}\n\n"));
        }
        _ => {}
    }
    let head = "content-type: text/event-stream\r\ntransfer-encoding: chunked";
    write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n")?;
    if let Manner::Endless(events) = manner {
        let many = events.repeat((1 << 16) / events.len() + 1);
        loop {
            write!(stream, "{:x}\r\n{many}\r\n", many.len())?;
        }
    }
    for event in events {
        write!(stream, "{:x}\r\n{event}\r\n", event.len())?;
        stream.flush()?;
    }
    if manner != Manner::Breaks {
        write!(stream, "0\r\n\r\n")?;
    }
    Ok(())
}
