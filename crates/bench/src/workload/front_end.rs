//! What a front end costs: names, attributes and small files with nothing synced and nothing checked, so that a file system
//! that keeps nothing can run it too.
//!
//! Stats and lists are taken with the kernel's names forgotten (each asks the daemon), opens with names known and reads
//! with everything cached.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Run, warm};
use crate::cold;
use crate::error::{At, BenchError};
use crate::pattern::BLOCK_SIZE;
use crate::report::{Metric, Spent};

const FILES: u64 = 20_000;
const FILES_PER_DIRECTORY: u64 = 200;
const FOLDERS: u64 = 10_000;
const READ_ROUNDS: u64 = 2;
const LIST_ROUNDS: u64 = 4;

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let directories: Vec<PathBuf> =
        (0..run.scaled(FILES).div_ceil(FILES_PER_DIRECTORY)).map(|number| run.path(&format!("d{number:03}"))).collect();
    let files = directories.len() as u64 * FILES_PER_DIRECTORY;
    let paths: Vec<PathBuf> = (0..files).map(|number| file_path(&directories, number, "f")).collect();
    let renamed: Vec<PathBuf> = (0..files).map(|number| file_path(&directories, number, "renamed")).collect();
    each(&directories, |directory| fs::create_dir(directory).at("mkdir", directory))?;

    let mut metrics = folders(run)?;
    let create_spent = run.time(|| create(run, &paths))?.0;
    run.sync_file_system()?;
    cold::forget_names()?;
    let stat_spent = run.time(|| each(&paths, |path| fs::metadata(path).at("stat", path)))?.0;
    let chmod_spent = run.time(|| each(&paths, chmod))?.0;
    let open_spent = run.time(|| each(&paths, |path| File::open(path).at("open", path)))?.0;
    each(&paths, read)?;
    let read_spent = run.time(|| (0..READ_ROUNDS).try_for_each(|_| each(&paths, read)))?.0;
    let list_spent = list(run, &directories)?;
    let rename = |(from, to): (&PathBuf, &PathBuf)| fs::rename(from, to).at("rename", from);
    let rename_spent = run.time(|| paths.iter().zip(&renamed).try_for_each(rename))?.0;
    let unlink_spent = run.time(|| each(&renamed, |path| fs::remove_file(path).at("unlink", path)))?.0;
    metrics.extend([
        Metric::count("fe_create", files, create_spent),
        Metric::count("fe_stat", files, stat_spent).cached(NAMES_FORGOTTEN),
        warm(Metric::count("fe_chmod", files, chmod_spent)),
        warm(Metric::count("fe_open_close", files, open_spent)),
        warm(Metric::count("fe_read", files * READ_ROUNDS, read_spent)),
        Metric::count("fe_list", files * LIST_ROUNDS, list_spent).cached(NAMES_FORGOTTEN),
        warm(Metric::count("fe_rename", files, rename_spent)),
        warm(Metric::count("fe_unlink", files, unlink_spent)),
    ]);
    Ok(metrics)
}

const NAMES_FORGOTTEN: &str = "all but the kernel's names and attributes";

fn file_path(directories: &[PathBuf], number: u64, word: &str) -> PathBuf {
    directories[(number / FILES_PER_DIRECTORY) as usize].join(format!("{word}{number:05}"))
}

fn each<T>(paths: &[PathBuf], work: impl Fn(&Path) -> Result<T, BenchError>) -> Result<(), BenchError> {
    paths.iter().try_for_each(|path| work(path).map(drop))
}

/// Empty folders, made and removed.
fn folders(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let parent = run.path("folders");
    fs::create_dir(&parent).at("mkdir", &parent)?;
    let folders: Vec<PathBuf> =
        (0..run.scaled(FOLDERS)).map(|number| parent.join(format!("empty{number:05}"))).collect();
    let make_spent = run.time(|| each(&folders, |path| fs::create_dir(path).at("mkdir", path)))?.0;
    let remove_spent = run.time(|| each(&folders, |path| fs::remove_dir(path).at("rmdir", path)))?.0;
    let count = folders.len() as u64;
    Ok(vec![Metric::count("fe_mkdir", count, make_spent), warm(Metric::count("fe_rmdir", count, remove_spent))])
}

fn create(run: &Run, paths: &[PathBuf]) -> Result<(), BenchError> {
    let mut data = [0; BLOCK_SIZE];
    for (number, path) in paths.iter().enumerate() {
        run.pattern.fill(number as u64, 0, 0, &mut data);
        let mut file = File::create_new(path).at("create", path)?;
        file.write_all(&data).at("write", path)?;
    }
    Ok(())
}

fn chmod(path: &Path) -> Result<(), BenchError> {
    fs::set_permissions(path, PermissionsExt::from_mode(0o640)).at("chmod", path)
}

fn read(path: &Path) -> Result<(), BenchError> {
    let mut data = [0; BLOCK_SIZE];
    let mut file = File::open(path).at("open", path)?;
    let _length = file.read(&mut data).at("read", path)?;
    Ok(())
}

/// Every directory with the attributes of all that is in it, as `ls -l` does it; the forgetting is not in the time.
fn list(run: &Run, directories: &[PathBuf]) -> Result<Spent, BenchError> {
    let mut total: Option<Spent> = None;
    for _ in 0..LIST_ROUNDS {
        cold::forget_names()?;
        let (spent, ()) = run.time(|| each(directories, list_one))?;
        total = Some(total.map_or(spent, |total| total + spent));
    }
    Ok(total.expect("there is at least one round"))
}

fn list_one(directory: &Path) -> Result<(), BenchError> {
    let mut found = 0;
    for entry in fs::read_dir(directory).at("list", directory)? {
        entry.and_then(|entry| entry.metadata()).at("stat what is listed in", directory)?;
        found += 1;
    }
    if found == FILES_PER_DIRECTORY {
        return Ok(());
    }
    let what = format!("lists {found} names, {FILES_PER_DIRECTORY} are there");
    Err(BenchError::WrongData { path: directory.to_owned(), what })
}
