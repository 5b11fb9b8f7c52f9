//! Whether machines that mount one tree see each other's changes (P-272): writers and readers on all of them, each change with its number
//! in the content, and the order of calls told beside the file system, which works because all mounts are on this machine.
//!
//! A write that has returned is seen by every file that is opened after that, and by every read past the page cache; a file that was open
//! before shows it within `held_max`. No block is torn, or of another place. An appended record is there once and whole. A file that is
//! renamed over is the older or the newer one, to the end. Knows nothing of stere; in two directories that are not of one tree it fails.
//! Read next: `coherence/order.rs`.

#[path = "coherence/appends.rs"]
mod appends;
#[path = "coherence/block.rs"]
mod block;
#[path = "coherence/blocks.rs"]
mod blocks;
#[path = "coherence/order.rs"]
mod order;
#[path = "coherence/versions.rs"]
mod versions;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::appends::Appends;
use self::block::{BLOCK, Content, Stamp};
use self::blocks::Blocks;
use self::order::{Clock, Floor, Place, WRITES_MAX};
use self::versions::Versions;

/// What is late on machines that reach each other.
pub const HELD_MAX: Duration = Duration::from_secs(10);
const FOLDER: &str = "stere-coherence";

/// A wrong change, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A write that does not take place.
    Lost,
    /// A write of half a block.
    Torn,
    /// A write at the place of another.
    Misplaced,
    /// An append that is done twice.
    Doubled,
    /// A rename that does not take place.
    Unrenamed,
}

impl std::str::FromStr for Plant {
    type Err = String;

    fn from_str(word: &str) -> Result<Plant, String> {
        let all = [Plant::Lost, Plant::Torn, Plant::Misplaced, Plant::Doubled, Plant::Unrenamed];
        let found = all.into_iter().find(|plant| format!("{plant:?}").eq_ignore_ascii_case(word));
        found.ok_or_else(|| format!("one of {all:?}"))
    }
}

/// How often a planted change is made, in changes.
const PLANTED_EVERY: u64 = 64;

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub time: Duration,
    /// It ends sooner when so many reads were judged.
    pub reads_max: u64,
    pub plant: Option<Plant>,
    /// An append may be seen growing, as on ext4, if the journal ends in it.
    pub grows_in_parts: bool,
    /// A file that was opened before a write shows it after this time at the latest, and a file that grew is known to be longer.
    pub held_max: Duration,
}

#[derive(Default)]
struct Counts {
    /// Calls that read, and what they showed.
    reads: AtomicU64,
    blocks: AtomicU64,
    records: AtomicU64,
    writes: AtomicU64,
    opens: AtomicU64,
    /// Reads of a file that was open before, which showed something older, and how long at most.
    stale: AtomicU64,
    stale_us_max: AtomicU64,
    /// Reads that took a file for shorter than it was, and how long at most.
    old_ends: AtomicU64,
    old_ends_us_max: AtomicU64,
}

/// What all threads share.
struct Shared<'a> {
    directories: &'a [PathBuf],
    plan: Plan,
    clock: Clock,
    counts: Counts,
    is_over: AtomicBool,
    failure: Mutex<Option<String>>,
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (value ^ (value >> 31)) % bound
    }
}

fn at<T>(step: &str, path: &Path, result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{step} {}: {error}", path.display()))
}

impl Shared<'_> {
    fn path(&self, machine: usize, name: &str) -> PathBuf {
        self.directories[machine].join(FOLDER).join(name)
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn count(&self, counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    /// Whether this change is to be made wrong.
    fn is_planted(&self, plant: Plant, number: u64) -> bool {
        self.plan.plant == Some(plant) && number % PLANTED_EVERY == PLANTED_EVERY - 1
    }

    /// Repeats a step until the end; the first failure ends all.
    fn repeat(&self, mut step: impl FnMut() -> Result<(), String>) {
        while self.goes_on() {
            if let Err(why) = step() {
                self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Judges a block that was read; says what is wrong with it.
    fn judge(&self, place: &Place, (file, index): (u64, u64), content: Content, floor: Floor) -> Result<(), String> {
        self.count(&self.counts.blocks, 1);
        let is_right = match content {
            Content::Empty => place.may_be_empty(floor),
            Content::Stamped(stamp) if (stamp.file, stamp.index) == (file, index) => {
                place.may_show(&self.clock, stamp.write, floor)
            }
            Content::Stamped(_) | Content::Torn(..) | Content::Unknown => false,
        };
        if is_right { Ok(()) } else { Err(format!("{content:?}, and had to show what began at {floor:?} or later")) }
    }

    fn report(&self, took: Duration) -> Value {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        json!({
            "seconds": took.as_secs_f64(),
            "reads": count(&counts.reads),
            "blocks_read": count(&counts.blocks),
            "records_read": count(&counts.records),
            "opens": count(&counts.opens),
            "writes": count(&counts.writes),
            "stale_while_open": count(&counts.stale),
            "stale_while_open_ms_max": count(&counts.stale_us_max) as f64 / 1000.0,
            "old_ends": count(&counts.old_ends),
            "old_ends_ms_max": count(&counts.old_ends_us_max) as f64 / 1000.0,
        })
    }
}

/// Works in all directories, which have to be the same one on several mounts, until the plan is over; what was judged.
pub fn run(directories: &[PathBuf], plan: Plan) -> Result<Value, String> {
    let shared = Shared {
        directories,
        plan,
        clock: Clock::new(WRITES_MAX),
        counts: Counts::default(),
        is_over: AtomicBool::new(false),
        failure: Mutex::new(None),
    };
    let folder = directories[0].join(FOLDER);
    at("mkdir", &folder, fs::create_dir(&folder))?;
    let (blocks, versions, appends) = (Blocks::make(&shared)?, Versions::make(&shared)?, Appends::make(&shared)?);
    let begun = Instant::now();
    thread::scope(|scope| {
        for machine in 0..directories.len() {
            let random = move |job: u64| Random(plan.seed.wrapping_mul(1000) + machine as u64 * 10 + job);
            let (shared, blocks, versions, appends) = (&shared, &blocks, &versions, &appends);
            scope.spawn(move || blocks.write(shared, machine, random(0)));
            scope.spawn(move || blocks.write_lone(shared, machine, random(7)));
            scope.spawn(move || blocks.read(shared, machine, random(1)));
            scope.spawn(move || blocks.read(shared, machine, random(2)));
            scope.spawn(move || versions.replace(shared, machine, random(3)));
            scope.spawn(move || versions.read(shared, machine, random(4)));
            scope.spawn(move || appends.append(shared, machine, random(5)));
            scope.spawn(move || appends.read(shared, machine, random(6)));
        }
        let reads = || shared.counts.reads.load(Ordering::Relaxed);
        while begun.elapsed() < plan.time && reads() < plan.reads_max && shared.goes_on() {
            thread::sleep(Duration::from_millis(20));
        }
        shared.is_over.store(true, Ordering::Relaxed);
    });
    let took = begun.elapsed();
    if let Some(why) = shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(why);
    }
    appends.read_all(&shared)?;
    at("remove", &folder, fs::remove_dir_all(&folder))?;
    Ok(shared.report(took))
}
