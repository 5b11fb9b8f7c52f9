//! Writers that sync what they write and note what was acknowledged, until the mount is taken from under them.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use crate::demo::checksum;
use stere_machine::error::{At, Error, Result, refused};

const WRITERS: u64 = 4;

/// A file that fsync(2) said is durable.
pub struct Acknowledged {
    path: PathBuf,
    checksum: u32,
    length: u64,
}

type Outcome = (Vec<Acknowledged>, u64);

pub fn start(directory: &Path) -> Result<Vec<JoinHandle<Outcome>>> {
    fs::create_dir(directory).at("create", directory)?;
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let directory = directory.join(format!("writer-{number}"));
        fs::create_dir(&directory).at("create", &directory)?;
        let write = move || write_until_the_end(&directory, number);
        writers.push(std::thread::Builder::new().spawn(write).map_err(Error::System)?);
    }
    Ok(writers)
}

/// What all writers had acknowledged, and how many writes they had begun.
pub fn collect(writers: Vec<JoinHandle<Outcome>>) -> Outcome {
    let mut all = (Vec::new(), 0);
    for (acknowledged, attempts) in writers.into_iter().filter_map(|writer| writer.join().ok()) {
        all.0.extend(acknowledged);
        all.1 += attempts;
    }
    all
}

fn write_until_the_end(directory: &Path, writer: u64) -> Outcome {
    let mut acknowledged = Vec::new();
    let mut number = 0;
    loop {
        number += 1;
        let path = directory.join(format!("{number:06}"));
        match write_one(directory, &path, writer << 32 | number) {
            Ok(done) => acknowledged.push(done),
            // The mount has gone.
            Err(_) => return (acknowledged, number),
        }
    }
}

/// Bytes that only this seed gives.
fn content(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = 1 + next() % 6000;
    (0..words).flat_map(|_| next().to_le_bytes()).collect()
}

/// Writes under another name, syncs, renames over, and syncs the directory, as careful programs do.
fn write_one(directory: &Path, path: &Path, seed: u64) -> std::io::Result<Acknowledged> {
    let bytes = content(seed);
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(directory)?.sync_all()?;
    Ok(Acknowledged { path: path.to_owned(), checksum: crc_fast::crc32_iscsi(&bytes), length: bytes.len() as u64 })
}

pub fn verify(acknowledged: &[Acknowledged]) -> Result<()> {
    for Acknowledged { path, checksum: expected, length } in acknowledged {
        if checksum(path)? != (*expected, *length) {
            return refused(format!(
                "{} was synced and is not what was written; this is a bug, please report it",
                path.display()
            ));
        }
    }
    Ok(())
}
