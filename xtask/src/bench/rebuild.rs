//! Rebuilding a lost device, with the real binary: how fast, in proportion to what, and what it leaves to readers.
//!
//! Three disks of a known rate with two copies of everything, filled to a tenth and to eight tenths. One is lost and another takes
//! its place: once with nobody else at work, once while files are read at random past the kernel's cache. Beside it stands what
//! the new disk writes when nothing else is done. Then a disk that was away is caught up.
//! Read next: `disks.rs`.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::BenchArguments;
use super::disks::Disks;
use super::report::save_value;
use super::statistics::Summary;
use crate::cleanup::{Guard, Place, mount_folder};
use crate::command::{MINUTE, capture, quoted, shell};
use crate::error::{At, Result, XtaskError};
use crate::subject::Binaries;

const DEVICES: u64 = 3;
const PERCENTS: [u64; 2] = [10, 80];
const FILE_BYTES: usize = 4 << 20;
const READ_BYTES: usize = 64 << 10;
const READERS: u64 = 4;
const BASELINE: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(180);
/// Of a tenth full, little is left of one second of writing; so much is enough to know a throttled disk's rate.
const WRITE_MEGABYTES: u64 = 600;
/// Three that hold the pool, and one to take the place of a lost one, twice.
const DISKS: usize = 5;

struct Pool<'a> {
    place: &'a Place,
    binaries: &'a Binaries,
    mount_point: PathBuf,
    /// Before the disks, so that the mount ends before they go.
    _guard: Guard,
    disks: Disks,
}

/// What one rebuild was like.
#[derive(Clone, Copy)]
struct Rebuild {
    bytes: u64,
    seconds: f64,
    /// Reads a second meanwhile.
    reads: f64,
}

impl Rebuild {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }
}

pub fn run(root: &Path, arguments: &BenchArguments) -> Result<()> {
    let (place, binaries) = (Place::new(root)?, Binaries::build(root, false)?);
    let device_bytes: u64 = if arguments.quick { 512 << 20 } else { 2 << 30 };
    let mut rows = Vec::new();
    let mut seconds = Vec::new();
    for percent in PERCENTS {
        let rounds = (0..arguments.runs.max(1)).map(|_| measure(&place, &binaries, device_bytes, percent));
        let row = summarise(percent, &rounds.collect::<Result<Vec<_>>>()?);
        seconds.push(row["alone"]["seconds"]["median"].as_f64().unwrap_or(0.0));
        rows.push(row);
    }
    println!("a tenth full took {:.2} of the time of eight tenths (0.125 of the bytes)", seconds[0] / seconds[1]);
    let caught_up = catch_up(&place, &binaries, device_bytes)?;
    let value = json!({ "rebuild": rows, "catch_up": caught_up, "disk_bytes_per_second": super::disks::RATE_BYTES });
    let file = save_value(root, arguments, value)?;
    println!("written to {}", file.display());
    Ok(())
}

/// What was seen in one round.
struct Round {
    /// What the new disk writes alone, in megabytes a second.
    write: f64,
    reads_before: f64,
    alone: Rebuild,
    beside: Rebuild,
}

fn summarise(percent: u64, rounds: &[Round]) -> Value {
    let summary = |of: &dyn Fn(&Round) -> f64| {
        let values: Vec<f64> = rounds.iter().map(of).collect();
        Summary::of(&values).expect("there is at least one round")
    };
    let row = |summary: Summary| json!({ "median": summary.median, "min": summary.min, "max": summary.max });
    let seconds = summary(&|round| round.alone.seconds);
    let of_writes = summary(&|round| round.alone.rate() / round.write);
    let beside = summary(&|round| round.beside.rate() / round.write);
    let share = summary(&|round| round.beside.reads / round.reads_before);
    let megabytes = summary(&|round| round.alone.bytes as f64 / 1e6);
    println!(
        "{percent} % full, nobody reads: {:.0} MB in {:.2} s, {:.2} ({:.2}..{:.2}) of what the new disk writes",
        megabytes.median, seconds.median, of_writes.median, of_writes.min, of_writes.max
    );
    println!(
        "{percent} % full, beside random reads of 64 KiB: {:.2} of what the new disk writes; readers keep {:.2} ({:.2}..{:.2})",
        beside.median, share.median, share.min, share.max
    );
    json!({
        "percent": percent, "rounds": rounds.len(),
        "alone": { "megabytes": row(megabytes), "seconds": row(seconds), "of_disk_writes": row(of_writes) },
        "beside_reads": { "of_disk_writes": row(beside), "share_of_reads": row(share) },
        "reads_per_second_before": row(summary(&|round| round.reads_before)),
        "disk_writes_mb": row(summary(&|round| round.write)),
    })
}

fn new_pool<'a>(place: &'a Place, binaries: &'a Binaries, count: usize, device_bytes: u64) -> Result<Pool<'a>> {
    let (mount_point, guard) = mount_folder()?;
    let disks = Disks::new(place, count, device_bytes)?;
    Ok(Pool { place, binaries, mount_point, _guard: guard, disks })
}

/// Of two devices one is away while some files are written: what is copied to it when it is back.
fn catch_up(place: &Place, binaries: &Binaries, device_bytes: u64) -> Result<Value> {
    let pool = new_pool(place, binaries, 2, device_bytes)?;
    pool.stere(&format!("create rebuild {} {} --force", pool.spec(0), pool.spec(1)))?;
    pool.stere(&format!("mount rebuild {}", quoted(&pool.mount_point)))?;
    let held = pool.fill(10)? * FILE_BYTES as u64;
    pool.stere("device offline rebuild d1 --yes")?;
    let before = pool.status()?["work"]["bytes_done"].as_u64().unwrap_or(0);
    let written = (held / 4).next_multiple_of(FILE_BYTES as u64);
    for file in 0..written / FILE_BYTES as u64 {
        let path = pool.mount_point.join(format!("meanwhile-{file}"));
        fs::write(&path, vec![file as u8 | 1; FILE_BYTES]).at("write", &path)?;
    }
    pool.stere(&format!("flush {} --wait", quoted(&pool.mount_point)))?;
    pool.stere("device online rebuild d1 --yes")?;
    pool.wait_for_repair()?;
    let copied = pool.status()?["work"]["bytes_done"].as_u64().unwrap_or(0) - before;
    println!(
        "away while {} MB were written, beside {} MB that it held: {} MB copied, {:.2} of what was written",
        written / 1_000_000,
        held / 1_000_000,
        copied / 1_000_000,
        copied as f64 / written as f64
    );
    pool.stere(&format!("umount {}", quoted(&pool.mount_point)))?;
    Ok(json!({ "held_bytes": held, "written_bytes": written, "copied_bytes": copied }))
}

fn measure(place: &Place, binaries: &Binaries, device_bytes: u64, percent: u64) -> Result<Round> {
    let pool = new_pool(place, binaries, DISKS, device_bytes)?;
    let write = pool.disks.write_rate(DEVICES as usize, WRITE_MEGABYTES.min(device_bytes >> 21))?;
    let members: Vec<String> = (0..DEVICES).map(|number| pool.spec(number)).collect();
    pool.stere(&format!("create rebuild {} --force", members.join(" ")))?;
    pool.stere(&format!("mount rebuild {}", quoted(&pool.mount_point)))?;
    let files = pool.fill(percent)?;
    let baseline = pool.reads_during(files, &|| {
        std::thread::sleep(BASELINE);
        Ok(())
    })?;
    let alone = pool.rebuild(1, DEVICES, None)?;
    let beside = pool.rebuild(DEVICES, DEVICES + 1, Some(files))?;
    pool.stere(&format!("umount {}", quoted(&pool.mount_point)))?;
    Ok(Round { write, reads_before: baseline / BASELINE.as_secs_f64(), alone, beside })
}

impl Pool<'_> {
    fn spec(&self, number: u64) -> String {
        format!("{},name=d{number}", self.disks.device(number as usize))
    }

    fn stere(&self, words: &str) -> Result<String> {
        let state = quoted(&self.place.directory.join("state"));
        let line = format!("STERE_STATE={state} {} {words}", quoted(&self.binaries.stere));
        capture(&mut shell(&self.disks.throttled(&line)), 5 * MINUTE)
    }

    fn status(&self) -> Result<Value> {
        // Its exit code tells of the state.
        let text = self.stere("status rebuild --json || true")?;
        serde_json::from_str(&text).map_err(|error| XtaskError::found(format!("status --json: {error}")))
    }

    /// Two copies of this part of the room there is for that; how many files that is.
    fn fill(&self, percent: u64) -> Result<u64> {
        let status = self.status()?;
        let normal = status["classes"].as_array().and_then(|all| all.iter().find(|one| one["class"] == "normal"));
        let room = normal.and_then(|class| class["total_bytes"].as_u64()).unwrap_or(0);
        let files = room * percent / 100 / FILE_BYTES as u64;
        let mut bytes = vec![0u8; FILE_BYTES];
        for file in 0..files {
            for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
                word.copy_from_slice(&((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ file).to_le_bytes());
            }
            let path = self.mount_point.join(format!("{file:05}"));
            fs::write(&path, &bytes).at("write", &path)?;
        }
        self.stere(&format!("flush {} --wait", quoted(&self.mount_point)))?;
        Ok(files)
    }

    /// Loses device `old`, puts `new` in its place and waits until nothing lacks; reads files meanwhile if told to.
    fn rebuild(&self, old: u64, new: u64, files: Option<u64>) -> Result<Rebuild> {
        self.stere(&format!("device offline rebuild d{old} --force --yes"))?;
        let before = self.status()?["work"]["bytes_done"].as_u64().unwrap_or(0);
        let work = || -> Result<()> {
            self.stere(&format!("device replace rebuild d{old} {} --force --yes", self.spec(new)))?;
            self.wait_for_repair()
        };
        let start = Instant::now();
        let reads = match files {
            Some(files) => self.reads_during(files, &work)?,
            None => work().map(|()| 0.0)?,
        };
        let seconds = start.elapsed().as_secs_f64();
        let bytes = self.status()?["work"]["bytes_done"].as_u64().unwrap_or(0) - before;
        Ok(Rebuild { bytes, seconds, reads: reads / seconds })
    }

    fn wait_for_repair(&self) -> Result<()> {
        let start = Instant::now();
        while self.status()?["work"]["chunks_left"] != 0 {
            if start.elapsed() > PATIENCE {
                return Err(XtaskError::found("the repair does not end"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Random reads past the kernel's cache while something is done; how many there were.
    fn reads_during(&self, files: u64, work: &dyn Fn() -> Result<()>) -> Result<f64> {
        let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        let outcome = std::thread::scope(|scope| {
            for reader in 0..READERS {
                let (is_over, reads) = (&is_over, &reads);
                scope.spawn(move || {
                    let mut random = reader + 1;
                    while !is_over.load(Ordering::Relaxed) {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        if self.read_one((random >> 33) % files, random >> 20).is_ok() {
                            reads.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            let outcome = work();
            is_over.store(true, Ordering::Relaxed);
            outcome
        });
        outcome.map(|()| reads.load(Ordering::Relaxed) as f64)
    }

    fn read_one(&self, file: u64, place: u64) -> std::io::Result<()> {
        let path = self.mount_point.join(format!("{file:05}"));
        let file: File = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
        let mut memory = vec![0u8; READ_BYTES + 4096];
        let skip = memory.as_ptr().align_offset(4096);
        let places = (FILE_BYTES / READ_BYTES) as u64;
        file.read_exact_at(&mut memory[skip..skip + READ_BYTES], place % places * READ_BYTES as u64)
    }
}
