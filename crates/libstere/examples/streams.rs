//! For `bench/attest.sh`: a file's content written and read by so many threads at once, each its share in a file of its own.
//!
//!     streams files|pool write|read CONTENT THREADS FOLDER [DEVICE]
//!
//! `files`: by system calls of 1 MiB in a folder of any file system. `pool`: in this process, in a folder of the unmounted pool on DEVICE, by
//! calls of 8 MiB, which the library reads and decodes side by side. What is written is in memory before and durable after; what is read
//! should not be cached. Prints megabytes a second and, of this process, processor seconds per GiB.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use stere::{Options, Pool, PoolOptions};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const MIB: usize = 1 << 20;

enum Place {
    Files(PathBuf),
    Pool(PathBuf, Pool),
}

enum Stream {
    File(File),
    InPool(stere::File),
}

impl Place {
    fn open(&self, number: usize, is_writing: bool) -> Outcome<Stream> {
        let name = format!("stream-{number}");
        Ok(match self {
            Place::Files(folder) => {
                let mut options = File::options();
                options.read(!is_writing).write(is_writing).create(is_writing).truncate(is_writing);
                Stream::File(options.open(folder.join(name))?)
            }
            Place::Pool(folder, pool) => {
                let options = Options::new().read(true).write(is_writing).create(is_writing).truncate(is_writing);
                Stream::InPool(pool.file(folder.join(name), options)?)
            }
        })
    }

    fn call_bytes(&self) -> usize {
        match self {
            Place::Files(_) => MIB,
            Place::Pool(..) => 8 * MIB,
        }
    }
}

impl Stream {
    fn write(&self, content: &[u8], call_bytes: usize) -> Outcome<()> {
        let parts = content.chunks(call_bytes).zip((0_u64..).step_by(call_bytes));
        match self {
            Stream::File(file) => {
                for (part, offset) in parts {
                    file.write_all_at(part, offset)?;
                }
                Ok(file.sync_all()?)
            }
            Stream::InPool(file) => {
                for (part, offset) in parts {
                    if file.write_at(part, offset)? != part.len() {
                        return Err("a part was not written whole".into());
                    }
                }
                Ok(file.sync()?)
            }
        }
    }

    /// Reads and, in steps, looks whether it is what was written.
    fn read(&self, content: &[u8], call_bytes: usize) -> Outcome<()> {
        let mut bytes = vec![0; call_bytes];
        for (part, offset) in content.chunks(call_bytes).zip((0_u64..).step_by(call_bytes)) {
            let bytes = &mut bytes[..part.len()];
            match self {
                Stream::File(file) => file.read_exact_at(bytes, offset)?,
                Stream::InPool(file) if file.read_at(bytes, offset)? == part.len() => {}
                Stream::InPool(_) => return Err("a part was not read whole".into()),
            }
            if bytes.iter().step_by(4099).ne(part.iter().step_by(4099)) {
                return Err(format!("what is at {offset} is not what was written there").into());
            }
        }
        Ok(())
    }
}

/// Seconds of processors that this process has taken.
fn processor_seconds() -> f64 {
    let usage = usage_of_this_process();
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn usage_of_this_process() -> libc::rusage {
    // SAFETY: plain numbers, for which zeros are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: writes into a live variable.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [way, work, content, threads, folder, device @ ..] = words.as_slice() else {
        return Err("streams files|pool write|read CONTENT THREADS FOLDER [DEVICE]".into());
    };
    let (is_writing, threads) = (work == "write", threads.parse::<usize>()?.max(1));
    let content = std::fs::read(content)?;
    let share = content.len().div_ceil(threads).next_multiple_of(MIB);
    let folder = Path::new(folder).to_owned();
    let place = match (way.as_str(), device) {
        ("files", []) => Place::Files(folder),
        // As much memory as a mount takes.
        ("pool", [device]) => {
            Place::Pool(folder, Pool::open(&[device], PoolOptions { memory_bytes: 1 << 30, ..PoolOptions::default() })?)
        }
        _ => return Err("files, or pool with a DEVICE".into()),
    };
    let (begun, before) = (Instant::now(), processor_seconds());
    let one = |(number, part): (usize, &[u8])| {
        let stream = place.open(number, is_writing)?;
        match is_writing {
            true => stream.write(part, place.call_bytes()),
            false => stream.read(part, place.call_bytes()),
        }
    };
    std::thread::scope(|scope| {
        let started: Vec<_> = content.chunks(share).enumerate().map(|part| scope.spawn(move || one(part))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Outcome<()>>| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => Err("a thread panicked".into()),
        };
        started.into_iter().try_for_each(join)
    })?;
    let (seconds, processors) = (begun.elapsed().as_secs_f64(), processor_seconds() - before);
    if let Place::Pool(_, pool) = place {
        pool.close()?;
    }
    let bytes = content.len() as f64;
    println!("{:.1} {:.3}", bytes / seconds / 1e6, processors / (bytes / f64::from(1 << 30)));
    Ok(())
}
