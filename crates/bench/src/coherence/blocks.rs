//! Files that are written over in place, and cut: each block says which write it is of. Read next: `order.rs`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::block::Buffer;
use super::{BLOCK, Content, Floor, Place, Plant, Random, Shared, Stamp, at};

/// Blocks of each file. The last one is large enough for reads that come from the nodes of a pool.
const LENGTHS: [usize; 4] = [16, 128, 128, 2048];
/// The file that is cut, too; the others keep their length. Linux's FUSE takes no size from an answer that was on its way when somebody
/// changed the file, so where the file ends is known later than what is in it.
const CUT: usize = 2;
/// Files that are seldom looked at, so that one machine writes them alone for a while, block by block; each of so many blocks.
const LONE_FILES: usize = 24;
const LONE_BLOCKS: usize = 64;
/// One read of so many is of such a file, if one was written for a while.
const LONE_READ_EVERY: u64 = 16;
const LONE_WRITES_MIN: usize = 10;
/// A megabyte.
const BLOCKS_OF_A_CALL: usize = 256;
const CALLS_OF_AN_OPEN: u64 = 6;

struct Blocks1 {
    places: Vec<Place>,
    /// For each mount: a kernel copies into its pages while others copy out of them, so that a block may be torn that two programs read and
    /// write through one page cache at the same time. That is Linux's, whatever the file system.
    pages: Vec<Arc<RwLock<()>>>,
}

pub struct Blocks {
    files: Vec<Blocks1>,
    /// The lone file that each machine has written for a while.
    lone: Vec<AtomicUsize>,
}

/// Directories that are the same have the same pages.
fn locks_of_pages(directories: &[PathBuf]) -> Vec<Arc<RwLock<()>>> {
    let mut locks: Vec<Arc<RwLock<()>>> = Vec::with_capacity(directories.len());
    for (index, directory) in directories.iter().enumerate() {
        let same = directories[..index].iter().position(|other| other == directory);
        locks.push(same.map_or_else(Arc::default, |same| Arc::clone(&locks[same])));
    }
    locks
}

fn length(file: usize) -> usize {
    LENGTHS.get(file).copied().unwrap_or(LONE_BLOCKS)
}

fn name(file: usize) -> String {
    format!("blocks-{file}")
}

/// A place to read or write: which file, where, how much.
#[derive(Clone, Copy)]
struct Stretch {
    file: usize,
    first: usize,
    blocks: usize,
}

impl Stretch {
    fn any(random: &mut Random, file: usize) -> Stretch {
        let length = length(file);
        if file >= LENGTHS.len() {
            return Stretch { file, first: 0, blocks: length };
        }
        let blocks = match random.below(3) {
            0 => 1,
            // From 64 KiB on.
            1 => 16 + random.below(BLOCKS_OF_A_CALL as u64 - 15) as usize,
            _ => 1 + random.below(16) as usize,
        };
        let blocks = blocks.min(length);
        let first = random.below((length - blocks) as u64 + 1) as usize;
        assert!(first + blocks <= length, "{blocks} blocks from {first} are in a file of {length}");
        Stretch { file, first, blocks }
    }

    fn offset(&self) -> u64 {
        (self.first * BLOCK) as u64
    }
}

/// A file that a reader keeps open.
struct Held {
    file: usize,
    is_direct: bool,
    open: File,
}

impl Blocks {
    pub fn make(shared: &Shared) -> Result<Blocks, String> {
        let one = |file: usize| {
            let (blocks, path) = (length(file), shared.path(0, &name(file)));
            let made = at("create", &path, File::create_new(&path))?;
            if file != CUT {
                at("lengthen", &path, made.set_len((blocks * BLOCK) as u64))?;
            }
            let places = (0..blocks).map(|_| Place::default()).collect();
            Ok(Blocks1 { places, pages: locks_of_pages(shared.directories) })
        };
        let files = (0..LENGTHS.len() + LONE_FILES).map(one).collect::<Result<_, String>>()?;
        Ok(Blocks { files, lone: shared.directories.iter().map(|_| AtomicUsize::new(0)).collect() })
    }

    fn open(
        shared: &Shared,
        machine: usize,
        file: usize,
        is_direct: bool,
        writes: bool,
    ) -> Result<(PathBuf, File), String> {
        let path = shared.path(machine, &name(file));
        let mut options = OpenOptions::new();
        options.read(!writes).write(writes).custom_flags(if is_direct { libc::O_DIRECT } else { 0 });
        let open = at("open", &path, options.open(&path))?;
        shared.count(&shared.counts.opens, 1);
        Ok((path, open))
    }

    pub fn write(&self, shared: &Shared, machine: usize, mut random: Random) {
        let mut buffer = Buffer::new(BLOCKS_OF_A_CALL * BLOCK);
        shared.repeat(|| {
            let (file, is_direct) = (random.below(LENGTHS.len() as u64) as usize, random.below(2) == 0);
            let (path, open) = Blocks::open(shared, machine, file, is_direct, true)?;
            for _ in 0..1 + random.below(CALLS_OF_AN_OPEN) {
                let stretch = Stretch::any(&mut random, file);
                if file == CUT && random.below(8) == 0 {
                    at("cut", &path, self.cut(shared, &open, stretch))?;
                } else {
                    let written = self.write_one(shared, stretch, (machine, is_direct), &open, &mut buffer);
                    at("write", &path, written)?;
                }
            }
            if random.below(20) == 0 {
                at("fsync", &path, open.sync_all())?;
            }
            Ok(())
        });
    }

    /// Has a file open for a while and writes a block now and then.
    pub fn write_lone(&self, shared: &Shared, machine: usize, mut random: Random) {
        let mut buffer = Buffer::new(BLOCK);
        shared.repeat(|| {
            let file = LENGTHS.len() + random.below(LONE_FILES as u64) as usize;
            let (path, open) = Blocks::open(shared, machine, file, false, true)?;
            let first = random.below(LONE_BLOCKS as u64 / 2) as usize;
            for block in first..first + LONE_BLOCKS / 2 {
                let stretch = Stretch { file, first: block, blocks: 1 };
                at("write", &path, self.write_one(shared, stretch, (machine, false), &open, &mut buffer))?;
                if block == first + LONE_WRITES_MIN {
                    self.lone[machine].store(file, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(random.below(10)));
            }
            self.lone[machine].store(0, Ordering::Relaxed);
            Ok(())
        });
    }

    fn write_one(
        &self,
        shared: &Shared,
        stretch: Stretch,
        (machine, is_direct): (usize, bool),
        open: &File,
        buffer: &mut Buffer,
    ) -> std::io::Result<()> {
        let Some(number) = shared.clock.number() else {
            shared.is_over.store(true, Ordering::Relaxed);
            return Ok(());
        };
        let bytes = buffer.bytes(stretch.blocks * BLOCK);
        for (index, block) in bytes.chunks_exact_mut(BLOCK).enumerate() {
            let index = (stretch.first + index) as u64;
            Stamp { file: stretch.file as u64, index, write: number, writer: machine as u64 }.fill(block);
        }
        let mut offset = stretch.offset();
        if shared.is_planted(Plant::Torn, number) {
            bytes[BLOCK / 2..BLOCK].fill(0);
        } else if shared.is_planted(Plant::Misplaced, number) {
            offset = if offset == 0 { BLOCK as u64 } else { 0 };
        }
        let file = &self.files[stretch.file];
        let pages = (!is_direct).then(|| file.pages[machine].write().unwrap_or_else(PoisonError::into_inner));
        shared.clock.begin(number);
        if !shared.is_planted(Plant::Lost, number) {
            open.write_all_at(bytes, offset)?;
        }
        shared.clock.end(number);
        drop(pages);
        file.places[stretch.first..][..stretch.blocks].iter().for_each(|place| place.written(&shared.clock, number));
        shared.count(&shared.counts.writes, 1);
        Ok(())
    }

    /// Makes the file end before the stretch.
    fn cut(&self, shared: &Shared, open: &File, stretch: Stretch) -> std::io::Result<()> {
        let Some(number) = shared.clock.number() else { return Ok(()) };
        let places = &self.files[stretch.file].places[stretch.first..];
        places.iter().for_each(Place::cut_begins);
        shared.clock.begin(number);
        open.set_len(stretch.offset())?;
        shared.clock.end(number);
        places.iter().for_each(|place| place.cut_ended(&shared.clock, number));
        shared.count(&shared.counts.writes, 1);
        Ok(())
    }

    pub fn read(&self, shared: &Shared, machine: usize, mut random: Random) {
        let mut buffer = Buffer::new(BLOCKS_OF_A_CALL * BLOCK);
        let mut held: Option<Held> = None;
        shared.repeat(|| {
            if random.below(2) == 0 {
                let file = self.file_to_read(&mut random);
                let is_direct = random.below(2) == 0;
                return self.read_newly_opened(shared, machine, (file, is_direct), &mut random, &mut buffer);
            }
            if random.below(64) == 0 {
                held = None;
            }
            let held = match &mut held {
                Some(held) => held,
                none => none.insert(self.hold(shared, machine, &mut random)?),
            };
            self.read_held(shared, machine, held, Stretch::any(&mut random, held.file), &mut buffer)
        });
    }

    fn file_to_read(&self, random: &mut Random) -> usize {
        let lone = self.lone[random.below(self.lone.len() as u64) as usize].load(Ordering::Relaxed);
        match random.below(LONE_READ_EVERY) {
            0 if lone != 0 => lone,
            _ => random.below(LENGTHS.len() as u64) as usize,
        }
    }

    fn hold(&self, shared: &Shared, machine: usize, random: &mut Random) -> Result<Held, String> {
        let (file, is_direct) = (random.below(LENGTHS.len() as u64) as usize, random.below(2) == 0);
        let file = if file == CUT { 0 } else { file };
        Ok(Held { file, is_direct, open: Blocks::open(shared, machine, file, is_direct, false)?.1 })
    }

    fn floors(&self, stretch: Stretch) -> Vec<Floor> {
        self.files[stretch.file].places[stretch.first..][..stretch.blocks].iter().map(Place::floor).collect()
    }

    /// What is open from now on shows what has returned by now.
    fn read_newly_opened(
        &self,
        shared: &Shared,
        machine: usize,
        (file, is_direct): (usize, bool),
        random: &mut Random,
        buffer: &mut Buffer,
    ) -> Result<(), String> {
        let stretches: Vec<Stretch> =
            (0..1 + random.below(CALLS_OF_AN_OPEN)).map(|_| Stretch::any(random, file)).collect();
        let floors: Vec<Vec<Floor>> = stretches.iter().map(|stretch| self.floors(*stretch)).collect();
        let (_, mut open) = Blocks::open(shared, machine, file, is_direct, false)?;
        for (stretch, floors) in stretches.into_iter().zip(&floors) {
            let begun = Instant::now();
            while !self.read_and_judge(shared, (machine, is_direct), &open, stretch, floors, buffer)? {
                wait_a_little(shared, (&shared.counts.old_ends, &shared.counts.old_ends_us_max), begun)
                    .map_err(|waited| format!("machine {machine} takes {} for shorter since {waited:?}", name(file)))?;
                open = Blocks::open(shared, machine, file, is_direct, false)?.1;
            }
        }
        Ok(())
    }

    /// Fills the buffer; what is there, and how many blocks are before the end.
    fn read_blocks(
        &self,
        shared: &Shared,
        (machine, is_direct): (usize, bool),
        open: &File,
        stretch: Stretch,
        buffer: &mut Buffer,
    ) -> Result<(Vec<Content>, usize), String> {
        let bytes = buffer.bytes(stretch.blocks * BLOCK);
        let pages = &self.files[stretch.file].pages[machine];
        let pages = (!is_direct).then(|| pages.read().unwrap_or_else(PoisonError::into_inner));
        let read = open.read_at(bytes, stretch.offset());
        drop(pages);
        let read = at("read", &shared.path(machine, &name(stretch.file)), read)?;
        shared.count(&shared.counts.reads, 1);
        if read % BLOCK != 0 {
            return Err(format!("machine {machine}: {} ends {read} bytes behind a block", name(stretch.file)));
        }
        // Behind the end nothing is.
        bytes[read..].fill(0);
        Ok((bytes.chunks_exact(BLOCK).map(Content::of).collect(), read / BLOCK))
    }

    /// Whether the file was known to be long enough; what is before its end has to be right.
    fn read_and_judge(
        &self,
        shared: &Shared,
        (machine, is_direct): (usize, bool),
        open: &File,
        stretch: Stretch,
        floors: &[Floor],
        buffer: &mut Buffer,
    ) -> Result<bool, String> {
        let (contents, before_end) = self.read_blocks(shared, (machine, is_direct), open, stretch, buffer)?;
        if before_end < stretch.blocks && stretch.file != CUT {
            return Err(format!("machine {machine}: {} ends at block {before_end}", name(stretch.file)));
        }
        for (index, (content, floor)) in contents.into_iter().zip(floors).enumerate() {
            let is_behind_end = index >= before_end;
            let index = stretch.first + index;
            let place = &self.files[stretch.file].places[index];
            if is_behind_end && !place.may_be_empty(*floor) {
                return Ok(false);
            }
            shared.judge(place, (stretch.file as u64, index as u64), content, *floor).map_err(|what| {
                let how = if is_direct { "past the page cache" } else { "opened after that" };
                format!("machine {machine} reads {}, block {index}, {how}: {what}", name(stretch.file))
            })?;
        }
        Ok(true)
    }

    /// Reads what was opened before: past the page cache, or until what was written is shown.
    fn read_held(
        &self,
        shared: &Shared,
        machine: usize,
        held: &Held,
        stretch: Stretch,
        buffer: &mut Buffer,
    ) -> Result<(), String> {
        let (how, floors) = ((machine, held.is_direct), self.floors(stretch));
        if held.is_direct {
            return self.read_and_judge(shared, how, &held.open, stretch, &floors, buffer).map(drop);
        }
        let begun = Instant::now();
        loop {
            let (contents, _) = self.read_blocks(shared, how, &held.open, stretch, buffer)?;
            shared.count(&shared.counts.blocks, contents.len() as u64);
            let mut is_fresh = true;
            for (index, (content, floor)) in contents.into_iter().zip(&floors).enumerate() {
                let index = stretch.first + index;
                let place = &self.files[stretch.file].places[index];
                is_fresh &= match content {
                    Content::Empty => place.may_be_empty(*floor),
                    Content::Stamped(stamp) if (stamp.file, stamp.index) == (stretch.file as u64, index as u64) => {
                        place.is_fresh(&shared.clock, stamp.write, *floor)
                    }
                    wrong => {
                        return Err(format!(
                            "machine {machine} reads {}, block {index}: {wrong:?}",
                            name(stretch.file)
                        ));
                    }
                };
            }
            if is_fresh {
                return Ok(());
            }
            wait_a_little(shared, (&shared.counts.stale, &shared.counts.stale_us_max), begun).map_err(|waited| {
                let file = name(stretch.file);
                format!("machine {machine} has {file} open and was not shown for {waited:?} what was written")
            })?;
        }
    }
}

/// Counts something that is late and need not be there at once; how late it is where that is too much.
fn wait_a_little(shared: &Shared, (count, most): (&AtomicU64, &AtomicU64), begun: Instant) -> Result<(), Duration> {
    let waited = begun.elapsed();
    count.fetch_add(1, Ordering::Relaxed);
    most.fetch_max(waited.as_micros() as u64, Ordering::Relaxed);
    if waited > shared.plan.held_max {
        return Err(waited);
    }
    std::thread::sleep(Duration::from_millis(1));
    Ok(())
}
