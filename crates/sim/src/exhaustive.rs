//! Every crash point of every short workload: all sequences of one and of two operations over a few names, followed by a sync;
//! a crash before each write and each flush, and after each answer; and after each crash several sets of surviving writes.
//!
//! A workload runs once, with an image of all devices kept at each crash point; each image is then crashed, mounted and judged on
//! a machine of its own. What a crash within an operation may leave is what could be left before it, or its result.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::history::{Budget, History, Plan, Stop};
use crate::medium::{Medium, Survival};
use crate::model::{Model, RenameManner};
use crate::operation::{Operation, Path, Target};
use crate::pool::PoolConfig;
use crate::random::Random;
use crate::recovery;
use crate::remains::Remains;

const A: Path = Path { directory: 0, name: 0 };
const B: Path = Path { directory: 0, name: 1 };
const D: Path = Path { directory: 0, name: 3 };
const E: Path = Path { directory: 0, name: 4 };
const D_A: Path = Path { directory: 1, name: 0 };
const D_B: Path = Path { directory: 1, name: 1 };
const D_F: Path = Path { directory: 1, name: 5 };

/// What was done and found.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    pub workloads: u64,
    pub crash_points: u64,
    pub recoveries: u64,
    pub failed: Vec<String>,
}

/// All operations that workloads are made of.
pub fn operations() -> Vec<Operation> {
    let a = Target::Path(A);
    let write = |target, offset, length| Operation::Write { target, offset, length, seed: offset + u64::from(length) };
    let rename = |from, to, manner| Operation::Rename { from, to, manner };
    let allocate = |offset, length, mode| Operation::Allocate { target: a, offset, length, mode };
    vec![
        Operation::Create { path: B, slot: 0 },
        Operation::Create { path: D_B, slot: 1 },
        Operation::Tmpfile { directory: 0, slot: 2 },
        Operation::Open { path: A, slot: 3, truncate: true },
        Operation::Mkdir { path: E },
        Operation::Mkdir { path: D_F },
        Operation::Rmdir { path: E },
        Operation::Symlink { path: B, length: 30 },
        Operation::Fifo { path: B },
        Operation::Link { target: a, path: B },
        Operation::Link { target: Target::Slot(2), path: D_B },
        Operation::Unlink { path: A },
        Operation::Unlink { path: D_A },
        rename(A, B, RenameManner::Replace),
        rename(A, D_A, RenameManner::Replace),
        rename(D_A, A, RenameManner::Replace),
        rename(A, D_A, RenameManner::Exchange),
        rename(D, E, RenameManner::NoReplace),
        write(a, 0, 100),
        write(a, 4000, 9000),
        write(a, 0, 128 << 10),
        write(Target::Path(B), 0, 5000),
        write(Target::Slot(0), 0, 5000),
        Operation::Truncate { target: a, size: 0 },
        Operation::Truncate { target: a, size: 100 },
        Operation::Truncate { target: a, size: 20_000 },
        allocate(0, 30_000, 0),
        allocate(100, 9000, 3),
        allocate(100, 9000, 0x10),
        allocate(0, 4096, 8),
        allocate(4096, 8192, 0x20),
        Operation::Copy { from: a, from_offset: 0, to: Target::Path(D_A), to_offset: 0, length: 20_000 },
        Operation::SetMode { path: A, mode: 0o600 },
        Operation::SetAttribute { path: A, name: 0, length: 100, seed: 3 },
        Operation::SetPolicy { path: D, policy: 0 },
        Operation::Fsync { target: a },
        Operation::FsyncDirectory { directory: 0 },
        Operation::Step { count: 3, idle: true },
        Operation::Checkpoint,
        Operation::Remount,
    ]
}

fn plan(devices: usize) -> Plan {
    let pool = PoolConfig::of(&vec![64 << 20; devices]).dirty(64 << 20, 2);
    Plan { seed: 1, pool, budget: Budget::None, may_fill: false, canary: false }
}

struct Bench {
    base: Vec<Medium>,
    model: Model,
    runner: History,
    judge: History,
    random: Random,
    outcome: Outcome,
}

fn text_of(stop: Stop) -> String {
    match stop {
        Stop::Failure(text) => text,
        stop => format!("{stop:?}"),
    }
}

impl Bench {
    fn new(devices: usize) -> Result<Bench, String> {
        let plan = plan(devices);
        let mut runner = History::new(&plan, false)?;
        let target = Target::Path(A);
        let beginning = [
            Operation::Mkdir { path: D },
            Operation::Create { path: A, slot: 0 },
            Operation::Close { slot: 0 },
            Operation::Create { path: D_A, slot: 0 },
            Operation::Close { slot: 0 },
            Operation::Write { target, offset: 0, length: 10_000, seed: 1 },
            Operation::Write { target: Target::Path(D_A), offset: 0, length: 6_000, seed: 2 },
            Operation::Remount,
        ];
        for operation in &beginning {
            runner.step(operation).map_err(text_of)?;
        }
        runner.pool.mounted = None;
        let base = runner.machine.images();
        runner.machine.record_boundaries();
        let judge = History::new(&plan, false)?;
        Ok(Bench {
            base,
            model: runner.model.clone(),
            runner,
            judge,
            random: Random::new(1),
            outcome: Outcome::default(),
        })
    }

    fn workload(&mut self, operations: &[&Operation]) -> Result<(), String> {
        self.outcome.workloads += 1;
        self.runner.pool.mounted = None;
        self.runner.slots = Default::default();
        self.runner.machine.set_images(self.base.clone());
        self.runner.pool.mounted = Some(self.runner.plan.pool.mount(&self.runner.machine)?);
        self.runner.model = self.model.clone();
        self.runner.note_all_durable();
        drop(self.runner.machine.take_boundaries());
        for operation in operations.iter().copied().chain([&Operation::SyncAll]) {
            let before = self.runner.remains.clone();
            self.runner.step(operation).map_err(text_of)?;
            let after = self.runner.remains.clone();
            let within = Remains::within(&before, &after);
            for image in self.runner.machine.take_boundaries() {
                self.crash(&image, &within)?;
            }
            let image = self.runner.machine.images();
            self.crash(&image, &after)?;
        }
        Ok(())
    }

    /// Judges what several sets of surviving writes lead to.
    fn crash(&mut self, image: &[Medium], allowed: &Remains) -> Result<(), String> {
        self.outcome.crash_points += 1;
        for survivals in survivals_of(image) {
            self.outcome.recoveries += 1;
            let judge = &mut self.judge;
            judge.pool.mounted = None;
            judge.machine.set_images(image.to_vec());
            judge.machine.power_on(&mut |device, _| survivals[device].clone());
            judge.remains = allowed.clone();
            let random = self.random.fork();
            judge.random = random;
            let judged = judge.plan.pool.mount(&judge.machine).and_then(|mounted| {
                judge.pool.mounted = Some(mounted);
                recovery::compare_recovered(judge).map_err(text_of)
            });
            if let Err(text) = judged {
                let pending: Vec<usize> = image.iter().map(Medium::pending_count).collect();
                return Err(format!("{text}; {pending:?} writes were not flushed, of them survived {survivals:?}"));
            }
        }
        Ok(())
    }
}

/// Sets of surviving writes: none, all, each device alone, each write alone, each torn with all others, and two by chance.
fn survivals_of(image: &[Medium]) -> Vec<Vec<Survival>> {
    let devices = image.len();
    let mut sets = vec![vec![Survival::Nothing; devices]];
    if image.iter().all(|medium| medium.pending_count() == 0) {
        return sets;
    }
    sets.push(vec![Survival::Everything; devices]);
    let one = |device: usize, this: Survival, others: Survival| -> Vec<Survival> {
        (0..devices).map(|other| if other == device { this.clone() } else { others.clone() }).collect()
    };
    for (device, medium) in image.iter().enumerate() {
        if devices > 1 {
            sets.push(one(device, Survival::Everything, Survival::Nothing));
        }
        for write in 0..medium.pending_count() {
            sets.push(one(device, Survival::Only(write), Survival::Nothing));
            sets.push(one(device, Survival::Tear(write), Survival::Everything));
        }
    }
    sets.extend((0..2).map(|_| vec![Survival::Each { per_hundred: 60 }; devices]));
    sets.dedup();
    sets
}

/// Runs all workloads of one operation, and every `share`-th of two, on pools of one and of two devices.
pub fn run(share: u64, threads: usize) -> Outcome {
    let all = operations();
    let mut workloads: Vec<Vec<&Operation>> = all.iter().map(|operation| vec![operation]).collect();
    let mut pairs = all.iter().flat_map(|first| all.iter().map(move |second| vec![first, second]));
    let mut index = 0;
    workloads.extend(pairs.by_ref().filter(|_| {
        index += 1;
        index % share.max(1) == 0
    }));
    let next = AtomicU64::new(0);
    let total = Mutex::new(Outcome::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| work(&workloads, &next, &total));
        }
    });
    total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn work(workloads: &[Vec<&Operation>], next: &AtomicU64, total: &Mutex<Outcome>) {
    let mut failed = Vec::new();
    let mut benches = Vec::new();
    for devices in [1, 2] {
        match Bench::new(devices) {
            Ok(bench) => benches.push(bench),
            Err(text) => failed.push(format!("the beginning on {devices} devices: {text}")),
        }
    }
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed) as usize;
        let Some(workload) = workloads.get(index) else { break };
        for bench in &mut benches {
            let devices = bench.base.len();
            let run = std::panic::AssertUnwindSafe(|| bench.workload(workload));
            let outcome = std::panic::catch_unwind(run).unwrap_or_else(|payload| {
                let text = payload.downcast_ref::<String>().cloned();
                Err(format!("panic: {}", text.unwrap_or_default()))
            });
            if let Err(text) = outcome {
                failed.push(format!("{devices} devices, {workload:?}: {text}"));
            }
        }
    }
    let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    total.failed.append(&mut failed);
    for bench in &benches {
        total.workloads += bench.outcome.workloads;
        total.crash_points += bench.outcome.crash_points;
        total.recoveries += bench.outcome.recoveries;
    }
}
