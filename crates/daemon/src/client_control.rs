//! The control socket of a mount whose pool another process owns: who serves it, and its end. The rest is asked of the owner's process, on
//! this machine or over the wire.
//!
//! Who may ask is decided here as on the owner's machine: the socket lies in a directory of the user who mounted. Read next:
//! `client_questions.rs` (those who only use the mount), `control_socket.rs` (the owner's), `from_afar.rs`.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use stere_client::{CommandsError, Link, Reach};
use stere_fuse::Unmounter;
use zeroize::{Zeroize, Zeroizing};

use crate::client_keys::ClientKeys;
use crate::client_media::ClientMedia;
use crate::control_socket::unmount_for;
use crate::daemon::spawn;
use crate::junctions::{How, Junctions};
use stere_control::connection::{self, Connection};
use stere_control::junction;
use stere_control::keys::Order;
use stere_control::message::{About, Answer, Request};
use stere_control::status::{ThroughReport, ThroughState};
use stere_machine::error::{Error, Result, refused};
use stere_machine::registry::Registry;

/// What is needed to answer.
pub struct ClientControl {
    pub registry: Registry,
    pub about: About,
    pub unmounter: Unmounter,
    /// The host of the owner.
    pub host: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// What is wrong with the log by which the owner is found, if anything is.
    pub log_trouble: Box<dyn Fn() -> Option<String> + Send + Sync>,
    pub link: Arc<Link>,
    /// Unlocked on this machine.
    pub keys: Arc<ClientKeys>,
    /// On this machine, for the owner.
    pub media: Arc<ClientMedia>,
    /// Pools that are mounted in this mount.
    pub junctions: Arc<Junctions>,
    /// Makes this machine the pool's owner.
    pub take: Box<dyn Fn() -> Result<()> + Send + Sync>,
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
        let mut line = Zeroizing::new(String::new());
        while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
            match serde_json::from_str(&line) {
                // Each command asks this, also one that begins an owner's process: it does not wait for any owner.
                Ok(Request::About) => connection::send(&mut stream, &Answer::About(self.about(Link::reach))),
                Ok(Request::Reach) => connection::send(&mut stream, &Answer::About(self.about(Link::reach_soon))),
                Ok(Request::Take) => connection::send(&mut stream, &self.take_pool()),
                Ok(Request::Unmount { lazy, force }) => {
                    if let Err(error) = self.junctions.end(How::Asked { lazy, force }) {
                        connection::send(&mut stream, &failed(error));
                    } else if let Some(refused) = unmount_for(&stream, &self.ending, &self.unmounter, (lazy, force)) {
                        self.junctions.go_on();
                        connection::send(&mut stream, &refused);
                    }
                }
                Ok(Request::Keys { order: Order::Unlock { name, secret } }) => {
                    connection::send(&mut stream, &self.keys.unlock(self, name, secret).unwrap_or_else(failed));
                }
                Ok(Request::Keys { order: Order::Lock { name } }) => {
                    connection::send(&mut stream, &self.keys.lock_everywhere(self, name).unwrap_or_else(failed));
                }
                Ok(Request::Change { change, dry_run })
                    if let Some(changed) = self.media.change(self, &change, dry_run) =>
                {
                    connection::send(&mut stream, &changed.unwrap_or_else(failed));
                }
                Ok(_) => {
                    let mut first = Zeroizing::new(line.as_bytes().to_vec());
                    first.extend_from_slice(reader.buffer());
                    return self.ask_the_owner(&first, stream);
                }
                Err(error) => {
                    let message = format!("the request is not understood: {error}");
                    connection::send(&mut stream, &Answer::Failed { message, ended: false });
                }
            }
            line.zeroize();
        }
    }

    /// Who serves this mount, and how its owner is reached now.
    fn about(&self, reach: fn(&Link) -> Reach) -> About {
        let mountpoint = self.unmounter.place_now();
        About { through: self.through(reach), junctions: self.junctions.report(), mountpoint, ..self.about.clone() }
    }

    /// Begins to take the pool from whoever has it.
    fn take_pool(&self) -> Answer {
        let pool = &self.about.pool;
        match (self.owns(), (self.take)()) {
            (true, _) => Answer::Said { said: format!("this machine owns the pool {pool} already") },
            (false, Ok(())) => Answer::Done,
            (false, Err(error)) => failed(error),
        }
    }

    fn through(&self, reach: fn(&Link) -> Reach) -> Option<ThroughReport> {
        if self.owner_here().is_some() {
            return None;
        }
        let (state, away_seconds, why) = match reach(&self.link) {
            Reach::Connected => (ThroughState::Connected, 0, None),
            Reach::Away { since, why } => (ThroughState::Away, since.as_secs(), Some(why)),
            Reach::Refused { why } => (ThroughState::Refused, 0, Some(why)),
        };
        // Without the log no other owner is found.
        let trouble = (self.log_trouble)().filter(|_| state == ThroughState::Away);
        let why = [why.filter(|why| !why.is_empty()), trouble]
            .into_iter()
            .flatten()
            .reduce(|why, more| format!("{why}; {more}"));
        Some(ThroughReport { host: (self.host)(), state, away_seconds, why })
    }

    /// Whether the owner's process is on this machine.
    pub fn owns(&self) -> bool {
        self.owner_here().is_some()
    }

    /// The owner's process, where it is on this machine.
    fn owner_here(&self) -> Option<UnixStream> {
        connection::connect(&self.registry, &connection::owner_name(&self.about.pool))
    }

    /// Hands the conversation to the owner's process, of which this was read already.
    fn ask_the_owner(&self, first: &[u8], mut stream: UnixStream) {
        if let Err(error) = self.ask(first, &stream) {
            connection::send(&mut stream, &failed(error));
        }
    }

    /// Carries a conversation to the owner's process, wherever it is.
    pub fn ask(&self, first: &[u8], stream: &UnixStream) -> Result<()> {
        if let Some(owner) = self.owner_here() {
            relay(first, stream, owner);
            return Ok(());
        }
        // What became of it is told by whoever carries.
        let _moment = self.link.reach_soon();
        self.link.carry(stream, first).or_else(|error| refused(self.why_not(&error)))
    }

    /// The answer of the owner's process to one question of this one.
    pub fn ask_for(&self, request: Request) -> Result<Answer> {
        let (ours, theirs) = UnixStream::pair().map_err(Error::System)?;
        std::thread::scope(|scope| {
            let carrying = std::thread::Builder::new().name("own-question".to_owned());
            let carrying = carrying.spawn_scoped(scope, move || self.ask(b"", &theirs)).map_err(Error::System)?;
            let answer = Connection::of(ours).ask(request);
            // Why there was none, if so.
            let carried = carrying.join().unwrap_or_else(|_| refused("the question was lost; see the log"));
            carried.and(answer)
        })
    }

    /// Why the owner has not answered.
    fn why_not(&self, error: &CommandsError) -> String {
        let pool = &self.about.pool;
        let host = (self.host)().map(|host| format!(" (host {host})")).unwrap_or_default();
        match (error, self.link.reach()) {
            (CommandsError::Broken(_), _) => format!("{error}; the pool is '{pool}'{host}"),
            (_, Reach::Away { since, .. }) => {
                let since = stere_machine::size::show_duration(since.as_secs());
                let trouble = (self.log_trouble)().map(|trouble| format!("; {trouble}")).unwrap_or_default();
                format!("the owner of the pool '{pool}'{host} has not been reached for {since}: {error}{trouble}")
            }
            _ => format!("the owner of the pool '{pool}'{host} cannot be asked: {error}"),
        }
    }
}

fn failed(error: Error) -> Answer {
    Answer::Failed { message: error.to_string(), ended: false }
}

/// Mounts the pools in this one, as its owner says which they are.
pub fn follow_junctions(control: &Arc<ClientControl>) -> Result<()> {
    let (junctions, control) = (control.junctions.clone(), Arc::downgrade(control));
    Junctions::follow(&junctions, move || {
        let told = control.upgrade()?.ask_for(Request::Junctions { order: junction::Order::List });
        Some(told.and_then(|answer| match answer {
            Answer::Junctions { junctions } => Ok(junctions),
            _ => refused("the owner gave an answer that was not asked for"),
        }))
    })
}

/// Hands a conversation to the owner's process of this machine.
fn relay(first: &[u8], stream: &UnixStream, owner: UnixStream) {
    let (Ok(mut to_owner), Ok(mut reader), Ok(mut back)) = (owner.try_clone(), stream.try_clone(), stream.try_clone())
    else {
        return;
    };
    // An end on either side ends both.
    drop(spawn("relay", move || {
        drop(std::io::copy(&mut &owner, &mut back));
        drop(back.shutdown(Shutdown::Both));
    }));
    if to_owner.write_all(first).is_ok() {
        drop(std::io::copy(&mut reader, &mut to_owner));
    }
    drop(to_owner.shutdown(Shutdown::Both));
}
