//! The journal and the roots of a pool in a shared log: what lies there, and putting more.
//!
//! The log is the authority: the last root in it says what the pool is, and a commit is durable once its records are in it. Invariants:
//! puts are made one after the other; nothing is put after a number was somebody else's; a root repeats all grants that go on, so
//! that everything before what it needs can be trimmed. Read next: `tail_read.rs`, `docs/design/cluster.md`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use stere_faults::{Bug, is_planted};
use stere_format::{JournalHeader, LogEntry, LogRecord, PoolId, SlotExtent, Superblock};
use stere_shared_log::{Put, SharedLog};
use stere_stripe::Grants;

use crate::JournalError;
use crate::foreign::Foreign;
use crate::tail_read::{Contents, read_contents};

/// Waits a moment, told why and how often in a row; false where nobody wants to wait any longer.
pub type Pause = Box<dyn Fn(&str, u32) -> bool + Send + Sync>;

/// So often whoever does not own the pool tries to put its first root; an answer that was lost is settled by the second.
const TAKING_TRIES_MAX: u32 = 2;

/// What a tail needs of the world.
pub struct TailWorld {
    /// Milliseconds of a clock that goes on while the machine sleeps.
    pub now_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Called when the log did not take a record.
    pub pause: Pause,
    /// How long nobody else takes the pool after a record of this owner is in the log.
    pub lease_ms: u64,
    /// For how long after its loss an owner's writes may still arrive at devices.
    pub hold_ms: u32,
}

#[derive(Default)]
struct Putting {
    /// The number of the next record.
    next: u64,
    /// Where records of the journal lie, in order: number in the log, sequence in the journal.
    places: VecDeque<(u64, u64)>,
    /// Somebody else's number was met, or the log is not what it was.
    lost: Option<JournalError>,
    /// Whether this owner's first root is in the log.
    is_owner: bool,
    /// Whether the last record is a root that says that the pool was closed in order.
    is_closed: bool,
}

type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// A pool's shared log, as one process reads and writes it.
pub struct Tail {
    log: Arc<dyn SharedLog>,
    pool: PoolId,
    /// Random for each opening.
    owner: [u8; 16],
    world: TailWorld,
    putting: Mutex<Putting>,
    /// One past the last number that is known to be this owner's or read.
    decided: AtomicU64,
    /// One past the last number that a put was begun for.
    begun: AtomicU64,
    grants: Arc<Grants>,
    contents: Mutex<Contents>,
    foreign: Mutex<Foreign>,
    on_lost: Mutex<Option<Tell>>,
    /// Why records are not taken now.
    trouble: Mutex<Option<String>>,
    /// Why beats are not: of a pool that nobody changes that is all there is to tell.
    beat_trouble: Mutex<Option<String>>,
    is_given_up: AtomicBool,
    /// Of this owner's last root.
    epoch: AtomicU32,
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Tail(pool {}, next {})", self.pool, self.decided.load(Ordering::Relaxed))
    }
}

impl Tail {
    /// Reads all that the log holds of the pool.
    pub fn open(
        log: Arc<dyn SharedLog>,
        pool: PoolId,
        owner: [u8; 16],
        world: TailWorld,
    ) -> Result<Arc<Tail>, JournalError> {
        let mut contents = read_contents(&*log, pool)?;
        let next = contents.next;
        let now_ms = world.now_ms.clone();
        let (held, granted) = (std::mem::take(&mut contents.held), std::mem::take(&mut contents.granted));
        let foreign = Foreign::new(held, granted, now_ms());
        let places = contents.places.iter().copied().collect();
        Ok(Arc::new(Tail {
            log,
            pool,
            owner,
            world,
            putting: Mutex::new(Putting { next, places, ..Putting::default() }),
            decided: AtomicU64::new(next),
            begun: AtomicU64::new(next),
            grants: Arc::new(Grants::new(Box::new(move || now_ms()))),
            contents: Mutex::new(contents),
            foreign: Mutex::new(foreign),
            on_lost: Mutex::default(),
            trouble: Mutex::default(),
            beat_trouble: Mutex::default(),
            is_given_up: AtomicBool::new(false),
            epoch: AtomicU32::new(0),
        }))
    }

    /// The engine, for beats.
    pub fn log(&self) -> &Arc<dyn SharedLog> {
        &self.log
    }

    pub fn owner(&self) -> [u8; 16] {
        self.owner
    }

    pub fn grants(&self) -> &Arc<Grants> {
        &self.grants
    }

    /// The superblock of the last root; none where the log is empty.
    pub fn root(&self) -> Option<Superblock> {
        self.contents.lock().root.clone()
    }

    /// Slots that owners before may still write to.
    pub fn foreign(&self) -> Vec<SlotExtent> {
        self.foreign.lock().slots()
    }

    /// Ends what owners before were granted and cannot write to any more; those slots.
    pub fn release_foreign(&self) -> Vec<SlotExtent> {
        self.foreign.lock().release((self.world.now_ms)())
    }

    /// Waits a moment of the time for which such slots are held; `tries` went before. False where that is not waited for.
    pub fn wait_for_foreign(&self, tries: u32) -> bool {
        let is_lost = self.is_given_up.load(Ordering::Acquire) || self.check().is_err();
        !is_lost && (self.world.pause)("all free room is held for writes of an owner before this one", tries + 1)
    }

    /// The log ended at `next` already so long before it was read.
    pub fn note_silence(&self, next: u64, silent_ms: u64) {
        let (decided, _) = self.ends();
        if next == decided && !self.is_owner() {
            self.foreign.lock().count_on(silent_ms);
        }
    }

    /// The records of the journal that the last root needs, by sequence.
    pub(crate) fn records(&self) -> Arc<BTreeMap<u64, Vec<u8>>> {
        self.contents.lock().records.clone()
    }

    /// They were replayed.
    pub fn forget_records(&self) {
        self.contents.lock().records = Arc::default();
    }

    /// One past the last number that was decided, and one past the last that may be under way.
    pub fn ends(&self) -> (u64, u64) {
        let decided = self.decided.load(Ordering::Acquire);
        (decided, self.begun.load(Ordering::Acquire).max(decided))
    }

    /// Whether somebody put something since the log was read. Where that cannot be told, the next put tells.
    pub fn has_moved(&self) -> bool {
        let (decided, _) = self.ends();
        self.log.bounds().is_ok_and(|bounds| bounds.next != decided)
    }

    /// Whether this owner's root is in the log, and nobody took the pool since, as far as it knows.
    pub fn is_owner(&self) -> bool {
        let putting = self.putting.lock();
        putting.is_owner && putting.lost.is_none()
    }

    /// The epoch of this owner, which is above those of all before; 0 before its root is in the log.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether the pool was closed in order.
    pub fn is_closed(&self) -> bool {
        self.putting.lock().is_closed
    }

    /// Nobody waits for the log any longer: what it does not take at once is given up.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
    }

    /// Why records are not taken now, or would not be.
    pub fn trouble(&self) -> Option<String> {
        let of_put = self.trouble.lock().clone();
        of_put.or_else(|| self.beat_trouble.lock().clone())
    }

    /// The log has taken a beat, or why it has not.
    pub fn note_beat(&self, trouble: Option<String>) {
        *self.beat_trouble.lock() = trouble;
    }

    /// Called once when the pool is lost to another owner, or now if it is; by whoever found it, who may hold locks of the pool.
    pub fn set_on_lost(&self, tell: Tell) {
        *self.on_lost.lock() = Some(tell);
        self.tell_if_lost();
    }

    /// An error once the pool is lost.
    pub fn check(&self) -> Result<(), JournalError> {
        self.putting.lock().lost.clone().map_or(Ok(()), Err)
    }

    /// The pool is another's: nothing is written any more, to devices neither.
    pub fn lose(&self, cause: JournalError) {
        self.putting.lock().lose(cause);
        self.tell_if_lost();
    }

    /// Whatever waits for the log hears that it is lost. Who waits may ask this tail, so its lock is not held.
    fn tell_if_lost(&self) {
        let Err(cause) = self.check() else { return };
        let text = cause.to_string();
        self.grants.lose(&text);
        let tell = self.on_lost.lock().take();
        tell.into_iter().for_each(|tell| tell(&text));
    }

    fn with_putting<T>(&self, work: impl FnOnce(&mut Putting) -> Result<T, JournalError>) -> Result<T, JournalError> {
        let outcome = work(&mut self.putting.lock());
        if outcome.is_err() {
            self.tell_if_lost();
        }
        outcome
    }

    /// Puts records of the journal, in order. What they name is durable on devices.
    pub fn put_journal(&self, records: Vec<Vec<u8>>) -> Result<(), JournalError> {
        self.with_putting(|putting| {
            assert!(putting.is_owner || records.is_empty(), "an owner's root comes before its records");
            for record in records {
                let header = JournalHeader::decode(&record)
                    .map_err(|error| JournalError::BadRecord { detail: error.to_string() })?;
                let number = self.put(putting, LogRecord::Journal(record))?;
                let last = putting.places.back().map_or(0, |(number, _)| *number);
                assert!(last < number, "record {number} lies behind {last}");
                putting.places.push_back((number, header.at.sequence));
            }
            Ok(())
        })
    }

    /// Puts a root; then the pool is this owner's, if it was not. What is needless from then on is trimmed.
    pub fn put_root(&self, superblock: &Superblock) -> Result<(), JournalError> {
        assert!(superblock.is_log_shared, "roots are of pools whose log is shared");
        let before = self.with_putting(|putting| {
            let kept = self.grants.kept_at_root(superblock.generation);
            // Whoever closed the pool in order writes nothing any more.
            let granted = if superblock.clean { Vec::new() } else { kept };
            let held = self.foreign.lock().told((self.world.now_ms)(), self.world.hold_ms);
            let root = LogRecord::Root { superblock: Box::new(superblock.clone()), granted, held };
            let number = self.put(putting, root)?;
            (putting.is_owner, putting.is_closed) = (true, superblock.clean);
            self.foreign.lock().begin((self.world.now_ms)(), self.world.hold_ms);
            let epoch = superblock.epochs.last().map_or(0, |epoch| epoch.epoch);
            self.epoch.store(epoch, Ordering::Release);
            let start = superblock.journal_start.sequence;
            while putting.places.front().is_some_and(|(_, sequence)| *sequence < start) {
                putting.places.pop_front();
            }
            assert!(putting.places.iter().all(|(_, sequence)| *sequence >= start), "what a root needs is kept");
            Ok(putting.places.front().map_or(number, |(first, _)| (*first).min(number)))
        })?;
        if let Err(error) = self.log.trim(before) {
            // The next root tries again.
            tracing::warn!(%error, "the shared log could not be trimmed");
        }
        Ok(())
    }

    /// Puts what is wanted of grants.
    pub fn put_grants(&self) -> Result<(), JournalError> {
        self.with_putting(|putting| {
            let wanted = self.grants.wanted();
            if wanted.is_empty() || !putting.is_owner {
                return Ok(());
            }
            if !is_planted(Bug::GrantNotPut) {
                self.put(putting, LogRecord::Grants(wanted.clone()))?;
            }
            // Before the next root, which repeats them.
            self.grants.granted(&wanted);
            Ok(())
        })
    }

    /// Puts one record, for as long as it takes. Its number.
    fn put(&self, putting: &mut Putting, record: LogRecord) -> Result<u64, JournalError> {
        if let Some(lost) = &putting.lost {
            return Err(lost.clone());
        }
        let entry = LogEntry { pool: self.pool, owner: self.owner, record };
        let bytes = entry.encode().map_err(|error| JournalError::BadRecord { detail: error.to_string() })?;
        let mut number = putting.next;
        assert!(bytes.len() <= stere_shared_log::RECORD_BYTES_MAX, "a record of {} bytes is too long", bytes.len());
        assert!(number >= self.decided.load(Ordering::Acquire), "what is decided is not put again");
        self.begun.store(number + 1, Ordering::Release);
        let mut tries = 0;
        loop {
            let begun_ms = self.grants.now_ms();
            let why = match self.log.put(number, &bytes) {
                Ok(Put::Mine) => {
                    assert_eq!(putting.next, number, "records are put one after the other");
                    putting.next = number + 1;
                    self.decided.store(number + 1, Ordering::Release);
                    *self.trouble.lock() = None;
                    // Nobody had taken the pool when the put began.
                    self.grants.renew(begun_ms + self.world.lease_ms);
                    return Ok(number);
                }
                Ok(Put::Taken) if is_planted(Bug::FencedGoesOn) => {
                    putting.next += 1;
                    number += 1;
                    continue;
                }
                Ok(Put::Taken) => return Err(putting.lose(JournalError::Replaced)),
                Err(error @ stere_shared_log::Error::Damaged { .. }) => {
                    let cause = JournalError::LogDamaged { detail: error.to_string() };
                    return Err(putting.lose(cause));
                }
                Err(error) => error.to_string(),
            };
            *self.trouble.lock() = Some(why.clone());
            tries += 1;
            // Whoever does not own the pool yet keeps nobody else from it: its owner, perhaps, waits for the log too.
            let is_in_vain = !putting.is_owner && tries >= TAKING_TRIES_MAX;
            if is_in_vain || self.is_given_up.load(Ordering::Acquire) || !(self.world.pause)(&why, tries) {
                let cause = JournalError::LogAway { why };
                return Err(putting.lose(cause));
            }
        }
    }
}

impl Putting {
    /// The first cause is the one that counts.
    fn lose(&mut self, cause: JournalError) -> JournalError {
        if self.lost.is_none() {
            tracing::error!("{cause}");
        }
        self.lost.get_or_insert(cause).clone()
    }
}
