//! A full file system: what was synced stays whole, removing always works, and the space comes back.
//!
//! Files of 1 MiB are written and synced until there is no space. Then everything synced is compared, a file is truncated,
//! one overwritten and removed, one removed; then every second file goes, and room for a part of that must come back. At the
//! end all is removed and the free space must be nearly what it was.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::{At, BenchError};
use crate::pattern::{BLOCK_SIZE, Pattern};

const FILE_SIZE: usize = 1 << 20;
/// How long a cleaner may take to give back what was removed.
const PATIENCE: Duration = Duration::from_secs(30);
/// After the removal of everything, so much of the first free space must be back.
const RETURNED_MIN: f64 = 0.9;
const FILES_MIN: usize = 16;

struct Fill<'a> {
    directory: &'a Path,
    pattern: Pattern,
    /// Numbers of the files that were synced and not removed since.
    files: Vec<u64>,
    next: u64,
}

pub fn run(directory: &Path, seed: u64, rounds: u64) -> Result<Value, BenchError> {
    let folder = directory.join("stere-fill");
    fs::create_dir(&folder).at("mkdir", &folder)?;
    let free_before = free_bytes(directory)?;
    let mut fill = Fill { directory: &folder, pattern: Pattern::new(seed), files: Vec::new(), next: 0 };
    let mut written = Vec::new();
    for _ in 0..rounds {
        written.push(fill.until_full()?);
        fill.check_all()?;
        fill.change_while_full()?;
        fill.remove_half_and_write_again()?;
        fill.check_all()?;
    }
    for number in std::mem::take(&mut fill.files) {
        fill.remove(number)?;
    }
    wait_until("the space of removed files comes back", || {
        Ok(free_bytes(directory)? as f64 >= free_before as f64 * RETURNED_MIN)
    })?;
    fs::remove_dir(&folder).at("rmdir", &folder)?;
    Ok(json!({ "rounds": rounds, "files_until_full": written, "free_bytes_before": free_before }))
}

impl Fill<'_> {
    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("f{number:06}"))
    }

    /// Writes until ENOSPC; that file is removed again, which must work.
    fn until_full(&mut self) -> Result<usize, BenchError> {
        let before = self.files.len();
        while self.write_one()? {}
        let written = self.files.len() - before;
        if self.files.len() >= FILES_MIN {
            return Ok(written);
        }
        let what = format!("full after {} files of 1 MiB: too few to prove anything", self.files.len());
        Err(BenchError::WrongData { path: self.directory.to_owned(), what })
    }

    /// False if there was no space; nothing of the file is left then.
    fn write_one(&mut self) -> Result<bool, BenchError> {
        let number = self.next;
        self.next += 1;
        match self.try_write(number) {
            Ok(()) => {
                self.files.push(number);
                Ok(true)
            }
            Err(error) if is_full(&error) => {
                if self.path(number).exists() {
                    self.remove(number)?;
                }
                Ok(false)
            }
            Err(error) => Err(error).at("write until full", &self.path(number)),
        }
    }

    fn try_write(&self, number: u64) -> io::Result<()> {
        let mut data = vec![0; FILE_SIZE];
        self.pattern.fill(number, 0, 0, &mut data);
        let mut file = File::create(self.path(number))?;
        file.write_all(&data)?;
        file.sync_all()
    }

    fn remove(&self, number: u64) -> Result<(), BenchError> {
        let path = self.path(number);
        fs::remove_file(&path).at("unlink on a full file system", &path)
    }

    fn check_all(&self) -> Result<(), BenchError> {
        for number in &self.files {
            let path = self.path(*number);
            let mut data = Vec::with_capacity(FILE_SIZE);
            File::open(&path).and_then(|mut file| file.read_to_end(&mut data)).at("read", &path)?;
            let whole = if data.len() == FILE_SIZE { Ok(()) } else { Err(format!("{} bytes long", data.len())) };
            let result = whole.and_then(|()| self.pattern.check_all(*number, 0, 0, &data));
            result.map_err(|what| BenchError::WrongData { path, what })?;
        }
        Ok(())
    }

    /// Truncating and removing must work; overwriting may be refused for want of space, and nothing else.
    fn change_while_full(&mut self) -> Result<(), BenchError> {
        let truncated = self.files.remove(0);
        let path = self.path(truncated);
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(0))
            .at("truncate on a full file system", &path)?;
        self.remove(truncated)?;
        let overwritten = self.files.remove(0);
        let path = self.path(overwritten);
        let data = vec![0x55; BLOCK_SIZE * 16];
        let file = File::options().write(true).open(&path).at("open on a full file system", &path)?;
        match file.write_all_at(&data, 0).and_then(|()| file.sync_all()) {
            Err(error) if !is_full(&error) => return Err(error).at("overwrite on a full file system", &path),
            _ => self.remove(overwritten)?,
        }
        let removed = self.files.remove(0);
        self.remove(removed)
    }

    fn remove_half_and_write_again(&mut self) -> Result<(), BenchError> {
        let (keep, remove): (Vec<u64>, Vec<u64>) = self.files.iter().partition(|number| *number % 2 == 0);
        self.files = keep;
        remove.iter().try_for_each(|number| self.remove(*number))?;
        let directory = File::open(self.directory).at("open", self.directory)?;
        directory.sync_all().at("fsync", self.directory)?;
        for _ in 0..remove.len() / 4 {
            wait_until("space of removed files can be written again", || self.write_one())?;
        }
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

fn wait_until(what: &'static str, mut done: impl FnMut() -> Result<bool, BenchError>) -> Result<(), BenchError> {
    let start = Instant::now();
    while !done()? {
        if start.elapsed() > PATIENCE {
            return Err(BenchError::Unmet(what));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn free_bytes(path: &Path) -> Result<u64, BenchError> {
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("paths hold no NUL");
    // SAFETY: statvfs is plain data, and filled before it is read.
    let (result, status) = unsafe {
        let mut status: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(name.as_ptr(), &mut status), status)
    };
    let outcome = if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    outcome.at("statvfs", path)?;
    Ok(status.f_bavail * status.f_frsize)
}
