//! A connection to an owner, as those who send over it see it.

use std::net::{Shutdown, TcpStream};

use parking_lot::Mutex;
use stere_machine_tls::{TlsReader, TlsWriter};
use stere_machine_wire::{Frame, Outgoing};

/// The two directions of a connection.
pub(crate) type FromOwner = TlsReader<TcpStream>;
pub(crate) type ToOwner = TlsWriter<TcpStream>;

/// The sending half.
pub(crate) struct Wire {
    outgoing: Mutex<Outgoing<ToOwner>>,
    socket: TcpStream,
    /// Of the owner at the other end.
    pub epoch: u64,
}

impl Wire {
    pub fn new(outgoing: Outgoing<ToOwner>, socket: TcpStream, epoch: u64) -> Wire {
        Wire { outgoing: Mutex::new(outgoing), socket, epoch }
    }

    /// Sends a frame. If that fails the connection is cut, which its reader notices, and all is sent again elsewhere.
    pub fn send(&self, frame: &Frame<'_>) {
        let encoded = frame.encode();
        let sent = self.outgoing.lock().send_encoded(encoded);
        if let Err(error) = sent {
            tracing::debug!(%error, "nothing can be sent to the owner any more");
            self.cut();
        }
    }

    pub fn cut(&self) {
        // It may be gone already.
        drop(self.socket.shutdown(Shutdown::Both));
    }
}
