//! Work whose every promise is written down elsewhere: what was acknowledged before a crash must be there after it.
//!
//! Each thread works in a folder of its own: it notes what it is about to do in the log (on another file system), does it,
//! syncs file and folder, and notes that it is done. When the file system dies under it, it stops. `verify` replays the
//! log: what was noted as done must be there byte for byte, and the one operation under way may have happened, or not, or
//! in the way its kind allows (a replaced file is old or new, an unsynced one shows its own bytes or zeros, nothing else).
//! Read next: `journal.rs` (the log and the model of a folder), `verify.rs`.

mod journal;
mod mapping;
#[cfg(test)]
mod tests;
mod verify;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use crate::error::{At, BenchError};
use crate::pattern::{BLOCK_SIZE, Pattern, Random};
use journal::{Change, Folder, Line, file_name};
pub use verify::verify;

/// What an acknowledgement rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Promise {
    /// fsync or fdatasync of the file, fsync of its folder.
    Fsync,
    /// One syncfs after the change.
    Syncfs,
    /// The file is written through O_DSYNC or O_SYNC.
    Osync,
    /// Overwriting goes through a shared mapping and msync; the rest by fsync.
    Msync,
}

const FILES_PER_FOLDER: u64 = 40;
const SIZE_MAX: u64 = 200_000;

pub fn folder_of(directory: &Path, thread: u64) -> PathBuf {
    directory.join(format!("writer-{thread}"))
}

/// Works until the file system fails or `operations` are done by every thread; returns how many were acknowledged.
pub fn write(
    directory: &Path,
    log: &Path,
    promise: Promise,
    seed: u64,
    threads: u64,
    operations: u64,
) -> Result<u64, BenchError> {
    let log_file = OpenOptions::new().create(true).append(true).open(log).at("open", log)?;
    let pattern = Pattern::new(seed);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|number| {
                let folder = folder_of(directory, number);
                let writer =
                    Writer { folder, thread: number, promise, log: &log_file, log_path: log, pattern: &pattern };
                let random = Random::new(seed.wrapping_add(number));
                scope.spawn(move || writer.work(directory, random, operations))
            })
            .collect();
        writers.into_iter().try_fold(0, |sum, writer| match writer.join() {
            Ok(result) => result.map(|count| sum + count),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

struct Writer<'a> {
    folder: PathBuf,
    thread: u64,
    promise: Promise,
    log: &'a File,
    log_path: &'a Path,
    pattern: &'a Pattern,
}

impl Writer<'_> {
    fn work(&self, directory: &Path, mut random: Random, operations: u64) -> Result<u64, BenchError> {
        fs::create_dir_all(&self.folder).at("mkdir", &self.folder)?;
        sync_folder(directory).at("fsync", directory)?;
        let mut model = Folder::default();
        for step in 0..operations {
            let change = choose(&mut random, &model, step + 1);
            self.note(Line::Begin { thread: self.thread, change: change.clone() })?;
            if let Err(error) = self.carry_out(&change, &model) {
                return if self.is_death(&error) { Ok(step) } else { Err(error).at("change a file in", &self.folder) };
            }
            self.note(Line::Done { thread: self.thread })?;
            model.apply(&change);
        }
        Ok(operations)
    }

    /// Whether the file system has died, or lives and refused the change, which is a fault.
    fn is_death(&self, error: &std::io::Error) -> bool {
        matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)) || fs::metadata(&self.folder).is_err()
    }

    fn note(&self, line: Line) -> Result<(), BenchError> {
        let text = format!("{line}\n");
        (&mut &*self.log).write_all(text.as_bytes()).at("write", self.log_path)
    }

    fn carry_out(&self, change: &Change, model: &Folder) -> std::io::Result<()> {
        match *change {
            Change::Create { file, length, generation } => {
                self.write_whole(&self.path(file), file, length, generation, self.promise)?;
            }
            Change::Replace { file, length, generation } => {
                // Whole before it is renamed, whatever the promise: else old or new would not be all that is allowed.
                let temporary = self.folder.join(format!("temporary-{file}"));
                self.write_whole(&temporary, file, length, generation, Promise::Fsync)?;
                fs::rename(&temporary, self.path(file))?;
            }
            Change::Append { file, length, generation } => {
                let blocks = model.after(change).blocks(file);
                assert_eq!(blocks.last(), Some(&generation), "an append ends in a block of its own");
                let start = model.length(file);
                let out = self.open(&self.path(file), libc::O_SYNC)?;
                out.write_all_at(&self.content(file, start, start + length, &blocks), start)?;
                return self.settle_file(&out, self.promise);
            }
            Change::Overwrite { file, first_block, blocks, generation } => {
                let mut data = vec![0; blocks as usize * BLOCK_SIZE];
                self.pattern.fill(self.number(file), first_block, generation, &mut data);
                let out = self.open(&self.path(file), libc::O_DSYNC)?;
                if self.promise == Promise::Msync {
                    return mapping::write_and_sync(&out, first_block * BLOCK_SIZE as u64, &data);
                }
                out.write_all_at(&data, first_block * BLOCK_SIZE as u64)?;
                return if self.promise == Promise::Fsync {
                    out.sync_data()
                } else {
                    self.settle_file(&out, self.promise)
                };
            }
            Change::Unlink { file } => fs::remove_file(self.path(file))?,
        }
        self.settle_folder()
    }

    fn write_whole(
        &self,
        path: &Path,
        file: u64,
        length: u64,
        generation: u64,
        promise: Promise,
    ) -> std::io::Result<()> {
        let blocks = vec![generation; length.div_ceil(BLOCK_SIZE as u64) as usize];
        let mut out = File::create(path)?;
        out.write_all(&self.content(file, 0, length, &blocks))?;
        // A new file's name is not covered by O_SYNC, so that it is created the usual way under that promise.
        self.settle_file(&out, if promise == Promise::Osync { Promise::Fsync } else { promise })
    }

    fn open(&self, path: &Path, sync_flag: i32) -> std::io::Result<File> {
        let flag = if self.promise == Promise::Osync { sync_flag } else { 0 };
        OpenOptions::new().read(true).write(true).custom_flags(flag).open(path)
    }

    fn settle_file(&self, file: &File, promise: Promise) -> std::io::Result<()> {
        match promise {
            Promise::Fsync | Promise::Msync => file.sync_all(),
            Promise::Syncfs => sync_file_system(file),
            Promise::Osync => Ok(()),
        }
    }

    fn settle_folder(&self) -> std::io::Result<()> {
        let folder = File::open(&self.folder)?;
        if self.promise == Promise::Syncfs { sync_file_system(&folder) } else { folder.sync_all() }
    }

    /// The bytes `start..end` of a file whose blocks have these generations.
    fn content(&self, file: u64, start: u64, end: u64, generations: &[u64]) -> Vec<u8> {
        let mut data = vec![0; generations.len() * BLOCK_SIZE];
        for (index, block) in data.chunks_exact_mut(BLOCK_SIZE).enumerate() {
            self.pattern.fill(self.number(file), index as u64, generations[index], block);
        }
        data[start as usize..end as usize].to_vec()
    }

    /// The number that the content of a file carries: unlike in every thread.
    fn number(&self, file: u64) -> u64 {
        journal::content_number(self.thread, file)
    }

    fn path(&self, file: u64) -> PathBuf {
        self.folder.join(file_name(file))
    }
}

/// The next change that is possible: a file that is not there is created, one that is there is changed somehow.
fn choose(random: &mut Random, model: &Folder, generation: u64) -> Change {
    let file = random.below(FILES_PER_FOLDER);
    let length = 1 + random.below(SIZE_MAX) / (1 + random.below(50));
    if !model.has(file) {
        return Change::Create { file, length, generation };
    }
    let whole_blocks = model.length(file) / BLOCK_SIZE as u64;
    match random.below(10) {
        0..3 => Change::Replace { file, length, generation },
        3 => Change::Unlink { file },
        4..7 if whole_blocks > 0 => {
            let first_block = random.below(whole_blocks);
            Change::Overwrite { file, first_block, blocks: 1 + random.below(whole_blocks - first_block), generation }
        }
        _ => Change::Append { file, length: length + BLOCK_SIZE as u64, generation },
    }
}

fn sync_file_system(file: &File) -> std::io::Result<()> {
    // SAFETY: the descriptor is open for the whole call.
    let result = unsafe { libc::syncfs(file.as_raw_fd()) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}
