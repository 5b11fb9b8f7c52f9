//! Rebuilding a lost device, with the real binary on image files: how fast, in proportion to what, and what it leaves to readers.
//!
//! Three devices with two copies of everything, filled to a tenth and to eight tenths. One is lost and another takes its place: once
//! with nobody else at work, once while files are read at random past the kernel's cache. Beside it stands what the disk writes
//! when nothing else is done (`dd`, direct), and what it copies from one image to another, because here all devices are one disk:
//! a rebuild reads as much as it writes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::BenchArguments;
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
const DD_BYTES: u64 = 1 << 30;

struct Pool<'a> {
    place: &'a Place,
    binaries: &'a Binaries,
    mount_point: PathBuf,
    device_bytes: u64,
    _guard: Guard,
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
    let device_bytes: u64 = if arguments.quick { 1 << 30 } else { 4 << 30 };
    let (write, copy) = disk_rates(&place, arguments.runs.min(3))?;
    println!("the disk writes {write:.0} MB/s, and copies {copy:.0} MB/s from one image to another (dd, direct)");
    let mut rows = Vec::new();
    let mut seconds = Vec::new();
    for percent in PERCENTS {
        let row = measure(&place, &binaries, device_bytes, percent, (write, copy))?;
        seconds.push(row["alone"]["seconds"].as_f64().unwrap_or(0.0));
        rows.push(row);
    }
    println!("a tenth full took {:.2} of the time of eight tenths (0.125 of the bytes)", seconds[0] / seconds[1]);
    let caught_up = catch_up(&place, &binaries, device_bytes)?;
    let value = json!({ "rebuild": rows, "catch_up": caught_up, "disk_writes_mb": write, "disk_copies_mb": copy });
    let file = save_value(root, arguments, value)?;
    println!("written to {}", file.display());
    Ok(())
}

/// Megabytes a second that the disk writes, and that it copies.
fn disk_rates(place: &Place, runs: usize) -> Result<(f64, f64)> {
    let (one, other) = (place.directory.join("dd-one"), place.directory.join("dd-other"));
    let count = DD_BYTES >> 20;
    let timed = |line: &str| -> Result<f64> {
        let start = Instant::now();
        capture(&mut shell(line), 5 * MINUTE)?;
        Ok(DD_BYTES as f64 / start.elapsed().as_secs_f64() / 1e6)
    };
    let (mut writes, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..runs.max(1) {
        drop((fs::remove_file(&one), fs::remove_file(&other)));
        let end = "bs=1M oflag=direct conv=fsync";
        writes.push(timed(&format!("dd if=/dev/zero of={} count={count} {end}", quoted(&one)))?);
        copies.push(timed(&format!("dd if={} of={} iflag=direct {end}", quoted(&one), quoted(&other)))?);
    }
    drop((fs::remove_file(&one), fs::remove_file(&other)));
    let median = |values: &[f64]| Summary::of(values).map_or(0.0, |summary| summary.median);
    Ok((median(&writes), median(&copies)))
}

/// Of two devices one is away while some files are written: what is copied to it when it is back.
fn catch_up(place: &Place, binaries: &Binaries, device_bytes: u64) -> Result<Value> {
    let (mount_point, guard) = mount_folder()?;
    let pool = Pool { place, binaries, mount_point, device_bytes, _guard: guard };
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
    drop((fs::remove_file(pool.image(0)), fs::remove_file(pool.image(1))));
    Ok(json!({ "held_bytes": held, "written_bytes": written, "copied_bytes": copied }))
}

fn measure(
    place: &Place,
    binaries: &Binaries,
    device_bytes: u64,
    percent: u64,
    (write, copy): (f64, f64),
) -> Result<Value> {
    let (mount_point, guard) = mount_folder()?;
    let pool = Pool { place, binaries, mount_point, device_bytes, _guard: guard };
    let images: Vec<String> = (0..DEVICES).map(|number| pool.spec(number)).collect();
    pool.stere(&format!("create rebuild {} --force", images.join(" ")))?;
    pool.stere(&format!("mount rebuild {}", quoted(&pool.mount_point)))?;
    let files = pool.fill(percent)?;
    let baseline = pool.reads_during(files, &|| {
        std::thread::sleep(BASELINE);
        Ok(())
    })?;
    let baseline = baseline / BASELINE.as_secs_f64();
    let alone = pool.rebuild(1, DEVICES, None)?;
    let beside = pool.rebuild(DEVICES, DEVICES + 1, Some(files))?;
    let share = beside.reads / baseline;
    println!(
        "{percent} % full, nobody reads: {} MB in {:.2} s, {:.0} MB/s: {:.2} of what the disk writes, {:.2} of what it copies",
        alone.bytes / 1_000_000,
        alone.seconds,
        alone.rate(),
        alone.rate() / write,
        alone.rate() / copy
    );
    println!(
        "{percent} % full, beside random reads of 64 KiB: {:.0} MB/s; {:.0} reads/s of {baseline:.0} without: {share:.2}",
        beside.rate(),
        beside.reads
    );
    pool.stere(&format!("umount {}", quoted(&pool.mount_point)))?;
    for number in 0..DEVICES + 2 {
        drop(fs::remove_file(pool.image(number)));
    }
    let row = |one: &Rebuild| json!({ "bytes": one.bytes, "seconds": one.seconds, "mb_per_second": one.rate() });
    Ok(json!({
        "percent": percent, "alone": row(&alone), "beside_reads": row(&beside), "of_disk_writes": alone.rate() / write,
        "of_disk_copies": alone.rate() / copy, "reads_per_second_before": baseline,
        "reads_per_second_during": beside.reads, "share_of_reads": share,
    }))
}

impl Pool<'_> {
    fn image(&self, number: u64) -> PathBuf {
        self.place.directory.join(format!("rebuild-{number}.img"))
    }

    fn spec(&self, number: u64) -> String {
        format!("{},size={},name=d{number}", quoted(&self.image(number)), self.device_bytes)
    }

    fn stere(&self, words: &str) -> Result<String> {
        let state = quoted(&self.place.directory.join("state"));
        let line = format!("STERE_STATE={state} {} {words}", quoted(&self.binaries.stere));
        capture(&mut shell(&line), 5 * MINUTE)
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
            self.stere(&format!("device replace rebuild d{old} {} --yes", self.spec(new)))?;
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
