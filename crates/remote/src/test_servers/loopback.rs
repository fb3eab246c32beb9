//! A server on the loopback that reads requests and lets a function answer them.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead as _, BufReader, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A request: its method and path, its headers in lower case, and its body.
#[derive(Clone, Debug)]
pub struct Asked {
    pub line: String,
    pub headers: String,
    pub body: String,
}

impl Asked {
    /// Returns a header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = |line: &'_ str| line.strip_prefix(name).is_some_and(|l| l.starts_with(':'));
        let line = self.headers.lines().find(|line| value(line))?;
        Some(line[name.len() + 1..].trim())
    }
}

/// A server that runs until the test ends.
pub struct Loopback {
    pub address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// Writes the answer to a request.
type Answer = dyn Fn(&Asked, &mut dyn Write) -> Result<()> + Send + Sync;

impl Loopback {
    /// Starts a server. `answer` writes the answer to each request, after which the connection is
    /// closed.
    pub fn start(
        answer: impl Fn(&Asked, &mut dyn Write) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::serve("http", Arc::new(answer), |mut stream, noted, answer| {
            handle(&mut stream, noted, answer)
        })
    }

    /// Does the same over TLS, with a certificate signed by [`authority`].
    pub fn start_tls(
        answer: impl Fn(&Asked, &mut dyn Write) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        let file = certificates().join("server.pem");
        let chain = CertificateDer::pem_file_iter(&file).unwrap().map(|der| der.unwrap()).collect();
        let key = PrivateKeyDer::from_pem_file(&file).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(ring).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let config = Arc::new(config);
        Self::serve("https", Arc::new(answer), move |stream, noted, answer| {
            let connection =
                ServerConnection::new(config.clone()).map_err(std::io::Error::other)?;
            let mut stream = StreamOwned::new(connection, stream);
            handle(&mut stream, noted, answer)?;
            stream.conn.send_close_notify();
            stream.flush()
        })
    }

    /// Accepts connections, and lets `handle` read and answer the request of each.
    fn serve<F>(scheme: &str, answer: Arc<Answer>, handle: F) -> Self
    where
        F: Fn(TcpStream, &Mutex<Vec<Asked>>, &Answer) -> Result<()> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("{scheme}://{}", listener.local_addr().unwrap());
        let (asked, handle) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::new(handle));
        let noted = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, noted) = (stream.unwrap(), noted.clone());
                let (answer, handle) = (answer.clone(), handle.clone());
                std::thread::spawn(move || {
                    let _ = handle(stream, &noted, &*answer); // the client may be gone
                });
            }
        });
        Self { address, asked }
    }

    /// Returns the requests received since the last call.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// Does the same, but returns only the request lines.
    pub fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }
}

/// An address where no server listens. The address of one that has just been closed would be no
/// such address for long: another test's server may get the port.
pub const NOWHERE: &str = "http://127.0.0.1:9";

/// The folder with the certificates.
fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/test_servers/certificates")
}

/// The certificate of the authority that only tests trust.
pub fn authority() -> PathBuf {
    certificates().join("authority.pem")
}

/// Reads a request, notes it, and answers it. Through a proxy, which this server is as well, there
/// are two.
fn handle<S: Read + Write>(
    stream: &mut S,
    noted: &Mutex<Vec<Asked>>,
    answer: &Answer,
) -> Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = reader.by_ref().lines();
        let Some(first) = lines.next().transpose()? else { return Ok(()) };
        let headers: Vec<String> =
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let line = first.rsplit_once(' ').map_or("", |(line, _)| line).to_string();
        let headers = headers.join("\n").to_ascii_lowercase();
        let mut asked = Asked { line, headers, body: String::new() };
        let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
        reader.by_ref().take(length).read_to_string(&mut asked.body)?;
        noted.lock().unwrap().push(asked.clone());
        if !asked.line.starts_with("CONNECT ") {
            answer(&asked, reader.get_mut())?;
            return reader.get_mut().flush();
        }
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    }
}
