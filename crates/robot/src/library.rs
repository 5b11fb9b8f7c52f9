//! The library as a whole: requests are queued, ordered, and served by whoever waits for one.
//!
//! Who waits takes a free drive and serves the request that `schedule.rs` chooses, his own or another's; so there are as many at work as
//! drives, and no threads of ours. Locks: `state` (queue, drives that are free, catalogue) is held only for a moment; a drive that works
//! belongs to who took it; the arm has a lock of its own, which is taken while `state` is not held.
//!
//! Who puts something holds `filling` for reading, who empties a cartridge for writing; it is taken before `state`.
//!
//! Read next: `library/arm.rs` (what is where), `library/work.rs` (what is done with a cartridge), `library/again.rs` (which are used again).

mod again;
mod arm;
mod people;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use stere_device::{Cancellation, Take};
use stere_format::{CartridgeBlock, CartridgeEntry};

use crate::catalogue::{Catalogue, Known, Standing};
use crate::drive::Drive;
use crate::error::RobotError;
use crate::schedule::{self, Request};
use crate::transport::Transport;
use arm::Arm;

/// Time since some moment.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The devices.
pub struct LibraryParts {
    /// None for a drive that people feed.
    pub changer: Option<Box<dyn Transport>>,
    /// In the order of the changer's elements.
    pub drives: Vec<Box<dyn Transport>>,
}

#[derive(Clone)]
pub struct LibraryOptions {
    /// Cartridges that belong together have its name on their labels.
    pub set: String,
    /// Cartridges whose bar codes begin otherwise are left alone.
    pub barcodes: String,
    /// What a block has on tape, with its header.
    pub block_bytes: u32,
    /// Where it is remembered what is on which cartridge.
    pub catalogue: Option<PathBuf>,
    /// The real time if none is given.
    pub clock: Option<Clock>,
    /// How people call the library.
    pub name: String,
    /// Nothing is written, no blank cartridge labelled.
    pub is_read_only: bool,
    /// Memory for what is copied from one cartridge to another: so much is read before it is written.
    pub copied_at_once_bytes: u64,
}

impl LibraryOptions {
    pub const BLOCK_BYTES: u32 = 256 << 10;
    const COPIED_AT_ONCE_BYTES: u64 = 256 << 20;

    pub fn new(name: &str) -> LibraryOptions {
        LibraryOptions {
            set: "stere".into(),
            barcodes: String::new(),
            block_bytes: LibraryOptions::BLOCK_BYTES,
            catalogue: None,
            clock: None,
            name: name.into(),
            is_read_only: false,
            copied_at_once_bytes: LibraryOptions::COPIED_AT_ONCE_BYTES,
        }
    }

    fn unit_bytes(&self) -> u32 {
        let unit = self.block_bytes.saturating_sub(CartridgeBlock::SIZE as u32);
        unit.clamp(CartridgeBlock::UNIT_BYTES_MIN, CartridgeBlock::UNIT_BYTES_MAX)
    }
}

/// Where what is read goes, block by block.
pub(crate) struct Sink {
    take: Take,
    /// Bytes that have gone there: what fails and is read once more goes on behind them.
    given: AtomicUsize,
    /// The thread that asked: where it serves its own request it looks itself whether that is cancelled,
    asked_by: ThreadId,
    cancellation: Cancellation,
    /// and says so while another thread serves it.
    is_given_up: AtomicBool,
}

impl Sink {
    fn new(take: &Take, cancellation: &Cancellation) -> Arc<Sink> {
        let (given, is_given_up) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (take, cancellation) = (take.clone(), cancellation.clone());
        Arc::new(Sink { take, given, asked_by: thread::current().id(), cancellation, is_given_up })
    }

    fn is_wanted(&self) -> bool {
        let is_own = thread::current().id() == self.asked_by;
        !(self.is_given_up.load(Ordering::Acquire) || is_own && self.cancellation.is_cancelled())
    }

    /// Gives out a piece that begins so many bytes behind the first; an error if nobody wants any more.
    fn give(&self, at: usize, piece: &[u8]) -> Result<(), RobotError> {
        if !self.is_wanted() {
            return Err(RobotError::GivenUp);
        }
        let given = self.given.load(Ordering::Acquire);
        assert!(at <= given, "pieces come in order");
        if let Some(news) = piece.get(given - at..).filter(|news| !news.is_empty()) {
            (self.take)(news);
            self.given.store(given + news.len(), Ordering::Release);
        }
        Ok(())
    }
}

/// What a copy is made of: the object, and the cartridge that it is on.
pub(crate) type Original = (String, CartridgeEntry);

/// What is asked of the library.
#[derive(Clone)]
pub(crate) enum Act {
    Get {
        name: String,
        offset: u64,
        length: usize,
        sink: Arc<Sink>,
    },
    Put {
        name: String,
        bytes: Arc<Vec<u8>>,
        /// Of a copy.
        original: Option<Original>,
    },
    /// Write a new label, so that nothing counts any more of what is on the cartridge.
    Renew,
    /// Find out what a cartridge is.
    Look,
    /// Say on the cartridge what it holds, and put it away.
    PutAway,
}

struct Waiting {
    request: Request,
    act: Act,
    /// How often a drive failed it.
    failures: u32,
}

/// A drive, and what is in it.
struct Bay {
    /// None while somebody works with it.
    drive: Option<Drive>,
    loaded: Option<String>,
    /// The label of what is loaded was read.
    is_checked: bool,
    failures: u32,
    /// Its drive finds blocks by LOCATE, as far as is known.
    is_locating: bool,
}

/// How often those who wait look whether they still should.
const LOOK: Duration = Duration::from_millis(100);
/// So often may a drive fail before it is left alone.
const FAILURES_MAX: u32 = 3;
/// So often is a request tried, by different drives if there are.
const TRIES_MAX: u32 = 2;

/// How long things took, as a running mean.
#[derive(Debug, Clone, Copy)]
struct Pace {
    exchange: Duration,
    position: Duration,
    bytes_per_second: f64,
}

pub(crate) struct State {
    bays: Vec<Bay>,
    catalogue: Catalogue,
    /// Cartridges in the library, as it was looked last.
    present: BTreeSet<String>,
    waiting: Vec<Waiting>,
    done: BTreeMap<u64, Result<(), RobotError>>,
    tickets: u64,
    is_connected: bool,
    pace: Pace,
    /// Why a cartridge is not used.
    complaints: BTreeMap<String, String>,
    /// Cartridges that could not be emptied: not tried again before the next mount, or until somebody has changed something.
    not_emptied: BTreeSet<String>,
    people: people::People,
}

/// A library of cartridges, of which one set is used.
pub struct Library {
    pub(crate) options: LibraryOptions,
    state: Mutex<State>,
    changed: Condvar,
    arm: Mutex<Arm>,
    filling: RwLock<()>,
    copied_bytes: AtomicU64,
    clock: Clock,
    parts: Mutex<Option<LibraryParts>>,
    is_fed_by_people: bool,
}

impl Library {
    /// Says nothing to the devices yet.
    pub fn new(parts: LibraryParts, options: LibraryOptions) -> Result<Library, RobotError> {
        assert!(!options.set.is_empty() && options.set.len() <= CartridgeBlock::SET_BYTES_MAX, "a set has a name");
        let catalogue = Catalogue::open(options.catalogue.as_deref())?;
        let start = Instant::now();
        let clock = options.clock.clone().unwrap_or_else(|| Arc::new(move || start.elapsed()));
        // Until something was measured: a minute to fetch, half a tape to wind.
        let pace =
            Pace { exchange: Duration::from_secs(60), position: Duration::from_secs(30), bytes_per_second: 100e6 };
        let state = State {
            bays: Vec::new(),
            catalogue,
            present: BTreeSet::new(),
            waiting: Vec::new(),
            done: BTreeMap::new(),
            tickets: 0,
            is_connected: false,
            pace,
            complaints: BTreeMap::new(),
            not_emptied: BTreeSet::new(),
            people: people::People::default(),
        };
        let is_fed_by_people = parts.changer.is_none();
        Ok(Library {
            is_fed_by_people,
            options,
            state: Mutex::new(state),
            changed: Condvar::new(),
            arm: Mutex::new(Arm::default()),
            filling: RwLock::new(()),
            copied_bytes: AtomicU64::new(0),
            clock,
            parts: Mutex::new(Some(parts)),
        })
    }

    fn is_ours_to_use(&self, barcode: &str) -> bool {
        barcode.starts_with(&self.options.barcodes)
    }

    /// Asks for something on one cartridge, and waits for it.
    fn ask(&self, cartridge: &str, file: u32, act: Act) -> Result<(), RobotError> {
        let mut state = self.state.lock();
        let ticket = state.tickets;
        state.tickets += 1;
        let request = Request { ticket, cartridge: cartridge.to_owned(), file, passed: 0 };
        let sink = if let Act::Get { sink, .. } = &act { Some(sink.clone()) } else { None };
        state.waiting.push(Waiting { request, act, failures: 0 });
        loop {
            if let Some(outcome) = state.done.remove(&ticket) {
                return outcome;
            }
            match self.pick(&mut state) {
                Some((bay, waiting)) => state = self.serve(state, bay, waiting),
                None if state.bays.iter().all(|bay| bay.drive.is_some()) => {
                    // Nobody is at work, and nobody can: the drives are out of order. The next one may try them again.
                    let count = state.waiting.len();
                    state.waiting.retain(|waiting| waiting.request.ticket != ticket);
                    assert_eq!(state.waiting.len() + 1, count, "a request that nobody serves waits once");
                    state.bays.iter_mut().for_each(|bay| bay.failures = 0);
                    return Err(RobotError::NoDrive);
                }
                None => {
                    let is_late = self.changed.wait_for(&mut state, LOOK).timed_out();
                    let Some(sink) = sink.as_ref().filter(|_| is_late) else { continue };
                    if MutexGuard::unlocked(&mut state, || sink.cancellation.is_cancelled()) {
                        sink.is_given_up.store(true, Ordering::Release);
                        let count = state.waiting.len();
                        state.waiting.retain(|waiting| waiting.request.ticket != ticket);
                        if state.waiting.len() < count {
                            return Err(RobotError::GivenUp);
                        }
                        // Somebody is at it, and ends at the next block.
                    }
                }
            }
        }
    }

    /// Takes the request to be served next, and its drive.
    fn pick(&self, state: &mut State) -> Option<((usize, Drive), Waiting)> {
        // Drives that failed are left alone while there are better ones.
        let fewest = state.bays.iter().map(|bay| bay.failures).min().unwrap_or(0);
        let view = |bay: &Bay| schedule::Bay {
            loaded: bay.loaded.clone(),
            file: bay.drive.as_ref().and_then(Drive::position).map_or(0, |(file, _)| file),
            is_free: bay.drive.is_some() && bay.failures == fewest && fewest < FAILURES_MAX,
        };
        let bays: Vec<schedule::Bay> = state.bays.iter().map(view).collect();
        let requests: Vec<Request> = state.waiting.iter().map(|waiting| waiting.request.clone()).collect();
        let (bay, at) = schedule::choose(&bays, &requests)?;
        assert!(state.bays[bay].drive.is_some(), "a drive that is chosen is free");
        let is_wanted = |bay: &schedule::Bay| bay.loaded.as_ref() == Some(&requests[at].cartridge);
        assert!(is_wanted(&bays[bay]) || !bays.iter().any(is_wanted), "a cartridge is fetched from no other drive");
        let waiting = state.waiting.swap_remove(at);
        state.waiting.iter_mut().for_each(|other| other.request.passed += 1);
        let drive = state.bays[bay].drive.take()?;
        // Nobody else shall fetch it meanwhile.
        Some(((bay, drive), waiting))
    }

    /// Does it, without the lock, and notes the outcome.
    fn serve<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        (bay, mut drive): (usize, Drive),
        mut waiting: Waiting,
    ) -> MutexGuard<'a, State> {
        assert!(state.bays[bay].drive.is_none(), "who works with a drive took it");
        assert!(waiting.failures < TRIES_MAX, "what failed {} times is not tried again", waiting.failures);
        let before = state.bays[bay].loaded.clone();
        // The others see the drive as that cartridge's from now on.
        state.bays[bay].loaded = Some(waiting.request.cartridge.clone());
        // Also of a cartridge that makes room for another one now: it gets its index before.
        let is_checked = state.bays[bay].is_checked;
        drop(state);
        let mut loaded = work::Loaded { bay, barcode: before.clone(), is_checked };
        let outcome = self.work(&mut drive, &mut loaded, &waiting.request.cartridge, &waiting.act);
        let is_drives_fault = outcome.as_ref().is_err_and(RobotError::is_of_device);
        if is_drives_fault {
            self.take_out(&mut drive, &mut loaded);
        }
        let is_wanted = loaded.barcode.as_ref() == Some(&waiting.request.cartridge);
        let is_left = loaded.barcode == before;
        assert!(
            !loaded.is_checked || is_wanted || is_left,
            "the label of another cartridge was read: {:?}",
            loaded.barcode
        );
        let mut state = self.state.lock();
        let place = &mut state.bays[bay];
        assert!(place.drive.is_none(), "nobody else took the drive meanwhile");
        place.is_locating = drive.is_locating();
        (place.drive, place.loaded, place.is_checked) = (Some(drive), loaded.barcode, loaded.is_checked);
        place.failures = if is_drives_fault { place.failures + 1 } else { 0 };
        if self.is_fed_by_people {
            state.note_hands(bay, (self.clock)());
        }
        // What the medium or the catalogue says is no failure of a drive, and final, whatever failed before.
        let has_failed = is_drives_fault || outcome.as_ref().is_err_and(RobotError::is_attention);
        waiting.failures += u32::from(has_failed);
        match outcome {
            Err(error) if has_failed && waiting.failures < TRIES_MAX => {
                tracing::warn!(library = self.options.name, %error, "a drive failed; it is tried once more");
                state.waiting.push(waiting);
            }
            outcome => {
                let before = state.done.insert(waiting.request.ticket, outcome);
                assert!(before.is_none(), "a request ends once");
            }
        }
        self.changed.notify_all();
        state
    }

    /// Looks at all cartridges that nobody knows: one of them may have a newer object of any name.
    pub fn look_at_all(&self) -> Result<(), RobotError> {
        self.connect()?;
        if self.is_fed_by_people {
            self.notice()?;
        }
        loop {
            let unknown = self.unknown(&self.state.lock());
            match unknown {
                Some(barcode) => self.look_at(&barcode)?,
                None => return Ok(()),
            }
        }
    }

    /// A cartridge that is here and that nobody has looked at.
    fn unknown(&self, state: &State) -> Option<String> {
        let is_unknown = |barcode: &&String| {
            state.catalogue.known(barcode).standing == Standing::Unknown && !state.complaints.contains_key(*barcode)
        };
        state.present.iter().find(is_unknown).cloned()
    }

    /// Finds out what a cartridge is; one that cannot be told is left out, and says why.
    fn look_at(&self, barcode: &str) -> Result<(), RobotError> {
        match self.ask(barcode, 0, Act::Look) {
            Ok(()) => Ok(()),
            Err(error) if error.is_of_device() || error == RobotError::NoDrive => Err(error),
            Err(error) => {
                tracing::warn!(library = self.options.name, barcode, %error, "a cartridge is not used");
                self.state.lock().complaints.insert(barcode.to_owned(), error.to_string());
                Ok(())
            }
        }
    }

    /// Somebody has changed something: the arm reads all bar codes again, and what was not used gets another chance.
    pub fn look_again(&self) -> Result<(), RobotError> {
        self.connect()?;
        let mut state = self.state.lock();
        state.complaints.clear();
        state.not_emptied.clear();
        drop(state);
        self.refresh(true)
    }

    /// Reads a part of an object; `take` gets what arrives, block by block and in order, each block proven.
    pub fn get(
        &self,
        name: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> Result<(), RobotError> {
        self.look_at_all()?;
        let sink = Sink::new(take, cancellation);
        for is_last in [false, true] {
            let (barcode, file) = {
                let state = self.state.lock();
                let Some((barcode, entry)) = state.catalogue.find(name) else {
                    let barcode = self.options.name.clone();
                    return Err(RobotError::NoObject { barcode, object: name.to_owned() });
                };
                (barcode.to_owned(), entry.file)
            };
            self.need(&barcode)?;
            match self.ask(&barcode, file, Act::Get { name: name.to_owned(), offset, length, sink: sink.clone() }) {
                // It was looked at; perhaps the object is elsewhere.
                Err(RobotError::Stale { .. }) if !is_last => {}
                outcome => {
                    let given = sink.given.load(Ordering::Acquire);
                    assert!(outcome.is_err() || given == length, "{given} bytes of {length} were given out");
                    return outcome;
                }
            }
        }
        Err(RobotError::NoObject { barcode: self.options.name.clone(), object: name.to_owned() })
    }

    /// The cartridge is in the library, or that is looked for once more.
    fn need(&self, barcode: &str) -> Result<(), RobotError> {
        if !self.state.lock().present.contains(barcode) {
            self.refresh(false)?;
            if !self.state.lock().present.contains(barcode) {
                return Err(match self.is_fed_by_people {
                    true => self.ask_people(barcode),
                    false => RobotError::NotThere { barcode: barcode.to_owned() },
                });
            }
        }
        Ok(())
    }

    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<(), RobotError> {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic());
        if name.is_empty() || name.len() > CartridgeBlock::NAME_BYTES_MAX || !is_plain {
            return Err(RobotError::Name { name: name.to_owned() });
        }
        if self.options.is_read_only {
            return Err(RobotError::NoRoom { set: self.options.set.clone() });
        }
        // The highest ordinal must be known.
        self.look_at_all()?;
        let bytes = Arc::new(bytes.to_vec());
        self.keep_one_free()?;
        let _filling = self.filling.read();
        self.put_somewhere(name, &bytes, None)
    }

    fn put_somewhere(&self, name: &str, bytes: &Arc<Vec<u8>>, original: Option<Original>) -> Result<(), RobotError> {
        let mut has_looked = false;
        // What is too long for a whole cartridge would be tried for ever; nothing is copied to where it is.
        let mut tried: BTreeSet<String> = original.iter().map(|(barcode, _)| barcode.clone()).collect();
        loop {
            let Some((barcode, is_free)) = self.cartridge_to_fill(&tried) else {
                if self.is_fed_by_people {
                    return Err(self.ask_people(&self.cartridge_to_ask_for()));
                }
                if std::mem::replace(&mut has_looked, true) {
                    return Err(RobotError::NoRoom { set: self.options.set.clone() });
                }
                self.refresh(false)?;
                self.look_at_all()?;
                continue;
            };
            let act = Act::Put { name: name.to_owned(), bytes: bytes.clone(), original: original.clone() };
            match self.ask(&barcode, u32::MAX, act) {
                Ok(()) => return Ok(()),
                // It has ended, or is another one than was thought; another one is taken.
                Err(RobotError::NoRoom { .. }) if is_free => drop(tried.insert(barcode)),
                Err(RobotError::NoRoom { .. }) => {}
                Err(
                    error @ (RobotError::Foreign { .. }
                    | RobotError::Mislabelled { .. }
                    | RobotError::Unreadable { .. }),
                ) => {
                    self.state.lock().complaints.insert(barcode, error.to_string());
                }
                Err(RobotError::NotThere { .. }) if !has_looked => has_looked = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// What people are asked for to be written to.
    fn cartridge_to_ask_for(&self) -> String {
        let state = self.state.lock();
        let has_room = |(barcode, known): &(&String, &Known)| {
            let is_open = known.standing == Standing::Ours && !known.is_full;
            (is_open || known.is_reusable()) && !state.complaints.contains_key(*barcode)
        };
        // One that is begun comes before one that is used again.
        let known = state.catalogue.cartridges().filter(has_room).min_by_key(|(_, known)| known.is_full);
        known.map_or_else(|| "a blank cartridge".to_owned(), |(barcode, _)| barcode.clone())
    }

    pub fn length(&self, name: &str) -> Result<Option<u64>, RobotError> {
        self.look_at_all()?;
        Ok(self.state.lock().catalogue.find(name).map(|(_, entry)| entry.object_bytes))
    }

    /// The object is dead; its cartridge says so when it is put away.
    pub fn delete(&self, name: &str) -> Result<(), RobotError> {
        self.look_at_all()?;
        self.state.lock().catalogue.kill(name)
    }

    pub fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, RobotError> {
        self.look_at_all()?;
        Ok(self.state.lock().catalogue.list(prefix))
    }

    /// Every cartridge that is in a drive gets its index, and goes to its slot.
    pub fn put_all_away(&self) -> Result<(), RobotError> {
        let loaded: Vec<String> = self.state.lock().bays.iter().filter_map(|bay| bay.loaded.clone()).collect();
        loaded.iter().try_for_each(|barcode| self.ask(barcode, u32::MAX, Act::PutAway))
    }

    /// Which cartridge has an object, and how long it takes about until its first byte is here.
    pub fn estimate(&self, name: &str) -> Option<(String, Duration)> {
        let state = self.state.lock();
        let (barcode, entry) = state.catalogue.find(name)?;
        let (barcode, pace) = (barcode.to_owned(), state.pace);
        let bay = state.bays.iter().find(|bay| bay.loaded.as_deref() == Some(&barcode));
        let is_next = bay.and_then(|bay| bay.drive.as_ref()?.position()).is_some_and(|(file, _)| file == entry.file);
        let fetching = if bay.is_some() { Duration::ZERO } else { pace.exchange };
        let winding = if is_next { Duration::ZERO } else { pace.position };
        let others = state.waiting.iter().filter(|waiting| waiting.request.cartridge != barcode);
        let ahead: BTreeSet<&String> = others.map(|waiting| &waiting.request.cartridge).collect();
        let turns = ahead.len() as u32 / state.bays.len().max(1) as u32;
        Some((barcode, fetching + winding + turns * (pace.exchange + pace.position)))
    }

    /// Where the block begins that holds what lies at `offset` of an object, if the drives find blocks by LOCATE, as far as is known.
    pub fn begins_at(&self, name: &str, offset: u64) -> Option<u64> {
        let state = self.state.lock();
        let (barcode, entry) = state.catalogue.find(name)?;
        let is_for_it = |bay: &&Bay| bay.loaded.as_deref() == Some(barcode);
        let bay = state.bays.iter().find(is_for_it).or_else(|| state.bays.first())?;
        let unit = u64::from(entry.unit_bytes).max(1);
        bay.is_locating.then_some(offset / unit * unit)
    }

    /// Everything that is known of cartridges: bar code, what it is, where it is, objects that count and their bytes.
    pub fn cartridges(&self) -> Vec<stere_device::Medium> {
        let state = self.state.lock();
        let known: BTreeSet<String> = state.catalogue.cartridges().map(|(barcode, _)| barcode.clone()).collect();
        let in_drive = |barcode: &str| state.bays.iter().position(|bay| bay.loaded.as_deref() == Some(barcode));
        let mut all = Vec::new();
        for barcode in known.union(&state.present) {
            let known = state.catalogue.known(barcode);
            let bytes = known.entries.values().map(|entry| entry.object_bytes).sum();
            let place = match (in_drive(barcode), state.present.contains(barcode)) {
                (Some(drive), _) => format!("drive {drive}"),
                (None, true) => "slot".to_owned(),
                (None, false) if state.is_connected => "away".to_owned(),
                (None, false) => "unknown".to_owned(),
            };
            let kind = match (known.standing, known.is_full) {
                _ if known.is_reusable() => "reusable".to_owned(),
                (Standing::Ours, true) => "full".to_owned(),
                (standing, _) => standing.word().to_owned(),
            };
            let complaint = state.complaints.get(barcode).cloned();
            let (name, objects) = (barcode.clone(), known.entries.len() as u64);
            all.push(stere_device::Medium { name, kind, place, objects, bytes, complaint });
        }
        all
    }
}

#[cfg(test)]
mod tests;
