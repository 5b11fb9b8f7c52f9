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
        assert!(!parse(b"1 2 8:3 / / rw - ext4 /dev/sda rw").unwrap().is_stere());
    }
}
