//! `stere digest`: reads files whole, through the mount, and keeps what they come to as an attribute, or compares it.
//!
//! The daemon gives a token for the content as it is, this process reads at its own pace, and the daemon stores the digest only if the token
//! still holds: what changes meanwhile is told and has none. Only the control socket stores digests, so nobody can say one who may
//! not change the pool; reading them is for whoever may read the file. Read next: `crates/file/src/digests.rs`.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::arguments::digest::{Algorithm, DigestArguments};
use stere_control::connection::Connection;
use stere_control::digest::{Order, TEXT_BYTES, to_hex};
use stere_control::locate;
use stere_control::message::{Answer, Request};
use stere_machine::error::{At, DATA_LOST, DEGRADED, DONE, ERROR, Error, Result, refused};
use stere_machine::registry::Registry;

/// Read at a time.
const PIECE_BYTES: usize = 1 << 20;

impl Algorithm {
    fn word(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Blake3 => "blake3",
        }
    }

    fn attribute(self) -> String {
        format!("user.stere.{}", self.word())
    }
}

enum Hasher {
    Sha256(Box<ring::digest::Context>),
    Blake3(Box<blake3::Hasher>),
}

/// Reads a file to its end; gives what it comes to.
fn digest_of(file: &mut File, path: &Path, algorithm: Algorithm) -> Result<String> {
    let mut hasher = match algorithm {
        Algorithm::Sha256 => Hasher::Sha256(Box::new(ring::digest::Context::new(&ring::digest::SHA256))),
        Algorithm::Blake3 => Hasher::Blake3(Box::default()),
    };
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let length = match file.read(&mut piece) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            length => length.at("read", path)?,
        };
        if length == 0 {
            break;
        }
        match &mut hasher {
            Hasher::Sha256(context) => context.update(&piece[..length]),
            Hasher::Blake3(hasher) => drop(hasher.update(&piece[..length])),
        }
    }
    Ok(match hasher {
        Hasher::Sha256(context) => to_hex(context.finish().as_ref()),
        Hasher::Blake3(hasher) => to_hex(hasher.finalize().as_bytes()),
    })
}

/// Has the kernel hand over what programs wrote through mappings; where the pool is read only there is nothing.
fn hand_over(file: &File, path: &Path) -> Result<()> {
    match rustix::fs::fsync(file) {
        Err(rustix::io::Errno::ROFS) => Ok(()),
        outcome => outcome.at("sync", path),
    }
}

/// Opens a file to be read from the pool, not from what the kernel remembers of it.
fn open(path: &Path) -> Result<File> {
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path).at("open", path)?;
    hand_over(&file, path)?;
    // SAFETY: only advice, on a descriptor that is open.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    Ok(file)
}

/// The stored digest, if there is one.
fn stored(path: &Path, algorithm: Algorithm) -> Result<Option<String>> {
    let mut value = [0; TEXT_BYTES];
    match rustix::fs::lgetxattr(path, algorithm.attribute().as_str(), &mut value) {
        Ok(length) => Ok(Some(String::from_utf8_lossy(&value[..length]).into_owned())),
        Err(rustix::io::Errno::NODATA) => Ok(None),
        Err(rustix::io::Errno::OPNOTSUPP) => refused(format!("{} is not on a stere mount", path.display())),
        Err(error) => Err(error).at("read the digest of", path),
    }
}

/// What became of a file.
enum Outcome {
    Stored(String),
    Same(String),
    Other { stored: String, read: String },
    Nothing,
    Changed,
}

/// The daemon of the mount that was met last, by its device number.
#[derive(Default)]
struct Daemons {
    known: Option<(u64, Connection)>,
}

impl Daemons {
    fn of(&mut self, registry: &Registry, path: &Path, device: u64) -> Result<&mut Connection> {
        if self.known.as_ref().is_none_or(|(known, _)| *known != device) {
            let (_, mut connection, _) = locate::connect(registry, path)?;
            connection.wait_without_limit()?;
            self.known = Some((device, connection));
        }
        self.known.as_mut().map(|(_, connection)| connection).ok_or(Error::Refused("no daemon".into()))
    }
}

fn make(registry: &Registry, daemons: &mut Daemons, path: &Path, algorithm: Algorithm) -> Result<Outcome> {
    let mut file = open(path)?;
    let metadata = file.metadata().at("look at", path)?;
    let (inode, daemon) = (metadata.ino(), daemons.of(registry, path, metadata.dev())?);
    let Answer::DigestBegun { token } = daemon.ask(Request::Digests { order: Order::Begin { inode } })? else {
        return unexpected();
    };
    let digest = digest_of(&mut file, path, algorithm)?;
    // What was written through a mapping while we read reaches the daemon before it is asked whether anything changed.
    hand_over(&file, path)?;
    let order = Order::Store { inode, token, algorithm: algorithm.word().into(), digest: digest.clone() };
    match daemon.ask(Request::Digests { order })? {
        Answer::DigestStored { is_stored: true } => Ok(Outcome::Stored(digest)),
        Answer::DigestStored { is_stored: false } => Ok(Outcome::Changed),
        _ => unexpected(),
    }
}

fn unexpected() -> Result<Outcome> {
    refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again")
}

fn check(path: &Path, algorithm: Algorithm) -> Result<Outcome> {
    let mut file = open(path)?;
    let Some(before) = stored(path, algorithm)? else { return Ok(Outcome::Nothing) };
    let read = digest_of(&mut file, path, algorithm)?;
    hand_over(&file, path)?;
    if stored(path, algorithm)?.as_ref() != Some(&before) {
        return Ok(Outcome::Changed);
    }
    Ok(if read == before { Outcome::Same(read) } else { Outcome::Other { stored: before, read } })
}

/// Regular files at and below a path, on the same mount; in the order of their names.
fn files_below(path: &Path, files: &mut dyn FnMut(&Path)) -> Result<()> {
    let metadata = fs::symlink_metadata(path).at("look at", path)?;
    if metadata.is_file() {
        files(path);
        return Ok(());
    }
    if !metadata.is_dir() {
        return refused(format!("{} is no file; only contents of files have digests", path.display()));
    }
    let mut left = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        let entries = fs::read_dir(&directory).at("list", &directory)?;
        let mut below: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        below.sort();
        for path in &below {
            match fs::symlink_metadata(path) {
                Ok(found) if found.is_file() => files(path),
                Ok(found) if found.is_dir() && found.dev() == metadata.dev() => left.push(path.clone()),
                // Links and the like have no content; what went meanwhile neither.
                _ => {}
            }
        }
    }
    Ok(())
}

pub fn run(registry: &Registry, arguments: &DigestArguments) -> Result<u8> {
    let algorithm = arguments.algorithm;
    let (mut daemons, mut code) = (Daemons::default(), DONE);
    for path in &arguments.paths {
        files_below(path, &mut |path| {
            let outcome = match arguments.check {
                true => check(path, algorithm),
                false => make(registry, &mut daemons, path, algorithm),
            };
            let outcome = outcome.inspect_err(|error| eprintln!("stere: {}: {error}", path.display()));
            code = worse(code, code_of(outcome.as_ref().ok()));
            if let Ok(outcome) = outcome {
                tell(path, arguments, &outcome);
            }
        })?;
    }
    Ok(code)
}

fn code_of(outcome: Option<&Outcome>) -> u8 {
    match outcome {
        None => ERROR,
        Some(Outcome::Stored(_) | Outcome::Same(_)) => DONE,
        Some(Outcome::Nothing | Outcome::Changed) => DEGRADED,
        Some(Outcome::Other { .. }) => DATA_LOST,
    }
}

/// Other content is worse than an error, and that worse than a digest that is not there.
fn worse(one: u8, other: u8) -> u8 {
    let rank = |code: &u8| [DONE, DEGRADED, ERROR, DATA_LOST].iter().position(|known| known == code);
    std::cmp::max_by_key(one, other, rank)
}

fn tell(path: &Path, arguments: &DigestArguments, outcome: &Outcome) {
    let shown = path.display();
    if arguments.json {
        let word = arguments.algorithm.word();
        let line = match outcome {
            Outcome::Stored(digest) => json!({ "path": path.to_string_lossy(), "state": "stored", word: digest }),
            Outcome::Same(digest) => json!({ "path": path.to_string_lossy(), "state": "same", word: digest }),
            Outcome::Other { stored, read } => {
                json!({ "path": path.to_string_lossy(), "state": "other", word: stored, "read": read })
            }
            Outcome::Nothing => json!({ "path": path.to_string_lossy(), "state": "none" }),
            Outcome::Changed => json!({ "path": path.to_string_lossy(), "state": "changed" }),
        };
        println!("{line}");
        return;
    }
    match outcome {
        Outcome::Stored(digest) => println!("{digest}  {shown}"),
        Outcome::Same(_) => println!("{shown}: as it was"),
        Outcome::Other { stored, read } => {
            println!(
                "{shown}: READS OTHERWISE: {read}, and {stored} is stored; copy it back from a version or a backup"
            );
        }
        Outcome::Nothing => println!("{shown}: has no digest; make one with `stere digest`"),
        Outcome::Changed => println!("{shown}: was changed while it was read; try again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts() {
        assert_eq!(
            [worse(DEGRADED, ERROR), worse(DATA_LOST, ERROR), worse(DONE, DEGRADED)],
            [ERROR, DATA_LOST, DEGRADED]
        );
    }
}
