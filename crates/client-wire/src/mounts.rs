//! What the kernel has mounted where, as it tells in `/proc/self/mountinfo`; no file system is asked itself (it may be dead).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub mountpoint: PathBuf,
    pub kind: String,
    pub source: String,
    /// Major and minor number, which everything in it has.
    pub device: (u32, u32),
    /// Who made it, of those that ordinary users can make.
    pub owner: Option<u32>,
}

/// A mount with its place among the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub mount: Mount,
    pub id: u64,
    pub parent: u64,
    /// What of the file system is mounted.
    pub root: PathBuf,
    /// The peer groups that it sends what is mounted and unmounted below it to, and receives that from.
    pub shared: Option<u64>,
    pub master: Option<u64>,
}

/// All mounts of a process, by its list in /proc; none where that cannot be read.
pub fn list_of(mountinfo: &Path) -> Vec<Listed> {
    let text = std::fs::read(mountinfo).unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(parse_listed).collect()
}

fn parse_listed(line: &[u8]) -> Option<Listed> {
    let mount = parse(line)?;
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
    let optional = fields.iter().skip(6).take_while(|field| **field != b"-");
    let group = |key: &[u8]| optional.clone().find_map(|field| number(field.strip_prefix(key)?));
    let (shared, master) = (group(b"shared:"), group(b"master:"));
    let root = PathBuf::from(OsString::from_vec(unescape(fields.get(3)?)));
    Some(Listed { mount, id: number(fields[0])?, parent: number(fields.get(1)?)?, root, shared, master })
}

impl Mount {
    pub fn is_stere(&self) -> bool {
        self.kind.starts_with("fuse") && self.kind.ends_with(".stere")
    }
}

/// The topmost mount on this path.
pub fn find(mountpoint: &Path) -> Option<Mount> {
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    text.split(|byte| *byte == b'\n').filter_map(parse).rfind(|mount| mount.mountpoint == mountpoint)
}

/// A mount of this device.
pub fn find_device(device: (u32, u32)) -> Option<Mount> {
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    text.split(|byte| *byte == b'\n').filter_map(parse).rfind(|mount| mount.device == device)
}

fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let mountpoint = PathBuf::from(OsString::from_vec(unescape(fields.get(4)?)));
    let end = fields.iter().position(|field| *field == b"-")?;
    let text = |index: usize| fields.get(index).map(|field| String::from_utf8_lossy(&unescape(field)).into_owned());
    let numbers = text(2)?;
    let (major, minor) = numbers.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let options = text(end + 3).unwrap_or_default();
    let owner = options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
    Some(Mount { mountpoint, kind: text(end + 1)?, source: text(end + 2)?, device, owner })
}

/// Undoes the octal escapes (`\040` is a space).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let value = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 8).ok());
        plain.push(value.unwrap_or(*first));
        rest = if value.is_some() { &after[3..] } else { after };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = b"36 35 7:0 / /mnt/a\\040b rw,noatime shared:1 - fuseblk.stere tank rw,user_id=0";
        let mount = parse(line).unwrap();
        assert_eq!(mount.mountpoint, Path::new("/mnt/a b"));
        assert!(mount.is_stere());
        assert_eq!((mount.source.as_str(), mount.device, mount.owner), ("tank", (7, 0), Some(0)));
        assert!(parse(b"").is_none());
        let listed = parse_listed(line).unwrap();
        assert_eq!((listed.id, listed.parent, listed.shared, listed.master), (36, 35, Some(1), None));
        assert_eq!(listed.root, Path::new("/"));
        let slave = parse_listed(b"9 8 7:0 /sub /m rw shared:3 master:12 - fuse.stere tank rw").unwrap();
        assert_eq!((slave.shared, slave.master, slave.root.as_path()), (Some(3), Some(12), Path::new("/sub")));
        assert!(!parse(b"1 2 8:3 / / rw - ext4 /dev/sda rw").unwrap().is_stere());
    }
}
