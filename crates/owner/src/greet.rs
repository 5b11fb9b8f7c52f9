//! The greeting, on the owner's side: who is at the other end, and does it know the secret?

use std::net::TcpStream;

use stere_machine_tls::{PublicKey, TlsReader, TlsWriter};
use stere_machine_wire::{
    Challenge, Direction, Frame, Hello, Incoming, Outgoing, Refusal, Secret, StreamError, VERSION, Welcome, random,
};

use crate::bounded::Bounded;
use crate::members::Members;

/// The two directions of a connection.
pub(crate) type FromClient = TlsReader<Bounded>;
pub(crate) type ToClient = TlsWriter<TcpStream>;

/// What the owner is, to those who greet it.
pub(crate) struct Identity {
    pub pool: [u8; 16],
    pub secret: Secret,
    pub epoch: u64,
}

/// A client that has proven itself.
pub(crate) struct Greeted {
    pub hello: Hello,
    greeting: stere_machine_wire::Greeting,
    challenge: Challenge,
}

/// Refuses, as far as the other side still listens.
pub(crate) fn refuse(outgoing: &mut Outgoing<ToClient>, refusal: Refusal) {
    drop(outgoing.send(&Frame::Refused(refusal)));
}

/// Hears the client that has this key until it has proven itself. `None`: it was refused.
pub(crate) fn greet(
    identity: &Identity,
    (members, key): (&Members, &PublicKey),
    incoming: &mut Incoming<FromClient>,
    outgoing: &mut Outgoing<ToClient>,
) -> Result<Option<Greeted>, StreamError> {
    let Frame::Greeting(greeting) = incoming.next_frame()? else { return Err(StreamError::Order) };
    if greeting.version != VERSION {
        refuse(outgoing, Refusal::Version);
        return Ok(None);
    }
    let machine = match members.judge(key) {
        Ok(machine) => machine,
        Err(refusal) => {
            refuse(outgoing, refusal);
            return Ok(None);
        }
    };
    let nonce = random().map_err(StreamError::Io)?;
    let challenge = Challenge { version: VERSION, epoch: identity.epoch, nonce };
    outgoing.send(&Frame::Challenge(challenge.clone()))?;
    let Frame::Hello(hello) = incoming.next_frame()? else { return Err(StreamError::Order) };
    // The proof first: a stranger learns nothing of the pool.
    let refusal = if !identity.secret.is_client(&greeting, &challenge, &hello) {
        Some(Refusal::Proof)
    } else if hello.machine != machine {
        Some(Refusal::Unknown)
    } else if hello.pool != identity.pool {
        Some(Refusal::Pool)
    } else if hello.epoch != identity.epoch {
        Some(Refusal::Epoch)
    } else {
        None
    };
    if let Some(refusal) = refusal {
        refuse(outgoing, refusal);
        return Ok(None);
    }
    Ok(Some(Greeted { hello, greeting, challenge }))
}

impl Greeted {
    /// Lets the client in; from now on all is sealed.
    pub fn welcome(
        &self,
        identity: &Identity,
        is_resumed: bool,
        incoming: &mut Incoming<FromClient>,
        outgoing: &mut Outgoing<ToClient>,
    ) -> Result<(), StreamError> {
        let secret = &identity.secret;
        let proof = secret.owner_proof(&self.greeting, &self.challenge, &self.hello, is_resumed);
        outgoing.send(&Frame::Welcome(Welcome { is_resumed, proof }))?;
        incoming.reader().raw().trust()?;
        incoming.set_seal(secret.seal(&self.greeting, &self.challenge, Direction::ToOwner));
        outgoing.set_seal(secret.seal(&self.greeting, &self.challenge, Direction::ToClient));
        Ok(())
    }
}
