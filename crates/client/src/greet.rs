//! The greeting, on the client's side: is the owner who it was announced to be?

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use stere_machine_tls::{MachineKey, PublicKey, TlsError};
use stere_machine_wire::{
    Direction, Frame, Greeting, Hello, Incoming, Outgoing, Purpose, Refusal, SILENCE_SECONDS_MAX, Secret, StreamError,
    VERSION, random,
};

use crate::link::Announcement;
use crate::wire::{FromOwner, ToOwner, Wire};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// An owner that takes nothing for so long is given up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// Why an owner cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetError {
    #[error("the address {0} means nothing here")]
    Address(String),
    #[error("{address} cannot be reached: {source}")]
    Connect { address: String, source: std::io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("the owner refused: {0}")]
    Refused(Refusal),
    #[error("who answers is not the owner that was announced")]
    Stranger,
}

/// Who this machine is.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    pub key: MachineKey,
    pub pool: [u8; 16],
    pub machine: [u8; 16],
    pub session: [u8; 16],
    pub purpose: Purpose,
    pub kernel_minor: u32,
    pub kernel_flags: u64,
}

/// A connection to an owner that has proven itself.
pub(crate) struct Greeted {
    pub incoming: Incoming<FromOwner>,
    pub outgoing: Outgoing<ToOwner>,
    socket: TcpStream,
    /// The owner has what belongs to this session.
    is_resumed: bool,
}

/// The same, for the session of a mount.
pub(crate) struct Connected {
    pub wire: Wire,
    pub incoming: Incoming<FromOwner>,
    pub is_resumed: bool,
}

impl Greeted {
    pub fn of_session(self, epoch: u64) -> Connected {
        let Greeted { incoming, outgoing, socket, is_resumed } = self;
        Connected { wire: Wire::new(outgoing, socket, epoch), incoming, is_resumed }
    }
}

fn connect(address: &str) -> Result<TcpStream, GreetError> {
    let found = address.to_socket_addrs().map_err(|_| GreetError::Address(address.to_owned()))?;
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for one in found {
        match TcpStream::connect_timeout(&one, CONNECT_TIMEOUT) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(GreetError::Connect { address: address.to_owned(), source: last })
}

/// Connects to the announced owner; both prove themselves. `begun` hears of the connection, and may break it.
pub(crate) fn greet(owner: &Announcement, own: &Own, begun: impl FnOnce(&TcpStream)) -> Result<Greeted, GreetError> {
    let socket = connect(&owner.address)?;
    begun(&socket);
    let io = |error: std::io::Error| GreetError::Stream(StreamError::from(error));
    socket.set_nodelay(true).map_err(io)?;
    socket.set_read_timeout(Some(Duration::from_secs(SILENCE_SECONDS_MAX))).map_err(io)?;
    socket.set_write_timeout(Some(WRITE_TIMEOUT)).map_err(io)?;
    let (reader, writer) = (socket.try_clone().map_err(io)?, socket.try_clone().map_err(io)?);
    let (reader, writer) = stere_machine_tls::connect(&own.key, PublicKey(owner.key), reader, writer)?;
    let (mut incoming, mut outgoing) = (Incoming::new(reader), Outgoing::new(writer));
    let secret = Secret(owner.secret);
    let greeting = Greeting { version: VERSION, nonce: random().map_err(io)? };
    outgoing.send(&Frame::Greeting(greeting.clone()))?;
    let challenge = match incoming.next_frame()? {
        Frame::Challenge(challenge) => challenge,
        Frame::Refused(refusal) => return Err(GreetError::Refused(refusal)),
        _ => return Err(GreetError::Stream(StreamError::Order)),
    };
    let Own { pool, machine, session, purpose, kernel_minor, kernel_flags, .. } = *own;
    let (epoch, proof) = (owner.epoch, [0; 32]);
    let told = Hello { pool, machine, session, epoch, kernel_minor, purpose, kernel_flags, proof };
    let hello = Hello { proof: secret.client_proof(&greeting, &challenge, &told), ..told };
    outgoing.send(&Frame::Hello(hello.clone()))?;
    let welcome = match incoming.next_frame()? {
        Frame::Welcome(welcome) => welcome,
        Frame::Refused(refusal) => return Err(GreetError::Refused(refusal)),
        _ => return Err(GreetError::Stream(StreamError::Order)),
    };
    if !secret.is_owner(&greeting, &challenge, &hello, (welcome.is_resumed, &welcome.proof)) {
        return Err(GreetError::Stranger);
    }
    outgoing.set_seal(secret.seal(&greeting, &challenge, Direction::ToOwner));
    incoming.set_seal(secret.seal(&greeting, &challenge, Direction::ToClient));
    Ok(Greeted { incoming, outgoing, socket, is_resumed: welcome.is_resumed })
}
