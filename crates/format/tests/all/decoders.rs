//! Decoders against hostile bytes: golden images cut at every length and with every byte changed, the corpus, and
//! mutations of both. The mutations are the same in every run; `STERE_FUZZ_ROUNDS=N` makes them more (default 20000
//! for each target), `STERE_FUZZ_KEEP=1` keeps the first input of every new answer in the corpus.

use crate::samples;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use stere_format::journal::change_bytes;
use stere_format::{DecodeError, JournalChanges, fuzz};

fn corpus_of(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// Runs a target; a panic of the decoder is reported with the input.
fn run(name: &str, target: fuzz::Target, bytes: &[u8]) -> Result<(), DecodeError> {
    catch_unwind(AssertUnwindSafe(|| target(bytes)))
        .unwrap_or_else(|_| panic!("target {name} panics on {} bytes: {bytes:02x?}", bytes.len()))
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let of_target = samples::samples().into_iter().filter(|(_, target, _)| *target == name);
    let mut seeds: Vec<Vec<u8>> = of_target.map(|(_, _, bytes)| bytes).collect();
    assert!(!seeds.is_empty(), "target {name} has no sample");
    let Ok(corpus) = std::fs::read_dir(corpus_of(name)) else { return seeds };
    let mut paths: Vec<PathBuf> = corpus.map(|entry| entry.expect("a directory entry").path()).collect();
    paths.sort();
    seeds.extend(paths.iter().map(|path| std::fs::read(path).expect("a corpus file")));
    seeds
}

#[test]
fn the_corpus_is_decoded_or_refused() {
    for (name, target) in fuzz::TARGETS {
        for bytes in seeds(name) {
            let _ = run(name, *target, &bytes);
        }
    }
}

/// Where the changes of a payload begin.
fn change_starts(payload: &[u8]) -> Vec<usize> {
    let mut starts = vec![0];
    for change in JournalChanges::new(payload) {
        let (_, value) = change.expect("a sample can be decoded");
        starts.push(starts[starts.len() - 1] + change_bytes(value));
    }
    starts
}

#[test]
fn every_truncation_is_refused() {
    for (name, target, bytes) in samples::samples() {
        let target = samples::target(target);
        // Between changes a journal payload may end.
        let starts = if name == "journal-payload" { change_starts(&bytes) } else { Vec::new() };
        for length in (0..bytes.len()).filter(|length| !starts.contains(length)) {
            assert!(run(name, target, &bytes[..length]).is_err(), "{name} cut at {length} of {}", bytes.len());
        }
    }
}

#[test]
fn every_changed_byte_is_decoded_or_refused() {
    for (name, target, bytes) in samples::samples() {
        let target = samples::target(target);
        for at in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] ^= change;
                let _ = run(name, target, &bytes);
            }
        }
    }
}

/// Xorshift: the same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 16) as usize % bound.max(1)
    }
}

const INTERESTING: [u64; 12] = [0, 1, 2, 255, 256, 4095, 4096, 65535, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, u64::MAX];

fn mutate(bytes: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    let at = numbers.below(bytes.len());
    match numbers.below(8) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << numbers.below(8),
        1 if !bytes.is_empty() => bytes[at] = numbers.next() as u8,
        2 | 3 => {
            let width = [1, 2, 4, 8][numbers.below(4)];
            let mut value = INTERESTING[numbers.below(INTERESTING.len())];
            if numbers.below(4) == 0 {
                value = (bytes.len() as u64 + numbers.below(5) as u64).saturating_sub(2);
            }
            let end = (at + width).min(bytes.len());
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        4 => bytes.truncate(at),
        5 => {
            let count = numbers.below(40);
            let inserted: Vec<u8> = (0..count).map(|_| numbers.next() as u8).collect();
            bytes.splice(at..at, inserted);
        }
        6 => {
            let end = at + numbers.below(bytes.len() - at);
            bytes.drain(at..end);
        }
        _ => {
            let from = numbers.below(other.len());
            let end = from + numbers.below(other.len() - from).min(64);
            let end_at = (at + end - from).min(bytes.len());
            bytes.splice(at..end_at, other[from..end].iter().copied());
        }
    }
}

/// What tells two answers apart.
fn answer(result: &Result<(), DecodeError>) -> String {
    match result {
        Ok(()) => "decoded".to_owned(),
        Err(DecodeError::OutOfRange { field, .. }) => format!("impossible {field}"),
        Err(DecodeError::NotText { field, .. }) => format!("no text {field}"),
        Err(error) => format!("{error:?}").split(' ').next().unwrap_or_default().to_owned(),
    }
}

/// P-11: no bytes make a decoder panic.
#[test]
fn mutations_are_decoded_or_refused() {
    let rounds = std::env::var("STERE_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20_000);
    let keep = std::env::var_os("STERE_FUZZ_KEEP").is_some();
    for (number, (name, target)) in fuzz::TARGETS.iter().enumerate() {
        let seeds = seeds(name);
        let mut answers: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ number as u64);
        for _ in 0..rounds {
            let mut bytes = seeds[numbers.below(seeds.len())].clone();
            let other = &seeds[numbers.below(seeds.len())];
            for _ in 0..1 + numbers.below(4) {
                mutate(&mut bytes, other, &mut numbers);
            }
            let result = run(name, *target, &bytes);
            answers.entry(answer(&result)).or_insert(bytes);
        }
        assert!(answers.len() >= 3, "mutations of {name} reach too little: {:?}", answers.keys());
        if keep {
            std::fs::create_dir_all(corpus_of(name)).expect("the corpus directory");
            for (answer, bytes) in &answers {
                let file = answer.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
                std::fs::write(corpus_of(name).join(file), bytes).expect("the corpus file is written");
            }
        }
    }
}
