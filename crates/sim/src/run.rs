//! From a seed to a history and its outcome; many histories on several threads; shortening of those that fail.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stere_store::CleanerPolicy;

use crate::area::{self, Area, Areas};
use crate::fault::FaultKind;
use crate::features;
use crate::history::{Budget, Failure, History, Plan};
use crate::operation::{Generator, Operation, Profile};
use crate::pool::PoolConfig;
use crate::random::Random;
use crate::summary::{Count, Summary};
use crate::takeover::MANNERS;

pub(crate) const MIB: u64 = 1 << 20;
/// No history takes so long, on the busiest machine: half a minute of processor time is the most that was seen.
const STALL: Duration = Duration::from_secs(600);

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Request {
    pub histories: u64,
    pub seed: u64,
    pub steps: usize,
    /// Kinds to choose from; empty: histories without faults only.
    pub faults: Vec<FaultKind>,
    pub threads: usize,
    /// Only histories of this profile.
    pub profile: Option<Profile>,
    pub canary: bool,
    /// No history takes part in an area: each is what its seed was before there were any.
    pub without_areas: bool,
    /// Every history takes part in this area, and in no other.
    pub area: Option<Area>,
    /// Run each history twice: the same operations must reach the devices in the same order.
    pub twice: bool,
    /// A bug that the layers are to have.
    #[cfg(feature = "planted-bugs")]
    pub bug: Option<stere_faults::Bug>,
}

/// A seed that failed.
#[derive(Debug, Clone)]
pub struct FailedSeed {
    pub seed: u64,
    pub failure: Failure,
}

/// What came out.
#[derive(Debug, Default)]
pub struct Outcome {
    pub histories: u64,
    pub totals: Summary,
    /// Histories that faults struck, and that copied something to volumes.
    pub with_faults: u64,
    pub with_volumes: u64,
    pub failed: Vec<FailedSeed>,
}

impl Outcome {
    fn add(&mut self, summary: &Summary) {
        self.totals.add(summary);
        self.with_faults += u64::from(summary.faults > 0);
        self.with_volumes += u64::from(summary.tier.segments_uploaded > 0);
    }
}

fn draw_pool(random: &mut Random, profile: Profile) -> PoolConfig {
    let count = *random.pick(&[1, 1, 2, 2, 3, 4]);
    let is_full = profile == Profile::Full;
    let count = if is_full { count.min(2) } else { count };
    let sizes = if is_full { [64, 64, 66, 72] } else { [64, 96, 200, 3000] };
    let device_bytes: Vec<u64> = (0..count).map(|_| *random.pick(&sizes) * MIB + random.below(64) * 4096).collect();
    let chunk_bytes = *random.pick(&[1 << 20, 1 << 20, 2 << 20]);
    let block_bytes: Vec<u32> = (0..count).map(|_| *random.pick(&[512, 512, 4096])).collect();
    let memory_bytes = *random.pick(&[8 << 20, 16 << 20, 64 << 20]);
    let dirty_bytes_max = *random.pick(&[256 << 10, 1 << 20, 64 << 20]);
    let pool = PoolConfig::of(&device_bytes).blocks(&block_bytes).chunks(chunk_bytes).memory(memory_bytes);
    let pool = pool.dirty(dirty_bytes_max, random.between(1, 5));
    pool.cleaner(*random.pick(&CleanerPolicy::ALL))
}

/// What a history bears, and the faults it meets: device, kind and rate.
fn draw_faults(random: &mut Random, devices: usize, kinds: &[FaultKind]) -> (Budget, Vec<(u8, FaultKind, u32)>) {
    let mut faults = Vec::new();
    let mut budget = Budget::None;
    if !kinds.is_empty() && random.chance(1, 2) {
        budget = if devices > 1 && random.chance(3, 4) { Budget::Tolerated } else { Budget::Beyond };
        let victim = random.below(devices as u64) as u8;
        for _ in 0..random.between(1, 2) {
            let device = if budget == Budget::Tolerated { victim } else { random.below(devices as u64) as u8 };
            // Devices that come and go are one kind of many, and what most depends on.
            let absences: Vec<FaultKind> = kinds.iter().copied().filter(|kind| kind.is_absence()).collect();
            let wants_absence = random.chance(1, 4) && !absences.is_empty();
            let kind = *random.pick(if wants_absence { &absences } else { kinds });
            let rate = *random.pick(&[300, 3_000, 30_000, 200_000]);
            faults.push((device, kind, rate));
        }
    }
    (budget, faults)
}

/// The history of a seed.
pub fn history_of(seed: u64, request: &Request) -> (Plan, Vec<Operation>) {
    let mut random = Random::new(seed);
    let drawn = Profile::draw(&mut random);
    let profile = request.profile.unwrap_or(drawn);
    let mut pool = draw_pool(&mut random, profile);
    let areas = request.area.map_or_else(|| features::areas_of(seed), Areas::only);
    let has_areas = profile != Profile::Full && !request.without_areas;
    features::give(&mut pool, seed, if has_areas { areas } else { Areas::NONE });
    let devices = pool.device_bytes.len();
    let (budget, faults) = draw_faults(&mut random, devices, &request.faults);
    pool.checksums = features::checksums_of(seed, budget != Budget::None);
    let may_fill = profile == Profile::Full;
    let plan = Plan { seed, pool, budget, may_fill, canary: request.canary };
    let steps = if may_fill { request.steps.div_ceil(2) } else { request.steps };
    let mut operations =
        Generator::new(random.fork(), profile, devices).history(steps, &faults, !request.faults.is_empty());
    area::strew(plan.pool.areas, &mut operations, &mut Random::new(seed ^ 0xa4ea));
    // Drawn apart, so that the others stay the histories that they were.
    if features::has_limits(seed, plan.pool.areas) {
        crate::quotas::strew(&mut operations, &mut Random::new(seed ^ 0x1147));
    }
    if !may_fill && !request.faults.is_empty() {
        // At the end, so that what comes before stays what it was.
        let mut drawn = Random::new(seed ^ 0x5191e);
        operations.push(Operation::TrySingle { ailment: drawn.below(3) as u8, verb: drawn.below(4) as u8 });
        fail_devices(&mut operations, plan.pool.areas.has(Area::Failing), &mut drawn);
    }
    if features::NEARLY_FULL.has(seed) {
        operations.push(Operation::TryNearlyFull { seed: Random::new(seed ^ 0xf011).next_u64() });
    }
    (plan, operations)
}

/// Whole devices fail for a while or for ever, a pool is fought for: one of these at the end, or several in their area.
fn fail_devices(operations: &mut Vec<Operation>, is_area: bool, random: &mut Random) {
    let hanging = |random: &mut Random| Operation::TryHanging { moment: random.below(8) as u8 };
    let takeover = |random: &mut Random| Operation::TryTakeover { manner: random.below(MANNERS as u64) as u8 };
    if is_area {
        operations.extend([hanging(random), takeover(random), Operation::TryRivals]);
        return;
    }
    match random.below(8) {
        0..3 => operations.push(hanging(random)),
        3 | 4 => operations.push(takeover(random)),
        5 => operations.push(Operation::TryRivals),
        _ => {}
    }
}

/// Runs one history; a panic is a failure.
pub fn run(plan: &Plan, operations: &[Operation], verbose: bool) -> Result<Summary, Failure> {
    let outcome = catch_unwind(AssertUnwindSafe(|| History::run(plan, operations, verbose)));
    outcome.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = format!("panic: {}", text.unwrap_or_default());
        Err(Failure { step: operations.len(), operation: "somewhere".into(), text })
    })
}

/// Runs the history of one seed.
pub fn run_seed(seed: u64, request: &Request, verbose: bool) -> Result<Summary, Failure> {
    let (plan, operations) = history_of(seed, request);
    if verbose {
        println!("{plan:?}");
    }
    run(&plan, &operations, verbose)
}

/// As `run_seed`, twice if that was asked for: the first run is judged by its trace, too.
fn run_and_repeat(seed: u64, request: &Request) -> Result<Summary, Failure> {
    let first = run_seed(seed, request, false)?;
    if request.twice {
        let second = run_seed(seed, request, false)?;
        if first.trace != second.trace {
            let text = "the same history did other things to the devices when it ran again".into();
            return Err(Failure { step: 0, operation: "the whole history".into(), text });
        }
    }
    Ok(first)
}

/// Histories that are being run, and since when.
type UnderWay = Mutex<BTreeMap<u64, Instant>>;

/// Ends the program when a history does not end: a call of the stack that never returns would else look like a slow machine.
fn watch_for_stalls(under_way: &UnderWay, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        std::thread::park_timeout(Duration::from_secs(1));
        let stalled = |(seed, begun): (&u64, &Instant)| (begun.elapsed() > STALL).then_some(*seed);
        if let Some(seed) = under_way.lock().iter().find_map(stalled) {
            eprintln!("seed {seed}: has not ended after {} s: a call does not return", STALL.as_secs());
            std::process::exit(1);
        }
    }
}

/// Runs all histories of a request; the seeds are `seed`, `seed + 1`, ...
pub fn run_many(request: &Request, failures_max: usize) -> Outcome {
    let (under_way, is_over) = (UnderWay::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch_for_stalls(&under_way, &is_over));
        let outcome = run_on_threads(request, failures_max, &under_way);
        is_over.store(true, Ordering::Release);
        watcher.thread().unpark();
        outcome
    })
}

fn run_on_threads(request: &Request, failures_max: usize, under_way: &UnderWay) -> Outcome {
    let next = AtomicU64::new(0);
    let outcome = Mutex::new(Outcome::default());
    std::thread::scope(|scope| {
        for _ in 0..request.threads.max(1) {
            scope.spawn(|| {
                #[cfg(feature = "planted-bugs")]
                stere_faults::plant(request.bug);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= request.histories {
                        return;
                    }
                    let seed = request.seed + index;
                    under_way.lock().insert(seed, Instant::now());
                    let result = run_and_repeat(seed, request);
                    under_way.lock().remove(&seed);
                    let mut outcome = outcome.lock();
                    outcome.histories += 1;
                    match result {
                        Ok(summary) => outcome.add(&summary),
                        Err(failure) => outcome.failed.push(FailedSeed { seed, failure }),
                    }
                    if outcome.failed.len() >= failures_max {
                        next.store(request.histories, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut outcome = outcome.into_inner();
    outcome.failed.sort_by_key(|failed| failed.seed);
    outcome
}

/// Leaves out operations as long as the history still fails, in at most `runs_max` attempts.
pub fn shorten(plan: &Plan, operations: &[Operation], runs_max: usize) -> (Vec<Operation>, Option<Failure>) {
    let mut shortest = operations.to_vec();
    let mut failure = run(plan, &shortest, false).err();
    if let Some(failure) = &failure {
        shortest.truncate(failure.step + 1);
    }
    let mut runs = 0;
    let mut piece = (shortest.len() / 2).max(1);
    while runs < runs_max {
        let mut at = 0;
        let mut is_shorter = false;
        while at < shortest.len() && runs < runs_max {
            let mut candidate = shortest.clone();
            candidate.drain(at..(at + piece).min(shortest.len()));
            runs += 1;
            match run(plan, &candidate, false) {
                Err(found) => {
                    candidate.truncate(found.step + 1);
                    (shortest, failure, is_shorter) = (candidate, Some(found), true);
                }
                Ok(_) => at += piece,
            }
        }
        if piece == 1 && !is_shorter {
            break;
        }
        piece = (piece / 2).max(1);
    }
    (shortest, failure)
}

/// Failures that look alike, with how many there are and the first seed.
pub fn kinds_of_failures(failed: &[FailedSeed]) -> BTreeMap<String, (usize, u64)> {
    let mut kinds = BTreeMap::new();
    for FailedSeed { seed, failure } in failed {
        let text: String = failure.text.chars().filter(|letter| !letter.is_ascii_digit()).take(90).collect();
        kinds.entry(text).or_insert((0, *seed)).0 += 1;
    }
    kinds
}
