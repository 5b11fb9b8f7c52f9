//! Listening, and a thread for each connection.
//!
//! Invariants: there are no more than `CONNECTIONS_MAX` connections; the end waits for requests that are being carried out, `END` at most, and
//! flushes what was written. Read next: `negotiate.rs`.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use socket2::{SockRef, TcpKeepalive};

use crate::error::NodeError;
use crate::export::Directory;
use crate::negotiate::negotiate;
use crate::transmit::transmit;

const CONNECTIONS_MAX: usize = 256;
/// How long the end waits for clients.
const END: Duration = Duration::from_secs(5);
/// A client's machine that says nothing for so long is asked whether it is there,
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
/// and so often.
const KEEPALIVE_EACH: Duration = Duration::from_secs(10);
/// Before the next connection is taken where one could not be.
const PAUSE: Duration = Duration::from_millis(100);

struct Shared {
    directory: Directory,
    is_ending: AtomicBool,
    connections: Mutex<BTreeMap<u64, TcpStream>>,
    left: Condvar,
}

/// A node that listens and serves nobody yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// A node that serves.
pub struct Running {
    listener: TcpListener,
    accepting: JoinHandle<()>,
    shared: Arc<Shared>,
}

impl Server {
    pub fn bind(directory: &Path, address: &str) -> Result<Server, NodeError> {
        let directory = Directory::open(directory)?;
        let failed = |source| NodeError::Listen { address: address.to_owned(), source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (connections, left) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { directory, is_ending: AtomicBool::new(false), connections, left });
        Ok(Server { listener, address, shared })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn start(self) -> io::Result<Running> {
        let (listener, shared) = (self.listener.try_clone()?, self.shared.clone());
        let accept = move || accept_all(&listener, &shared);
        let accepting = std::thread::Builder::new().name("stere-node".into()).spawn(accept)?;
        Ok(Running { listener: self.listener, accepting, shared: self.shared })
    }
}

impl Running {
    /// Ends in order: nobody is let in any more, what was asked is carried out, and all of it is durable.
    pub fn end(self) -> Result<(), NodeError> {
        let shared = &self.shared;
        shared.is_ending.store(true, Ordering::Release);
        let _is_down = SockRef::from(&self.listener).shutdown(Shutdown::Both);
        if self.accepting.join().is_err() {
            tracing::error!("the thread that took connections had ended before");
        }
        let mut connections = shared.connections.lock();
        connections.values().for_each(|socket| drop(socket.shutdown(Shutdown::Read)));
        let until = Instant::now() + END;
        while !connections.is_empty() && !shared.left.wait_until(&mut connections, until).timed_out() {}
        connections.values().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
        drop(connections);
        shared.directory.flush()
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut number = 0;
    loop {
        let accepted = listener.accept();
        if shared.is_ending.load(Ordering::Acquire) {
            return;
        }
        number += 1;
        let started = accepted.and_then(|(socket, from)| serve(shared, number, socket, from));
        if let Err(error) = started {
            tracing::warn!(%error, "a connection could not be taken");
            std::thread::sleep(PAUSE);
        }
    }
}

/// Serves a client on a thread of its own.
fn serve(shared: &Arc<Shared>, number: u64, socket: TcpStream, from: SocketAddr) -> io::Result<()> {
    let known = socket.try_clone()?;
    {
        let mut connections = shared.connections.lock();
        if connections.len() >= CONNECTIONS_MAX {
            return Err(io::Error::other(format!("{from} comes while there are {CONNECTIONS_MAX} connections")));
        }
        connections.insert(number, known);
        assert!(connections.len() <= CONNECTIONS_MAX, "connections are bounded");
    }
    let own = shared.clone();
    let run = move || {
        let gone = Gone { shared: &own, number };
        if let Err(error) = converse(&own, &socket) {
            tracing::debug!(%from, %error, "a connection ended");
        }
        drop(gone);
    };
    let started = std::thread::Builder::new().name("stere-node-client".into()).spawn(run);
    if started.is_err() {
        shared.connections.lock().remove(&number);
    }
    started.map(drop)
}

/// Takes a connection off the list, however its thread ends.
struct Gone<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        if let Some(socket) = self.shared.connections.lock().remove(&self.number) {
            drop(socket.shutdown(Shutdown::Both));
        }
        self.shared.left.notify_all();
    }
}

fn converse(shared: &Shared, socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EACH);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
    socket.set_write_timeout(Some(crate::negotiate::NEGOTIATION))?;
    match negotiate(&shared.directory, socket)? {
        Some(agreed) => transmit(&agreed, socket, &shared.is_ending),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
