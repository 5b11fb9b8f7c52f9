//! Both directions of a TLS connection, each for a thread of its own.
//!
//! A connection of rustls has one state for both directions. It is under a lock, which is held while bytes are encrypted or decrypted and
//! never while they are read or written: so a side whose writes do not go on (a full socket) still reads, and the reverse. Invariant: what is
//! encrypted is written in that order, because only the writer takes it out. What the reader's side makes rustls say (an update of keys)
//! goes with the next bytes that are written; both sides of our connections write each second. Read next: `config.rs`.

use std::io::{Error as IoError, ErrorKind, Read, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::{CertificateError, Connection, ProtocolVersion};

use crate::key::PublicKey;

#[cfg(test)]
mod tests;

/// Bytes that are read from a connection at once.
const READ_BYTES: usize = 128 << 10;
/// Bytes that are encrypted before they are written.
const WRITE_BYTES: usize = 128 << 10;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the connection broke: {0}")]
    Io(#[from] IoError),
    #[error("the key of who answers is not the one that the pool's registry has for it")]
    Stranger,
    #[error("TLS failed: {0}; is the same stere on both machines?")]
    Tls(rustls::Error),
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> TlsError {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => TlsError::Stranger,
            error => TlsError::Tls(error),
        }
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct TlsReader<R> {
    raw: R,
    connection: Arc<Mutex<Connection>>,
    received: Vec<u8>,
    /// Decrypted, and not yet given from `given` on.
    plain: Vec<u8>,
    given: usize,
}

/// The sending half.
#[derive(Debug)]
pub struct TlsWriter<W> {
    raw: W,
    connection: Arc<Mutex<Connection>>,
    encrypted: Vec<u8>,
}

/// Takes received bytes in; what is decrypted goes to the end of `plain`.
fn take_in(connection: &mut Connection, mut received: &[u8], plain: &mut Vec<u8>) -> Result<(), TlsError> {
    while !received.is_empty() {
        let before = received.len();
        connection.read_tls(&mut received)?;
        let state = connection.process_new_packets()?;
        let (start, more) = (plain.len(), state.plaintext_bytes_to_read());
        plain.resize(start + more, 0);
        connection.reader().read_exact(&mut plain[start..])?;
        assert!(received.len() <= before, "bytes are taken from the front");
        // What follows the end of the connection is nobody's.
        if received.len() == before {
            return Ok(());
        }
    }
    Ok(())
}

/// Encrypted bytes that wait to be written.
fn take_out(connection: &mut Connection, encrypted: &mut Vec<u8>) -> Result<(), IoError> {
    encrypted.clear();
    while connection.wants_write() {
        connection.write_tls(encrypted)?;
    }
    Ok(())
}

/// The handshake, and what comes after it; also the key that the other side has.
pub(crate) fn shake_hands<R: Read, W: Write>(
    mut connection: Connection,
    mut raw: R,
    mut writer: W,
) -> Result<(TlsReader<R>, TlsWriter<W>, PublicKey), TlsError> {
    connection.set_buffer_limit(None);
    let (mut received, mut plain, mut encrypted) = (vec![0; READ_BYTES], Vec::new(), Vec::new());
    loop {
        take_out(&mut connection, &mut encrypted)?;
        writer.write_all(&encrypted)?;
        writer.flush()?;
        if !connection.is_handshaking() {
            break;
        }
        let count = raw.read(&mut received)?;
        if count == 0 {
            return Err(IoError::from(ErrorKind::UnexpectedEof).into());
        }
        if let Err(error) = take_in(&mut connection, &received[..count], &mut plain) {
            // The other side is told why, if it still listens.
            if take_out(&mut connection, &mut encrypted).is_ok() {
                drop(writer.write_all(&encrypted));
            }
            return Err(error);
        }
    }
    assert!(connection.protocol_version() == Some(ProtocolVersion::TLSv1_3), "nothing else is offered or taken");
    let told = connection.peer_certificates().and_then(|told| told.first());
    let key = told.and_then(|told| PublicKey::of_told(told)).ok_or(TlsError::Stranger)?;
    let connection = Arc::new(Mutex::new(connection));
    let reader = TlsReader { raw, connection: connection.clone(), received, plain, given: 0 };
    Ok((reader, TlsWriter { raw: writer, connection, encrypted }, key))
}

impl<R> TlsReader<R> {
    /// What bytes are read from.
    pub fn raw(&mut self) -> &mut R {
        &mut self.raw
    }
}

impl<R: Read> Read for TlsReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, IoError> {
        while self.given == self.plain.len() {
            self.plain.clear();
            self.given = 0;
            let count = self.raw.read(&mut self.received)?;
            if count == 0 {
                return Ok(0);
            }
            let mut connection = self.connection.lock();
            let taken = take_in(&mut connection, &self.received[..count], &mut self.plain);
            taken.map_err(|error| IoError::new(ErrorKind::InvalidData, error))?;
        }
        let count = bytes.len().min(self.plain.len() - self.given);
        bytes[..count].copy_from_slice(&self.plain[self.given..self.given + count]);
        self.given += count;
        assert!(self.given <= self.plain.len(), "no more is given than there is");
        Ok(count)
    }
}

impl<W: Write> Write for TlsWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, IoError> {
        let bytes = &bytes[..bytes.len().min(WRITE_BYTES)];
        let mut connection = self.connection.lock();
        let count = connection.writer().write(bytes)?;
        take_out(&mut connection, &mut self.encrypted)?;
        drop(connection);
        assert!(
            count <= bytes.len() && (count == 0 || self.encrypted.len() > count),
            "all is encrypted, and is longer"
        );
        self.raw.write_all(&self.encrypted)?;
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.raw.flush()
    }
}
