//! Where clients arrive: the listener, the table of sessions, and the threads that serve all of them.
//!
//! Invariant: a session is in the table from its first connection until it ends, and ends once. An inode is forgotten in the file
//! system when no session knows it. Read next: `session.rs`.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuse_wire::abi::{init, opcode};
use fuse_wire::{Redone, Request, raw};
use parking_lot::Mutex;
use stere_fuse::{Begun, Changes, Door, Next, Observer, WhenHeard};
use stere_machine_tls::{MachineKey, PublicKey, accept};
use stere_machine_wire::{Frame, Incoming, Outgoing, Purpose, Refusal, SILENCE_SECONDS_MAX, Secret, StreamError};
use stere_naming::requests;

use crate::appends::Appends;
use crate::bounded::Bounded;
use crate::commands::{Answer, Commands};
use crate::connection::Connection;
use crate::definite::{Definite, Need};
use crate::departed::Departed;
use crate::effects::Effects;
use crate::greet::{FromClient, Greeted, Identity, ToClient, greet, refuse};
use crate::leases::{Leases, Recall};
use crate::members::{Members, ReadMembers};
use crate::session::{Asked, Session};
use crate::sharing::{HeldAnswer, Sharing};
use crate::writers::{self, OWN, Writers, asked_of};

/// Clients at a time, and connections that are not one's yet.
const SESSIONS_MAX: usize = 256;
const GREETING_MAX: usize = 64;
/// How long who connects may wait for it to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// An owner that leaves waits so long until its clients know what is durable.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);
/// A client that does not say for so long that it has heard is given up: others wait for that.
const HEARS_WITHIN: Duration = Duration::from_secs(SILENCE_SECONDS_MAX);
/// A client that does not send for so long what it has gathered loses it with its session: others wait for that.
const RETURNS_WITHIN: Duration = Duration::from_secs(15);
/// A client that comes back in time may take so long to tell what it has: where the pool is nearly full it waits for room.
const TELLING_MAX: Duration = Duration::from_secs(90);
/// A client that takes nothing for so long is given up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// Why the owner cannot serve other machines.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    #[error("the address {address} for other machines cannot be used: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("numbers for inodes could not be left out for other machines: {0}")]
    Pool(stere_naming::Error),
    #[error("a thread for other machines could not be started: {0}; check the limits on processes and memory")]
    Thread(std::io::Error),
}

/// How a pool is served to other machines.
pub struct OwnerOptions {
    /// Port 0 takes a free one, which `Owner::address` tells.
    pub address: SocketAddr,
    pub pool: [u8; 16],
    /// Random for this term, and told to the members only.
    pub secret: [u8; 32],
    pub epoch: u64,
    /// How long, after an owner before this one, its clients may tell what they have before others change anything; less where all have.
    pub grace: Duration,
    /// Of this machine: clients find it in the registry.
    pub key: MachineKey,
    /// Reads which machines are admitted.
    pub members: ReadMembers,
    /// Answers commands of other machines.
    pub commands: Answer,
}

/// A connection that has proven itself, of which nothing was served yet.
struct Let {
    key: PublicKey,
    greeted: Greeted,
    incoming: Incoming<FromClient>,
    outgoing: Outgoing<ToClient>,
}

pub(crate) struct Shared {
    door: Door,
    identity: Identity,
    key: MachineKey,
    members: Members,
    commands: Commands,
    definite: Arc<Definite>,
    sharing: Arc<Sharing>,
    appends: Arc<Appends<Session, HeldAnswer>>,
    leases: Arc<Leases>,
    writers: Arc<Writers>,
    effects: Effects,
    sessions: Mutex<HashMap<[u8; 16], Arc<Session>>>,
    departed: Departed,
    next_tag: AtomicU64,
    greeting: AtomicUsize,
    grace_until: Instant,
    /// Sessions of the owner before that have not told yet what they have.
    awaited: Mutex<HashSet<[u8; 16]>>,
    /// Without a name when this owner began; some client may come back for them.
    found: Mutex<Vec<u64>>,
    is_over: AtomicBool,
}

/// Serves a pool to other machines until it is dropped.
pub struct Owner {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Owner {
    /// Listens, and serves what comes through `door`.
    ///
    /// # Errors
    /// Where the address cannot be used, or for want of threads.
    pub fn start(door: Door, options: OwnerOptions) -> Result<Owner, OwnerError> {
        let listen = |source| OwnerError::Listen { address: options.address, source };
        let listener = TcpListener::bind(options.address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let found = if options.grace.is_zero() { Vec::new() } else { door.filesystem().hold_found() };
        let departed = Departed::of(door.clone());
        if !departed.all().is_empty() {
            door.leave_inodes_out().map_err(OwnerError::Pool)?;
        }
        let shared = Arc::new(Shared {
            awaited: Mutex::new(departed.all()),
            departed,
            definite: Definite::new(door.clone()),
            sharing: Arc::default(),
            appends: Arc::new(Appends::new(|session, answer| session.hears(None, Some(answer)))),
            door,
            identity: Identity { pool: options.pool, secret: Secret(options.secret), epoch: options.epoch },
            key: options.key,
            members: Members::new(options.members),
            commands: Commands::new(options.commands),
            leases: Arc::default(),
            writers: Arc::default(),
            effects: Effects::default(),
            sessions: Mutex::default(),
            next_tag: AtomicU64::new(1),
            greeting: AtomicUsize::new(0),
            grace_until: Instant::now() + options.grace,
            found: Mutex::new(found),
            is_over: AtomicBool::new(false),
        });
        let (before, after) = (Arc::downgrade(&shared), Arc::downgrade(&shared));
        let (door, writers) = (shared.door.clone(), Arc::clone(&shared.writers));
        shared.door.on_changes(Observer {
            asked: Box::new(move |request| when_returned(&door, &writers, request)),
            before: Box::new(move |changes| {
                before.upgrade().map_or_else(Begun::default, |shared| shared.begin(changes))
            }),
            after: Box::new(move |changes| after.upgrade().and_then(|shared| shared.changed(changes))),
        });
        let asked = Arc::downgrade(&shared);
        shared.door.on_forget(Box::new(move |inode| asked.upgrade().is_some_and(|shared| shared.is_known(inode))));
        let mut owner = Owner { shared: Arc::clone(&shared), address, threads: Vec::new() };
        owner.spawn("far-accept", move |shared| shared.accept(&listener))?;
        owner.spawn("far-commit", |shared| {
            shared.definite.commit_for_all(|mark| shared.tell_committed(mark), || shared.cut_all());
        })?;
        owner.spawn("far-marks", |shared| shared.definite.mark_now_and_then(|mark| shared.tell_definite(mark)))?;
        owner.spawn("far-effects", |shared| shared.tell_effects())?;
        owner.spawn("far-members", |shared| shared.members.keep_reading(|| shared.cut_strangers()))?;
        owner.spawn("far-expiry", |shared| shared.expire())?;
        let awaited = owner.shared.awaited.lock().len();
        tracing::info!(%address, epoch = options.epoch, awaited, "other machines are served");
        Ok(owner)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce(&Arc<Shared>) + Send + 'static) -> Result<(), OwnerError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&shared));
        self.threads.push(thread.map_err(OwnerError::Thread)?);
        Ok(())
    }

    /// Where clients find it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Clients that have something here, connected or not.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.shared.sessions.lock().len()
    }

    /// Whether a commit has failed, so that nobody is served any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.definite.has_failed()
    }

    /// Answers nobody any more, as after a commit that failed.
    pub fn fail(&self) {
        self.shared.definite.fail();
        self.shared.cut_all();
    }

    /// Breaks all connections; their clients come back.
    pub fn cut_all(&self) {
        self.shared.cut_all();
    }

    /// Serves nobody any more. What clients have open stays so, and is there for the next owner if it has no name; call this before the
    /// file system is closed.
    pub fn end(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.shared.make_all_definite();
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.sharing.end();
        self.shared.definite.end();
        self.shared.members.end();
        self.shared.effects.end();
        self.shared.commands.end();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that served other machines panicked");
            }
        }
        let sessions: Vec<_> = self.shared.sessions.lock().drain().map(|(_, session)| session).collect();
        sessions.iter().for_each(|session| session.leave());
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        while !self.is_over() {
            // Nobody there; or too many open files, perhaps, and others may close some.
            let Ok((socket, _)) = listener.accept() else {
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            if self.greeting.fetch_add(1, Ordering::AcqRel) >= GREETING_MAX {
                self.greeting.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let shared = Arc::clone(self);
            let started = std::thread::Builder::new().name("far-client".to_owned()).spawn(move || shared.hear(socket));
            if let Err(error) = started {
                self.greeting.fetch_sub(1, Ordering::AcqRel);
                tracing::warn!(%error, "no thread for another machine");
            }
        }
    }

    /// One connection, from its first byte to its last.
    fn hear(self: &Arc<Self>, socket: TcpStream) {
        let is_let = self.let_in(&socket);
        self.greeting.fetch_sub(1, Ordering::AcqRel);
        let peer = socket.peer_addr().ok();
        let outcome = match is_let {
            Ok(Some(one)) if one.greeted.hello.purpose == Purpose::Commands => self.answer_commands(&socket, one),
            Ok(Some(one)) => self.serve_mount(&socket, one),
            other => other.map(|_| false),
        };
        match outcome {
            Ok(true) => {}
            Ok(false) => tracing::warn!(?peer, "a machine was refused"),
            Err(error) => tracing::debug!(?peer, %error, "a connection of another machine ended"),
        }
    }

    /// Hears who is at the other end. `None`: it was refused.
    fn let_in(&self, socket: &TcpStream) -> Result<Option<Let>, StreamError> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let silence = Duration::from_secs(SILENCE_SECONDS_MAX);
        let bounded = Bounded::new(socket.try_clone()?, silence, 2 * silence)?;
        let accepted = accept(&self.key, bounded, socket.try_clone()?);
        let (reader, writer, key) = accepted.map_err(|error| StreamError::Io(std::io::Error::other(error)))?;
        let (mut incoming, mut outgoing) = (Incoming::new(reader), Outgoing::new(writer));
        let members = (&self.members, &key);
        let Some(greeted) = greet(&self.identity, members, &mut incoming, &mut outgoing)? else { return Ok(None) };
        if self.is_over() || self.definite.has_failed() {
            refuse(&mut outgoing, Refusal::Ending);
            return Ok(None);
        }
        Ok(Some(Let { key, greeted, incoming, outgoing }))
    }

    /// A conversation of commands, to its end. False: it was refused.
    fn answer_commands(&self, socket: &TcpStream, one: Let) -> Result<bool, StreamError> {
        let Let { key, greeted, mut incoming, mut outgoing } = one;
        let Some(turn) = self.commands.begin(&key, socket)? else {
            refuse(&mut outgoing, Refusal::Full);
            return Ok(false);
        };
        greeted.welcome(&self.identity, false, &mut incoming, &mut outgoing)?;
        turn.serve(incoming, outgoing).map(|()| true)
    }

    /// A client's connection, to its end. False: it was refused.
    fn serve_mount(self: &Arc<Self>, socket: &TcpStream, one: Let) -> Result<bool, StreamError> {
        let Let { key, greeted, mut incoming, mut outgoing } = one;
        let (session, is_resumed) = match self.session_of(&greeted, key) {
            Ok(session) => session,
            Err(refusal) => {
                refuse(&mut outgoing, refusal);
                return Ok(false);
            }
        };
        greeted.welcome(&self.identity, is_resumed, &mut incoming, &mut outgoing)?;
        let connection = Connection::new(socket.try_clone()?);
        if !session.attach(Arc::clone(&connection)) {
            return Err(StreamError::Ended);
        }
        let sending = Arc::clone(&connection);
        let started = std::thread::Builder::new().name("far-send".to_owned()).spawn(move || sending.serve(outgoing));
        if let Err(error) = started {
            session.detach(&connection);
            return Err(StreamError::Io(error));
        }
        let peer = socket.peer_addr().ok();
        tracing::info!(?peer, client = session.tag, "another machine is connected");
        let outcome = self.serve(&session, &connection, incoming);
        connection.cut();
        session.detach(&connection);
        match outcome {
            Ok(()) => {
                self.end_session(&session);
                self.awaited.lock().remove(&session.id);
                self.departed.ends(session.id);
            }
            Err(error) => tracing::info!(?peer, client = session.tag, %error, "a machine's connection ended"),
        }
        Ok(true)
    }

    /// The session that a client goes on with, or a new one; and whether it was there.
    fn session_of(&self, greeted: &Greeted, key: PublicKey) -> Result<(Arc<Session>, bool), Refusal> {
        let mut sessions = self.sessions.lock();
        match sessions.get(&greeted.hello.session) {
            // Nobody goes on with what is another machine's.
            Some(known) if known.key != key => Err(Refusal::Proof),
            Some(known) => Ok((Arc::clone(known), true)),
            None if sessions.len() >= SESSIONS_MAX => Err(Refusal::Full),
            None => {
                let (id, tag) = (greeted.hello.session, self.next_tag.fetch_add(1, Ordering::Relaxed));
                let extended = greeted.hello.kernel_flags & init::SETXATTR_EXT != 0;
                let durability = (Arc::clone(&self.definite), Arc::clone(&self.sharing), Arc::clone(&self.appends));
                let leases = (Arc::clone(&self.leases), Arc::clone(&self.writers));
                let session = Session::new((id, tag, key), extended, self.door.clone(), durability, leases);
                let session = session.map_err(|error| {
                    tracing::error!(%error, "a machine cannot be served");
                    Refusal::Ending
                })?;
                self.departed.is_back(id);
                sessions.insert(id, Arc::clone(&session));
                drop(sessions);
                self.note_session(&id);
                Ok((session, false))
            }
        }
    }

    /// So that the next owner waits for it.
    fn note_session(&self, id: &[u8; 16]) {
        match requests::note_session(self.door.filesystem().store(), id) {
            Ok(true) => self.definite.tell_when(Need::Names, Box::new(|_| {})),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the next owner will not know that this machine is served"),
        }
    }

    /// Serves a client's frames. `Ok`: it said that its session is over.
    fn serve(
        self: &Arc<Self>,
        session: &Arc<Session>,
        connection: &Arc<Connection>,
        mut incoming: Incoming<FromClient>,
    ) -> Result<(), StreamError> {
        let offended = |offence: crate::session::Offence| {
            tracing::warn!(client = session.tag, %offence, "a machine's connection is ended");
            StreamError::Order
        };
        loop {
            match incoming.next_frame()? {
                Frame::Request { number: 0, message, .. } => {
                    let forgotten = session.take_note(message).map_err(offended)?;
                    self.forget(&forgotten);
                }
                Frame::Request { number, acknowledged, is_repeated, takes_map, has_keys, message } => {
                    let bytes = message.len() + answer_bytes(message);
                    let charge = connection.charge(bytes).ok_or(StreamError::Ended)?;
                    let asked = Asked { number, acknowledged, is_repeated, takes_map, has_keys, redone: None };
                    session.request(&asked, message, charge).map_err(offended)?;
                }
                Frame::Redo { number, inode, seconds, nanoseconds, message } => {
                    let charge = connection.charge(message.len() + answer_bytes(message)).ok_or(StreamError::Ended)?;
                    let redone = Some(Redone { inode, seconds, nanoseconds });
                    let asked =
                        Asked { number, acknowledged: 0, is_repeated: true, takes_map: false, has_keys: false, redone };
                    session.request(&asked, message, charge).map_err(offended)?;
                }
                Frame::Hold { node, count } => session.hold(node, count).map_err(offended)?,
                Frame::Confirmed { number } => session.confirmed(number),
                Frame::WritesReturned { node, number } => session.returned(node, number),
                // Others may have to tell first what they had at the owner before.
                Frame::Settled => {
                    session.settled();
                    let awaited = {
                        let mut awaited = self.awaited.lock();
                        awaited.remove(&session.id);
                        awaited.len()
                    };
                    tracing::info!(client = session.tag, awaited, "a machine has told what it has");
                    self.wait_for_grace();
                }
                Frame::Ping => connection.tell(&Frame::Pong),
                Frame::Pong => {}
                Frame::Bye => return Ok(()),
                _ => return Err(StreamError::Order),
            }
            if connection.is_cut() {
                return Err(StreamError::Ended);
            }
        }
    }

    /// Whether others may change anything: all have told what they had, or do not come back. One that is telling it is waited for.
    fn is_grace_over(&self) -> bool {
        let (now, awaited) = (Instant::now(), self.awaited.lock().clone());
        if awaited.is_empty() || now >= self.grace_until + TELLING_MAX {
            return true;
        }
        let sessions = self.sessions.lock();
        now >= self.grace_until
            && !awaited.iter().any(|id| sessions.get(id).is_some_and(|session| session.is_connected()))
    }

    fn wait_for_grace(&self) {
        while !self.is_grace_over() && !self.is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_known(&self, inode: u64) -> bool {
        self.sessions.lock().values().any(|session| session.knows(inode))
    }

    /// Inodes that one client does not know any more: when no other does, they are forgotten.
    fn forget(&self, inodes: &[u64]) {
        let unknown: Vec<u64> = inodes.iter().copied().filter(|inode| !self.is_known(*inode)).collect();
        unknown.into_iter().for_each(|inode| self.door.forgotten(inode));
    }

    fn end_session(&self, session: &Arc<Session>) {
        // Before the table says so: whoever comes back then is served as new, and is in the list no more.
        self.departed.leaves(session.id);
        let is_first = self.sessions.lock().remove(&session.id).is_some();
        if is_first {
            let forgotten = session.end();
            self.forget(&forgotten);
            tracing::info!(client = session.tag, "a machine's session is over");
        }
    }

    /// Ends sessions that nobody came back for, until the end.
    fn expire(&self) {
        while !self.is_over() {
            let expired: Vec<_> =
                self.sessions.lock().values().filter(|session| session.has_expired()).cloned().collect();
            expired.iter().for_each(|session| self.end_session(session));
            for session in self.writers.overdue(RETURNS_WITHIN) {
                tracing::warn!(
                    client = session.tag,
                    "a machine does not send what it has gathered: its session is ended"
                );
                self.end_session(&session);
            }
            let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
            sessions.iter().for_each(|session| session.cut_if_deaf(HEARS_WITHIN));
            self.departed.forget_old();
            if self.is_grace_over() {
                let found = std::mem::take(&mut *self.found.lock());
                self.forget(&found);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Something is about to change: who believes the contrary hears of it first.
    fn begin(&self, changes: &Changes) -> Begun {
        let pending = self.definite.uncommitted.begin(changes);
        let (changing, recalls) = self.leases.change(changes);
        Begun { guard: Some(Box::new((changing, pending))), when_heard: when_heard(recalls) }
    }

    /// Something has changed. Whoever may believe what was not said to change hears of it before it is answered.
    fn changed(&self, changes: Changes) -> Option<WhenHeard> {
        assert!(
            changes.is_begun || changes.late.is_empty(),
            "all of {changes:?} is told at once, or what was not before"
        );
        let recalls = match changes.is_begun {
            true => {
                self.definite.uncommitted.note(changes.by, &changes.late);
                self.leases.changed(&changes.late)
            }
            false => {
                self.definite.uncommitted.note_all(&changes);
                self.leases.change(&changes).1
            }
        };
        // It hears before it has its answer, which goes the same way.
        let (own, others): (Vec<_>, Vec<_>) = recalls.into_iter().partition(|recall| changes.by == Some(recall.tag));
        own.iter().for_each(|recall| recall.session.notify(&recall.notices));
        self.effects.push(changes);
        when_heard(others)
    }

    fn tell_effects(&self) {
        self.effects.tell(|changes| {
            let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
            sessions.iter().for_each(|session| session.tell(changes));
            if changes.by.is_some() || changes.tell_own {
                self.door.forget_here(changes);
            }
        });
    }

    /// Makes durable what clients keep and has them know it, so that they need no other owner for that.
    fn make_all_definite(&self) {
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        if sessions.is_empty() || self.definite.has_failed() {
            return;
        }
        let mark = self.definite.mark(0);
        if let Err(error) = self.door.sync() {
            return tracing::warn!(%error, "what other machines wrote could not be made durable; they keep it");
        }
        self.tell_definite(mark);
        let deadline = Instant::now() + CONFIRMED_WITHIN;
        while sessions.iter().any(|session| session.is_hearing()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn tell_definite(&self, mark: u64) {
        self.appends.let_go(mark);
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        sessions.iter().for_each(|session| session.tell_definite(mark));
    }

    fn tell_committed(&self, mark: u64) {
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        sessions.iter().for_each(|session| session.tell_committed(mark));
    }

    /// Ends what machines have here that are not admitted any more.
    fn cut_strangers(self: &Arc<Self>) {
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        for session in sessions.iter().filter(|session| self.members.is_out(&session.key)) {
            tracing::warn!(client = session.tag, "a machine is not admitted any more: it is cut off");
            session.cut();
            self.end_session(session);
        }
        self.commands.cut(|key| self.members.is_out(key));
    }

    fn cut_all(&self) {
        self.commands.cut(|_| true);
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        sessions.iter().for_each(|session| session.cut());
    }
}

/// A request of this machine's kernel waits until no other machine gathers what it asks for; `None`: none does.
fn when_returned(door: &Door, writers: &Arc<Writers>, request: &Request) -> Option<WhenHeard> {
    if !writers.has_others(OWN) {
        return None;
    }
    let nodes = asked_of(door, writers, OWN, request);
    let writers = Arc::clone(writers);
    Some(Box::new(move |next| writers::wait(&writers, OWN, &nodes, &HeldAnswer::of(next))))
}

/// Has these machines hear; `None`: there are none.
pub(crate) fn when_heard(recalls: Vec<Recall<Session>>) -> Option<WhenHeard> {
    if recalls.is_empty() {
        return None;
    }
    Some(Box::new(move |next: Next| {
        let held = HeldAnswer::of(next);
        recalls.iter().for_each(|recall| recall.session.recall(&recall.notices, &held));
    }))
}

/// How long the answer to a request may be; what is not told in it is short.
fn answer_bytes(message: &[u8]) -> usize {
    const SHORT: usize = 4096;
    /// Where READ and its like have the size that they ask for.
    const SIZE_AT: usize = raw::HEADER_BYTES + 16;
    let asks = raw::header(message)
        .is_some_and(|header| matches!(header.opcode, opcode::READ | opcode::READDIR | opcode::READDIRPLUS));
    let size = message.get(SIZE_AT..).and_then(|rest| rest.first_chunk::<4>()).map(|bytes| u32::from_ne_bytes(*bytes));
    match size.filter(|_| asks) {
        Some(size) => SHORT + (size as usize).min(stere_machine_wire::frame::ANSWER_BYTES_MAX),
        None => SHORT,
    }
}
