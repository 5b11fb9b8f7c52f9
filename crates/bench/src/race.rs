//! Several at once on a few names: opening, making, replacing, removing, renaming, linking. Every answer must be one that a
//! local file system could give: a name is there or it is not, and what was opened stays whole after its name is gone.
//!
//! Two kinds of names: those whose files change in place (any answer that POSIX has for their state), and those that are only
//! replaced by rename, so that every reader must see one whole version of the content.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::{At, BenchError};
use crate::pattern::Random;

const WORKERS: u64 = 8;
const NAMES: u64 = 4;
const VERSION_BYTES_MAX: u64 = 60_000;

/// What one worker did: per step, how often it worked and how often the name was not as hoped.
type Counts = BTreeMap<&'static str, (u64, u64)>;

struct Worker<'a> {
    folder: &'a Path,
    number: u64,
    random: Random,
    counts: Counts,
}

pub fn run(directory: &Path, seed: u64, seconds: u64) -> Result<Value, BenchError> {
    let folder = directory.join("stere-race");
    fs::create_dir(&folder).at("mkdir", &folder)?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let outcomes: Vec<Result<Counts, BenchError>> = thread::scope(|scope| {
        let start = |number| {
            let random = Random::new(seed * WORKERS + number);
            let worker = Worker { folder: &folder, number, random, counts: Counts::new() };
            scope.spawn(move || worker.work(end))
        };
        let workers: Vec<_> = (0..WORKERS).map(start).collect();
        let join =
            |worker: thread::ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
        workers.into_iter().map(join).collect()
    });
    let mut total = Counts::new();
    for counts in outcomes {
        for (step, (done, refused)) in counts? {
            let entry = total.entry(step).or_default();
            *entry = (entry.0 + done, entry.1 + refused);
        }
    }
    fs::remove_dir_all(&folder).at("remove", &folder)?;
    if total.values().any(|(done, _)| *done == 0) {
        return Err(BenchError::Unmet("each step of the race to work at least once; give it more seconds"));
    }
    Ok(json!(total))
}

impl Worker<'_> {
    fn work(mut self, end: Instant) -> Result<Counts, BenchError> {
        while Instant::now() < end {
            self.step()?;
        }
        Ok(self.counts)
    }

    fn name(&mut self, kind: &str) -> PathBuf {
        self.folder.join(format!("{kind}{}", self.random.below(NAMES)))
    }

    /// Counts an answer; one that is neither success nor among `allowed` ends the race.
    fn judge<T>(
        &mut self,
        step: &'static str,
        path: &Path,
        allowed: &[i32],
        answer: io::Result<T>,
    ) -> Result<Option<T>, BenchError> {
        let counts = self.counts.entry(step).or_default();
        match answer {
            Ok(value) => {
                counts.0 += 1;
                Ok(Some(value))
            }
            Err(error) if error.raw_os_error().is_some_and(|errno| allowed.contains(&errno)) => {
                counts.1 += 1;
                Ok(None)
            }
            Err(error) => Err(error).at(step, path),
        }
    }

    fn step(&mut self) -> Result<(), BenchError> {
        match self.random.below(14) {
            0 | 1 => self.change_in_place(),
            2 => self.make_new(),
            3 | 4 => self.replace(),
            5..=7 => self.read_whole(),
            8 => self.remove(),
            9 => self.rename(),
            10 => self.link(),
            11 => self.directories(),
            12 => self.by_path(),
            _ => self.open_in_place(),
        }
    }

    fn change_in_place(&mut self) -> Result<(), BenchError> {
        let path = self.name("place-");
        let truncate = self.random.below(2) == 0;
        let opened = OpenOptions::new().create(true).write(true).truncate(truncate).open(&path);
        if let Some(mut file) = self.judge("open to change or create", &path, &[], opened)? {
            let data = vec![b'c'; self.random.below(20_000) as usize];
            file.write_all(&data).at("write", &path)?;
        }
        Ok(())
    }

    fn make_new(&mut self) -> Result<(), BenchError> {
        let path = self.name("place-");
        let opened = File::create_new(&path);
        self.judge("create a new file", &path, &[libc::EEXIST], opened).map(drop)
    }

    fn open_in_place(&mut self) -> Result<(), BenchError> {
        let path = self.name("place-");
        let opened = File::open(&path);
        if let Some(mut file) = self.judge("open", &path, &[libc::ENOENT], opened)? {
            let mut data = Vec::new();
            file.read_to_end(&mut data).at("read an open file", &path)?;
            file.metadata().at("stat an open file", &path)?;
            file.sync_all().at("fsync an open file", &path)?;
        }
        Ok(())
    }

    /// A whole new version under a name of our own, renamed over the shared one.
    fn replace(&mut self) -> Result<(), BenchError> {
        let own = self.folder.join(format!("new-{}", self.number));
        let path = self.name("version-");
        let length = 9 + self.random.below(VERSION_BYTES_MAX);
        let byte = self.random.below(256) as u8;
        let mut data = vec![byte; length as usize];
        data[..8].copy_from_slice(&length.to_le_bytes());
        fs::write(&own, &data).at("write a new version", &own)?;
        let renamed = fs::rename(&own, &path);
        self.judge("replace by rename", &path, &[], renamed).map(drop)
    }

    fn read_whole(&mut self) -> Result<(), BenchError> {
        let path = self.name("version-");
        let opened = File::open(&path);
        let Some(mut file) = self.judge("open what is replaced", &path, &[libc::ENOENT], opened)? else {
            return Ok(());
        };
        if self.random.below(8) == 0 {
            thread::sleep(Duration::from_micros(self.random.below(3000)));
        }
        let mut data = Vec::new();
        file.read_to_end(&mut data).at("read what is replaced", &path)?;
        let length = data.len() as u64;
        let is_whole =
            data.len() > 8 && data[..8] == length.to_le_bytes() && data[8..].iter().all(|byte| *byte == data[8]);
        if is_whole {
            return Ok(());
        }
        Err(BenchError::WrongData { path, what: format!("{length} bytes that are no whole version") })
    }

    fn remove(&mut self) -> Result<(), BenchError> {
        let kind = if self.random.below(2) == 0 { "place-" } else { "version-" };
        let path = self.name(kind);
        let removed = fs::remove_file(&path);
        self.judge("unlink", &path, &[libc::ENOENT], removed).map(drop)
    }

    fn rename(&mut self) -> Result<(), BenchError> {
        let kind = if self.random.below(2) == 0 { "place-" } else { "version-" };
        let (from, to) = (self.name(kind), self.name(kind));
        if self.random.below(2) == 0 {
            let renamed = fs::rename(&from, &to);
            return self.judge("rename", &from, &[libc::ENOENT], renamed).map(drop);
        }
        let exchanged = exchange(&from, &to);
        self.judge("exchange", &from, &[libc::ENOENT], exchanged).map(drop)
    }

    fn link(&mut self) -> Result<(), BenchError> {
        let (from, to) = (self.name("version-"), self.name("version-"));
        let linked = fs::hard_link(&from, &to);
        self.judge("link", &from, &[libc::ENOENT, libc::EEXIST], linked).map(drop)
    }

    fn directories(&mut self) -> Result<(), BenchError> {
        let path = self.name("folder-");
        match self.random.below(4) {
            0 => {
                let made = fs::create_dir(&path);
                self.judge("mkdir", &path, &[libc::EEXIST], made).map(drop)
            }
            1 => {
                let removed = fs::remove_dir(&path);
                self.judge("rmdir", &path, &[libc::ENOENT, libc::ENOTEMPTY], removed).map(drop)
            }
            2 => {
                let inside = path.join(format!("in-{}", self.number));
                let made = File::create(&inside);
                if self.judge("create in a folder", &inside, &[libc::ENOENT], made)?.is_some() {
                    let removed = fs::remove_file(&inside);
                    self.judge("unlink in a folder", &inside, &[], removed)?;
                }
                Ok(())
            }
            _ => {
                let listed = fs::read_dir(&path).and_then(|mut names| names.try_for_each(|name| name.map(drop)));
                self.judge::<()>("list a folder", &path, &[libc::ENOENT], listed).map(drop)
            }
        }
    }

    /// Calls on a path that open nothing.
    fn by_path(&mut self) -> Result<(), BenchError> {
        let kind = if self.random.below(2) == 0 { "place-" } else { "version-" };
        let path = self.name(kind);
        match self.random.below(3) {
            0 => {
                let answer = fs::symlink_metadata(&path);
                self.judge("stat", &path, &[libc::ENOENT], answer).map(drop)
            }
            1 => {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600 + self.random.below(64) as u32);
                let answer = fs::set_permissions(&path, mode);
                self.judge("chmod", &path, &[libc::ENOENT], answer).map(drop)
            }
            _ => {
                let place = self.name("place-");
                let text = c_path(&place);
                // SAFETY: the path lives for the call.
                let result = unsafe { libc::truncate(text.as_ptr(), self.random.below(10_000) as i64) };
                self.judge("truncate", &place, &[libc::ENOENT], outcome(result)).map(drop)
            }
        }
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("paths hold no NUL")
}

fn outcome(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn exchange(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (c_path(from), c_path(to));
    // SAFETY: both paths live for the call.
    outcome(unsafe {
        libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_EXCHANGE)
    })
}
