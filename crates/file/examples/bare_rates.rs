//! What compression and encryption reach without a file system, by so many threads at once: records of 128 KiB of a file.
//!
//!     bare_rates CONTENT [THREADS] [COMPRESSION] [FOLDER]
//!
//! Prints what was done, megabytes of content a second, and processor seconds per GiB: `encode`, `decode`, `seal`, `open` in memory, again and
//! again; with FOLDER also `store-encode`, `fetch-decode`, `store-seal`, `fetch-open`: each thread puts what it makes of its share into a plain
//! file there, durable, and takes it out again with nothing cached, as a program would that has the library and a file system that knows of
//! nothing. `bench/attest.sh` uses it.
#![allow(clippy::unwrap_used, reason = "an example")]

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use stere_crypt::{DataKey, Place, open_record, seal_record};
use stere_format::BlobEncoding;
use stere_plugin::{Encoded, decode, encode};
use stere_policy::Compression;
use zeroize::Zeroizing;

const RECORD: usize = 128 << 10;
const AT_LEAST: Duration = Duration::from_secs(2);
/// In memory: more than the processor's caches have.
const RECORDS_IN_MEMORY: usize = 512;

/// Seconds of processors that this thread has taken.
fn processor_seconds() -> f64 {
    let taken = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    taken.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// What some threads did: bytes, and seconds of processors.
struct Done {
    bytes: usize,
    seconds: f64,
    processors: f64,
}

fn tell(name: &str, done: &[Done]) {
    let rate: f64 = done.iter().map(|one| one.bytes as f64 / one.seconds / 1e6).sum();
    let bytes: usize = done.iter().map(|one| one.bytes).sum();
    let processors: f64 = done.iter().map(|one| one.processors).sum();
    println!("{name} {rate:.1} {:.3}", processors / (bytes as f64 / f64::from(1 << 30)));
}

/// Lets threads work at the same time; each says how many bytes of content it did.
fn together(threads: usize, work: impl Fn(usize) -> usize + Sync) -> Vec<Done> {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let run = |thread: usize| {
            let (barrier, work) = (&barrier, &work);
            move || {
                barrier.wait();
                let (begun, before) = (Instant::now(), processor_seconds());
                let bytes = work(thread);
                Done { bytes, seconds: begun.elapsed().as_secs_f64(), processors: processor_seconds() - before }
            }
        };
        let started: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Lets threads do their records again and again.
fn again(name: &str, threads: usize, records: &[&[u8]], work: impl Fn(usize, &[u8]) + Sync) {
    let done = together(threads, |thread| {
        let (begun, mut bytes) = (Instant::now(), 0);
        while begun.elapsed() < AT_LEAST {
            for (number, record) in records.iter().enumerate().skip(thread).step_by(threads) {
                work(number, record);
                bytes += RECORD;
            }
        }
        bytes
    });
    tell(name, &done);
}

fn key() -> DataKey {
    DataKey::new(1, Zeroizing::new([7; 32]))
}

fn place(number: usize) -> Place {
    Place { inode: 7, offset: (number * RECORD) as u64, logical_bytes: RECORD as u32, encoding: 0 }
}

fn seal(key: &DataKey, number: usize, record: &[u8]) -> Vec<u8> {
    let (mut stored, mut nonce) = (Vec::new(), [0; 24]);
    nonce[..8].copy_from_slice(&(number as u64).to_le_bytes());
    seal_record(key, &nonce, &place(number), record, &mut stored);
    stored
}

fn in_memory(threads: usize, compression: Compression, records: &[&[u8]]) {
    again("encode", threads, records, |_, record| drop(encode(compression, record)));
    let encoded: Vec<Encoded> = records.iter().map(|record| encode(compression, record)).collect();
    again("decode", threads, records, |number, _| {
        if let Encoded::Stored { encoding, bytes } = &encoded[number] {
            let mut out = vec![0; RECORD];
            decode(*encoding, bytes, &mut out).unwrap();
        }
    });
    let key = key();
    again("seal", threads, records, |number, record| drop(seal(&key, number, record)));
    let sealed: Vec<Vec<u8>> = records.iter().enumerate().map(|(number, record)| seal(&key, number, record)).collect();
    again("open", threads, records, |number, _| {
        let mut stored = sealed[number].clone();
        open_record(&key, &place(number), &mut stored).unwrap();
    });
}

/// Each thread's share of the records, made something of, in a file: how long it is, its encoding, and itself.
fn in_files(
    (store, fetch): (&str, &str),
    threads: usize,
    records: &[&[u8]],
    folder: &Path,
    make: impl Fn(usize, &[u8]) -> (BlobEncoding, Vec<u8>) + Sync,
    undo: impl Fn(usize, BlobEncoding, &mut [u8], &mut [u8]) + Sync,
) {
    let share = records.len().div_ceil(threads);
    let of = |thread: usize| records.iter().enumerate().skip(thread * share).take(share);
    let path = |thread: usize| folder.join(format!("bare-{thread}"));
    let stored = together(threads, |thread| {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path(thread)).unwrap());
        for (number, record) in of(thread) {
            let (encoding, bytes) = make(number, record);
            file.write_all(&(bytes.len() as u32).to_le_bytes()).unwrap();
            file.write_all(&[encoding.0]).unwrap();
            file.write_all(&bytes).unwrap();
        }
        file.into_inner().unwrap().sync_all().unwrap();
        of(thread).count() * RECORD
    });
    tell(store, &stored);
    std::fs::write("/proc/sys/vm/drop_caches", "3\n").unwrap();
    let fetched = together(threads, |thread| {
        let mut file = BufReader::with_capacity(1 << 20, File::open(path(thread)).unwrap());
        let (mut bytes, mut out) = (vec![0; 2 * RECORD], vec![0; RECORD]);
        for (number, record) in of(thread) {
            let mut head = [0; 5];
            file.read_exact(&mut head).unwrap();
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            file.read_exact(&mut bytes[..length]).unwrap();
            undo(number, BlobEncoding(head[4]), &mut bytes[..length], &mut out);
            assert!(out.iter().step_by(4099).eq(record.iter().step_by(4099)), "record {number} came back changed");
        }
        of(thread).count() * RECORD
    });
    tell(fetch, &fetched);
    (0..threads).for_each(|thread| std::fs::remove_file(path(thread)).unwrap());
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, file, rest @ ..] = &words[..] else { panic!("bare_rates CONTENT [THREADS] [COMPRESSION] [FOLDER]") };
    let threads = rest.first().map_or(2, |text| text.parse().unwrap());
    let compression = Compression::from_text(rest.get(1).map_or("zstd", String::as_str)).unwrap();
    let content = std::fs::read(file).unwrap();
    let records: Vec<&[u8]> = content.chunks_exact(RECORD).collect();
    assert!(records.len() >= threads, "the file is too short");
    in_memory(threads, compression, &records[..records.len().min(RECORDS_IN_MEMORY)]);
    let Some(folder) = rest.get(2).map(Path::new) else { return };
    let compressed = |_: usize, record: &[u8]| match encode(compression, record) {
        Encoded::Stored { encoding, bytes } => (encoding, bytes),
        Encoded::Plain { .. } => (BlobEncoding::PLAIN, record.to_vec()),
    };
    let decoded = |_: usize, encoding: BlobEncoding, bytes: &mut [u8], out: &mut [u8]| {
        decode(encoding, bytes, out).unwrap();
    };
    in_files(("store-encode", "fetch-decode"), threads, &records, folder, compressed, decoded);
    let key = key();
    let sealed = |number: usize, record: &[u8]| (BlobEncoding::PLAIN, seal(&key, number, record));
    let opened = |number: usize, _: BlobEncoding, bytes: &mut [u8], out: &mut [u8]| {
        out.copy_from_slice(open_record(&key, &place(number), bytes).unwrap());
    };
    in_files(("store-seal", "fetch-open"), threads, &records, folder, sealed, opened);
}
