//! What the device writes for a byte the user writes: `amplification [MIB] [PERCENT...]`, as Rosenblum and Ousterhout (1991, section 3)
//! asked it of their cleaner, but with everything a real pool writes: content, cleaning, tree, journal, summaries.
//!
//! One device in memory, one file that fills so many percent of what `df` tells that files may have (and once of all slots there are), overwritten block by block of 4 KiB: all blocks alike
//! (uniform), or 80 % of the writes on 20 % of the blocks. Both cleaner policies. "fresh" is the first tenth of the device's
//! size in overwrites after the fill, "aged" is one size after two sizes. Nothing is random but by a fixed seed and nothing
//! depends on time, so the figures are the same on every machine. One line of JSON each. `cargo xtask bench amplification` runs it.
//!
//! Where the aged bytes go is told apart by looking at what is written: `new` is content that comes for the first time, `moved` content that the
//! cleaner moves (its blob was written before), `nodes` the tree and checkpoint records, `rows` what rows need beside their records
//! (headers, summaries, their ends), `journal`, and `other` (superblocks, headers of chunks).

use std::sync::{Arc, Mutex};

use stere_device::{Device, DeviceError, MemoryDevice, Piece, Ticket};
use stere_format::{
    DeviceEntry, DeviceId, DeviceLayout, PoolId, RecordSubject, RowHeader, Scheme, Summary, Superblock,
};
use stere_naming::{Caller, FileSystem, Io, OpenFlags, Options, ROOT, Timestamp};
use stere_store::{CleanerPolicy, DeviceIn, Statistics, Store, StoreOptions};

const BLOCK_BYTES: u64 = 4096;
/// Between two syncs: 4 MiB.
const WRITES_PER_SYNC: u64 = 1024;
const FILL_BYTES: usize = 128 << 10;
const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
const SINGLE: Scheme = Scheme { data: 1, parity: 0 };

#[derive(Clone, Copy)]
enum Pattern {
    Uniform,
    /// 80 % of the writes on a fifth of the blocks.
    Skewed,
}

/// What a percentage is of.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    /// What `df` tells that files may have, in a pool that is empty.
    Promised,
    /// Everything that segments can take.
    Slots,
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Bytes written, by what they are.
#[derive(Clone, Copy, Default)]
struct Bytes {
    new: u64,
    moved: u64,
    nodes: u64,
    rows: u64,
    journal: u64,
    other: u64,
}

/// Has a look at everything that is written to a device in memory.
struct Watched {
    memory: MemoryDevice,
    layout: DeviceLayout,
    bytes: Mutex<Bytes>,
    /// A bit for each blob that was written.
    known: Mutex<Vec<u64>>,
}

impl Watched {
    /// Whether this blob was written before; it is from now on.
    fn is_known(&self, blob: u64) -> bool {
        let mut known = self.known.lock().expect("nobody panics with it");
        let (word, bit) = ((blob / 64) as usize, 1 << (blob % 64));
        if known.len() <= word {
            known.resize(word + (1 << 16), 0);
        }
        let is_known = known[word] & bit != 0;
        known[word] |= bit;
        is_known
    }

    fn look(&self, offset: u64, written: &[u8]) {
        let mut found = Bytes::default();
        let length = written.len() as u64;
        let layout = &self.layout;
        let journal = layout.journal_offset..layout.journal_offset + layout.journal_bytes;
        let row = written.get(..RowHeader::SIZE).and_then(|header| RowHeader::decode(header).ok());
        if journal.contains(&offset) {
            found.journal = length;
        } else if let Some(header) = row {
            let summary = header.summary_offset as usize..(header.summary_offset + header.summary_length) as usize;
            let entries = Summary::decode(&header, &written[summary]).expect("a row is written whole");
            for entry in entries {
                let place = match entry.subject {
                    RecordSubject::Blob { blob, .. } if self.is_known(blob) => &mut found.moved,
                    RecordSubject::Blob { .. } => &mut found.new,
                    RecordSubject::Node { .. } | RecordSubject::Checkpoint { .. } => &mut found.nodes,
                };
                *place += u64::from(entry.length);
            }
            found.rows = length - found.new - found.moved - found.nodes;
        } else {
            found.other = length;
        }
        let mut bytes = self.bytes.lock().expect("nobody panics with it");
        bytes.new += found.new;
        bytes.moved += found.moved;
        bytes.nodes += found.nodes;
        bytes.rows += found.rows;
        bytes.journal += found.journal;
        bytes.other += found.other;
    }
}

impl Device for Watched {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.memory.block_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.read(offset, buffer)
    }

    fn submit_write_gathered(&self, offset: u64, pieces: Vec<Piece>, ticket: Ticket) {
        let written: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes()).copied().collect();
        self.look(offset, &written);
        self.memory.submit_write_gathered(offset, pieces, ticket);
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.memory.discard(offset, length)
    }

    fn describe(&self) -> String {
        self.memory.describe()
    }
}

struct Pool {
    device: Arc<Watched>,
    fs: FileSystem,
    inode: u64,
    blocks: u64,
    random: Random,
    /// What the file takes of all slots.
    slots_percent: u64,
}

fn caller() -> Caller<'static> {
    let now = Timestamp { seconds: 1, nanoseconds: 0 };
    Caller { uid: 0, gid: 0, groups: &[], umask: 0o022, now, io: Io::BLOCKING, process: 0, request: None }
}

impl Pool {
    /// A pool with one file of so many percent; none where the pool does not promise so much to files.
    fn filled(size_bytes: u64, of: Of, percent: u64, cleaner: CleanerPolicy) -> Option<Pool> {
        // As a pool is made with on a device of this size.
        let chunk_bytes = if size_bytes > 4 << 30 { 4 << 20 } else { 1 << 20 };
        let layout = DeviceLayout::for_size(size_bytes, chunk_bytes).expect("the size is possible");
        let memory = MemoryDevice::new(size_bytes);
        let device = Arc::new(Watched { memory, layout, bytes: Mutex::default(), known: Mutex::default() });
        let superblock = Superblock {
            journal_devices: vec![0],
            pool_name: "amplification".into(),
            ..Superblock::first(PoolId([9; 16]), DeviceId([1; 16]), 0, layout)
        };
        let entry = DeviceEntry::of(&superblock, "memory".into());
        let given = DeviceIn { index: 0, superblock, device: device.clone(), read_cost: 1 };
        let options = StoreOptions { cleaner, memory_bytes: 512 << 20, hash_key: [7; 16], ..StoreOptions::default() };
        let store = Store::create(vec![given], vec![entry], options).expect("a pool");
        FileSystem::format(&store, caller().now).expect("a root");
        let Statistics { total_bytes: promised_bytes, raw_bytes, .. } = store.space().statistics(SINGLE);
        let fs = FileSystem::new(Arc::new(store), Options::default()).expect("a file system");
        let (made, handle) = fs.create(&caller(), ROOT, b"file", 0o644, FLAGS).expect("a file");
        let whole_bytes = if of == Of::Promised { promised_bytes } else { raw_bytes };
        let bytes = whole_bytes / 100 * percent / FILL_BYTES as u64 * FILL_BYTES as u64;
        let slots_percent = bytes * 100 / raw_bytes;
        let mut pool =
            Pool { device, fs, inode: made.inode, blocks: bytes / BLOCK_BYTES, random: Random(1), slots_percent };
        let piece = vec![7; FILL_BYTES];
        for offset in (0..bytes).step_by(FILL_BYTES) {
            if pool.fs.write(&caller(), pool.inode, offset, &piece, false).is_err() {
                eprintln!("{percent} % cannot be filled: {offset} bytes fit into a device of {size_bytes} bytes");
                return None;
            }
        }
        pool.fs.release(&caller(), made.inode, handle).expect("a release");
        pool.sync();
        Some(pool)
    }

    fn sync(&mut self) {
        self.fs.syncfs(&caller()).expect("a sync");
        while self.fs.store().step(false).expect("a step") {}
    }

    /// Device bytes for each user byte, over so many overwrites.
    fn overwrite(&mut self, pattern: Pattern, writes: u64) -> f64 {
        let before = self.device.memory.counters().written_bytes;
        let mut block_bytes = vec![0; BLOCK_BYTES as usize];
        for write in 0..writes {
            let hot = (self.blocks / 5).max(1);
            let block = match pattern {
                Pattern::Uniform => self.random.below(self.blocks),
                Pattern::Skewed if self.random.below(100) < 80 => self.random.below(hot),
                Pattern::Skewed => hot + self.random.below(self.blocks - hot),
            };
            block_bytes[..8].copy_from_slice(&write.to_le_bytes());
            self.fs.write(&caller(), self.inode, block * BLOCK_BYTES, &block_bytes, false).expect("room to overwrite");
            if (write + 1) % WRITES_PER_SYNC == 0 {
                self.sync();
            }
        }
        self.sync();
        (self.device.memory.counters().written_bytes - before) as f64 / (writes * BLOCK_BYTES) as f64
    }
}

/// One pool, filled and overwritten; prints what came of it.
fn measure(size_bytes: u64, of: Of, percent: u64, cleaner: CleanerPolicy, pattern: Pattern) {
    let Some(mut pool) = Pool::filled(size_bytes, of, percent, cleaner) else { return };
    let size_writes = size_bytes / BLOCK_BYTES;
    let fresh = pool.overwrite(pattern, size_writes / 10);
    pool.overwrite(pattern, size_writes * 2);
    *pool.device.bytes.lock().expect("nobody panics with it") = Bytes::default();
    let aged = pool.overwrite(pattern, size_writes);
    let bytes = *pool.device.bytes.lock().expect("nobody panics with it");
    let of_user = |bytes: u64| bytes as f64 / (size_writes * BLOCK_BYTES) as f64;
    let parts = [
        ("new", bytes.new),
        ("moved", bytes.moved),
        ("nodes", bytes.nodes),
        ("rows", bytes.rows),
        ("journal", bytes.journal),
        ("other", bytes.other),
    ];
    let parts: Vec<String> = parts.iter().map(|(name, bytes)| format!("\"{name}\": {:.3}", of_user(*bytes))).collect();
    let parts = parts.join(", ");
    let of = if of == Of::Promised { "df" } else { "slots" };
    let cleaner = cleaner.word();
    let pattern = if matches!(pattern, Pattern::Uniform) { "uniform" } else { "80/20" };
    let slots_percent = pool.slots_percent;
    println!(
        "{{\"cleaner\": \"{cleaner}\", \"pattern\": \"{pattern}\", \"of\": \"{of}\", \"percent\": {percent}, \
         \"slots_percent\": {slots_percent}, \"fresh\": {fresh:.3}, \"aged\": {aged:.3}, \"aged_parts\": {{{parts}}}}}"
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("numbers: MIB PERCENT..."));
    let size_bytes = arguments.next().unwrap_or(1024) << 20;
    let percents: Vec<u64> = arguments.collect();
    let percents = if percents.is_empty() { vec![50, 80, 90] } else { percents };
    for cleaner in [CleanerPolicy::CostBenefit, CleanerPolicy::Greedy, CleanerPolicy::Age] {
        for pattern in [Pattern::Uniform, Pattern::Skewed] {
            for percent in &percents {
                measure(size_bytes, Of::Promised, *percent, cleaner, pattern);
            }
        }
    }
    measure(size_bytes, Of::Slots, 80, CleanerPolicy::CostBenefit, Pattern::Uniform);
}
