//! `stere versions`: what files held before, read from the directories `.versions` as anybody can, and copied back.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{Timespec, Timestamps, XattrFlags, getxattr, listxattr, setxattr};
use serde::Serialize;
use stere_policy::{parse_moment, show_moment};

use crate::arguments::versions::VersionsCommand;
use crate::json::to_json;
use crate::terminal::plain;
use stere_machine::devices::absolute;
use stere_machine::error::{At, DONE, Error, Result, refused};
use stere_machine::size;

/// What the directories of versions are called; the second where somebody has something called like the first.
const SHELVES: [&str; 2] = [".versions.stere", ".versions"];
const LIST_BYTES_MAX: usize = 65_536;

/// One version of a file.
#[derive(Debug, Serialize)]
struct Version {
    /// Of the file, from the directory that was asked for.
    name: String,
    /// Until when the file held it: the version's name.
    until: String,
    /// When it was written.
    written: String,
    size_bytes: u64,
    path: PathBuf,
    #[serde(skip)]
    until_seconds: i64,
    /// When the file was made that held it, where the kernel tells.
    #[serde(skip)]
    made_seconds: Option<i64>,
}

pub fn run(command: &VersionsCommand) -> Result<u8> {
    match command {
        VersionsCommand::List { path, json } => list(path, *json),
        VersionsCommand::Restore { path, at, dry_run } => restore(path, at.as_deref(), *dry_run),
    }
}

/// A version's name as a moment.
fn moment_of(name: &str) -> Option<i64> {
    let (seconds, nanoseconds) = name.split_once('.')?;
    let (date, time) = seconds.split_once('_')?;
    let is_fraction = nanoseconds.len() == 9 && nanoseconds.bytes().all(|byte| byte.is_ascii_digit());
    parse_moment(&format!("{date}T{}", time.replace('-', ":"))).filter(|_| is_fraction)
}

/// The directory of versions below a directory.
fn shelf_of(directory: &Path) -> PathBuf {
    let is_listed = |name: &str| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name() == OsStr::new(name))
    };
    // A user's own is listed.
    let [rare, usual] = SHELVES.map(|name| directory.join(name));
    if rare.exists() && !is_listed(SHELVES[0]) { rare } else { usual }
}

/// The versions in a directory of versions of one name, the oldest first.
fn versions_in(drawer: &Path, name: &str) -> Result<Vec<Version>> {
    let mut versions = Vec::new();
    let entries = match fs::read_dir(drawer) {
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(versions);
        }
        entries => entries.at("list", drawer)?,
    };
    for entry in entries {
        let entry = entry.at("list", drawer)?;
        let until = entry.file_name().to_string_lossy().into_owned();
        let metadata = match entry.metadata() {
            // It went meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            metadata => metadata.at("look at", &entry.path())?,
        };
        if let Some(until_seconds) = moment_of(&until).filter(|_| metadata.is_file()) {
            let written = format!("{}Z", show_moment(metadata.mtime()).replace(' ', "T"));
            let (name, path) = (name.to_owned(), entry.path());
            let made = metadata.created().ok().and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok());
            let made_seconds = made.and_then(|made| i64::try_from(made.as_secs()).ok());
            let size_bytes = metadata.len();
            versions.push(Version { name, until, written, size_bytes, path, until_seconds, made_seconds });
        }
    }
    versions.sort_by(|one, other| one.until.cmp(&other.until));
    Ok(versions)
}

/// The directory and the name of a path, which need not exist any more.
fn parts(path: &Path) -> Result<(PathBuf, String)> {
    let full = absolute(path);
    match (full.parent(), full.file_name()) {
        (Some(parent), Some(name)) => Ok((parent.to_owned(), name.to_string_lossy().into_owned())),
        _ => Err(Error::Usage(format!("{} names no file", path.display()))),
    }
}

fn versions_of(path: &Path) -> Result<Vec<Version>> {
    let (directory, name) = parts(path)?;
    versions_in(&shelf_of(&directory).join(&name), &name)
}

fn list(path: &Path, json: bool) -> Result<u8> {
    let mut versions = versions_of(path)?;
    if path.is_dir() {
        let shelf = shelf_of(&absolute(path));
        let names = match fs::read_dir(&shelf) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            entries => entries.at("list", &shelf)?.flatten().map(|entry| entry.file_name()).collect(),
        };
        for name in names {
            versions.extend(versions_in(&shelf.join(&name), &name.to_string_lossy())?);
        }
    }
    if json {
        println!("{}", to_json(&versions)?);
        return Ok(DONE);
    }
    if versions.is_empty() {
        println!("there are no versions of {}; `stere policy explain` tells whether any are kept", path.display());
        return Ok(DONE);
    }
    println!("{:<29}  {:<20}  {:>10}  file", "held until (UTC)", "written", "size");
    for version in &versions {
        let size = size::show(version.size_bytes);
        println!("{:<29}  {:<20}  {size:>10}  {}", version.until, version.written, plain(&version.name));
    }
    Ok(DONE)
}

/// The version that a moment or a name means: what the file held then.
fn chosen(path: &Path, at: Option<&str>) -> Result<Version> {
    let mut versions = versions_of(path)?;
    let Some(at) = at else {
        let newest = versions.pop();
        return newest.map_or_else(|| refused(format!("there are no versions of {}", path.display())), Ok);
    };
    if let Some(place) = versions.iter().position(|version| version.until == at) {
        return Ok(versions.swap_remove(place));
    }
    let Some(moment) = moment_of(at).or_else(|| parse_moment(at)) else {
        return Err(Error::Usage(format!("'{at}' is no moment; write for example 2027-01-31T12:00:00, in UTC")));
    };
    match versions.into_iter().find(|version| version.until_seconds >= moment) {
        Some(version) if version.made_seconds.is_some_and(|made| moment < made) => refused(format!(
            "{} did not exist at {at}: the file whose version was held until {} was made at {}Z; give a later moment, or the \
             version's name to restore it nevertheless",
            path.display(),
            version.until,
            show_moment(version.made_seconds.unwrap_or_default()).replace(' ', "T"),
        )),
        Some(version) => Ok(version),
        None => refused(format!("no version of {} was held so late; it did not change since", path.display())),
    }
}

fn restore(path: &Path, at: Option<&str>, dry_run: bool) -> Result<u8> {
    let version = chosen(path, at)?;
    let (directory, name) = parts(path)?;
    let what = format!("{} as it was until {} ({})", path.display(), version.until, size::show(version.size_bytes));
    if dry_run {
        println!("would restore {what}");
        return Ok(DONE);
    }
    let target = directory.join(&name);
    if target.is_dir() {
        return refused(format!("{} is a directory now; move it away first", path.display()));
    }
    let new = directory.join(format!(".{name}.restoring-{}", std::process::id()));
    let restored = copy(&version.path, &new).and_then(|()| fs::rename(&new, &target).at("replace", &target));
    if let Err(error) = restored {
        drop(fs::remove_file(&new));
        return Err(error);
    }
    println!("restored {what}");
    Ok(DONE)
}

/// Copies content, owner, mode, times and attributes. Content is shared where the file system can.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let metadata = fs::metadata(from).at("look at", from)?;
    // Nobody looks into it before it is whole.
    fs::copy(from, to).at("copy to", to)?;
    if chown(to, Some(metadata.uid()), Some(metadata.gid())).is_err() {
        eprintln!("stere: the restored file is yours; to whom it belonged cannot be set");
    }
    copy_attributes(from, to)?;
    fs::set_permissions(to, metadata.permissions()).at("set the mode of", to)?;
    set_times(to, &metadata)
}

fn set_times(path: &Path, metadata: &Metadata) -> Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: metadata.atime(), tv_nsec: metadata.atime_nsec() as _ },
        last_modification: Timespec { tv_sec: metadata.mtime(), tv_nsec: metadata.mtime_nsec() as _ },
    };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).at("set the times of", path)
}

fn copy_attributes(from: &Path, to: &Path) -> Result<()> {
    let mut names = vec![0; LIST_BYTES_MAX];
    let length = listxattr(from, &mut names).at("read the attributes of", from)?;
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = String::from_utf8_lossy(name).into_owned();
        let mut value = vec![0; LIST_BYTES_MAX];
        let length = getxattr(from, &name, &mut value).at("read an attribute of", from)?;
        setxattr(to, &name, &value[..length], XattrFlags::empty()).at("set an attribute of", to)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_versions_are_moments() {
        assert_eq!(moment_of("2027-01-01_00-00-01.000000005"), Some(1_798_761_601));
        for other in
            ["2027-01-01", "2027-01-01_00-00-01", "2027-01-01_00-00-01.5", "2027-13-01_00-00-01.000000005", "a.b"]
        {
            assert_eq!(moment_of(other), None, "{other}");
        }
    }
}
