//! For `cargo xtask bench library`: one way to a file, timed; the last line printed is JSON.
//!
//!     rates WAY write|read PATH MEBIBYTES [DEVICE]
//!
//! WAY is `mount` (system calls), `library` (through the daemon), `direct` (PATH in the unmounted pool on DEVICE) or `raw` (PATH is
//! a file or device, used past the kernel's cache). `write` writes MEBIBYTES in order and makes them durable; `read` reads them in
//! order and then 4 KiB here and there, one at a time and 16 at a time. The kernel's cache is emptied before each.

use std::fs::File;
use std::io::Error as IoError;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

use stere::{Options, Piece, Pool, PoolOptions};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const MIB: usize = 1 << 20;
/// What is written and read in order by one call.
const CALL_BYTES: usize = 8 * MIB;
const PAGE: usize = 4096;
const DEPTH: usize = 16;
/// Random reads, one at a time and many at a time.
const READS: [usize; 2] = [2000, 16_000];
/// Raw requests in order that are under way at a time: more made nothing faster.
const RAW_THREADS: usize = 4;

enum Way {
    Mount(File),
    Library(stere::File),
    Direct(stere::File, Pool),
    Raw(File),
}

impl Way {
    fn open(words: &[String], is_writing: bool) -> Outcome<Way> {
        let options = Options::new().read(true).write(is_writing).create(is_writing);
        let path = &words[2];
        let mut open = File::options();
        open.read(true).write(is_writing);
        Ok(match words[0].as_str() {
            "mount" => Way::Mount(open.create(is_writing).truncate(false).open(path)?),
            "library" => Way::Library(stere::File::open(path, options)?),
            "direct" => {
                let device = words.get(4).ok_or("direct needs a DEVICE")?;
                // As much as a mount takes.
                let pool = Pool::open(&[device], PoolOptions { memory_bytes: 1 << 30, ..PoolOptions::default() })?;
                Way::Direct(pool.file(path, options)?, pool)
            }
            "raw" => Way::Raw(open.custom_flags(libc::O_DIRECT).open(path)?),
            other => return Err(format!("there is no way '{other}'").into()),
        })
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Outcome<()> {
        match self {
            Way::Mount(file) => Ok(file.write_all_at(bytes, offset)?),
            Way::Library(file) | Way::Direct(file, _) => match file.write_at(bytes, offset)? {
                count if count == bytes.len() => Ok(()),
                count => Err(format!("{count} bytes were written of {}", bytes.len()).into()),
            },
            Way::Raw(file) => in_threads(bytes.chunks(MIB).enumerate().collect(), RAW_THREADS, |(index, part)| {
                file.write_all_at(part, offset + (index * MIB) as u64)
            }),
        }
    }

    fn sync(&self) -> Outcome<()> {
        match self {
            Way::Mount(file) | Way::Raw(file) => Ok(file.sync_all()?),
            Way::Library(file) | Way::Direct(file, _) => Ok(file.sync()?),
        }
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Outcome<()> {
        match self {
            Way::Mount(file) => Ok(file.read_exact_at(bytes, offset)?),
            Way::Library(file) | Way::Direct(file, _) => match file.read_at(bytes, offset)? {
                count if count == bytes.len() => Ok(()),
                count => Err(format!("{count} bytes were read of {}", bytes.len()).into()),
            },
            Way::Raw(file) => in_threads(bytes.chunks_mut(MIB).enumerate().collect(), RAW_THREADS, |(index, part)| {
                file.read_exact_at(part, offset + (index * MIB) as u64)
            }),
        }
    }

    /// Pages at these offsets, so many at a time.
    fn read_pages(&self, rooms: &mut [Room], offsets: &[u64], depth: usize) -> Outcome<()> {
        let rooms = rooms.iter_mut().zip(offsets);
        match self {
            Way::Mount(file) | Way::Raw(file) => {
                in_threads(rooms.collect(), depth, |(room, offset)| file.read_exact_at(&mut room.0, *offset))
            }
            Way::Library(file) | Way::Direct(file, _) => {
                let mut pieces: Vec<Piece<'_>> =
                    rooms.map(|(room, offset)| Piece { offset: *offset, bytes: &mut room.0, read: 0 }).collect();
                match depth {
                    1 => pieces.iter_mut().try_for_each(|piece| file.read_many(std::slice::from_mut(piece)))?,
                    _ => file.read_many(&mut pieces)?,
                }
                match pieces.iter().all(|piece| piece.read == PAGE) {
                    true => Ok(()),
                    false => Err("a page was not read whole".into()),
                }
            }
        }
    }

    fn close(self) -> Outcome<()> {
        match self {
            Way::Mount(_) | Way::Raw(_) => {}
            Way::Library(file) => file.close()?,
            Way::Direct(file, pool) => {
                file.close()?;
                pool.close()?;
            }
        }
        Ok(())
    }
}

/// A page at an address that is read to directly.
#[derive(Clone)]
#[repr(align(4096))]
struct Room([u8; PAGE]);

fn in_threads<T: Send>(
    parts: Vec<T>,
    threads: usize,
    work: impl Fn(T) -> Result<(), IoError> + Send + Sync,
) -> Outcome<()> {
    let parts = std::sync::Mutex::new(parts.into_iter());
    let next = || parts.lock().ok().and_then(|mut parts| parts.next());
    let run = || {
        while let Some(part) = next() {
            work(part)?;
        }
        Ok::<(), IoError>(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut outcome = run();
        for other in others {
            outcome = outcome.and(other.join().unwrap_or_else(|_| Err(IoError::other("a thread panicked"))));
        }
        Ok(outcome?)
    })
}

/// Noise, so that nothing between here and the medium can make less of it.
fn noise() -> impl FnMut() -> u64 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 16
    }
}

/// Bytes that begin at the start of a page.
fn aligned(bytes: usize) -> Vec<Room> {
    vec![Room([0; PAGE]); bytes / PAGE]
}

fn flat(rooms: &mut [Room]) -> &mut [u8] {
    let (start, length) = (rooms.as_mut_ptr().cast::<u8>(), size_of_val(rooms));
    // SAFETY: rooms are bytes without gaps, and borrowed for as long as what is given.
    unsafe { std::slice::from_raw_parts_mut(start, length) }
}

fn forget_cached() -> Outcome<()> {
    Ok(std::fs::write("/proc/sys/vm/drop_caches", "3\n")?)
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [_, work, _, mebibytes, ..] = words.as_slice() else {
        return Err("rates WAY write|read PATH MEBIBYTES [DEVICE]".into());
    };
    let total = mebibytes.parse::<usize>()? * MIB / CALL_BYTES * CALL_BYTES;
    let rate = |start: Instant| total as f64 / start.elapsed().as_secs_f64() / f64::from(1 << 20);
    let mut metrics = Vec::new();
    let mut told = |name: &str, unit: &str, value: f64| {
        metrics.push(serde_json::json!({ "name": name, "unit": unit, "value": value }));
    };
    let way = Way::open(&words, work == "write")?;
    let mut rooms = aligned(CALL_BYTES);
    forget_cached()?;
    if work == "write" {
        let mut number = noise();
        flat(&mut rooms).chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&number().to_le_bytes()));
        let start = Instant::now();
        for offset in (0..total).step_by(CALL_BYTES) {
            flat(&mut rooms)[..8].copy_from_slice(&(offset as u64).to_le_bytes());
            way.write(flat(&mut rooms), offset as u64)?;
        }
        way.sync()?;
        told("write", "MiB/s", rate(start));
    } else {
        let start = Instant::now();
        for offset in (0..total).step_by(CALL_BYTES) {
            way.read(flat(&mut rooms), offset as u64)?;
            if flat(&mut rooms)[..8] != (offset as u64).to_le_bytes() {
                return Err(format!("what is at {offset} is not what was written there").into());
            }
        }
        told("read", "MiB/s", rate(start));
        let mut number = noise();
        for (depth, reads) in [1, DEPTH].into_iter().zip(READS) {
            forget_cached()?;
            let pages = (total / PAGE) as u64;
            let offsets: Vec<u64> = (0..reads).map(|_| number() % pages * PAGE as u64).collect();
            let mut rooms = aligned(reads * PAGE);
            let start = Instant::now();
            way.read_pages(&mut rooms, &offsets, depth)?;
            told(&format!("random {depth}"), "1/s", reads as f64 / start.elapsed().as_secs_f64());
        }
    }
    way.close()?;
    println!("{}", serde_json::json!({ "metrics": metrics }));
    Ok(())
}
