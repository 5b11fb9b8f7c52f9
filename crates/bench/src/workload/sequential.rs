//! One large file: written in pieces of 1 MiB with one fsync, read cold, read again warm.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use super::{Run, SYNCED, cold, warm};
use crate::error::{At, BenchError};
use crate::pattern::BLOCK_SIZE;
use crate::report::Metric;

const PIECE_SIZE: usize = 1 << 20;
const BLOCKS_PER_PIECE: u64 = (PIECE_SIZE / BLOCK_SIZE) as u64;
pub const FILE_SIZE: u64 = 1 << 30;
pub const FILE_NUMBER: u64 = 1;

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let path = run.path("large");
    let size = run.scaled(FILE_SIZE);
    let (write_time, ()) = run.time(|| write_file(run, &path, size))?;
    run.cold.make()?;
    let (cold_time, ()) = run.time(|| read_file(run, &path, size, false))?;
    let (warm_time, ()) = run.time(|| read_file(run, &path, size, false))?;
    run.cold.make()?;
    read_file(run, &path, size, true)?;
    Ok(vec![
        Metric::bytes("seqwrite", size, write_time).durable(SYNCED),
        cold(Metric::bytes("seqread_cold", size, cold_time)),
        warm(Metric::bytes("seqread_warm", size, warm_time)),
    ])
}

/// Creates the file and returns when it is durable.
pub fn write_file(run: &Run, path: &Path, size: u64) -> Result<(), BenchError> {
    let mut file = File::create(path).at("create", path)?;
    let mut piece = vec![0; PIECE_SIZE];
    for index in 0..size / PIECE_SIZE as u64 {
        run.pattern.fill(FILE_NUMBER, index * BLOCKS_PER_PIECE, 0, &mut piece);
        file.write_all(&piece).at("write", path)?;
    }
    file.sync_all().at("fsync", path)
}

fn read_file(run: &Run, path: &Path, size: u64, every_byte: bool) -> Result<(), BenchError> {
    let mut file = File::open(path).at("open", path)?;
    let mut piece = vec![0; PIECE_SIZE];
    for index in 0..size / PIECE_SIZE as u64 {
        file.read_exact(&mut piece).at("read", path)?;
        let first = index * BLOCKS_PER_PIECE;
        let result = if every_byte {
            run.pattern.check_all(FILE_NUMBER, first, 0, &piece)
        } else {
            run.pattern.check_stamps(FILE_NUMBER, first, 0, &piece)
        };
        result.map_err(|what| BenchError::WrongData { path: path.to_owned(), what })?;
    }
    let rest = file.read(&mut piece).at("read", path)?;
    if rest == 0 {
        Ok(())
    } else {
        Err(BenchError::WrongData { path: path.to_owned(), what: "longer than written".to_owned() })
    }
}
