//! Very many small files: created in folders of a thousand, to see what a file system keeps in memory; and a sample of
//! what it does per second among so many, to see whether their number matters.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};

use crate::cold::Cold;
use crate::error::{At, BenchError};
use crate::pattern::Random;
use crate::report::{Metric, Stopwatch};

const FILES_PER_FOLDER: u64 = 1000;
const FOLDERS_PER_FOLDER: u64 = 100;
/// Whole folders, so that a sample in order of creation begins and ends with one.
const SAMPLE: u64 = 10 * FILES_PER_FOLDER;

/// Creates `files` files of `size` bytes; the content of each begins with its number.
pub fn create(directory: &Path, files: u64, size: usize) -> Result<Value, BenchError> {
    let start = Instant::now();
    create_range(directory, 0..files, size)?;
    Ok(json!({ "files": files, "size": size, "seconds": start.elapsed().as_secs_f64() }))
}

/// Creates the folders that `create` would make for so many files, for something else that fills them.
pub fn create_folders(directory: &Path, files: u64) -> Result<(), BenchError> {
    for number in (0..files).step_by(FILES_PER_FOLDER as usize) {
        create_folder_of(&path_of(directory, number))?;
    }
    Ok(())
}

fn create_folder_of(path: &Path) -> Result<(), BenchError> {
    let folder = path.parent().expect("a file's path has a parent");
    fs::create_dir_all(folder).at("mkdir", folder)
}

fn create_range(directory: &Path, numbers: std::ops::Range<u64>, size: usize) -> Result<(), BenchError> {
    let mut data = vec![b'x'; size];
    for number in numbers {
        let path = path_of(directory, number);
        if number % FILES_PER_FOLDER == 0 {
            create_folder_of(&path)?;
        }
        let mut file = File::create_new(&path).at("create", &path)?;
        let label = number.to_le_bytes();
        let labelled = size.min(label.len());
        data[..labelled].copy_from_slice(&label[..labelled]);
        file.write_all(&data).at("write", &path)?;
    }
    Ok(())
}

fn path_of(directory: &Path, number: u64) -> PathBuf {
    let folder = number / FILES_PER_FOLDER;
    let (upper, lower) = (folder / FOLDERS_PER_FOLDER, folder % FOLDERS_PER_FOLDER);
    directory.join(format!("{upper:03}/{lower:03}/file-{number:08}"))
}

/// Among `files` files that `create` made: as many as `SAMPLE` stat'ed and read cold in order of creation, stat'ed cold in
/// random order, and as many again created. Those are removed at the end, so that the next sample finds the same.
pub fn sample(directory: &Path, files: u64, size: usize, seed: u64, cold: &Cold) -> Result<Value, BenchError> {
    let mut random = Random::new(seed);
    let count = SAMPLE.min(files);
    let starts = (files - count) / FILES_PER_FOLDER + 1;
    let first = random.below(starts) * FILES_PER_FOLDER;
    let scattered: Vec<u64> = (0..count).map(|_| random.below(files)).collect();
    let timed = |work: &dyn Fn() -> Result<(), BenchError>| {
        let stopwatch = Stopwatch::start();
        work()?;
        Ok::<_, BenchError>(stopwatch.stop())
    };
    cold.make()?;
    let stat_spent = timed(&|| stat(directory, first..first + count, size))?;
    cold.make()?;
    let scattered_spent = timed(&|| stat(directory, scattered.iter().copied(), size))?;
    cold.make()?;
    let read_spent = timed(&|| (first..first + count).try_for_each(|number| read(directory, number, size)))?;
    // Behind all others and in folders of their own.
    let new = files.next_multiple_of(FILES_PER_FOLDER)..files.next_multiple_of(FILES_PER_FOLDER) + SAMPLE;
    let create_spent = timed(&|| {
        create_range(directory, new.clone(), size)?;
        sync(directory)
    })?;
    remove(directory, new)?;
    let metrics = [
        Metric::count("many_create", SAMPLE, create_spent).durable("everything: syncfs is inside the time"),
        Metric::count("many_stat_cold", count, stat_spent).cached("nothing (cold)"),
        Metric::count("many_stat_cold_random", count, scattered_spent).cached("nothing (cold)"),
        Metric::count("many_read_cold", count, read_spent).cached("nothing (cold)"),
    ];
    Ok(json!({ "metrics": metrics.iter().map(Metric::to_json).collect::<Vec<_>>() }))
}

fn stat(directory: &Path, numbers: impl Iterator<Item = u64>, size: usize) -> Result<(), BenchError> {
    for number in numbers {
        let path = path_of(directory, number);
        let length = fs::metadata(&path).at("stat", &path)?.len();
        if length != size as u64 {
            return Err(BenchError::WrongData { path, what: format!("{length} bytes, not {size}") });
        }
    }
    Ok(())
}

fn read(directory: &Path, number: u64, size: usize) -> Result<(), BenchError> {
    let path = path_of(directory, number);
    let data = fs::read(&path).at("read", &path)?;
    let labelled = size.min(8);
    if data.len() == size && data[..labelled] == number.to_le_bytes()[..labelled] {
        return Ok(());
    }
    Err(BenchError::WrongData { path, what: "not what was written into this file".to_owned() })
}

fn remove(directory: &Path, numbers: std::ops::Range<u64>) -> Result<(), BenchError> {
    for number in numbers.step_by(FILES_PER_FOLDER as usize) {
        let path = path_of(directory, number);
        let folder = path.parent().expect("a file's path has a parent");
        fs::remove_dir_all(folder).at("remove", folder)?;
    }
    sync(directory)
}

fn sync(directory: &Path) -> Result<(), BenchError> {
    crate::workload::sync_file_system(directory)
}
