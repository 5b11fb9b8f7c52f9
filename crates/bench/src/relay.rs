//! A way to a server that is as long as one over a network: what either side sends arrives so much later, however much it is.
//!
//! Bytes keep their order and their pace; a connection costs one way there and back before anything of it arrives. It ends with the
//! process. Every connection has a reader and a writer for each direction, so nobody's delay adds to another's.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::error::{At, BenchError};

const PIECE_BYTES: usize = 64 << 10;

/// Bytes, and when they may go on; none at the end.
type Piece = (Instant, Vec<u8>);

/// Serves connections to `to` on a port of its own until the process ends; `told` gets its address.
pub fn run(to: &str, delay: Duration, told: impl FnOnce(String)) -> Result<(), BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").at("listen at", "127.0.0.1".as_ref())?;
    told(listener.local_addr().at("listen at", "127.0.0.1".as_ref())?.to_string());
    for client in listener.incoming() {
        let client = client.at("accept a connection to", to.as_ref())?;
        let to = to.to_owned();
        std::thread::spawn(move || {
            // Whoever is cut off notices it by himself.
            drop(serve(&client, &to, delay));
        });
    }
    Ok(())
}

fn serve(client: &TcpStream, to: &str, delay: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(to)?;
    for end in [client, &server] {
        end.set_nodelay(true)?;
    }
    // The client is connected at once here: the way there and back that this takes is added to what it says first.
    let connected = Instant::now() + 2 * delay;
    std::thread::scope(|scope| {
        for (from, into, first) in [(client, &server, connected), (&server, client, connected)] {
            let (sender, receiver) = channel();
            scope.spawn(move || take(from, &sender, delay, first));
            scope.spawn(move || give(into, &receiver));
        }
    });
    Ok(())
}

fn take(mut from: &TcpStream, pieces: &Sender<Piece>, delay: Duration, first: Instant) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let at = Instant::now().max(first) + delay;
        if pieces.send((at, buffer[..count].to_vec())).is_err() {
            break;
        }
    }
}

fn give(mut into: &TcpStream, pieces: &Receiver<Piece>) {
    for (at, bytes) in pieces {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if into.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other side sees the end as it would without us, and who reads for it ends too.
    drop(into.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests;
