//! What was done to files of the source and is still to be followed up: a journal in the source, hidden by the mount.
//!
//! A file is noted, durably, before it is changed, so whatever crashes, nothing that was changed is forgotten; what was noted and then not
//! changed is looked at for nothing. A file that waits already is not noted again, so the journal is synced once for each file that waits.
//! Lines of text, each with its checksum; the first that is not whole ends it. Invariants: a file is in the list once; one that was noted
//! while it was served stays. Read next: `follow.rs`, which serves the list; `docs/format/stacked.md`.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Where a source keeps the list.
pub const QUEUE_FILE_NAME: &str = ".stere-stack-queue";
/// Files that may wait.
pub const WAITING_MAX: usize = 65_536;
/// Lines beyond those that are needed, after which the journal is written anew.
const SPARE_LINES: usize = 10_000;
const FAILURES_MAX: u8 = 8;

/// What is known of a file that waits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waiting {
    pub since_seconds: i64,
    pub failures: u8,
    pub next_seconds: i64,
    pub is_given_up: bool,
    pub cause: String,
    /// Grows when it is noted again.
    number: u64,
}

#[derive(Debug)]
struct State {
    file: File,
    lines: usize,
    files: BTreeMap<Vec<u8>, Waiting>,
    /// Files that somebody has open for writing.
    open: FxHashMap<Vec<u8>, u32>,
    lost: u64,
}

/// The list of a source.
#[derive(Debug)]
pub struct Queue {
    path: PathBuf,
    state: Mutex<State>,
}

impl Queue {
    /// The list of a source; empty where there was none.
    pub fn open(source: &Path) -> io::Result<Queue> {
        let path = source.join(QUEUE_FILE_NAME);
        let files = match fs::read(&path) {
            Ok(bytes) => replayed(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        let file = write_anew(&path, &files)?;
        let state = State { file, lines: files.len(), files, open: FxHashMap::default(), lost: 0 };
        Ok(Queue { path, state: Mutex::new(state) })
    }

    /// A file is about to be changed; `is_open`: until it is closed. Durable on return. What cannot be noted keeps nobody from
    /// changing the file; it is counted.
    pub fn note(&self, path: &[u8], now_seconds: i64, is_open: bool) {
        let mut state = self.state.lock();
        if is_open {
            *state.open.entry(path.to_vec()).or_default() += 1;
        }
        if let Some(waiting) = state.files.get_mut(path) {
            // Something new deserves a new try.
            let (since_seconds, number) = (waiting.since_seconds, waiting.number + 1);
            let was_given_up = waiting.is_given_up;
            *waiting = Waiting { since_seconds, number, ..Waiting::default() };
            // The journal says that nobody is to try any more; of all others it says already that they wait.
            let line = was_given_up.then(|| line(path, waiting));
            if let Some(Err(error)) = line.map(|line| state.append(&line, true)) {
                state.lose(path, &error);
            }
            return;
        }
        let waiting = Waiting { since_seconds: now_seconds, ..Waiting::default() };
        let is_full = state.files.len() >= WAITING_MAX;
        let noted = if is_full {
            Err(io::Error::other("too many files wait"))
        } else {
            state.append(&line(path, &waiting), true)
        };
        match noted {
            Ok(()) => drop(state.files.insert(path.to_vec(), waiting)),
            Err(error) => state.lose(path, &error),
        }
    }

    /// A file that was open for writing was closed.
    pub fn closed(&self, path: &[u8]) {
        let mut state = self.state.lock();
        let count = state.open.get_mut(path);
        assert!(count.as_ref().is_some_and(|count| **count > 0), "a file is closed more often than it was opened");
        if let Some(count) = count {
            *count -= 1;
            if *count == 0 {
                state.open.remove(path);
            }
        }
    }

    /// A directory gets another name: what waits below it is noted under its new one too.
    pub fn renamed(&self, old: &[u8], new: &[u8], now_seconds: i64) {
        let below = [old, b"/"].concat();
        let waiting: Vec<Vec<u8>> = {
            let state = self.state.lock();
            let from = state.files.range(below.clone()..).take_while(|(path, _)| path.starts_with(&below));
            from.map(|(path, _)| [new, b"/", &path[below.len()..]].concat()).collect()
        };
        waiting.iter().for_each(|path| self.note(path, now_seconds, false));
    }

    /// Files that are due and that nobody has open, behind this one.
    pub fn due(&self, behind: &[u8], now_seconds: i64) -> Option<(Vec<u8>, Waiting)> {
        let state = self.state.lock();
        let behind = (std::ops::Bound::Excluded(behind.to_vec()), std::ops::Bound::Unbounded);
        let is_due = |path: &Vec<u8>, waiting: &Waiting| {
            !waiting.is_given_up && waiting.next_seconds <= now_seconds && !state.open.contains_key(path)
        };
        let found = state.files.range(behind).find(|(path, waiting)| is_due(path, waiting));
        found.map(|(path, waiting)| (path.clone(), waiting.clone()))
    }

    /// What came of serving a file as it was when it was given.
    pub fn served(&self, path: &[u8], given: &Waiting, outcome: Result<(), String>, now_seconds: i64) {
        let mut state = self.state.lock();
        if state.files.get(path).is_none_or(|waiting| waiting.number != given.number) {
            return;
        }
        let appended = match outcome {
            Ok(()) => {
                state.files.remove(path);
                state.append(&format!("- {}", hex(path)), false)
            }
            Err(cause) => {
                let failures = given.failures.saturating_add(1);
                let next_seconds = now_seconds + (1 << failures.saturating_sub(1).min(FAILURES_MAX));
                let is_given_up = failures >= FAILURES_MAX;
                if is_given_up {
                    let path = String::from_utf8_lossy(path).into_owned();
                    tracing::error!(path, cause, "nobody follows this file up any more; see `stere plugin queue`");
                }
                let waiting = Waiting { failures, next_seconds, is_given_up, cause, ..given.clone() };
                let line = line(path, &waiting);
                state.files.insert(path.to_vec(), waiting);
                state.append(&line, false)
            }
        };
        if let Err(error) = appended.and_then(|()| self.shorten(&mut state)) {
            tracing::warn!(%error, "the journal of what is to be followed up cannot be written; some is done twice");
        }
    }

    /// All that waits, and how many changes were not noted.
    pub fn list(&self) -> (Vec<(Vec<u8>, Waiting)>, u64) {
        let state = self.state.lock();
        (state.files.iter().map(|(path, waiting)| (path.clone(), waiting.clone())).collect(), state.lost)
    }

    /// Has all tried again now; tells of how many files.
    pub fn retry(&self) -> usize {
        let mut state = self.state.lock();
        for waiting in state.files.values_mut() {
            *waiting = Waiting { since_seconds: waiting.since_seconds, number: waiting.number, ..Waiting::default() };
        }
        // The journal must not say any more that nobody is to try: what is noted of these from now on is not written again.
        match write_anew(&self.path, &state.files) {
            Ok(file) => (state.file, state.lines) = (file, state.files.len()),
            Err(error) => tracing::error!(%error, "after a crash what was given up is given up again; retry it then"),
        }
        state.files.len()
    }

    /// Forgets what was given up, or all; tells of how many files.
    pub fn forget(&self, all: bool) -> io::Result<usize> {
        let mut state = self.state.lock();
        let before = state.files.len();
        state.files.retain(|_, waiting| !all && !waiting.is_given_up);
        state.file = write_anew(&self.path, &state.files)?;
        state.lines = state.files.len();
        Ok(before - state.files.len())
    }

    fn shorten(&self, state: &mut State) -> io::Result<()> {
        let (lines, files) = (state.lines, state.files.len());
        assert!(lines >= files, "{lines} lines tell of {files} files");
        if state.lines > 2 * state.files.len() + SPARE_LINES {
            state.file = write_anew(&self.path, &state.files)?;
            state.lines = state.files.len();
        }
        Ok(())
    }
}

impl State {
    fn lose(&mut self, path: &[u8], error: &io::Error) {
        self.lost += 1;
        let path = String::from_utf8_lossy(path).into_owned();
        tracing::error!(path, %error, "a change is not noted, so nobody follows it up");
    }

    fn append(&mut self, line: &str, is_durable: bool) -> io::Result<()> {
        self.file.write_all(sealed(line).as_bytes())?;
        self.lines += 1;
        if is_durable { self.file.sync_data() } else { Ok(()) }
    }
}

/// A journal of just these files, in the place of the one that is there.
fn write_anew(path: &Path, files: &BTreeMap<Vec<u8>, Waiting>) -> io::Result<File> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let text: String = files.iter().map(|(path, waiting)| sealed(&line(path, waiting))).collect();
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
    Ok(file)
}

fn line(path: &[u8], waiting: &Waiting) -> String {
    let Waiting { since_seconds, failures, next_seconds, is_given_up, cause, .. } = waiting;
    let given_up = u8::from(*is_given_up);
    format!("+ {} {since_seconds} {failures} {next_seconds} {given_up} {}", hex(path), hex(cause.as_bytes()))
}

fn sealed(line: &str) -> String {
    format!("{:08x} {line}\n", stere_format::crc32c(line.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    // Never empty, so that words stay words.
    bytes.iter().fold("x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix('x')?.as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    digits.chunks(2).map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

/// What a journal says, up to the first line that is not whole.
fn replayed(bytes: &[u8]) -> BTreeMap<Vec<u8>, Waiting> {
    let mut files = BTreeMap::new();
    for bytes in bytes.split_inclusive(|byte| *byte == b'\n') {
        let entered = std::str::from_utf8(bytes).ok().and_then(|text| {
            let (crc32c, line) = text.strip_suffix('\n')?.split_once(' ')?;
            let is_whole = u32::from_str_radix(crc32c, 16).ok()? == stere_format::crc32c(line.as_bytes());
            is_whole.then(|| enter(&mut files, line)).flatten()
        });
        if entered.is_none() {
            break;
        }
    }
    files
}

fn enter(files: &mut BTreeMap<Vec<u8>, Waiting>, line: &str) -> Option<()> {
    let mut words = line.split(' ');
    let (what, path) = (words.next()?, unhex(words.next()?)?);
    match what {
        "-" => drop(files.remove(&path)),
        "+" => {
            let (since_seconds, failures) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let (next_seconds, is_given_up) = (words.next()?.parse().ok()?, words.next()? == "1");
            let cause = String::from_utf8(unhex(words.next()?)?).ok()?;
            let number = 0;
            let waiting = Waiting { since_seconds, failures, next_seconds, is_given_up, cause, number };
            files.insert(path, waiting);
        }
        _ => return None,
    }
    Some(())
}
