//! Making a connection and agreeing with the server on what it is for, over plain TCP or TLS.
//!
//! Every step of it has a deadline. Afterwards sending and receiving are independent: with TLS they share the state of the encryption, which
//! nobody holds while he waits for the network. Read next: `connection.rs`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use stere_device::BUFFER_ALIGNMENT_BYTES;

use crate::address::{Address, Tls};
use crate::error::NbdError;
use crate::wire::extension::{self, Provide, Provided};
use crate::wire::{self, Flags, Information, OptionKind, OptionReply};

/// How long one step of a handshake may take.
const STEP_MAX: Duration = Duration::from_secs(5);
/// Answers to one option: a server may tell more than was asked, not without end.
const ANSWERS_MAX: usize = 64;

/// What was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Export {
    pub size_bytes: u64,
    pub flags: Flags,
    /// Offsets and lengths are multiples of it.
    pub block_bytes: u32,
    pub payload_bytes_max: u32,
    /// Reads are answered in chunks.
    pub is_structured: bool,
    /// The server is a stere node: it is told for which owner is written.
    pub is_stere: bool,
}

/// A connection that is ready for requests.
pub struct Session {
    pub export: Export,
    /// The newest epoch that a stere node knew of when this was agreed; 0 for none.
    pub epoch: u64,
    /// To end it from elsewhere.
    pub socket: TcpStream,
    pub reader: Box<dyn Read + Send>,
    pub writer: Box<dyn Write + Send>,
}

impl Session {
    pub fn open(address: &Address) -> Result<Session, NbdError> {
        let (socket, (mut reader, mut writer)) = greet(address)?;
        if let Some(tls) = &address.tls {
            ask(
                &mut *reader,
                &mut *writer,
                OptionKind::StartTls,
                &wire::option(OptionKind::StartTls, &[]),
                |_| Ok(()),
            )?
            .map_or(Ok(()), |_| Err(NbdError::TlsMissing))?;
            (reader, writer) = encrypted(&socket, &address.host, tls)?;
        }
        let epoch = match address.is_stere {
            true => ask_node(&mut *reader, &mut *writer, &address.export, 0)?.epoch,
            false => 0,
        };
        let export = agree(&mut *reader, &mut *writer, &address.export)?;
        let export = Export { is_stere: address.is_stere, ..export };
        // From here on whoever waits for an answer has a deadline of his own.
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(None)?;
        Ok(Session { export, epoch, socket, reader, writer })
    }
}

/// Makes an export of this size on a stere node, where it is not there, and tells what is there then.
pub fn provide(address: &Address, size_bytes: u64) -> Result<Provided, NbdError> {
    let (_socket, (mut reader, mut writer)) = greet(address)?;
    let provided = ask_node(&mut *reader, &mut *writer, &address.export, size_bytes)?;
    // In order; a server that does not hear it anymore is no harm.
    let _is_told = writer.write_all(&wire::option(OptionKind::Abort, &[]));
    Ok(provided)
}

/// A connection that was greeted, and where every step has a deadline.
fn greet(address: &Address) -> Result<(TcpStream, Halves), NbdError> {
    let socket = connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(STEP_MAX))?;
    socket.set_write_timeout(Some(STEP_MAX))?;
    let (mut reader, mut writer) = plain(&socket)?;
    let mut greeting = [0; wire::GREETING_BYTES];
    reader.read_exact(&mut greeting)?;
    writer.write_all(&wire::answer_greeting(&greeting)?)?;
    Ok((socket, (reader, writer)))
}

/// Finds out that a server is a stere node, and what it knows of an export, which is made where a size is given.
fn ask_node(reader: &mut dyn Read, writer: &mut dyn Write, name: &str, size_bytes: u64) -> Result<Provided, NbdError> {
    let mut version = None;
    let hello = wire::option(OptionKind::Hello, &extension::encode_version());
    let heard = |text: &[u8]| {
        version = Some(extension::decode_version(text)?);
        Ok(())
    };
    if let Some(why) = ask(reader, writer, OptionKind::Hello, &hello, heard)? {
        return Err(NbdError::NotStere(why));
    }
    if version != Some(extension::VERSION) {
        let (ours, theirs) = (extension::VERSION, version.unwrap_or_default());
        return Err(NbdError::NotStere(format!("it speaks version {theirs}, and this is {ours}")));
    }
    let mut provided = None;
    let request = wire::option(OptionKind::Provide, &Provide { name: name.to_owned(), size_bytes }.encode());
    let heard = |text: &[u8]| {
        provided = Some(Provided::decode(text)?);
        Ok(())
    };
    if let Some(why) = ask(reader, writer, OptionKind::Provide, &request, heard)? {
        return Err(NbdError::Refused { export: name.to_owned(), why });
    }
    provided.ok_or_else(|| wire::WireError::Broken("it provides an export and says nothing of it".into()).into())
}

fn connect(address: &Address) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "its name has no address");
    for place in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, STEP_MAX) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

type Halves = (Box<dyn Read + Send>, Box<dyn Write + Send>);

fn plain(socket: &TcpStream) -> io::Result<Halves> {
    Ok((Box::new(socket.try_clone()?), Box::new(socket.try_clone()?)))
}

/// Asks for one option; `tell` hears what the server says of it. None where it is granted, else why not.
fn ask(
    reader: &mut dyn Read,
    writer: &mut dyn Write,
    kind: OptionKind,
    request: &[u8],
    mut tell: impl FnMut(&[u8]) -> Result<(), NbdError>,
) -> Result<Option<String>, NbdError> {
    writer.write_all(request)?;
    for _ in 0..ANSWERS_MAX {
        let mut head = [0; wire::OPTION_REPLY_BYTES];
        reader.read_exact(&mut head)?;
        let reply = OptionReply::decode(&head, kind)?;
        let mut text = vec![0; reply.length];
        reader.read_exact(&mut text)?;
        match reply.kind {
            wire::ACKNOWLEDGED => return Ok(None),
            wire::INFORMATION => tell(&text)?,
            wire::TLS_REQUIRED => return Err(NbdError::TlsRequired),
            _ => match reply.refusal(&text) {
                Some(why) => return Ok(Some(why)),
                None => return Err(wire::WireError::Broken("an answer of a kind that is not known".into()).into()),
            },
        }
    }
    Err(wire::WireError::Broken("it does not come to an end with one option".into()).into())
}

fn agree(reader: &mut dyn Read, writer: &mut dyn Write, name: &str) -> Result<Export, NbdError> {
    let structured = wire::option(OptionKind::StructuredReply, &[]);
    let refusal = ask(reader, writer, OptionKind::StructuredReply, &structured, |_| Ok(()))?;
    let (mut export, mut blocks) = (None, None);
    let heard = |text: &[u8]| {
        match Information::decode(text)? {
            Information::Export { size_bytes, flags } => export = Some((size_bytes, flags)),
            Information::BlockSize { minimum, maximum, .. } => blocks = Some((minimum, maximum)),
            Information::Other => {}
        }
        Ok(())
    };
    if let Some(why) = ask(reader, writer, OptionKind::Go, &wire::go(name), heard)? {
        return Err(NbdError::Refused { export: name.to_owned(), why });
    }
    let Some((size_bytes, flags)) = export else {
        return Err(wire::WireError::Broken("it grants an export and does not say how large it is".into()).into());
    };
    let (block_bytes, payload_bytes_max) = blocks.unwrap_or((1, wire::PAYLOAD_BYTES_MAX));
    let alignment = BUFFER_ALIGNMENT_BYTES as u32;
    if block_bytes > alignment {
        return Err(NbdError::Unsuitable(format!(
            "its blocks have {block_bytes} bytes, and at most {alignment} are possible"
        )));
    }
    let payload_bytes_max = payload_bytes_max.min(wire::PAYLOAD_BYTES_MAX) / alignment * alignment;
    if payload_bytes_max == 0 {
        return Err(NbdError::Unsuitable(format!("a request may move less than {alignment} bytes")));
    }
    assert!(payload_bytes_max.is_multiple_of(block_bytes), "requests of the largest size are whole blocks");
    Ok(Export { size_bytes, flags, block_bytes, payload_bytes_max, is_structured: refusal.is_none(), is_stere: false })
}

/// What sending and receiving over TLS share.
type Encryption = Arc<Mutex<ClientConnection>>;

fn encrypted(socket: &TcpStream, host: &str, tls: &Tls) -> Result<Halves, NbdError> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| NbdError::Certificate { path: host.to_owned(), why: error.to_string() })?;
    let mut connection = ClientConnection::new(Arc::new(config(tls)?), name).map_err(io::Error::other)?;
    let mut both = socket.try_clone()?;
    while connection.is_handshaking() {
        connection.complete_io(&mut both)?;
    }
    let encryption = Arc::new(Mutex::new(connection));
    let (reading, writing) = (socket.try_clone()?, socket.try_clone()?);
    let reader = TlsReader { socket: reading, encryption: encryption.clone(), received: Vec::new(), at: 0 };
    Ok((Box::new(reader), Box::new(TlsWriter { socket: writing, encryption, cipher: Vec::new() })))
}

fn config(tls: &Tls) -> Result<ClientConfig, NbdError> {
    let wrong = |path: &Path, why: String| NbdError::Certificate { path: path.display().to_string(), why };
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, NbdError> {
        let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        let found: Vec<_> = found.map_err(|error| wrong(path, error.to_string()))?;
        if found.is_empty() { Err(wrong(path, "there is no certificate in it".into())) } else { Ok(found) }
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&tls.ca)? {
        roots.add(certificate).map_err(|error| wrong(&tls.ca, error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&tls.ca, error.to_string()))?
        .with_root_certificates(roots);
    let Some((certificate, key)) = &tls.own else { return Ok(builder.with_no_client_auth()) };
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, error.to_string()))?;
    builder
        .with_client_auth_cert(certificates(certificate)?, secret)
        .map_err(|error| wrong(certificate, error.to_string()))
}

/// Bytes of one read from the network.
const RECEIVED_BYTES: usize = 16 << 10;

struct TlsReader {
    socket: TcpStream,
    encryption: Encryption,
    /// What came and was not decrypted yet.
    received: Vec<u8>,
    at: usize,
}

impl Read for TlsReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            {
                let mut encryption = self.encryption.lock();
                match encryption.reader().read(into) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    outcome => return outcome,
                }
                if self.at < self.received.len() {
                    self.at += encryption.read_tls(&mut &self.received[self.at..])?;
                    encryption.process_new_packets().map_err(io::Error::other)?;
                    continue;
                }
            }
            self.received.resize(RECEIVED_BYTES, 0);
            let count = self.socket.read(&mut self.received)?;
            self.received.truncate(count);
            self.at = 0;
            if count == 0 {
                return Ok(0);
            }
        }
    }
}

struct TlsWriter {
    socket: TcpStream,
    encryption: Encryption,
    cipher: Vec<u8>,
}

impl Write for TlsWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.cipher.clear();
        let taken = {
            let mut encryption = self.encryption.lock();
            let taken = encryption.writer().write(bytes)?;
            while encryption.wants_write() {
                encryption.write_tls(&mut self.cipher)?;
            }
            taken
        };
        self.socket.write_all(&self.cipher)?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
