//! The life of a request: tried at once, repeated on a worker if it would have to wait, answered.
//!
//! Interrupts are ignored on purpose. Programs do not expect EINTR from stat, open, write or fsync of a local file
//! system (its waits cannot be interrupted either), and some treat it as a broken disk. Waits for a device end with it.
//! Those for a medium may take minutes: they are given up when their process is killed (`waiter.rs`).
//! Read next: `perform.rs`, what each operation does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use fuse_wire::abi::opcode;
use fuse_wire::{Negotiated, Notifier, Operation, Request, Unmount, Unmounter, Write};
use stere_naming::{FileSystem, Handle, Io, ROOT};
use stere_store::{Call, Cancellation, PendingRead};

use crate::answer::{Answer, Failure};
use crate::beside;
use crate::cached::{self, CachedRange, Paged};
use crate::changes::{self, Changes, Observer, WhenHeard};
use crate::clock::now;
use crate::complaints::Complaints;
use crate::durable::{self, Durable, Waiting};
use crate::error::Error;
use crate::io_profiles::IoProfiles;
use crate::lanes::{Lane, Lanes, Work};
use crate::locks::Locks;
use crate::options::MountOptions;
use crate::performer::{Outcome, Performer};
use crate::removals::Removals;
use crate::searches::{self, Next, Searches};
use crate::turns::{Claim, Come, Turn, Turns};
use crate::waiter::Waiter;

/// Tells whether another kernel knows an inode.
type Known = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// What workers get.
pub(crate) enum Job {
    Request(Request),
    /// Has to wait for a medium, and may.
    Recall(Request, Option<Turn>),
    /// Has to look at many inodes, or for a name that may be one of a user's own.
    Search(Request),
    /// Inodes the kernel forgot and whose freeing has to wait for a device.
    Forgets(Vec<u64>),
    /// Says that a file may not be changed any more: what the kernel has of it comes first.
    Retain(Request),
    /// Answers wait until what they tell of is durable.
    MakeDurable,
    /// Was done past what the kernel has in memory, which it is to forget before it hears of it.
    Passed(Request, Answer, CachedRange),
    /// The kernel may show what the file does not hold.
    Invalidate(CachedRange),
}

/// Room that is held for writes of an owner before comes free in half a minute.
const HELD_MAX: Duration = Duration::from_secs(60);
const HELD_LOOK: Duration = Duration::from_millis(200);

/// Everything requests need.
pub(crate) struct Front {
    performer: Performer,
    pub turns: Arc<Turns>,
    lanes: Lanes<Job>,
    /// None where nobody is to search so.
    searches: Option<Searches>,
    served: AtomicU64,
    complaints: Complaints,
    unmounter: OnceLock<Unmounter>,
    notifier: OnceLock<Notifier>,
    paged: Paged,
    removals: Removals,
    durable: Durable,
    /// What the load is like.
    pub io_profiles: Arc<IoProfiles>,
    /// Of all machines, where several mount the pool.
    pub locks: Locks,
    is_shared: bool,
    observer: OnceLock<Observer>,
    is_known_elsewhere: OnceLock<Known>,
    panicked: AtomicBool,
    /// For what requests leave behind.
    own: Weak<Front>,
}

impl Front {
    pub fn new(filesystem: Arc<FileSystem>, options: &MountOptions) -> Arc<Self> {
        let limits = &options.limits;
        Arc::new_cyclic(|own| Self {
            performer: Performer::new(filesystem, options),
            turns: Turns::new(options.recall_limits),
            lanes: Lanes::new(limits.reading, limits.changing, limits.syncing, limits.recalling, limits.searching),
            searches: (!options.no_find).then(Searches::default),
            served: AtomicU64::new(0),
            complaints: Complaints::default(),
            unmounter: OnceLock::new(),
            notifier: OnceLock::new(),
            paged: Paged::default(),
            removals: Removals::default(),
            durable: Durable::default(),
            io_profiles: Arc::new(IoProfiles::new(!options.no_io_profiles)),
            locks: Locks::default(),
            is_shared: options.shared,
            observer: OnceLock::new(),
            is_known_elsewhere: OnceLock::new(),
            panicked: AtomicBool::new(false),
            own: Weak::clone(own),
        })
    }

    /// Starts the workers.
    pub fn start(self: &Arc<Self>) -> Result<(), Error> {
        let front = Arc::clone(self);
        let work: Work<Job> = Arc::new(move |job| front.work(job));
        self.lanes.start(&work).map_err(Error::Thread)
    }

    /// Ends the workers, when no request can come any more.
    pub fn stop(&self) {
        self.locks.end_all();
        self.turns.end();
        self.lanes.stop();
    }

    /// With what to end the mount when it cannot be served on.
    pub fn set_unmounter(&self, unmounter: Unmounter) {
        // Set once, by mount().
        drop(self.unmounter.set(unmounter));
        if self.has_panicked() {
            self.take_down();
        }
    }

    pub fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Acquire)
    }

    /// Requests that arrived so far.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// What requests are performed on.
    pub fn filesystem(&self) -> &Arc<FileSystem> {
        &self.performer.filesystem
    }

    /// Performs it, and again while removed files may be about to give their room, or an owner before theirs.
    fn perform_with_room(&self, request: &mut Request, io: Io<'_>) -> Outcome {
        let (mut tries, mut begun) = (0, None);
        loop {
            let outcome = self.performer.perform(request, io);
            let is_full = matches!(outcome, Err(Failure::Errno(libc::ENOSPC | libc::EDQUOT)));
            let is_held =
                matches!(outcome, Err(Failure::Errno(libc::ENOSPC))) && self.filesystem().store().holds_room();
            if is_full && !io.may_block() && (is_held || self.removals.are_recent()) {
                return Err(Failure::WouldBlock);
            }
            if is_held && begun.get_or_insert_with(Instant::now).elapsed() < HELD_MAX {
                std::thread::sleep(HELD_LOOK);
                continue;
            }
            if !is_full || !io.may_block() || !self.removals.may_bring_room(tries) {
                self.removals.note(request.opcode());
                return outcome;
            }
            tries += 1;
        }
    }

    /// Tries a request; gives it back when it has to wait and may not.
    fn attempt(&self, mut request: Request, io: Io<'_>) -> Option<Request> {
        if matches!(request.opcode(), opcode::READ | opcode::WRITE) {
            self.paged.note(&request);
        }
        let outcome = self.perform_with_room(&mut request, io);
        let doubtful = match &outcome {
            Err(Failure::WouldBlock) => None,
            outcome => cached::doubtful(&request, outcome.is_ok()),
        };
        let (observer, durability) = (self.observer.get(), &self.filesystem().durability);
        let changes = match &outcome {
            Ok(answer) if observer.is_some() || durability.is_said() => changes::done(&request, answer),
            _ => None,
        };
        let inodes = match &changes {
            Some(changes) if durability.is_said() => durable::subjects(&request, changes),
            _ => Vec::new(),
        };
        let when_heard = changes.and_then(|changes| (observer?.after)(changes));
        match outcome {
            Ok(answer) if durability.may_be_always(inodes.iter().copied()) => {
                self.answer_when_durable(Waiting { request, answer, when_heard, doubtful, inodes });
                return None;
            }
            Ok(answer) => self.answer_when_heard(request, answer, when_heard),
            Err(Failure::Errno(errno)) => request.reply_error(errno),
            Err(Failure::WouldBlock) if !io.may_recall() => return Some(request),
            Err(Failure::WouldBlock) => {
                tracing::error!(opcode = request.opcode(), "a call that may wait says that it would have to");
                request.reply_error(libc::EIO);
            }
            Err(Failure::Told(error)) => {
                if self.complaints.may_log(now().seconds) {
                    tracing::error!(opcode = request.opcode(), %error, "a request failed");
                }
                request.reply_error(error.errno());
            }
        }
        // Not before the answer: the kernel waits for that with the pages locked.
        doubtful.into_iter().for_each(|range| self.lanes.submit(Lane::Syncing, Job::Invalidate(range)));
        None
    }

    /// Answers, when what was done is durable.
    fn answer_when_durable(&self, waiting: Waiting) {
        if self.durable.put(waiting) {
            self.lanes.submit(Lane::Syncing, Job::MakeDurable);
        }
    }

    /// Makes durable what waits for that, in groups, until nothing does.
    fn make_durable(&self) {
        loop {
            let group = self.durable.take();
            if group.is_empty() {
                return;
            }
            let mut inodes: Vec<u64> = group.iter().flat_map(|waiting| waiting.inodes.iter().copied()).collect();
            inodes.sort_unstable();
            inodes.dedup();
            let done = self.filesystem().durability.make_durable(&Performer::own_caller(Io::BLOCKING), &inodes);
            for waiting in group {
                let Waiting { request, answer, when_heard, doubtful, inodes } = waiting;
                // One file that cannot be saved is no matter of the others.
                let own = match &done {
                    Ok(()) => Ok(()),
                    Err(_) => self.filesystem().durability.make_durable(&Performer::own_caller(Io::BLOCKING), &inodes),
                };
                match own {
                    Ok(()) => self.answer_when_heard(request, answer, when_heard),
                    Err(error) => {
                        if self.complaints.may_log(now().seconds) {
                            tracing::error!(opcode = request.opcode(), %error, "what was changed is not durable");
                        }
                        request.reply_error(error.errno());
                    }
                }
                doubtful.into_iter().for_each(|range| self.lanes.submit(Lane::Syncing, Job::Invalidate(range)));
            }
        }
    }

    /// Answers, when others have heard of what was done.
    fn answer_when_heard(&self, request: Request, answer: Answer, when_heard: Option<WhenHeard>) {
        let own = Weak::clone(&self.own);
        match when_heard {
            None => self.answer(request, answer),
            // Without a front nobody waits any more.
            Some(when_heard) => when_heard(Box::new(move || {
                if let Some(front) = own.upgrade() {
                    front.answer(request, answer);
                }
            })),
        }
    }

    fn answer(&self, request: Request, answer: Answer) {
        match self.paged.passed_by(&request) {
            Some(range) => self.lanes.submit(Lane::Syncing, Job::Passed(request, answer, range)),
            None => answer.send(request, &self.performer.belief),
        }
    }

    /// Performs a request of this machine's kernel when others have heard of what it changes.
    fn handle_when_heard(&self, request: Request) {
        let is_far = request.remote_tag().is_some();
        let Some(observer) = self.observer.get().filter(|_| !is_far) else { return self.handle_now(request) };
        let Some(when_returned) = (observer.asked)(&request) else { return self.handle_observed(request) };
        let own = Weak::clone(&self.own);
        when_returned(Box::new(move || {
            if let Some(front) = own.upgrade() {
                front.handle_observed(request);
            }
        }));
    }

    /// A request of this machine's kernel, when nobody else gathers what it asks for.
    fn handle_observed(&self, mut request: Request) {
        let Some(observer) = self.observer.get() else { return self.handle_now(request) };
        let Some(changes) = changes::of(&request, None) else { return self.handle_now(request) };
        let begun = (observer.before)(&changes);
        begun.guard.into_iter().for_each(|guard| request.accompany(guard));
        let own = Weak::clone(&self.own);
        match begun.when_heard {
            None => self.handle_now(request),
            Some(when_heard) => when_heard(Box::new(move || {
                if let Some(front) = own.upgrade() {
                    front.handle_now(request);
                }
            })),
        }
    }

    fn handle_now(&self, request: Request) {
        if cached::retains(&request) {
            return self.lanes.submit(Lane::Syncing, Job::Retain(request));
        }
        if is_long(request.opcode()) {
            return self.lanes.submit(Lane::Syncing, Job::Request(request));
        }
        // Both wait, for a grant or a file.
        if matches!(request.opcode(), opcode::OFFER_WRITE | opcode::ENTER_WRITE) {
            return self.hand_over(request);
        }
        if request.opcode() == opcode::READ {
            return self.read_beside(request);
        }
        if let Some(request) = self.attempt(request, Io::NON_BLOCKING) {
            self.hand_over(request);
        }
    }

    /// What was changed beside all requests: other kernels are told.
    pub fn changed_here(&self, changes: Changes) {
        if let Some(observer) = self.observer.get() {
            // Whoever changed it waits for nobody.
            (observer.after)(changes).into_iter().for_each(|when_heard| when_heard(Box::new(|| {})));
        }
    }

    /// Makes the kernel write what it has of a range, and forget it.
    fn invalidate(&self, range: &CachedRange) {
        let Some(notifier) = self.notifier.get() else { return };
        match notifier.invalidate_inode(range.node, range.offset, range.length) {
            Err(error) if error.raw_os_error() != Some(libc::ENODEV) && self.complaints.may_log(now().seconds) => {
                // Pages that somebody holds: what is written of them is refused again, and then they are tried again.
                tracing::warn!(inode = range.node, %error, "the kernel could not be told to forget what it has of a file");
            }
            _ => {}
        }
    }

    /// For other kernels: what each request changes is told, before it is answered.
    pub fn observe(&self, told: Observer) {
        // Only the first who asks.
        drop(self.observer.set(told));
    }

    /// What another kernel knows is not forgotten with this machine's.
    pub fn ask_before_forgetting(&self, is_known: Known) {
        // Only the first who asks.
        drop(self.is_known_elsewhere.set(is_known));
    }

    /// Forgets a node of a search; false if it is none.
    pub fn forget_search(&self, node: u64, count: u64) -> bool {
        let is_search = node >= searches::FIRST_NODE;
        if is_search {
            self.searches.iter().for_each(|searches| searches.forget(node, count));
        }
        is_search
    }

    /// Tells this machine's kernel what another one changed.
    pub fn forget_here(&self, changes: &Changes) {
        let Some(notifier) = self.notifier.get() else { return };
        let mut outcome = Ok(());
        for (directory, name) in &changes.names {
            outcome = outcome.and(notifier.invalidate_entry(*directory, name));
        }
        for inode in &changes.inodes {
            outcome = outcome.and(notifier.invalidate_inode(inode.node, inode.offset, inode.length));
        }
        if let Err(error) = outcome {
            tracing::debug!(%error, "the kernel was not told of all that another machine changed");
        }
    }

    /// A far kernel is gone.
    pub fn end_kernel(&self, tag: u64) {
        self.locks.end(tag);
        self.performer.opened.iter().for_each(|opened| opened.forget(tag));
        self.filesystem().far_writes(tag).end();
    }

    /// A far kernel has opened again what it had open; what it has in memory is older.
    pub fn doubt_pages(&self, tag: u64) {
        self.performer.opened.iter().for_each(|opened| opened.doubt(tag));
    }

    /// Lets a handle go whose kernel is gone.
    pub fn release(&self, inode: u64, handle: u64) {
        self.performer.listings.lock().remove(&handle);
        if inode >= searches::FIRST_NODE {
            return;
        }
        let released = self.filesystem().release(&Performer::own_caller(Io::BLOCKING), inode, Handle(handle));
        if let Err(error) = released {
            tracing::warn!(inode, %error, "a file that a machine had open when it went could not be closed");
        }
    }

    /// A read: its own thread has the ring make small ones.
    fn read_beside(&self, request: Request) {
        let call = Call::collecting();
        let Some(request) = self.attempt(request, Io::NON_BLOCKING.of(&call)) else { return };
        let reads = call.into_reads();
        let left = match self.own.upgrade() {
            Some(own) => beside::read(own, request, reads),
            None => Some(request),
        };
        left.into_iter().for_each(|request| self.hand_over(request));
    }

    /// What a request needs has arrived.
    pub fn try_again(&self, request: Request, arrived: Vec<PendingRead>) {
        let call = Call::arrived(arrived);
        let left = self.attempt(request, Io::NON_BLOCKING.of(&call));
        left.into_iter().for_each(|request| self.hand_over(request));
    }

    /// To a worker, who may wait.
    pub fn hand_over(&self, request: Request) {
        self.lanes.submit(lane_of(request.opcode()), Job::Request(request));
    }

    /// Lets go of what the kernel forgot. Only removed files matter, and those few that have to wait go to a worker.
    fn forget(&self, request: Request) {
        let mut waiting = Vec::new();
        let mut one = |inode, lookups| {
            let is_known = |asked: &Known| asked(inode);
            if self.forget_search(inode, lookups) || self.is_known_elsewhere.get().is_some_and(is_known) {
                return;
            }
            let caller = Performer::own_caller(Io::NON_BLOCKING);
            match self.filesystem().forget(&caller, inode) {
                Ok(()) => {}
                Err(stere_naming::Error::WouldBlock) => waiting.push(inode),
                Err(error) => self.forget_failed(inode, &error),
            }
        };
        match request.operation() {
            Operation::Forget { node, lookups } => one(node, lookups),
            Operation::BatchForget { forgets } => forgets.iter().for_each(|(node, lookups)| one(node, lookups)),
            _ => {}
        }
        request.reply_none();
        if !waiting.is_empty() {
            self.lanes.submit(Lane::Syncing, Job::Forgets(waiting));
        }
    }

    /// Something of `.find`: at once, or in the lane of searches.
    fn answer_search(&self, searches: &Searches, request: Request, io: Io<'_>) {
        if request.node() == ROOT {
            // What somebody has called so himself goes first.
            match self.filesystem().lookup(&self.performer.caller(&request, 0, io), ROOT, searches::NAME) {
                Err(stere_naming::Error::NotFound) => {}
                Err(stere_naming::Error::WouldBlock) => {
                    return self.lanes.submit(Lane::Searching, Job::Search(request));
                }
                _ => {
                    let left = self.attempt(request, io);
                    return left.into_iter().for_each(|request| self.hand_over(request));
                }
            }
        }
        let Next::Search(request) = searches.answer(self.filesystem(), request) else { return };
        if io.may_recall() {
            return searches.search(self.filesystem(), request);
        }
        match searches.may_begin(&request) {
            true => self.lanes.submit(Lane::Searching, Job::Search(request)),
            false => request.reply_error(libc::EAGAIN),
        }
    }

    fn forget_failed(&self, inode: u64, error: &stere_naming::Error) {
        // Its space is freed at the next mount at the latest.
        if self.complaints.may_log(now().seconds) {
            tracing::warn!(inode, %error, "a removed file could not be freed yet");
        }
    }

    /// A worker's turn.
    fn work(&self, job: Job) {
        let done = catch_unwind(AssertUnwindSafe(|| match job {
            Job::Request(request)
                if matches!(request.opcode(), opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64) =>
            {
                // A long one is ended by a signal, and tells how far it came.
                let waiter = Waiter::of(&request);
                let call = Call::cancelled_by(Cancellation::when(move || waiter.is_interrupted()));
                let call = call.abandoned_when(is_gone(&request));
                self.serve(request, call);
            }
            Job::Recall(request, turn) => {
                let call = Call::cancelled_by(Cancellation::when(is_gone(&request)));
                let call = call.abandoned_when(is_gone(&request));
                self.complete(request, call);
                drop(turn);
            }
            Job::Search(request) => {
                let Some(searches) = &self.searches else { return request.reply_error(libc::EIO) };
                let uid = request.context().uid;
                let is_counted = request.node() != ROOT;
                self.answer_search(searches, request, Io::BLOCKING);
                if is_counted {
                    searches.has_ended(uid);
                }
            }
            Job::Request(request) => {
                let call = Call::default().abandoned_when(is_gone(&request));
                self.serve(request, call);
            }
            Job::Retain(request) => {
                // What was stored through a mapping before was accepted, and is refused once the file is retained.
                self.invalidate(&CachedRange::whole(request.node()));
                self.complete(request, Call::default());
            }
            Job::Passed(request, answer, range) => {
                self.invalidate(&range);
                answer.send(request, &self.performer.belief);
            }
            Job::Invalidate(range) => self.invalidate(&range),
            Job::MakeDurable => self.make_durable(),
            Job::Forgets(inodes) => {
                for inode in inodes {
                    if let Err(error) = self.filesystem().forget(&Performer::own_caller(Io::BLOCKING), inode) {
                        self.forget_failed(inode, &error);
                    }
                }
            }
        }));
        if done.is_err() {
            self.panicked.store(true, Ordering::Release);
            self.take_down();
        }
    }

    /// Contents may be on volumes only, and names too where some were put away.
    fn may_need_volumes(&self, opcode: u32) -> bool {
        matches!(opcode, opcode::READ | opcode::WRITE) || self.filesystem().store().offload().has_folds()
    }

    /// A request that needs a medium: is refused, or waits for its turn.
    fn recall(&self, request: Request) {
        if self.filesystem().recalls().is_recall_refused(request.context().pid) {
            // Whatever it needs of a volume is refused, so it waits for none.
            return self.complete(request, Call::default());
        }
        if !self.filesystem().recalls().recalls_wait() {
            return self.lanes.submit(Lane::Recalling, Job::Recall(request, None));
        }
        let (node, offset, length) = match request.operation() {
            Operation::Read { node, offset, size, .. } => (node, offset, size as u64),
            Operation::Write(Write { node, offset, data, .. }) => (node, offset, data.len() as u64),
            _ => (0, 0, 0),
        };
        let volumes = match self.turns.are_by_volumes() {
            // What cannot be found out now is told when it is read.
            true => {
                self.filesystem().recalls().volumes_of_released(Io::DEVICES_ONLY, node, offset, length).unwrap_or(0)
            }
            false => 0,
        };
        let claim = Claim { user: request.context().uid, volumes };
        let (waiter, own) = (Waiter::of(&request), Weak::clone(&self.own));
        let begin = move |come| match (come, own.upgrade()) {
            (Come::Turn(turn), Some(front)) => front.lanes.submit(Lane::Recalling, Job::Recall(request, Some(turn))),
            _ => request.reply_error(libc::EINTR),
        };
        self.turns.ask(claim, begin, move || waiter.is_gone());
    }

    /// Does what a worker may wait for.
    fn serve(&self, request: Request, call: Call) {
        if !self.may_need_volumes(request.opcode()) {
            return self.complete(request, call);
        }
        // Who waits for a medium waits elsewhere, and not before those who wait for devices.
        if let Some(request) = self.attempt(request, Io::DEVICES_ONLY.of(&call)) {
            self.recall(request);
        }
    }

    fn complete(&self, request: Request, call: Call) {
        let call = self.filesystem().recalls().refusing_recalls(request.context().pid, call);
        let left = self.attempt(request, Io::BLOCKING.of(&call));
        assert!(left.is_none(), "a request was waited for and is not answered");
    }

    fn take_down(&self) {
        if let Some(unmounter) = self.unmounter.get() {
            if let Err(error) = unmounter.unmount(Unmount::Force) {
                tracing::error!(%error, "the mount cannot be taken down");
            }
        }
    }
}

impl fuse_wire::Filesystem for Front {
    fn init(&self, _negotiated: &Negotiated, notifier: Notifier) {
        // Set once, by the session.
        drop(self.notifier.set(notifier));
    }

    fn handle(&self, mut request: Request) {
        self.served.fetch_add(1, Ordering::Relaxed);
        self.io_profiles.arrived(&mut request, self.filesystem());
        if self.has_panicked() {
            return request.reply_error(libc::EIO);
        }
        if matches!(request.opcode(), opcode::FORGET | opcode::BATCH_FORGET) {
            return self.forget(request);
        }
        if let Some(searches) = self.searches.as_ref().filter(|_| Searches::concerns(&request)) {
            return self.answer_search(searches, request, Io::NON_BLOCKING);
        }
        if self.is_shared && Locks::concern(request.opcode()) {
            return self.locks.serve(request);
        }
        if self.is_shared && request.opcode() == opcode::RELEASE {
            self.locks.closed(&request);
        }
        self.handle_when_heard(request);
    }

    fn interrupted(&self, unique: u64) {
        if self.is_shared {
            self.locks.interrupt(None, unique);
        }
    }

    fn ended(&self) {
        self.locks.end_local();
    }
}

/// Operations that nearly always wait, or work for long: they do not occupy a transport's thread at all.
fn is_long(opcode: u32) -> bool {
    matches!(
        opcode,
        opcode::FSYNC
            | opcode::FSYNCDIR
            | opcode::SYNCFS
            | opcode::DESTROY
            | opcode::FALLOCATE
            | opcode::COPY_FILE_RANGE
            | opcode::COPY_FILE_RANGE_64
    )
}

fn lane_of(opcode: u32) -> Lane {
    match opcode {
        opcode::LOOKUP
        | opcode::GETATTR
        | opcode::STATX
        | opcode::READLINK
        | opcode::OPEN
        | opcode::OPENDIR
        | opcode::READ
        | opcode::READDIR
        | opcode::READDIRPLUS
        | opcode::GETXATTR
        | opcode::LISTXATTR
        | opcode::LSEEK
        | opcode::STATFS => Lane::Reading,
        // Of those that wait there is fstrim's.
        opcode::IOCTL => Lane::Syncing,
        opcode::ENTER_WRITE => Lane::Entering,
        _ => Lane::Changing,
    }
}

/// Whether whoever waits for a request is being killed.
fn is_gone(request: &Request) -> impl Fn() -> bool + Send + Sync + use<> {
    let waiter = Waiter::of(request);
    move || waiter.is_gone()
}
