//! Many small files: 10,000 of 4 KiB in 100 directories, and 2,000 that are each synced.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;

use super::{Run, SYNCED, cold, warm};
use crate::error::{At, BenchError};
use crate::pattern::BLOCK_SIZE;
use crate::report::Metric;

const FILES: u64 = 10_000;
const FILES_PER_DIRECTORY: u64 = 100;
const SYNCED_FILES: u64 = 2_000;
const SYNCED_FIRST: u64 = 1_000_000;

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let files = run.scaled(FILES);
    let synced_files = run.scaled(SYNCED_FILES);
    let (create_time, ()) = run.time(|| create_all(run, files))?;
    run.cold.make()?;
    let (stat_cold_time, ()) = run.time(|| stat_all(run, files))?;
    let (stat_warm_time, ()) = run.time(|| stat_all(run, files))?;
    run.cold.make()?;
    let (read_time, ()) = run.time(|| read_all(run, files))?;
    let (delete_time, ()) = run.time(|| delete_all(run, files))?;
    let (synced_time, ()) = run.time(|| create_synced(run, synced_files))?;
    run.cold.make()?;
    for number in SYNCED_FIRST..SYNCED_FIRST + synced_files {
        read_one(run, number, &run.path(&format!("synced/f{number}")))?;
    }
    Ok(vec![
        Metric::count("sm_create", files, create_time).durable(SYNCED),
        cold(Metric::count("sm_stat_cold", files, stat_cold_time)),
        warm(Metric::count("sm_stat_warm", files, stat_warm_time)),
        cold(Metric::count("sm_read_cold", files, read_time)),
        warm(Metric::count("sm_delete", files, delete_time).durable(SYNCED)),
        Metric::count("sm_create_fsync", synced_files, synced_time).durable("every file, by its fsync"),
    ])
}

/// The same on a file system that is aged: created, read cold, deleted.
pub fn create_read_delete(run: &Run, files: u64) -> Result<Vec<Metric>, BenchError> {
    let (create_time, ()) = run.time(|| create_all(run, files))?;
    run.cold.make()?;
    let (read_time, ()) = run.time(|| read_all(run, files))?;
    let (delete_time, ()) = run.time(|| delete_all(run, files))?;
    Ok(vec![
        Metric::count("aged_create", files, create_time).durable(SYNCED),
        cold(Metric::count("aged_read_cold", files, read_time)),
        warm(Metric::count("aged_delete", files, delete_time).durable(SYNCED)),
    ])
}

fn directory_of(run: &Run, number: u64) -> PathBuf {
    run.path(&format!("d{:03}", number / FILES_PER_DIRECTORY))
}

fn path_of(run: &Run, number: u64) -> PathBuf {
    directory_of(run, number).join(format!("file-{number:05}"))
}

fn create_all(run: &Run, files: u64) -> Result<(), BenchError> {
    for number in 0..files {
        if number % FILES_PER_DIRECTORY == 0 {
            let directory = directory_of(run, number);
            fs::create_dir(&directory).at("mkdir", &directory)?;
        }
        create_one(run, number, &path_of(run, number), false)?;
    }
    run.sync_file_system()
}

fn create_one(run: &Run, number: u64, path: &PathBuf, synced: bool) -> Result<(), BenchError> {
    let mut data = [0; BLOCK_SIZE];
    run.pattern.fill(number, 0, 0, &mut data);
    let mut file = File::create_new(path).at("create", path)?;
    file.write_all(&data).at("write", path)?;
    if synced {
        file.sync_all().at("fsync", path)?;
    }
    Ok(())
}

fn stat_all(run: &Run, files: u64) -> Result<(), BenchError> {
    for number in 0..files {
        let path = path_of(run, number);
        let size = fs::metadata(&path).at("stat", &path)?.len();
        if size != BLOCK_SIZE as u64 {
            return Err(BenchError::WrongData { path, what: format!("size {size}, not {BLOCK_SIZE}") });
        }
    }
    Ok(())
}

fn read_all(run: &Run, files: u64) -> Result<(), BenchError> {
    (0..files).try_for_each(|number| read_one(run, number, &path_of(run, number)))
}

fn read_one(run: &Run, number: u64, path: &PathBuf) -> Result<(), BenchError> {
    let mut data = [0; BLOCK_SIZE];
    let mut file = File::open(path).at("open", path)?;
    file.read_exact(&mut data).at("read", path)?;
    run.pattern.check_all(number, 0, 0, &data).map_err(|what| BenchError::WrongData { path: path.clone(), what })
}

fn delete_all(run: &Run, files: u64) -> Result<(), BenchError> {
    for number in 0..files {
        let path = path_of(run, number);
        fs::remove_file(&path).at("unlink", &path)?;
        if (number + 1) % FILES_PER_DIRECTORY == 0 || number + 1 == files {
            let directory = directory_of(run, number);
            fs::remove_dir(&directory).at("rmdir", &directory)?;
        }
    }
    run.sync_file_system()
}

fn create_synced(run: &Run, files: u64) -> Result<(), BenchError> {
    let directory = run.path("synced");
    fs::create_dir(&directory).at("mkdir", &directory)?;
    for number in SYNCED_FIRST..SYNCED_FIRST + files {
        create_one(run, number, &directory.join(format!("f{number}")), true)?;
    }
    Ok(())
}
