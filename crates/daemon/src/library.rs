//! The library's sessions: programs that read and write a file past the kernel, over the public socket and memory they share.
//!
//! Who may is the kernel's decision: a program hands over a descriptor that it opened through the mount, and gets what that
//! allows and no more. The descriptor never reaches the daemon (`receiver.rs` looks at it and closes it: a daemon that holds a file of its own
//! mount open can hang when it is killed, and one of another mount whenever it closes it); the inode is held open in the file system instead,
//! as long as the session lasts.
//!
//! Invariants: clients are not trusted. Their memory is never mapped here: bytes are copied out of it before they are looked at
//! and into it after they were verified, by system calls that fail where the memory ends. A session's threads and buffers
//! are its own and counted by user, so a client that stalls, lies or dies costs others nothing.
//! Read next: `library/session.rs` (threads), `library/perform.rs` (one request), `docs/design/library.md`.

pub mod perform;
pub mod session;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use stere_client_wire::frame::VERSION;
use stere_fuse::{Awake, MountOptions, Turns};
use stere_naming::{Caller, Io, OpenFlags};

use crate::daemon::{Daemon, spawn};
use crate::library::session::Session;
use crate::receiver::{Client, Heard, Rights};
use stere_control::public::{self, Peer, PublicAnswer};
use stere_machine::clock;
use stere_machine::error::{Error, Result, refused};
use stere_online::gate::Gate;

#[cfg(test)]
mod tests;

/// Sessions at a time, in all and of one user.
const SESSIONS_MAX: usize = 64;
const SESSIONS_OF_USER_MAX: usize = 16;

/// Threads beside the first of each session, in all and of one user. Each may hold a buffer of the longest request.
const THREADS_MAX: usize = 128;
const THREADS_OF_USER_MAX: usize = 32;

/// What a user has in use.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Share {
    sessions: usize,
    threads: usize,
}

/// Who has how much; pure counting.
#[derive(Debug, Default)]
struct Shares {
    users: BTreeMap<u32, Share>,
}

impl Shares {
    fn total(&self) -> Share {
        let add = |sum: Share, share: &Share| Share {
            sessions: sum.sessions + share.sessions,
            threads: sum.threads + share.threads,
        };
        self.users.values().fold(Share::default(), add)
    }

    fn take_session(&mut self, uid: u32) -> bool {
        let is_free = self.total().sessions < SESSIONS_MAX;
        let share = self.users.entry(uid).or_default();
        let is_granted = is_free && share.sessions < SESSIONS_OF_USER_MAX;
        share.sessions += usize::from(is_granted);
        is_granted
    }

    fn take_thread(&mut self, uid: u32) -> bool {
        let is_free = self.total().threads < THREADS_MAX;
        let share = self.users.entry(uid).or_default();
        let is_granted = is_free && share.threads < THREADS_OF_USER_MAX;
        share.threads += usize::from(is_granted);
        is_granted
    }

    /// The end of a session that had so many threads beside its first.
    fn give_back(&mut self, uid: u32, threads: usize) {
        let share = self.users.entry(uid).or_default();
        assert!(share.sessions > 0 && share.threads >= threads, "user {uid} gives back what was not taken: {share:?}");
        share.sessions -= 1;
        share.threads -= threads;
        if *share == Share::default() {
            self.users.remove(&uid);
        }
    }
}

#[derive(Default)]
struct Sessions {
    shares: Shares,
    open: BTreeMap<u64, Arc<Session>>,
    next: u64,
    is_over: bool,
}

impl Sessions {
    fn assert_invariants(&self) {
        let taken = self.shares.total().sessions;
        assert_eq!(taken, self.open.len(), "each open session has the share of a user");
        assert!(self.open.last_key_value().is_none_or(|(number, _)| *number < self.next), "numbers are given out once");
    }
}

/// All sessions of a mount.
pub struct Library {
    sessions: Mutex<Sessions>,
    ended: Condvar,
    served: AtomicU64,
    has_panicked: AtomicBool,
    awake: Awake,
    /// Whose turn it is to wait for media, among those too who come through the kernel.
    turns: Arc<Turns>,
    /// The kernel keeps changes to itself for a while, and believes its own sizes.
    is_writeback: bool,
}

impl Library {
    pub fn new(options: &MountOptions, turns: Arc<Turns>) -> Library {
        Library {
            turns,
            sessions: Mutex::default(),
            ended: Condvar::new(),
            served: AtomicU64::new(0),
            has_panicked: AtomicBool::new(false),
            awake: Awake::new(options.keep_cpus_awake),
            is_writeback: options.writeback_cache,
        }
    }

    /// A request came in.
    fn count(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
        self.awake.count();
    }

    /// Requests served so far.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all sessions when what they are doing is done. Tells whether what they left in memory can be trusted.
    pub fn end(&self, gate: &Gate) -> bool {
        let mut sessions = self.lock();
        sessions.is_over = true;
        if !sessions.open.is_empty() {
            // Nobody may wait for a volume any more.
            gate.close();
        }
        sessions.open.values().for_each(|session| session.cut());
        while !sessions.open.is_empty() {
            sessions = self.ended.wait(sessions).unwrap_or_else(PoisonError::into_inner);
        }
        assert_eq!(sessions.shares.total(), Share::default(), "what sessions had is given back when all have ended");
        !self.has_panicked.load(Ordering::Acquire)
    }

    /// Notes a session that begins, unless there are too many or the mount ends.
    fn enter(&self, begin: impl FnOnce(u64) -> Session, uid: u32) -> Result<Arc<Session>> {
        let mut sessions = self.lock();
        if sessions.is_over {
            return refused("the mount ends; open the file again when it is mounted");
        }
        if !sessions.shares.take_session(uid) {
            return refused(format!(
                "too many files are open through the library in this pool ({SESSIONS_OF_USER_MAX} of one user, {SESSIONS_MAX} in all); close some, or read and write through the mount"
            ));
        }
        let number = sessions.next;
        sessions.next += 1;
        let session = Arc::new(begin(number));
        sessions.open.insert(number, session.clone());
        sessions.assert_invariants();
        Ok(session)
    }

    fn leave(&self, session: &Session) {
        let mut sessions = self.lock();
        let was_open = sessions.open.remove(&session.number).is_some();
        assert!(was_open, "session {} ended twice", session.number);
        sessions.shares.give_back(session.peer.uid, session.extra_threads());
        sessions.assert_invariants();
        drop(sessions);
        self.ended.notify_all();
    }

    /// What is in memory may be half a change.
    fn panicked(&self, daemon: &Daemon) {
        self.has_panicked.store(true, Ordering::Release);
        daemon.take_down();
    }
}

/// Begins a session, or tells why not. The conversation is over for the caller in either case.
pub fn begin(
    daemon: &Arc<Daemon>,
    client: Arc<Client>,
    heard: Heard,
    memory: Option<OwnedFd>,
    version: u32,
) -> Result<()> {
    if version != VERSION {
        return refused(format!(
            "the library speaks version {version} and this daemon {VERSION}; install the library that came with `stere`"
        ));
    }
    let Heard { peer, place, session, .. } = heard;
    let (Some((rights, memory_bytes)), Some(memory)) = (session, memory) else {
        return refused("a session needs a file and its memory");
    };
    if rights.write && daemon.library.is_writeback {
        return refused(
            "a pool that is mounted with `-o writeback` is not written past the kernel, which keeps changes to itself; open the file for reading only, or mount without that option",
        );
    }
    let opened = open(daemon, &peer, place.inode, rights);
    let handle = match opened {
        Ok(handle) => handle,
        Err(error) => {
            public::tell(&client.stream, &PublicAnswer::NotOpened { errno: error.errno(), message: error.to_string() });
            return Ok(());
        }
    };
    let inode = place.inode;
    let uid = peer.uid;
    let (owner, served) = (peer.clone(), client.clone());
    let begin = move |number| Session::new(number, owner, (inode, handle), rights, served, (memory, memory_bytes));
    let outcome = daemon.library.enter(begin, uid);
    let session = match outcome {
        Ok(session) => session,
        Err(error) => {
            let caller = caller_of(&peer);
            return daemon.filesystem.release(&caller, inode, handle).map_err(Error::from).and(Err(error));
        }
    };
    // Whatever becomes of it, the session ends by its thread.
    public::tell(&client.stream, &PublicAnswer::Library { version: VERSION });
    let serving = (daemon.clone(), session.clone());
    if let Err(error) = spawn("library", move || session::serve(&serving.0, &serving.1)) {
        session::finish(daemon, &session);
        return Err(error);
    }
    Ok(())
}

pub fn caller_of(peer: &Peer) -> Caller<'_> {
    Caller {
        uid: peer.uid,
        gid: peer.gid,
        groups: &peer.groups,
        umask: 0,
        now: clock::now(),
        io: Io::BLOCKING,
        process: 0,
        request: None,
    }
}

fn open(
    daemon: &Daemon,
    peer: &Peer,
    inode: u64,
    rights: Rights,
) -> std::result::Result<stere_naming::Handle, stere_naming::Error> {
    let flags = OpenFlags { write: rights.write, ..OpenFlags::default() };
    daemon.filesystem.open(&caller_of(peer), inode, flags)
}
