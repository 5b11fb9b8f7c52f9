//! PostMark-like mixes (Katcher 1997; Loris 2010, section 6): a mail server's many short-lived files.
//!
//! A set of files is made; each transaction is one of create or delete and one of read whole or append, chosen at random from
//! the seed; then all are removed. Two mixes: files of 0.5 to 16 KiB, and of 64 to 512 KiB. The time of the transactions ends
//! with a syncfs. What is read is compared by length, and at the end every file by its content.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use super::{Run, SYNCED, warm};
use crate::error::{At, BenchError};
use crate::pattern::{BLOCK_SIZE, Random};
use crate::report::Metric;

struct Mix {
    metric: &'static str,
    files: u64,
    transactions: u64,
    /// Smallest size and how far above it sizes go, in bytes.
    size_min: u64,
    size_range: u64,
    append_max: u64,
}

const MIXES: [Mix; 2] = [
    Mix {
        metric: "postmark_small",
        files: 4_000,
        transactions: 16_000,
        size_min: 512,
        size_range: 16 << 10,
        append_max: 4 << 10,
    },
    Mix {
        metric: "postmark_large",
        files: 400,
        transactions: 1_200,
        size_min: 64 << 10,
        size_range: 448 << 10,
        append_max: 64 << 10,
    },
];
const DIRECTORIES: u64 = 50;

/// A file that exists: its number, which names its content, and its length.
#[derive(Clone, Copy)]
struct Kept {
    number: u64,
    length: u64,
}

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let mut metrics = Vec::new();
    for mix in &MIXES {
        for directory in 0..DIRECTORIES {
            let path = run.path(&format!("{directory:02}"));
            fs::create_dir_all(&path).at("mkdir", &path)?;
        }
        let mut state = State { run, mix, random: Random::new(run.seed), kept: Vec::new(), next: 0 };
        for _ in 0..run.scaled(mix.files) {
            state.create()?;
        }
        run.sync_file_system()?;
        let transactions = run.scaled(mix.transactions);
        let (elapsed, ()) = run.time(|| {
            (0..transactions).try_for_each(|_| state.transact())?;
            run.sync_file_system()
        })?;
        run.cold.make()?;
        for kept in state.kept {
            check(run, &kept, true)?;
            let path = path_of(run, kept.number);
            fs::remove_file(&path).at("unlink", &path)?;
        }
        metrics.push(warm(Metric::count(mix.metric, transactions, elapsed).durable(SYNCED)));
    }
    Ok(metrics)
}

struct State<'a> {
    run: &'a Run,
    mix: &'a Mix,
    random: Random,
    kept: Vec<Kept>,
    next: u64,
}

impl State<'_> {
    fn transact(&mut self) -> Result<(), BenchError> {
        if self.random.below(2) == 0 {
            self.create()?;
        } else if let Some(kept) = self.pick().map(|at| self.kept.swap_remove(at)) {
            let path = path_of(self.run, kept.number);
            fs::remove_file(&path).at("unlink", &path)?;
        }
        match (self.random.below(2), self.pick()) {
            (0, Some(at)) => check(self.run, &self.kept[at], false),
            (_, Some(at)) => self.append(at),
            (_, None) => Ok(()),
        }
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.kept.is_empty()).then(|| self.random.below(self.kept.len() as u64) as usize)
    }

    fn create(&mut self) -> Result<(), BenchError> {
        let length = self.mix.size_min + self.random.below(self.mix.size_range);
        let number = self.next;
        self.next += 1;
        let path = path_of(self.run, number);
        let mut file = File::create_new(&path).at("create", &path)?;
        file.write_all(&content(self.run, number, 0, length)).at("write", &path)?;
        self.kept.push(Kept { number, length });
        Ok(())
    }

    fn append(&mut self, at: usize) -> Result<(), BenchError> {
        let more = 1 + self.random.below(self.mix.append_max);
        let Kept { number, length } = self.kept[at];
        let path = path_of(self.run, number);
        let mut file = File::options().append(true).open(&path).at("open", &path)?;
        file.write_all(&content(self.run, number, length, length + more)).at("append", &path)?;
        self.kept[at].length += more;
        Ok(())
    }
}

fn path_of(run: &Run, number: u64) -> PathBuf {
    run.path(&format!("{:02}/{number:06}", number % DIRECTORIES))
}

/// The bytes from `start` to `end` of what a file of this number holds.
fn content(run: &Run, number: u64, start: u64, end: u64) -> Vec<u8> {
    let block = BLOCK_SIZE as u64;
    let first = start / block;
    let mut bytes = vec![0; (end.div_ceil(block) - first) as usize * BLOCK_SIZE];
    run.pattern.fill(number, first, 0, &mut bytes);
    bytes.truncate((end - first * block) as usize);
    bytes.drain(..(start - first * block) as usize);
    bytes
}

fn check(run: &Run, kept: &Kept, every_byte: bool) -> Result<(), BenchError> {
    let path = path_of(run, kept.number);
    let found = fs::read(&path).at("read", &path)?;
    if found.len() as u64 != kept.length {
        let what = format!("{} bytes, not {}", found.len(), kept.length);
        return Err(BenchError::WrongData { path, what });
    }
    if every_byte && found != content(run, kept.number, 0, kept.length) {
        return Err(BenchError::WrongData { path, what: "other bytes than were written".to_owned() });
    }
    Ok(())
}
