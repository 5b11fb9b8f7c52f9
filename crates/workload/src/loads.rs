//! The four loads of the ATTEST thesis (Narayan 2010, chapter 3) imitated: deterministic calls, as all storage nodes together
//! see them with 16 processors and 16 nodes.
//!
//! Each follows what the thesis says of the application: files, accesses, share of reads and run time of its Table 3.1, sizes
//! of requests of its section 3.2.2, and the phases in which the application computes and writes. What the thesis leaves open
//! (how fast one request follows another, how long a phase of computing is) is set to what such machines did and stands in the
//! constants. They were chosen with the thesis' Hurst parameters in view: the loads show that such behaviour can have such
//! values, and what profiles, pictures and advice say of it. Invariants: calls come in order of time; one seed gives one load.
//! Read next: `profile.rs`.

use crate::call::{Call, CallKind};
use crate::distinct::mixed;

const SECOND: f64 = 1e9;
const MILLISECOND: f64 = 1e6;
const MICROSECOND: f64 = 1e3;
const PROCESSES: u64 = 16;
const NODES: u64 = 16;
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// Which load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// NPB-BMI (BTIO), class C: after every fifth of 200 steps all processes write their parts of one field into one shared file
    /// by collective I/O; after the last step all is read back and verified.
    BlockCyclicCheckpoint,
    /// OpenAtom: one process reads 135 files of states at the beginning, flushes a checkpoint now and then, and writes the
    /// result at the end, in requests of a page.
    OneWriter,
    /// FLASH: at regular intervals each process flushes its blocks to a new checkpoint file; nothing is read.
    PeriodicDumps,
    /// A web server of the World Cup of 1998: sessions of heavy-tailed length ask for files of Zipf popularity.
    WebServer,
}

impl Load {
    pub const ALL: [Load; 4] = [Load::BlockCyclicCheckpoint, Load::OneWriter, Load::PeriodicDumps, Load::WebServer];

    pub fn name(self) -> &'static str {
        match self {
            Load::BlockCyclicCheckpoint => "NPB-BMI",
            Load::OneWriter => "OpenAtom",
            Load::PeriodicDumps => "FLASH",
            Load::WebServer => "Web server",
        }
    }

    /// Its calls in order of time.
    pub fn calls(self, seed: u64) -> Vec<Call> {
        let mut chance = Chance { seed: mixed(seed ^ (self as u64) << 32), step: 0 };
        let mut calls = match self {
            Load::BlockCyclicCheckpoint => block_cyclic_checkpoint(&mut chance),
            Load::OneWriter => one_writer(&mut chance),
            Load::PeriodicDumps => periodic_dumps(&mut chance),
            Load::WebServer => web_server(&mut chance),
        };
        calls.sort_by_key(|call| call.at_ns);
        assert!(!calls.is_empty(), "{} has calls", self.name());
        calls
    }
}

/// Numbers that look random, from a seed.
struct Chance {
    seed: u64,
    step: u64,
}

impl Chance {
    fn number(&mut self) -> u64 {
        self.step += 1;
        mixed(self.seed ^ mixed(self.step))
    }

    /// Above 0, below 1.
    fn uniform(&mut self) -> f64 {
        ((self.number() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Between both, evenly.
    fn between(&mut self, low: f64, high: f64) -> f64 {
        assert!(low <= high, "between {low} and {high}");
        low + (high - low) * self.uniform()
    }

    /// Times between independent events.
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }

    /// Heavy-tailed, from `least` on, and never beyond `greatest`.
    fn pareto(&mut self, shape: f64, least: f64, greatest: f64) -> f64 {
        assert!(shape > 0.0 && least <= greatest, "a shape of {shape}, from {least} to {greatest}");
        (least * self.uniform().powf(-1.0 / shape)).min(greatest)
    }
}

fn call(at: f64, kind: CallKind, stream: u64, file: u64) -> Call {
    Call { stream, latency_ns: 200_000, ..Call::new(at as u64, kind, file) }
}

fn data(at: f64, kind: CallKind, stream: u64, file: u64, (offset, length): (u64, u64)) -> Call {
    Call { offset, length, ..call(at, kind, stream, file) }
}

/// 40 dumps of 162^3 points of five numbers, 170 MB each, in 59 seconds. Table 3.1 has 384 requests for each dump: 24 pieces of
/// a collective buffer, each cut over 16 nodes. The link of a process carries the requests of its piece one after the other,
/// at 110 MB/s. Pieces begin as the exchange of data and the disks (together some 900 MB/s) let them.
fn block_cyclic_checkpoint(chance: &mut Chance) -> Vec<Call> {
    const DUMPS: u64 = 40;
    const PIECES: u64 = 24;
    const DUMP_NS: f64 = 190.0 * MILLISECOND;
    let field = 162 * 162 * 162 * 5 * 8;
    let piece = field / PIECES;
    let request_ns = (piece / NODES) as f64 / 0.11;
    let mut calls = vec![call(0.0, CallKind::Create, 0, 1)];
    let mut at = 0.0;
    for kind in [CallKind::Write, CallKind::Read] {
        for dump in 0..DUMPS {
            // Five steps of computing; reading back only compares.
            at += if kind == CallKind::Write { chance.between(0.75, 0.85) } else { chance.between(0.2, 0.3) } * SECOND;
            for number in 0..PIECES {
                let mut sent = at + chance.between(0.0, DUMP_NS - NODES as f64 * request_ns);
                for node in 0..NODES {
                    let place = dump * field + number * piece + node * (piece / NODES);
                    calls.push(data(sent, kind, number % PROCESSES, 1, (place, piece / NODES)));
                    sent += chance.between(0.8, 1.2) * request_ns;
                }
            }
            at += DUMP_NS;
        }
    }
    calls
}

/// A file of one or several accesses, each a run of requests of a page, one after the other: the process waits for each.
fn run_of_pages(
    calls: &mut Vec<Call>,
    chance: &mut Chance,
    mut at: f64,
    (kind, stream, file): (CallKind, u64, u64),
    (offset, length, page_ns): (u64, u64, f64),
) -> f64 {
    for page in 0..length / PAGE {
        calls.push(data(at, kind, stream, file, (offset + page * PAGE, PAGE)));
        at += chance.between(0.7, 1.3) * page_ns;
    }
    at
}

/// 135 files, 160 reads at the beginning and 14 writes, in 297 seconds. Each state is read, then scattered to the other
/// processes, during which the storage is idle. Checkpoints are smaller than the result.
fn one_writer(chance: &mut Chance) -> Vec<Call> {
    const STATES: u64 = 135;
    const PAGE_NS: f64 = 250.0 * MICROSECOND;
    let (mut calls, mut at) = (Vec::new(), SECOND);
    for file in 0..STATES {
        calls.push(call(at, CallKind::Open, 0, file));
        // Every sixth is so large that it takes two accesses.
        for part in 0..1 + u64::from(file % 6 == 0) {
            at = run_of_pages(&mut calls, chance, at, (CallKind::Read, 0, file), (part * MIB, MIB, PAGE_NS));
            at += chance.between(0.1, 0.3) * SECOND;
        }
    }
    for (flush, seconds) in [110.0, 165.0, 220.0, 275.0].into_iter().enumerate() {
        let (file, last) = (STATES + flush as u64, flush == 3);
        at = seconds * SECOND;
        for part in 0..if last { 5 } else { 3 } {
            at = run_of_pages(&mut calls, chance, at, (CallKind::Write, 0, file), (part * MIB, MIB, PAGE_NS));
            at += chance.between(0.05, 0.15) * SECOND;
        }
    }
    calls.push(call(296.0 * SECOND, CallKind::Fsync, 0, STATES + 3));
    calls
}

/// 10 checkpoint files in 934 seconds, 48 accesses each: every process writes three times. A block of 8^3 numbers is a request
/// of 4 KiB; adaptive refinement gives each process another number of blocks.
fn periodic_dumps(chance: &mut Chance) -> Vec<Call> {
    const DUMPS: u64 = 10;
    let mut calls = Vec::new();
    let blocks: Vec<u64> = (0..PROCESSES).map(|_| 12 + chance.number() % 17).collect();
    for dump in 0..DUMPS {
        let begun = (60.0 + 92.0 * dump as f64 + chance.between(-0.5, 0.5)) * SECOND;
        calls.push(call(begun, CallKind::Create, 0, dump));
        for (process, blocks) in blocks.iter().enumerate() {
            let before: u64 = blocks * process as u64 * 4;
            let mut at = begun + chance.exponential(2.0 * MILLISECOND);
            for variable in 0..3 {
                let place = (before + variable * blocks) * PAGE;
                let run = (place, blocks * PAGE, 250.0 * MICROSECOND);
                at = run_of_pages(&mut calls, chance, at, (CallKind::Write, process as u64, dump), run);
                at += chance.exponential(2.0 * MILLISECOND);
            }
        }
    }
    calls
}

/// Files of the site, and how popular each is (Zipf, exponent 1).
struct Site {
    /// Sums of popularity up to each file.
    upto: Vec<f64>,
    bytes: Vec<u64>,
}

impl Site {
    fn new(chance: &mut Chance) -> Site {
        const FILES: usize = 4965;
        let mut sum = 0.0;
        let popularity = (1..=FILES).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        let upto = popularity.collect();
        // The popular ones are small pictures that stand on every page.
        let greatest = |rank: usize| 4000.0 * (1.0 + rank as f64 / 10.0);
        let bytes = (0..FILES).map(|rank| chance.pareto(1.3, 800.0, greatest(rank)) as u64).collect();
        Site { upto, bytes }
    }

    fn file(&self, chance: &mut Chance) -> usize {
        let wanted = chance.uniform() * self.upto.last().copied().unwrap_or(1.0);
        self.upto.partition_point(|upto| *upto < wanted).min(self.upto.len() - 1)
    }
}

/// Forty minutes of the peak hours, some 800 requests for files a second. Readers come all the time, and in crowds when
/// something happens in a match. How many pages a reader asks for is heavy-tailed, and so is how long one is read. A page is
/// a file and its pictures, which a browser asks for at once. Most files are a request of a page of memory; one open in five
/// is not answered from a cache of names (Table 3.1: 11.5 million accesses to data, 2.4 million to metadata).
fn web_server(chance: &mut Chance) -> Vec<Call> {
    const BEFORE: f64 = -1800.0;
    const SECONDS: f64 = 2400.0;
    let site = Site::new(chance);
    let (mut calls, mut reader) = (Vec::new(), 0);
    let mut begun = BEFORE;
    while begun < SECONDS {
        begun += chance.exponential(1.0 / READERS_A_SECOND);
        reader += 1;
        web_reader(&mut calls, chance, &site, (begun, SECONDS), reader);
    }
    let mut event = BEFORE;
    while event < SECONDS {
        event += chance.pareto(1.4, 60.0, 600.0);
        let crowd = chance.pareto(1.5, 200.0, 2000.0) as u64;
        for _ in 0..crowd {
            let begun = event + chance.exponential(120.0);
            reader += 1;
            web_reader(&mut calls, chance, &site, (begun, SECONDS), reader);
        }
    }
    calls
}

/// Outside of crowds.
const READERS_A_SECOND: f64 = 7.0;

fn web_reader(calls: &mut Vec<Call>, chance: &mut Chance, site: &Site, (begun, end): (f64, f64), reader: u64) {
    let (mut at, pages) = (begun, chance.pareto(1.2, 2.0, 1000.0) as u64);
    for _ in 0..pages {
        if at >= end {
            return;
        }
        if at >= 0.0 {
            web_page(calls, chance, site, at, reader);
        }
        at += chance.pareto(1.4, 3.0, 600.0);
    }
}

fn web_page(calls: &mut Vec<Call>, chance: &mut Chance, site: &Site, at_s: f64, reader: u64) {
    let mut at = at_s * SECOND;
    for _ in 0..4 + chance.number() % 9 {
        let file = site.file(chance);
        if chance.uniform() < 0.2 {
            calls.push(call(at, CallKind::Lookup, reader, file as u64));
        }
        let run = (0, site.bytes[file].next_multiple_of(PAGE), 300.0 * MICROSECOND);
        at = run_of_pages(calls, chance, at + 100.0 * MICROSECOND, (CallKind::Read, reader, file as u64), run);
        at += chance.exponential(30.0 * MILLISECOND);
    }
}

#[cfg(test)]
mod tests;
