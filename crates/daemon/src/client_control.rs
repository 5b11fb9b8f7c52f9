//! The control socket of a mount whose pool another process owns: who serves it, and its end. The rest is asked of the owner's process where
//! that is on this machine.
//!
//! Read next: `serve_client.rs`, `control_socket.rs` (the owner's).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use stere_fuse::Unmounter;

use crate::control_socket::unmount_for;
use crate::daemon::spawn;
use stere_control::connection;
use stere_control::message::{About, Answer, Request};
use stere_machine::error::Result;
use stere_machine::registry::Registry;

/// What is needed to answer.
pub struct ClientControl {
    pub registry: Registry,
    pub about: About,
    pub unmounter: Unmounter,
    /// The host of the owner.
    pub host: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Those who wait until everything is durable.
    pub ending: Mutex<Vec<UnixStream>>,
}

impl ClientControl {
    /// Answers until the process ends.
    pub fn start(self: &Arc<Self>, listener: UnixListener) -> Result<()> {
        let control = self.clone();
        spawn("control", move || {
            for stream in listener.incoming().flatten() {
                let control = control.clone();
                drop(spawn("asked", move || control.converse(stream)));
            }
        })
    }

    fn converse(&self, stream: UnixStream) {
        let Ok(mut reader) = stream.try_clone().map(BufReader::new) else { return };
        let mut stream = stream;
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
            match serde_json::from_str(&line) {
                Ok(Request::About) => connection::send(&mut stream, &Answer::About(self.about.clone())),
                Ok(Request::Unmount { lazy, force }) => {
                    if let Some(refused) = unmount_for(&stream, &self.ending, &self.unmounter, (lazy, force)) {
                        connection::send(&mut stream, &refused);
                    }
                }
                Ok(_) => return self.ask_the_owner(&line, reader, stream),
                Err(error) => {
                    let message = format!("the request is not understood: {error}");
                    connection::send(&mut stream, &Answer::Failed { message, ended: false });
                }
            }
            line.clear();
        }
    }

    /// Hands the conversation to the owner's process of this machine.
    fn ask_the_owner(&self, first: &str, mut reader: BufReader<UnixStream>, mut stream: UnixStream) {
        let Some(owner) = connection::connect(&self.registry, &connection::owner_name(&self.about.pool)) else {
            let message = match (self.host)() {
                Some(host) => format!("the pool '{}' is owned by host {host}: ask there", self.about.pool),
                None => format!(
                    "nobody owns the pool '{}' at this moment; who asks again in some seconds is answered",
                    self.about.pool
                ),
            };
            return connection::send(&mut stream, &Answer::Failed { message, ended: false });
        };
        let (Ok(mut to_owner), Ok(mut back)) = (owner.try_clone(), stream.try_clone()) else { return };
        // An end on either side ends both.
        drop(spawn("relay", move || {
            drop(std::io::copy(&mut &owner, &mut back));
            drop(back.shutdown(std::net::Shutdown::Both));
        }));
        if to_owner.write_all(first.as_bytes()).is_ok() {
            drop(std::io::copy(&mut reader, &mut to_owner));
        }
        drop(to_owner.shutdown(std::net::Shutdown::Both));
    }
}
