//! What is compared: the attributes of one name, and a whole tree with lists, contents and extended attributes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::attributes;
use super::operation::Name;
use super::system::{self, Call};
use crate::error::{At, BenchError};

/// Explicit times lie before this (2002); what is later was "now" when it was set, and compares as equal.
const FIRST_NATURAL_SECOND: i64 = 1_009_843_200;
const READ_SIZE: usize = 1 << 20;
/// Of a sparse file's data, no more than this is compared.
const COMPARED_SIZE_MAX: u64 = 16 << 20;

pub type Observation = Call<Attributes>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    mode: u32,
    links: u64,
    user: u32,
    group: u32,
    device: u64,
    size: i64,
    modification: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    Explicit(i64, i64),
    Natural,
}

impl Time {
    pub fn new(seconds: i64, nanoseconds: i64) -> Self {
        if seconds < FIRST_NATURAL_SECOND { Time::Explicit(seconds, nanoseconds) } else { Time::Natural }
    }
}

pub fn attributes_of(status: &libc::stat) -> Attributes {
    let is_directory = status.st_mode & libc::S_IFMT == libc::S_IFDIR;
    Attributes {
        mode: status.st_mode,
        links: status.st_nlink,
        user: status.st_uid,
        group: status.st_gid,
        device: status.st_rdev,
        size: if is_directory { 0 } else { status.st_size },
        modification: Time::new(status.st_mtime, status.st_mtime_nsec),
    }
}

pub fn join(root: &Path, name: &Name) -> PathBuf {
    let mut bytes = root.as_os_str().as_bytes().to_vec();
    bytes.push(b'/');
    bytes.extend(&name.0);
    PathBuf::from(OsStr::from_bytes(&bytes))
}

pub fn name(root: &Path, name: &Name) -> Observation {
    system::status(&join(root, name)).map(|status| attributes_of(&status))
}

/// Names of a directory with their types as the listing gives them, sorted.
pub fn list(path: &Path) -> Call<Vec<(Name, u32)>> {
    let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(0);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).map_err(errno)? {
        let entry = entry.map_err(errno)?;
        let kind = entry.file_type().map_err(errno)?;
        entries.push((Name(entry.file_name().as_bytes().to_vec()), type_number(kind)));
    }
    entries.sort();
    Ok(entries)
}

fn type_number(kind: std::fs::FileType) -> u32 {
    use std::os::unix::fs::FileTypeExt;
    let kinds =
        [kind.is_file(), kind.is_dir(), kind.is_symlink(), kind.is_fifo(), kind.is_socket(), kind.is_char_device()];
    kinds.iter().position(|is| *is).map_or(0, |position| position as u32 + 1)
}

/// Name and value of an extended attribute.
type Extended = (Name, Call<Name>);

/// Everything that can be seen of one node, in a form that prints and compares.
#[derive(Debug, PartialEq, Eq)]
pub struct Node {
    attributes: Attributes,
    extended: Call<Vec<Extended>>,
    target: Option<PathBuf>,
    content: Option<Call<u64>>,
}

pub fn tree(root: &Path) -> Result<BTreeMap<Name, Node>, BenchError> {
    system::become_user(0);
    let mut nodes = BTreeMap::new();
    let mut waiting = vec![Name(Vec::new())];
    while let Some(prefix) = waiting.pop() {
        let directory = join(root, &prefix);
        let entries = list(&directory).map_err(std::io::Error::from_raw_os_error).at("list", &directory)?;
        for (entry, _) in entries {
            let name = if prefix.0.is_empty() { entry } else { Name([&prefix.0, b"/".as_slice(), &entry.0].concat()) };
            let path = join(root, &name);
            let status = system::status(&path).map_err(std::io::Error::from_raw_os_error).at("stat", &path)?;
            if status.st_mode & libc::S_IFMT == libc::S_IFDIR {
                waiting.push(name.clone());
            }
            nodes.insert(name, node(&path, &status));
        }
    }
    Ok(nodes)
}

fn node(path: &Path, status: &libc::stat) -> Node {
    let extended = attributes::list(path).map(|names| {
        let value = |name: &[u8]| attributes::get(path, &String::from_utf8_lossy(name)).map(Name);
        names.into_iter().map(|name| (Name(name.clone()), value(&name))).collect()
    });
    let kind = status.st_mode & libc::S_IFMT;
    Node {
        attributes: attributes_of(status),
        extended,
        target: std::fs::read_link(path).ok(),
        content: (kind == libc::S_IFREG).then(|| content_hash(path, status.st_size as u64)),
    }
}

/// A hash over all bytes that are not zero and where they are, so that holes and zeros compare as equal.
fn content_hash(path: &Path, size: u64) -> Call<u64> {
    let file = system::open(path, libc::O_RDONLY | libc::O_NOATIME, 0)?;
    let (mut hash, mut position, mut compared) = (size, 0, 0);
    while position < size && compared < COMPARED_SIZE_MAX {
        let Ok(start) = system::seek(&file, position, libc::SEEK_DATA) else {
            break;
        };
        let data = system::read_at(&file, READ_SIZE, start)?;
        if data.is_empty() {
            break;
        }
        hash = hash_pieces(hash, start, &data);
        compared += data.len() as u64;
        position = start + data.len() as u64;
    }
    Ok(hash)
}

fn hash_pieces(hash: u64, start: u64, data: &[u8]) -> u64 {
    let mix = |hash: u64, value: u64| (hash ^ value).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
    let bytes = data.iter().enumerate().filter(|(_, byte)| **byte != 0);
    bytes.fold(hash, |hash, (index, byte)| mix(hash, (start + index as u64) << 8 | u64::from(*byte)))
}
