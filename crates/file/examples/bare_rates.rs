//! What compression and encryption reach without a file system: records of 128 KiB of a file, in memory, by so many threads.
//!     bare_rates FILE [THREADS] [COMPRESSION]
//! Prints megabytes of content a second: `encode RATE`, `decode RATE`, `seal RATE`, `open RATE`. `bench/attest.sh` uses it.
#![allow(clippy::unwrap_used, reason = "an example")]

use std::sync::Barrier;
use std::time::{Duration, Instant};

use stere_crypt::{DataKey, Place, open_record, seal_record};
use stere_plugin::{Encoded, decode, encode};
use stere_policy::Compression;
use zeroize::Zeroizing;

const RECORD: usize = 128 << 10;
const AT_LEAST: Duration = Duration::from_secs(2);

/// Lets threads do their records again and again; the rate of all of them.
fn rate(threads: usize, records: &[Vec<u8>], work: impl Fn(usize, &[u8]) + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let rates = std::thread::scope(|scope| {
        let run = |thread: usize| {
            let (barrier, work) = (&barrier, &work);
            move || {
                barrier.wait();
                let (begun, mut bytes) = (Instant::now(), 0);
                while begun.elapsed() < AT_LEAST {
                    for (number, record) in records.iter().enumerate().skip(thread).step_by(threads) {
                        work(number, record);
                        bytes += RECORD;
                    }
                }
                bytes as f64 / begun.elapsed().as_secs_f64() / 1e6
            }
        };
        let started: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<f64>>()
    });
    rates.iter().sum()
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, file, rest @ ..] = &words[..] else { panic!("bare_rates FILE [THREADS] [COMPRESSION]") };
    let threads = rest.first().map_or(2, |text| text.parse().unwrap());
    let compression = Compression::from_text(rest.get(1).map_or("zstd", String::as_str)).unwrap();
    let content = std::fs::read(file).unwrap();
    let records: Vec<Vec<u8>> = content.chunks_exact(RECORD).take(512).map(<[u8]>::to_vec).collect();
    assert!(records.len() >= threads, "the file is too short");
    println!("encode {:.0}", rate(threads, &records, |_, record| drop(encode(compression, record))));
    let encoded: Vec<Encoded> = records.iter().map(|record| encode(compression, record)).collect();
    let decoded = |number: usize, _: &[u8]| {
        if let Encoded::Stored { encoding, bytes } = &encoded[number] {
            let mut out = vec![0; RECORD];
            decode(*encoding, bytes, &mut out).unwrap();
        }
    };
    println!("decode {:.0}", rate(threads, &records, decoded));
    let key = DataKey::new(1, Zeroizing::new([7; 32]));
    let place =
        |number: usize| Place { inode: 7, offset: (number * RECORD) as u64, logical_bytes: RECORD as u32, encoding: 0 };
    let seal = |number: usize, record: &[u8]| {
        let mut stored = Vec::new();
        seal_record(&key, &[number as u8; 24], &place(number), record, &mut stored);
        stored
    };
    println!("seal {:.0}", rate(threads, &records, |number, record| drop(seal(number, record))));
    let sealed: Vec<Vec<u8>> = records.iter().enumerate().map(|(number, record)| seal(number, record)).collect();
    let open = |number: usize, _: &[u8]| {
        let mut stored = sealed[number].clone();
        open_record(&key, &place(number), &mut stored).unwrap();
    };
    println!("open {:.0}", rate(threads, &records, open));
}
