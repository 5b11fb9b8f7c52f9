//! The link to the owner: finds it, stays connected, sends requests and takes answers.
//!
//! One thread connects and receives; another sends pings and looks whether there is a newer owner; a third confirms what it heard, a
//! fourth tells the kernel what others changed. Requests are sent by the threads that bring them. Invariant: while there is no owner
//! requests wait in the table, and all of them are sent when there is one. Read next: `state.rs`, `restore.rs`.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuse_wire::abi::opcode;
use fuse_wire::{Notifier, Request, is_dying, raw, thread_status};
use parking_lot::{Condvar, Mutex};
use stere_machine_tls::MachineKey;
use stere_machine_wire::{Frame, Incoming, Notice, PING_EVERY_SECONDS, Purpose, Refusal, StreamError, random};

use crate::direct::{Direct, WriteContent, show_block_size};
use crate::greet::{Connected, GreetError, Own, greet};
use crate::identities::{Identities, Ids};
use crate::mapped::{Mapped, ReadContent};
use crate::notices::Notices;
use crate::reach::Reaching;
use crate::restore::Restoring;
use crate::state::{Answer, Answered, Asker, Phase, State};
use crate::wire::{FromOwner, Wire};

/// Between two attempts to find an owner.
const PAUSE: Duration = Duration::from_millis(200);

/// A close(2) waits as long for an owner: nothing ends it, not even SIGKILL.
const CLOSE_WAITS: Duration = Duration::from_secs(10);

/// What an owner tells the members of its pool.
#[derive(Clone, PartialEq, Eq)]
pub struct Announcement {
    /// HOST:PORT.
    pub address: String,
    pub secret: [u8; 32],
    /// The public key that the pool's registry has for the owner's machine: nobody else is believed.
    pub key: [u8; 32],
    /// Rises with each owner.
    pub epoch: u64,
}

/// Tells who the owner is; `None` where nobody knows. Called once a second and whenever a connection is gone.
pub type FindOwner = Box<dyn Fn() -> Option<Announcement> + Send + Sync>;

/// Which pool, and which machine this is.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    pub pool: [u8; 16],
    /// Its name, for messages.
    pub pool_name: String,
    pub machine: [u8; 16],
    /// Of this machine, as the pool's registry has it.
    pub key: MachineKey,
    /// Which users and groups of this machine are which of the pool.
    pub users: Ids,
    pub groups: Ids,
    /// A clock that goes on while the machine sleeps.
    pub now_ms: fn() -> u64,
}

/// How a link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    Durable,
    /// The owner did not make durable in time what was written and not synced: it may be lost.
    NotInTime,
    /// Nor was there an owner.
    Unreached,
}

/// What calls get on a machine that was refused: "Key was rejected by service".
const REFUSED: i32 = libc::EKEYREJECTED;

pub(crate) struct Shared {
    pub find: FindOwner,
    pub options: LinkOptions,
    session: [u8; 16],
    pub kernel: OnceLock<(u32, u64)>,
    notifier: OnceLock<Notifier>,
    pub state: Mutex<State>,
    /// The phase, or the end.
    changed: Condvar,
    pub notices: Notices,
    pub reaching: Mutex<Reaching>,
    /// A connection that is being made, and the term of the owner that it goes to.
    greeting: Mutex<Option<(TcpStream, u64)>>,
    /// None until names were looked up, where those count: nothing is asked of an owner before.
    pub identities: Mutex<Option<Arc<Identities>>>,
    /// Reads what the owner tells as maps.
    mapped: Mapped,
    /// Writes past the owner.
    pub(crate) direct: Direct,
    /// When something came from the owner last, by the clock of `direct`.
    heard_ms: AtomicU64,
    /// Requests that were answered without the owner, by a lease.
    answered_here: AtomicU64,
    is_over: AtomicBool,
}

/// The link of one mount. Dropping it ends its threads.
pub struct Link {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Link {
    /// Starts the threads. They connect once the kernel's side is known (`set_kernel`).
    ///
    /// # Errors
    /// Without random bytes or threads.
    pub fn start(
        find: FindOwner,
        options: LinkOptions,
        (reading, writing): (Option<ReadContent>, Option<WriteContent>),
    ) -> std::io::Result<Arc<Link>> {
        let now_ms = options.now_ms;
        let identities = Identities::of_options(&options.users, &options.groups).map_err(std::io::Error::other)?;
        let shared = Arc::new(Shared {
            find,
            options,
            session: random()?,
            kernel: OnceLock::new(),
            notifier: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            notices: Notices::default(),
            reaching: Mutex::default(),
            greeting: Mutex::default(),
            identities: Mutex::new(identities.map(Arc::new)),
            mapped: Mapped::new(reading),
            direct: Direct::new(writing, now_ms),
            heard_ms: AtomicU64::new(0),
            answered_here: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let link = Arc::new(Link { shared, threads: Mutex::default() });
        link.spawn("link", |shared| shared.stay_connected())?;
        link.spawn("link-ping", Shared::ping)?;
        link.spawn("link-confirm", Shared::confirm)?;
        link.spawn("link-notices", |shared| shared.notices.tell(|| shared.notifier.get().cloned()))?;
        for _ in 0..link.shared.mapped.threads() {
            link.spawn("link-read", |shared| shared.mapped.read(|request| shared.ask_for_bytes(request)))?;
        }
        for _ in 0..link.shared.direct.threads() {
            link.spawn("link-write", Shared::write_past_owner)?;
        }
        link.spawn("link-gather", |shared| {
            shared.direct.send_in_time(|returns, forgotten| shared.give_back(&returns, &forgotten))
        })?;
        Ok(link)
    }

    fn spawn(&self, name: &str, work: impl FnOnce(&Shared) + Send + 'static) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&shared))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// What was agreed on with the kernel: minor version, and flags of INIT.
    pub fn set_kernel(&self, minor: u32, flags: u64) {
        self.shared.kernel.get_or_init(|| (minor, flags));
        self.shared.changed.notify_all();
    }

    /// With what the kernel is told what others change.
    pub fn set_notifier(&self, notifier: Notifier) {
        drop(self.shared.notifier.set(notifier));
    }

    /// Whether requests are sent to an owner now, and of which term it is.
    #[must_use]
    pub fn owner(&self) -> Option<u64> {
        match &self.shared.state.lock().phase {
            Phase::Ready(wire) => Some(wire.epoch),
            Phase::Away => None,
        }
    }

    /// Questions of the kernel that were answered without the owner, because it had given a lease.
    #[must_use]
    pub fn answered_here(&self) -> u64 {
        self.shared.answered_here.load(Ordering::Relaxed)
    }

    /// Short writes that were answered without the owner, because it had given a lease, ...
    #[must_use]
    pub fn gathered(&self) -> u64 {
        self.shared.direct.gathered()
    }

    /// ... and the writes that were sent of them.
    #[must_use]
    pub fn sent_gathered(&self) -> u64 {
        self.shared.direct.sent()
    }

    /// Whether something was written that may be lost with the owner and this machine together.
    #[must_use]
    pub fn has_unsynced(&self) -> bool {
        !self.shared.state.lock().retained.is_empty()
    }

    /// Has a request answered by the owner.
    pub fn forward(&self, request: Request) {
        match request.wants_answer() {
            true => self.shared.take(request),
            false => self.shared.take_note(request),
        }
    }

    /// The kernel's request got a signal.
    pub fn interrupted(&self, unique: u64) {
        self.shared.interrupted(unique);
    }

    /// The kernel is gone, or is to be told that it waits in vain: all its requests are answered with ENOTCONN, now and from now on.
    pub fn give_up(&self) {
        let mut requests = self.shared.state.lock().give_up();
        requests.extend(self.shared.direct.give_up());
        requests.into_iter().for_each(|request| request.reply_error(libc::ENOTCONN));
    }

    /// Breaks the connection; the link looks for the owner again.
    pub fn cut(&self) {
        if let Phase::Ready(wire) = &self.shared.state.lock().phase {
            wire.cut();
        }
    }

    /// Makes durable what was written, and ends the session at the owner.
    pub fn finish(&self, patience: Duration) -> Finished {
        let deadline = Instant::now() + patience;
        self.give_up();
        self.shared.direct.wait_until_idle(deadline);
        // Nobody waits for an owner that does not take this machine.
        let is_refused = self.shared.state.lock().is_refused;
        let is_safe = !self.has_unsynced() || (!is_refused && self.sync(deadline));
        let phase = self.shared.state.lock().phase.clone();
        let finished = match (is_safe, &phase) {
            (true, _) => Finished::Durable,
            (false, Phase::Ready(_)) => Finished::NotInTime,
            (false, Phase::Away) => Finished::Unreached,
        };
        if let Phase::Ready(wire) = phase {
            wire.send(&Frame::Bye);
        }
        self.shared.end();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the link to the owner panicked");
            }
        }
        finished
    }

    /// Has the owner make everything durable.
    fn sync(&self, deadline: Instant) -> bool {
        let (tell, told) = mpsc::channel();
        let number = self.shared.state.lock().enter(Asker::Own(sync_message(), tell));
        self.shared.send(number);
        let answer = told.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        answer.is_ok_and(|answer| answer.errno == 0)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.give_up();
        self.shared.end();
        for thread in self.threads.lock().drain(..) {
            drop(thread.join());
        }
    }
}

/// Whether a thread is about to end by a signal. One that is not seen from here is taken for it: it was interrupted.
fn is_being_killed(thread: u32) -> bool {
    thread_status(thread).is_none_or(|status| is_dying(&status))
}

/// What wants no answer.
fn untold(message: &[u8]) -> Frame<'_> {
    Frame::Request { number: 0, acknowledged: 0, is_repeated: false, takes_map: false, has_keys: false, message }
}

pub(crate) fn sync_message() -> Vec<u8> {
    raw::message(opcode::SYNCFS, fuse_wire::abi::ROOT_ID, &[&[0; 8]])
}

impl Shared {
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.notices.end();
        self.mapped.end();
        self.direct.end();
        if let Phase::Ready(wire) = &self.state.lock().phase {
            wire.cut();
        }
        self.changed.notify_all();
    }

    /// Forgets: told to the owner while there is one; another owner is told what is known then.
    fn take_note(&self, request: Request) {
        let message = request.message();
        let mut state = self.state.lock();
        let counted = state.forget(&message);
        let phase = state.phase.clone();
        drop(state);
        request.reply_none();
        if let Phase::Ready(wire) = phase
            && !counted.is_empty()
        {
            wire.send(&untold(&raw::forget_message(&counted)));
        }
    }

    /// A request of the kernel, now or after what it waited for.
    pub fn take(&self, request: Request) {
        let Some(request) = self.direct.hold_close(request).and_then(|request| self.admit(request)) else { return };
        let Some(request) = self.answer_leased(request) else { return };
        let has_owner = self.has_owner();
        self.direct.take(request, has_owner, &self.state).into_iter().for_each(|request| self.pass_on(request));
    }

    /// Answers what is leased; gives all else back.
    fn answer_leased(&self, request: Request) -> Option<Request> {
        if !matches!(request.opcode(), opcode::LOOKUP | opcode::GETATTR) {
            return Some(request);
        }
        let answer = self.state.lock().leased_answer(self.now_ms(), &request);
        let Some(bytes) = answer else { return Some(request) };
        self.answered_here.fetch_add(1, Ordering::Relaxed);
        self.reply(request, 0, bytes);
        None
    }

    /// Answers the kernel with what an owner has said.
    fn reply(&self, request: Request, errno: i32, mut bytes: Vec<u8>) {
        self.translate_answer(&request, &mut bytes);
        if self.direct.is_used() {
            show_block_size(request.opcode(), &mut bytes);
        }
        request.reply_raw(errno, &bytes);
    }

    fn now_ms(&self) -> u64 {
        (self.options.now_ms)()
    }

    fn has_owner(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Ready(_))
    }

    /// Answers what needs no owner, or gets none.
    pub fn admit(&self, request: Request) -> Option<Request> {
        let mut state = self.state.lock();
        if state.is_given_up {
            drop(state);
            request.reply_error(libc::ENOTCONN);
            return None;
        }
        if state.is_refused {
            let is_close = state.note_close(&request);
            drop(state);
            match is_close {
                true => request.reply_ok(),
                false => request.reply_error(REFUSED),
            }
            return None;
        }
        if request.opcode() == opcode::FLUSH && state.is_mere_close(&request) {
            let loss = state.retained.loss(request.node());
            drop(state);
            match loss {
                Some(errno) => request.reply_error(errno),
                None => request.reply_ok(),
            }
            return None;
        }
        Some(request)
    }

    /// Tells the owner which leases on writing have ended, and takes references back that the kernel did not get.
    fn give_back(&self, returns: &[(u64, u64)], forgotten: &[(u64, u64)]) {
        let phase = self.state.lock().phase.clone();
        let Phase::Ready(wire) = phase else { return };
        if !forgotten.is_empty() {
            wire.send(&untold(&raw::forget_message(forgotten)));
        }
        for (node, number) in returns {
            wire.send(&Frame::WritesReturned { node: *node, number: *number });
        }
    }

    /// Sends a request of the kernel to the owner.
    pub fn pass_on(&self, request: Request) {
        let (unique, cancel) = (request.context().unique, request.cancel());
        let is_for_lock = request.opcode() == opcode::SETLKW;
        let number = self.state.lock().enter(Asker::Kernel(request));
        self.send(number);
        if is_for_lock && cancel.is_cancelled() {
            // The signal was faster.
            self.interrupted(unique);
        }
    }

    /// The kernel's request got a signal.
    pub fn interrupted(&self, unique: u64) {
        let mut state = self.state.lock();
        match state.phase.clone() {
            // Whoever waits for a lock waits at the owner.
            Phase::Ready(wire) if state.waits_for_lock(unique) => {
                drop(state);
                let message = raw::message(opcode::INTERRUPT, 0, &[&unique.to_ne_bytes()]);
                wire.send(&untold(&message));
            }
            Phase::Ready(_) => {}
            // Nobody knows how long: who is being killed may go.
            Phase::Away => {
                state.interrupted.push(unique);
                drop(state);
                self.let_killed_go();
            }
        }
    }

    /// Whether a request's asker is about to end by a signal while there is no owner.
    pub fn is_killed_waiting(&self, request: &Request) -> bool {
        !self.has_owner() && is_being_killed(request.context().pid)
    }

    pub fn heard_ms(&self) -> u64 {
        self.heard_ms.load(Ordering::Acquire)
    }

    pub fn tell_changed(&self) {
        self.changed.notify_all();
    }

    /// Sends a request that waits, if there is an owner.
    pub fn send(&self, number: u64) {
        let mut state = self.state.lock();
        let Phase::Ready(wire) = state.phase.clone() else { return };
        let prepared = state.prepare(number);
        drop(state);
        match prepared {
            Ok(Some(mut one)) => match self.translate_request(&mut one.message) {
                Ok(()) => wire.send(&Frame::Request {
                    number: one.number,
                    acknowledged: one.acknowledged,
                    is_repeated: one.is_repeated,
                    takes_map: one.takes_map && self.mapped.is_ready(),
                    has_keys: one.takes_map && self.mapped.has_keys(),
                    message: &one.message,
                }),
                Err(errno) => self.answer_here(number, errno),
            },
            Ok(None) => {}
            Err(Asker::Kernel(request)) if request.opcode() == opcode::RELEASE => request.reply_ok(),
            Err(Asker::Kernel(request)) => request.reply_error(libc::ESTALE),
            Err(Asker::Own(..)) => {}
        }
    }

    /// Finds owners and serves what they answer, until the end. For a thread of its own.
    fn stay_connected(&self) {
        let mut last_complaint = String::new();
        while !self.is_over() {
            let Some((kernel_minor, kernel_flags)) = self.kernel.get().copied() else {
                self.rest();
                continue;
            };
            let Some(owner) = (self.find)().filter(|_| self.identities().is_some()) else {
                self.rest();
                continue;
            };
            let own = Own { kernel_minor, kernel_flags, session: self.session, ..self.own(Purpose::Mount) };
            let begun = |socket: &TcpStream| {
                *self.greeting.lock() = socket.try_clone().ok().map(|socket| (socket, owner.epoch));
            };
            let greeted = greet(&owner, &own, begun);
            *self.greeting.lock() = None;
            let outcome = match greeted {
                Ok(greeted) => {
                    last_complaint.clear();
                    self.state.lock().is_refused = false;
                    tracing::info!(address = owner.address, epoch = owner.epoch, "connected to the owner");
                    self.serve(greeted.of_session(owner.epoch)).err().map(|error| error.to_string())
                }
                Err(GreetError::Refused(refusal)) => {
                    if refusal == Refusal::NotAdmitted {
                        self.refused();
                    }
                    Some(self.why_refused(refusal))
                }
                Err(error) => Some(error.to_string()),
            };
            let complaint = outcome.unwrap_or_default();
            self.reaching.lock().fails(&complaint);
            if complaint != last_complaint && !self.is_over() {
                tracing::warn!(address = owner.address, error = complaint, "there is no owner at the moment");
                last_complaint = complaint;
            }
            self.rest();
        }
    }

    /// Who connects, without a kernel.
    pub fn own(&self, purpose: Purpose) -> Own {
        let LinkOptions { pool, machine, key, .. } = self.options.clone();
        Own { key, pool, machine, session: [0; 16], purpose, kernel_minor: 0, kernel_flags: 0 }
    }

    /// Why this machine is refused, and what helps.
    pub fn why_refused(&self, refusal: Refusal) -> String {
        let id: String = self.options.machine.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let pool = &self.options.pool_name;
        match refusal {
            Refusal::Waiting => format!("machine {id} waits to be admitted: `stere pool admit {pool} {id}`"),
            Refusal::NotAdmitted => format!(
                "machine {id} was refused, and calls get errors (EKEYREJECTED); `stere pool admit {pool} {id}` lets it in"
            ),
            other => format!("the owner refused: {other}"),
        }
    }

    /// The pool does not take this machine: whoever waits is told, and whoever comes.
    fn refused(&self) {
        let requests = self.state.lock().refuse();
        for (request, is_close) in requests {
            if is_close { request.reply_ok() } else { request.reply_error(REFUSED) }
        }
    }

    fn rest(&self) {
        let mut state = self.state.lock();
        if !self.is_over() {
            self.changed.wait_for(&mut state, PAUSE);
        }
    }

    /// Serves a connection until it is gone.
    fn serve(&self, connected: Connected) -> Result<(), StreamError> {
        let Connected { wire, mut incoming, is_resumed } = connected;
        let wire = Arc::new(wire);
        if !self.state.lock().goes_on(wire.epoch, is_resumed) {
            Restoring::new(self, &wire, &mut incoming).tell_all()?;
        }
        let waiting: Vec<u64> = {
            let mut state = self.state.lock();
            state.phase = Phase::Ready(Arc::clone(&wire));
            self.reaching.lock().succeeds();
            state.waiting.keys().copied().collect()
        };
        if self.is_over() {
            wire.cut();
        }
        // Answers are taken meanwhile, so that the two sides do not wait for each other.
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| waiting.into_iter().for_each(|number| self.send(number)));
            let outcome = self.receive(&wire, &mut incoming);
            let mut state = self.state.lock();
            state.phase = Phase::Away;
            state.leased.clear();
            drop(state);
            self.direct.disconnected();
            wire.cut();
            outcome
        });
        self.changed.notify_all();
        outcome
    }

    fn receive(&self, wire: &Wire, incoming: &mut Incoming<FromOwner>) -> Result<(), StreamError> {
        loop {
            let frame = incoming.next_frame()?;
            self.heard_ms.store(self.direct.now_ms(), Ordering::Release);
            match frame {
                Frame::Reply { number, errno: 0, is_map: true, bytes, .. } => self.take_map(number, bytes),
                Frame::Reply { number, errno, mark, place, is_leased, is_uncommitted, bytes, .. } => {
                    let (errno, bytes) = (i32::from(errno), bytes.to_vec());
                    let answer = Answer { errno, mark, place, is_leased, is_uncommitted, bytes };
                    self.answer(number, answer);
                }
                other => self.heard(wire, &other)?,
            }
        }
    }

    /// The owner tells where what was to be read lies.
    fn take_map(&self, number: u64, map: &[u8]) {
        let taken = self.state.lock().take_read(number);
        taken.into_iter().for_each(|request| self.mapped.push(request, map.to_vec()));
    }

    /// What could not be read where the owner said is read by the owner.
    fn ask_for_bytes(&self, request: Request) {
        let mut state = self.state.lock();
        if state.is_given_up || state.is_refused {
            drop(state);
            return request.reply_error(libc::ENOTCONN);
        }
        let number = state.enter_again(request);
        drop(state);
        self.send(number);
    }

    /// What is no answer.
    pub fn heard(&self, wire: &Wire, frame: &Frame<'_>) -> Result<(), StreamError> {
        match frame {
            Frame::Notify(notice) => {
                if let Notice::Inode { node, offset, length, settled } = *notice
                    && settled > 0
                    && let Ok(offset) = u64::try_from(offset)
                {
                    // What others wrote is theirs to keep; what they cut is durable.
                    let length = if length == 0 { u64::MAX } else { length.unsigned_abs() };
                    self.state.lock().others_wrote((node, offset, length), settled);
                }
                let mut state = self.state.lock();
                state.leased.recall(notice);
                if let Notice::Inode { node, offset: ..0, .. } = notice {
                    state.to_doubt.push(*node);
                }
                drop(state);
                self.notices.push(notice.clone());
            }
            Frame::Definite { mark } => {
                let mut state = self.state.lock();
                // Marks of an owner before this one mean nothing to it.
                if state.written_epoch == wire.epoch {
                    state.retained.let_go_marked(*mark);
                }
                self.let_go(state);
            }
            Frame::Committed { mark } => {
                let mut state = self.state.lock();
                if state.written_epoch == wire.epoch {
                    state.retained.requests.let_go_marked(*mark);
                }
            }
            // Whoever receives never sends: the owner may wait for room until this side has received more.
            Frame::Confirm { number } => {
                self.state.lock().to_confirm = Some(*number);
                self.changed.notify_all();
            }
            Frame::RecallWrites { node, number } => {
                // An answer that is on its way and lets it gather is older.
                self.state.lock().leased.change_attributes(*node);
                self.direct.recalled(*node, *number);
            }
            Frame::Pong => self.state.lock().leased.heard(),
            Frame::Ping => {}
            Frame::Refused(refusal) => {
                tracing::warn!(%refusal, "the owner ends the connection");
                return Err(StreamError::Ended);
            }
            _ => return Err(StreamError::Order),
        }
        Ok(())
    }

    /// The kernel believes its attributes no longer. That waits for no lock that a call may hold, but for an inode that the kernel is about to
    /// forget, and so for answers to what it writes of that: never on the thread that receives them.
    fn doubt(&self, nodes: &[u64]) {
        let Some(notifier) = self.notifier.get() else { return };
        for node in nodes {
            if let Err(error) = notifier.invalidate_inode(*node, -1, 0) {
                tracing::debug!(%error, "the kernel was not told that attributes have changed");
            }
        }
    }

    fn answer(&self, number: u64, mut answer: Answer) {
        let (shows_files, to_gather) = {
            let state = self.state.lock();
            (state.shown_by(number, &answer).is_some(), state.may_gather(number, &answer))
        };
        if shows_files && self.direct.puts_back(number, &mut answer, &self.state) {
            return;
        }
        to_gather.into_iter().for_each(|node| self.direct.granted(node));
        let mut state = self.state.lock();
        let Some(Answered(request, answer)) = state.answered(self.now_ms(), number, answer) else {
            return self.let_go(state);
        };
        if request.opcode() == opcode::WRITE && state.retained.is_full() {
            state.held_back.push(Answered(request, answer));
            drop(state);
            self.changed.notify_all();
            return;
        }
        drop(state);
        self.reply(request, answer.errno, answer.bytes);
        self.let_go(self.state.lock());
    }

    /// Has the owner make everything durable, if writes wait for that.
    fn sync_if_full(&self) {
        let mut state = self.state.lock();
        if state.held_back.is_empty() || std::mem::replace(&mut state.is_settling, true) {
            return;
        }
        // Nobody waits for this answer: what it makes durable is what counts.
        let (tell, _) = mpsc::channel();
        let number = state.enter(Asker::Own(sync_message(), tell));
        drop(state);
        self.send(number);
    }

    /// Answers those who wait for an owner and are being killed.
    fn let_killed_go(&self) {
        let mut state = self.state.lock();
        let interrupted = std::mem::take(&mut state.interrupted);
        let mut killed = Vec::new();
        for unique in interrupted {
            let Some((thread, is_for_lock)) = state.asker(unique) else { continue };
            match is_being_killed(thread) {
                // Who waits for a lock waits for any signal.
                is_dying if is_dying || is_for_lock => killed.push((unique, is_dying)),
                _ => state.interrupted.push(unique),
            }
        }
        let closes: Vec<Request> = killed.iter().filter_map(|(unique, _)| state.let_close_go(*unique)).collect();
        let (mut requests, mut unlocks) = (Vec::new(), Vec::new());
        for (unique, is_dying) in killed {
            let Some(request) = state.take(unique) else { continue };
            unlocks.extend(state.end_lock(&request, is_dying));
            requests.push(request);
        }
        drop(state);
        unlocks.into_iter().for_each(|number| self.send(number));
        closes.into_iter().for_each(Request::reply_ok);
        requests.into_iter().for_each(|request| request.reply_error(libc::EINTR));
    }

    /// Answers what closes files while there is no owner.
    fn let_closes_go(&self) {
        let mut state = self.state.lock();
        let closes = if matches!(state.phase, Phase::Away) { state.let_closes_go() } else { Vec::new() };
        drop(state);
        closes.into_iter().chain(self.direct.take_closes()).for_each(Request::reply_ok);
    }

    /// Answers writes that waited for room, if there is some.
    fn let_go(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        let failed = state.settling_failed.take();
        if state.held_back.is_empty() || (state.retained.is_full() && failed.is_none()) {
            return;
        }
        state.is_settling = false;
        let held_back = std::mem::take(&mut state.held_back);
        drop(state);
        for Answered(request, answer) in held_back {
            match failed {
                // What cannot be made durable cannot be kept either.
                Some(errno) => request.reply_error(errno),
                None => drop(request.reply_raw(answer.errno, &answer.bytes)),
            }
        }
    }

    /// An owner that stands still takes connections and says nothing: it is not waited for where there is a newer one.
    fn leave_former_owner(&self) {
        let Some(epoch) = self.greeting.lock().as_ref().map(|(_, epoch)| *epoch) else { return };
        if (self.find)().is_none_or(|owner| owner.epoch <= epoch) {
            return;
        }
        if let Some((socket, _)) = self.greeting.lock().as_ref().filter(|(_, of)| *of == epoch) {
            tracing::info!("there is a newer owner than the one that does not answer");
            // Gone already, perhaps.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Says that it has heard what the owner told, until the end: somebody waits for that. For a thread of its own.
    fn confirm(&self) {
        while !self.is_over() {
            let mut state = self.state.lock();
            match (state.phase.clone(), state.to_confirm) {
                (Phase::Ready(wire), Some(number)) => {
                    state.to_confirm = None;
                    let doubted = std::mem::take(&mut state.to_doubt);
                    drop(state);
                    self.doubt(&doubted);
                    wire.send(&Frame::Confirmed { number });
                }
                _ => drop(self.changed.wait_for(&mut state, PAUSE)),
            }
        }
    }

    /// Notes that the owner is asked now whether it hears; false: it is not the one who is connected.
    fn asks(&self, wire: &Arc<Wire>) -> bool {
        let mut state = self.state.lock();
        let is_it = matches!(&state.phase, Phase::Ready(current) if Arc::ptr_eq(current, wire));
        if is_it {
            state.leased.asks(self.now_ms());
        }
        is_it
    }

    /// Tells the owner that this side is there, and looks whether there is a newer one, until the end. For a thread of its own.
    fn ping(&self) {
        let every = Duration::from_secs(PING_EVERY_SECONDS);
        let (mut away_since, mut last_ping) = (None, Instant::now());
        while !self.is_over() {
            let phase = {
                let mut state = self.state.lock();
                if state.held_back.is_empty() || state.is_settling {
                    self.changed.wait_for(&mut state, every);
                }
                state.phase.clone()
            };
            let Phase::Ready(wire) = phase else {
                self.let_killed_go();
                if away_since.get_or_insert_with(Instant::now).elapsed() >= CLOSE_WAITS {
                    self.let_closes_go();
                }
                self.leave_former_owner();
                continue;
            };
            away_since = None;
            self.sync_if_full();
            if last_ping.elapsed() >= every - every / 10 && self.asks(&wire) {
                last_ping = Instant::now();
                wire.send(&Frame::Ping);
            }
            if (self.find)().is_some_and(|owner| owner.epoch > wire.epoch) {
                tracing::info!("there is a newer owner");
                wire.cut();
            }
        }
    }
}
