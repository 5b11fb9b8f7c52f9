//! A tree like a source repository, handled with the tools everybody uses: tar, find, grep, cp and rm.
//!
//! The tree is made up from the seed (about 5,500 files and 56 MB of compressible text in nested folders) as a tar
//! archive outside of the file system under test, so that reading the archive costs the same everywhere.

mod archive;

use std::path::Path;
use std::process::Command;

use super::{Run, SYNCED, cold, warm};
use crate::error::{At, BenchError};
use crate::report::Metric;
use archive::{Contents, NEEDLE};

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let archive = run.scratch.join(format!("stere-bench-tree-{}.tar", std::process::id()));
    let contents = archive::write(&archive, run.seed, run.scaled(5_500))?;
    let result = phases(run, &archive, &contents);
    std::fs::remove_file(&archive).at("unlink", &archive)?;
    result
}

fn phases(run: &Run, archive: &Path, contents: &Contents) -> Result<Vec<Metric>, BenchError> {
    let tree = run.path("tree");
    let copy = run.path("copy");
    std::fs::create_dir(&tree).at("mkdir", &tree)?;
    std::fs::read(archive).at("read", archive)?;
    let untar = || {
        shell(run, &format!("tar xf '{}' -C '{}'", archive.display(), tree.display()))?;
        run.sync_file_system()
    };
    let (untar_time, ()) = run.time(untar)?;
    let (copy_time, ()) = run.time(|| {
        shell(run, &format!("cp -a '{}' '{}'", tree.display(), copy.display()))?;
        run.sync_file_system()
    })?;
    run.cold.make()?;
    let (find_time, ()) = run.time(|| find(run, &tree, contents))?;
    run.cold.make()?;
    let (grep_time, ()) = run.time(|| grep(run, &tree, contents))?;
    let (grep_warm_time, ()) = run.time(|| grep(run, &tree, contents))?;
    run.cold.make()?;
    shell(run, &format!("tar df '{}' -C '{}'", archive.display(), tree.display()))?;
    shell(run, &format!("diff -r '{}' '{}'", tree.display(), copy.display()))?;
    let (remove_time, ()) = run.time(|| {
        shell(run, &format!("rm -rf '{}'", tree.display()))?;
        run.sync_file_system()
    })?;
    let count = contents.files;
    Ok(vec![
        Metric::count("tree_untar", count, untar_time).durable(SYNCED),
        warm(Metric::count("tree_copy", count, copy_time).durable(SYNCED)),
        cold(Metric::count("tree_find", count, find_time)),
        cold(Metric::count("tree_grep_cold", count, grep_time)),
        warm(Metric::count("tree_grep_warm", count, grep_warm_time)),
        warm(Metric::count("tree_rm", count, remove_time).durable(SYNCED)),
    ])
}

/// Lists every file with its size, and compares number and sum with what was packed.
fn find(run: &Run, tree: &Path, contents: &Contents) -> Result<(), BenchError> {
    let output = shell(run, &format!("find '{}' -type f -printf '%s\\n'", tree.display()))?;
    let sizes: Vec<u64> = output.lines().filter_map(|line| line.parse().ok()).collect();
    let found = (sizes.len() as u64, sizes.iter().sum::<u64>());
    if found == (contents.files, contents.bytes) {
        return Ok(());
    }
    let what = format!("find saw {found:?} files and bytes, {:?} were packed", (contents.files, contents.bytes));
    Err(BenchError::WrongData { path: tree.to_owned(), what })
}

fn grep(run: &Run, tree: &Path, contents: &Contents) -> Result<(), BenchError> {
    let output = shell(run, &format!("grep -rlF {NEEDLE} '{}'", tree.display()))?;
    let found = output.lines().count() as u64;
    if found == contents.needles {
        return Ok(());
    }
    let what = format!("grep found {found} files, {} hold the word", contents.needles);
    Err(BenchError::WrongData { path: tree.to_owned(), what })
}

pub(super) fn shell(run: &Run, command: &str) -> Result<String, BenchError> {
    let failed = |what: String| BenchError::Command { command: command.to_owned(), what };
    let output = Command::new("sh")
        .arg("-c")
        .arg(command)
        .current_dir(&run.scratch)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
