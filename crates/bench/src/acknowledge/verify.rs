//! Comparing what is there after a crash with what the log says was acknowledged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::folder_of;
use super::journal::{Change, Contents, Folder, Line, content_number, file_name};
use crate::error::{At, BenchError};
use crate::pattern::{BLOCK_SIZE, Pattern};

/// One writer's folder by the log: what was acknowledged, and what was under way.
#[derive(Default)]
struct State {
    folder: Folder,
    pending: Option<Change>,
    acknowledged: u64,
}

/// Returns how many acknowledged operations were found to have held.
pub fn verify(directory: &Path, log: &Path, seed: u64) -> Result<u64, BenchError> {
    let text = fs::read_to_string(log).at("read", log)?;
    let pattern = Pattern::new(seed);
    let mut acknowledged = 0;
    for (thread, state) in replay(&text, log)? {
        let check = Check { folder: folder_of(directory, thread), thread, state: &state, pattern: &pattern };
        check.run()?;
        acknowledged += state.acknowledged;
    }
    Ok(acknowledged)
}

fn replay(text: &str, log: &Path) -> Result<BTreeMap<u64, State>, BenchError> {
    let mut states: BTreeMap<u64, State> = BTreeMap::new();
    for line in text.lines() {
        let parsed = Line::parse(line);
        let wrong = || BenchError::WrongData { path: log.to_owned(), what: format!("`{line}` is no line of this log") };
        match parsed.ok_or_else(wrong)? {
            Line::Begin { thread, change } => states.entry(thread).or_default().pending = Some(change),
            Line::Done { thread } => {
                let state = states.entry(thread).or_default();
                let change = state.pending.take().ok_or_else(wrong)?;
                state.folder.apply(&change);
                state.acknowledged += 1;
            }
        }
    }
    Ok(states)
}

struct Check<'a> {
    folder: std::path::PathBuf,
    thread: u64,
    state: &'a State,
    pattern: &'a Pattern,
}

impl Check<'_> {
    fn run(&self) -> Result<(), BenchError> {
        let pending_file = self.state.pending.as_ref().map(Change::file);
        for (file, contents) in &self.state.folder.files {
            if pending_file != Some(*file) {
                self.require(*file, |data| self.is_exactly(*file, contents, data))?;
            }
        }
        if let Some(change) = &self.state.pending {
            self.check_pending(change)?;
        }
        self.check_no_others(pending_file)
    }

    /// The operation under way may have happened or not, in the ways that its kind allows.
    fn check_pending(&self, change: &Change) -> Result<(), BenchError> {
        let file = change.file();
        let before = self.state.folder.files.get(&file).cloned().unwrap_or_default();
        let after = self.state.folder.after(change).files.get(&file).cloned().unwrap_or_default();
        match change {
            Change::Create { .. } => {
                self.permit(file, |data| self.is_part_of(file, &Contents::default(), &after, data))
            }
            Change::Unlink { .. } => self.permit(file, |data| self.is_exactly(file, &before, data)),
            Change::Append { .. } => self.require(file, |data| self.is_part_of(file, &before, &after, data)),
            Change::Replace { .. } => self.require(file, |data| {
                self.is_exactly(file, &before, data).or_else(|_| self.is_exactly(file, &after, data))
            }),
            Change::Overwrite { .. } => self.require(file, |data| self.is_either_by_block(file, &before, &after, data)),
        }
    }

    fn check_no_others(&self, pending_file: Option<u64>) -> Result<(), BenchError> {
        let known = |name: &str| {
            let of_pending =
                pending_file.is_some_and(|file| name == file_name(file) || name == format!("temporary-{file}"));
            of_pending || self.state.folder.files.keys().any(|file| file_name(*file) == name)
        };
        for entry in fs::read_dir(&self.folder).at("list", &self.folder)? {
            let entry = entry.at("list", &self.folder)?;
            if !known(&entry.file_name().to_string_lossy()) {
                let what = "is there, but its removal or renaming was acknowledged".to_owned();
                return Err(BenchError::WrongData { path: entry.path(), what });
            }
        }
        Ok(())
    }

    fn require(&self, file: u64, check: impl Fn(&[u8]) -> Result<(), String>) -> Result<(), BenchError> {
        let path = self.folder.join(file_name(file));
        let data = fs::read(&path).at("read", &path)?;
        check(&data).map_err(|what| BenchError::WrongData { path, what })
    }

    fn permit(&self, file: u64, check: impl Fn(&[u8]) -> Result<(), String>) -> Result<(), BenchError> {
        if self.folder.join(file_name(file)).exists() { self.require(file, check) } else { Ok(()) }
    }

    fn is_exactly(&self, file: u64, contents: &Contents, data: &[u8]) -> Result<(), String> {
        if data.len() as u64 != contents.length {
            return Err(format!("{} bytes long, {} were acknowledged", data.len(), contents.length));
        }
        self.each_block(data, |index, block| {
            self.matches(file, index, contents, block)
                .then_some(())
                .ok_or_else(|| format!("block {index} is not as acknowledged"))
        })
    }

    /// `before` is whole; what comes after it up to `after` may be missing or zeros, but nothing else.
    fn is_part_of(&self, file: u64, before: &Contents, after: &Contents, data: &[u8]) -> Result<(), String> {
        let length = data.len() as u64;
        if length < before.length || length > after.length {
            return Err(format!("{length} bytes long, not between {} and {}", before.length, after.length));
        }
        let mut expected = vec![0; BLOCK_SIZE];
        self.each_block(data, |index, block| {
            self.pattern.fill(content_number(self.thread, file), index as u64, after.generations[index], &mut expected);
            let held = (before.length as usize).saturating_sub(index * BLOCK_SIZE).min(block.len());
            let holds = block[..held] == expected[..held];
            let rest = block[held..].iter().zip(&expected[held..]).all(|(is, should)| is == should || *is == 0);
            if holds && rest { Ok(()) } else { Err(format!("block {index} shows bytes that the file never held")) }
        })
    }

    fn is_either_by_block(&self, file: u64, before: &Contents, after: &Contents, data: &[u8]) -> Result<(), String> {
        if data.len() as u64 != before.length {
            return Err(format!("{} bytes long, {} were acknowledged", data.len(), before.length));
        }
        self.each_block(data, |index, block| {
            let held = self.matches(file, index, before, block) || self.matches(file, index, after, block);
            held.then_some(()).ok_or_else(|| format!("block {index} is neither old nor new"))
        })
    }

    fn each_block(&self, data: &[u8], mut check: impl FnMut(usize, &[u8]) -> Result<(), String>) -> Result<(), String> {
        data.chunks(BLOCK_SIZE).enumerate().try_for_each(|(index, block)| check(index, block))
    }

    fn matches(&self, file: u64, index: usize, contents: &Contents, block: &[u8]) -> bool {
        let mut expected = vec![0; BLOCK_SIZE];
        self.pattern.fill(content_number(self.thread, file), index as u64, contents.generations[index], &mut expected);
        block == &expected[..block.len()]
    }
}
