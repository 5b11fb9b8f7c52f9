//! Other machines that mount the pool which this one owns: their requests come through the same session as the kernel's.
//!
//! What is done with them is in `crates/owner`; here it is tied to the mount: it ends when the kernel sends nothing more, before the file
//! system is closed. Read next: `serve_client.rs`, the other side.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use stere_fuse::Session;
use stere_machine::error::{Error, Result};
use stere_owner::{Answer, Owner, OwnerOptions};

use crate::control_socket::{Place, converse};
use crate::daemon::{Daemon, lock};

/// Commands of other machines are answered as those of this one.
pub fn commands(daemon: &Arc<Daemon>) -> Answer {
    let daemon: Weak<Daemon> = Arc::downgrade(daemon);
    Box::new(move |stream| {
        if let Some(daemon) = daemon.upgrade() {
            converse(&daemon, stream, Place::Elsewhere);
        }
    })
}

/// Serves other machines as long as the mount lives.
pub struct Clients(Arc<Mutex<Owner>>);

impl Clients {
    /// Listens. The session has to be mounted as shared (`stere_fuse::MountOptions::shared`).
    pub fn start(session: &mut Session, options: OwnerOptions) -> Result<Clients> {
        let owner = Owner::start(session.door(), options).map_err(|error| Error::Refused(error.to_string()))?;
        let owner = Arc::new(Mutex::new(owner));
        let ending = owner.clone();
        // They look for the next owner.
        session.before_end(Box::new(move || lock(&ending).end()));
        Ok(Clients(owner))
    }

    /// Where they find it: to be announced.
    pub fn address(&self) -> SocketAddr {
        lock(&self.0).address()
    }
}
