//! Sawmill's request-size sweep: sequential requests of 512 bytes to 16 MiB by one client and by eight, each on its own file.
//!
//! A cell is one size and one number of clients, writes or reads. Clients stop after `CELL` or at the end of their file,
//! whichever is first, so that a slow file system costs no more time than a fast one. Writes end with an fsync of every
//! file inside the time; reads are cold, with the kernel's usual read-ahead.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::{Run, SYNCED, cold};
use crate::error::{At, BenchError};
use crate::pattern::BLOCK_SIZE;
use crate::report::{Metric, Spent, Stopwatch};

const SIZES: [(usize, &str); 6] =
    [(512, "512"), (4 << 10, "4k"), (32 << 10, "32k"), (256 << 10, "256k"), (2 << 20, "2m"), (16 << 20, "16m")];
const CLIENTS: [usize; 2] = [1, 8];
const CELL: Duration = Duration::from_millis(700);
/// What one client writes or reads in a cell at most.
const FILE_BYTES: [u64; 2] = [512 << 20, 96 << 20];
const NAMES: [[&str; 2]; 2] = [["write_c1", "read_c1"], ["write_c8", "read_c8"]];

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let mut metrics = Vec::new();
    for (at, clients) in CLIENTS.into_iter().enumerate() {
        // Whole requests of any size.
        let file_bytes = run.scaled(FILE_BYTES[at]).next_multiple_of(SIZES[SIZES.len() - 1].0 as u64);
        for (size, word) in SIZES {
            remove_all(run)?;
            let (elapsed, bytes) = cell(clients, &|client, until| write_some(run, client, size, file_bytes, until))?;
            let name = format!("sweep_{}_{word}", NAMES[at][0]);
            metrics.push(Metric::bytes(name, bytes, elapsed).durable(SYNCED));
        }
        // Whole files to be read, whatever the writers reached.
        remove_all(run)?;
        cell(clients, &|client, _| write_some(run, client, 1 << 20, file_bytes, None))?;
        for (size, word) in SIZES {
            run.cold.make()?;
            let (elapsed, bytes) = cell(clients, &|client, until| read_some(run, client, size, file_bytes, until))?;
            metrics.push(cold(Metric::bytes(format!("sweep_{}_{word}", NAMES[at][1]), bytes, elapsed)));
        }
    }
    Ok(metrics)
}

/// Does the work of all clients at once; the time from the common start to the end of the last, and the bytes of all.
fn cell(
    clients: usize,
    work: &(dyn Fn(u64, Option<Instant>) -> Result<u64, BenchError> + Sync),
) -> Result<(Spent, u64), BenchError> {
    let barrier = Barrier::new(clients + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..clients as u64)
            .map(|client| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    work(client, Some(Instant::now() + CELL))
                })
            })
            .collect();
        barrier.wait();
        let stopwatch = Stopwatch::start();
        let mut bytes = 0;
        for worker in workers {
            bytes += match worker.join() {
                Ok(outcome) => outcome?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
        }
        Ok((stopwatch.stop(), bytes))
    })
}

fn path_of(run: &Run, client: u64) -> PathBuf {
    run.path(&format!("client-{client}"))
}

/// Outside the time: truncating a large file is work.
fn remove_all(run: &Run) -> Result<(), BenchError> {
    for entry in fs::read_dir(&run.directory).at("list", &run.directory)?.flatten() {
        fs::remove_file(entry.path()).at("unlink", &entry.path())?;
    }
    run.sync_file_system()
}

fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

fn write_some(run: &Run, client: u64, size: usize, most: u64, until: Option<Instant>) -> Result<u64, BenchError> {
    let path = path_of(run, client);
    let mut file = File::create(&path).at("create", &path)?;
    let mut piece = vec![0; size.max(BLOCK_SIZE)];
    let mut written = 0;
    while written < most && !is_over(until) {
        // A request smaller than a block takes its turn within one.
        let within = (written % BLOCK_SIZE as u64) as usize;
        if within == 0 {
            run.pattern.fill(client, written / BLOCK_SIZE as u64, 0, &mut piece);
        }
        let start = if size < BLOCK_SIZE { within } else { 0 };
        file.write_all(&piece[start..start + size]).at("write", &path)?;
        written += size as u64;
    }
    file.sync_all().at("fsync", &path)?;
    Ok(written)
}

fn read_some(run: &Run, client: u64, size: usize, most: u64, until: Option<Instant>) -> Result<u64, BenchError> {
    let path = path_of(run, client);
    let mut file = File::open(&path).at("open", &path)?;
    let mut piece = vec![0; size];
    let mut read = 0;
    while read < most && !is_over(until) {
        file.read_exact(&mut piece).at("read", &path)?;
        if size >= BLOCK_SIZE {
            let checked = run.pattern.check_stamps(client, read / BLOCK_SIZE as u64, 0, &piece);
            checked.map_err(|what| BenchError::WrongData { path: path.clone(), what })?;
        }
        read += size as u64;
    }
    Ok(read)
}
