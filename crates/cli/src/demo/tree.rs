//! A real tree: found on this machine, copied in with checksums noted, compared later.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::demo::checksum;
use stere_machine::error::{At, Result, refused};

/// Checksum and length of every file, by its path in the tree.
pub type Sums = BTreeMap<PathBuf, (u32, u64)>;

const FILES_MIN: usize = 300;
const FILES_MAX: usize = 4000;
const BYTES_MAX: u64 = 200 << 20;

/// A tree with enough files: what most machines have, or the sources of this program and of what it is built from.
pub fn choose() -> Result<PathBuf> {
    let sources = option_env!("CARGO_MANIFEST_DIR").map(|path| Path::new(path).join("../.."));
    let registry = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")))
        .map(|home| home.join("registry/src"));
    let candidates = ["/usr/include", "/usr/share/doc", "/usr/lib/python3", "/usr/share", "/etc"].map(PathBuf::from);
    let all = candidates.into_iter().chain(registry).chain(sources);
    for candidate in all {
        if candidate.is_dir() && files(&candidate).len() >= FILES_MIN {
            return Ok(fs::canonicalize(&candidate).unwrap_or(candidate));
        }
    }
    refused("no tree with enough files was found on this machine; put some files under /usr/include or /usr/share/doc")
}

/// Regular files below a directory, in a stable order, up to the limits. What cannot be read is left out.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let is_built = path.file_name().is_some_and(|name| name == "target" || name == ".git");
            if metadata.is_dir() && !is_built {
                directories.push(path);
            } else if metadata.is_file() && bytes + metadata.len() <= BYTES_MAX && fs::File::open(&path).is_ok() {
                bytes += metadata.len();
                found.push(path);
            }
            if found.len() >= FILES_MAX {
                return found;
            }
        }
    }
    found
}

/// Copies the tree; the checksums are those of the source.
pub fn copy(source: &Path, target: &Path) -> Result<(Sums, u64)> {
    let mut sums = Sums::new();
    let mut total = 0;
    for path in files(source) {
        let name = path.strip_prefix(source).unwrap_or(&path).to_owned();
        let copy = target.join(&name);
        if let Some(parent) = copy.parent() {
            fs::create_dir_all(parent).at("create", parent)?;
        }
        let bytes = fs::read(&path).at("read", &path)?;
        fs::write(&copy, &bytes).at("write", &copy)?;
        total += bytes.len() as u64;
        sums.insert(name, (crc_fast::crc32_iscsi(&bytes), bytes.len() as u64));
    }
    Ok((sums, total))
}

/// Reads every file back; returns how many bytes were right.
pub fn verify(sums: &Sums, target: &Path) -> Result<u64> {
    let mut total = 0;
    for (name, expected) in sums {
        let path = target.join(name);
        let found = checksum(&path)?;
        if found != *expected {
            return refused(format!("{} is not what was written; this is a bug, please report it", path.display()));
        }
        total += found.1;
    }
    Ok(total)
}
