//! One session: threads that take turns at reading the socket, each doing what it read.
//!
//! Whoever has the intake waits for frames; with a frame in hand it gives the intake away and works, waiting for devices as long
//! as that takes. So a request is worked on by the thread that received it, and the next is received meanwhile by another.
//! A request that the client has alone under way is worked on with the intake in hand.
//! A further thread is started when none waits for the intake, up to what the user may have.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stere_client_wire::frame::{IN_FLIGHT_MAX, Kind, REQUEST_BYTES, Request};
use stere_client_wire::handles::{self, Peeked};
use stere_naming::{Handle, Io};

use crate::daemon::{Daemon, spawn};
use crate::library::{caller_of, perform};
use crate::receiver::{Client, Rights};
use stere_control::public::Peer;

/// Threads of one session beside its first: as many waits for devices overlap.
const EXTRA_THREADS_MAX: usize = 15;

/// A client that takes no answer for so long is given up.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Frames on their way in.
#[derive(Default)]
struct Intake {
    /// The beginning of a frame, or nothing.
    rest: Vec<u8>,
    queue: VecDeque<Request>,
    is_over: bool,
}

pub struct Session {
    pub number: u64,
    pub peer: Peer,
    pub inode: u64,
    pub handle: Handle,
    pub rights: Rights,
    pub memory: OwnedFd,
    pub memory_bytes: u64,
    client: Arc<Client>,
    intake: Mutex<Intake>,
    answers: Mutex<()>,
    /// Threads that work on it, that wait for the intake, and that were started beside the first.
    threads: AtomicUsize,
    waiting: AtomicUsize,
    extra: AtomicUsize,
    in_flight: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub fn new(
        number: u64,
        peer: Peer,
        (inode, handle): (u64, Handle),
        rights: Rights,
        client: Arc<Client>,
        (memory, memory_bytes): (OwnedFd, u64),
    ) -> Session {
        Session {
            number,
            peer,
            inode,
            handle,
            rights,
            memory,
            memory_bytes,
            client,
            intake: Mutex::default(),
            answers: Mutex::default(),
            threads: AtomicUsize::new(1),
            waiting: AtomicUsize::new(0),
            extra: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
        }
    }

    pub fn extra_threads(&self) -> usize {
        self.extra.load(Ordering::Acquire)
    }

    /// Nothing more comes in, and nothing goes out.
    pub fn cut(&self) {
        // It may be cut already.
        drop(self.client.stream.shutdown(Shutdown::Both));
    }

    /// The next request, when there is one, with the intake if it is to be kept meanwhile; none when the session is over.
    fn next(&self) -> Option<(Request, Option<MutexGuard<'_, Intake>>)> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut intake = lock(&self.intake);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        while intake.queue.is_empty() && !intake.is_over {
            if let Err(why) = self.receive(&mut intake) {
                tracing::debug!(uid = self.peer.uid, why, "a session of the library ends");
                intake.is_over = true;
                intake.queue.clear();
                self.cut();
            }
        }
        let request = intake.queue.pop_front()?;
        // One who comes next would wake, take the intake and find nothing in it: that costs more than short requests do.
        let is_kept = request.is_alone && request.kind != Kind::Sync && intake.queue.is_empty();
        Some((request, is_kept.then_some(intake)))
    }

    /// Takes in what has come, or waits for it.
    fn receive(&self, intake: &mut Intake) -> Result<(), &'static str> {
        assert!(intake.rest.len() < REQUEST_BYTES, "a whole frame was not taken in");
        let mut buffer = [0; IN_FLIGHT_MAX * REQUEST_BYTES];
        // Looked at first: an open file that came with a frame would be closed by the one who reads it.
        let peeked = loop {
            match handles::peek(&self.client.stream, &mut buffer, true) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Err("its socket failed"),
                Ok(Peeked { has_handles: true, .. }) => return Err("the client passes open files"),
                Ok(Peeked { bytes: 0, .. }) => return Err("the client has gone"),
                Ok(peeked) => break peeked,
            }
        };
        let count = peeked.bytes;
        if (&self.client.stream).read_exact(&mut buffer[..count]).is_err() {
            return Err("its socket failed");
        }
        intake.rest.extend_from_slice(&buffer[..count]);
        let whole = intake.rest.len() / REQUEST_BYTES;
        for frame in intake.rest[..whole * REQUEST_BYTES].chunks_exact(REQUEST_BYTES) {
            let bytes: &[u8; REQUEST_BYTES] = frame.try_into().map_err(|_| "a frame has another length")?;
            let request = Request::decode(bytes).map_err(|_| "the client sends what is no request")?;
            if !request.is_within(self.memory_bytes) {
                return Err("the client names memory that it does not have");
            }
            if self.in_flight.fetch_add(1, Ordering::AcqRel) >= IN_FLIGHT_MAX {
                return Err("the client has too many requests under way");
            }
            intake.queue.push_back(request);
        }
        intake.rest.drain(..whole * REQUEST_BYTES);
        Ok(())
    }

    /// Sends an answer. A client that does not take it has ended its session.
    fn answer(&self, bytes: &[u8]) {
        let turn = lock(&self.answers);
        let sent = (&self.client.stream).write_all(bytes);
        drop(turn);
        let in_flight = self.in_flight.fetch_sub(1, Ordering::AcqRel);
        assert!(in_flight > 0, "a request is answered that was not counted");
        if sent.is_err() {
            self.cut();
        }
    }

    /// Whether another thread is to be started, so that somebody listens while this one works.
    fn wants_thread(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0 && self.extra_threads() < EXTRA_THREADS_MAX
    }
}

/// A thread of a session, from its first request to the session's end.
pub fn serve(daemon: &Arc<Daemon>, session: &Arc<Session>) {
    let done = catch_unwind(AssertUnwindSafe(|| {
        let patience = session.client.stream.set_read_timeout(None);
        if patience.and(session.client.stream.set_write_timeout(Some(ANSWER_PATIENCE))).is_err() {
            session.cut();
        }
        let mut buffer = Vec::new();
        while let Some((request, intake)) = session.next() {
            daemon.library.count();
            let mut reply = None;
            if let Some(intake) = intake {
                reply = perform::perform(daemon, session, &request, Io::DEVICES_ONLY, &mut buffer);
                if let Some(reply) = &reply {
                    session.answer(&reply.encode());
                }
                // Whoever waits for a medium lets others listen.
                drop(intake);
            }
            if reply.is_some() {
                continue;
            }
            if session.wants_thread() {
                start_another(daemon, session);
            }
            let reply = perform::perform_in_turn(daemon, session, &request, &mut buffer);
            session.answer(&reply.encode());
        }
    }));
    if done.is_err() {
        session.cut();
        daemon.library.panicked(daemon);
    }
    let threads = session.threads.fetch_sub(1, Ordering::AcqRel);
    assert!(threads > 0, "a thread ends that was not counted");
    if threads == 1 {
        finish(daemon, session);
    }
}

/// Without it the session goes on with the threads it has.
fn start_another(daemon: &Arc<Daemon>, session: &Arc<Session>) {
    if !daemon.library.lock().shares.take_thread(session.peer.uid) {
        return;
    }
    // Given back at the session's end, by this count.
    session.extra.fetch_add(1, Ordering::AcqRel);
    session.threads.fetch_add(1, Ordering::AcqRel);
    let serving = (daemon.clone(), session.clone());
    if spawn("library", move || serve(&serving.0, &serving.1)).is_err() {
        session.threads.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The end, when all threads have ended.
pub fn finish(daemon: &Daemon, session: &Session) {
    session.cut();
    let released = catch_unwind(AssertUnwindSafe(|| {
        daemon.filesystem.release(&caller_of(&session.peer), session.inode, session.handle)
    }));
    match released {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(inode = session.inode, %error, "a file of the library was not closed in order")
        }
        Err(_) => daemon.library.panicked(daemon),
    }
    daemon.library.leave(session);
}
