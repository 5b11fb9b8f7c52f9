//! Files of this machine that a place names: keys, passwords, certificates.
//!
//! A place stands in the pool, and who made the pool may have been somebody else: so what it names need not be such a file. A pipe that
//! nobody writes to, a device without an end, or a directory keeps no mount, and nothing of what is read gets into a message.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Far more than keys, passwords and certificates take.
const BYTES_MAX: u64 = 1 << 20;

/// All of a regular file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    // A name without a folder would mean another file wherever the daemon is started.
    if !path.is_absolute() {
        return Err(wrong(&"write the whole path, from / on"));
    }
    // Opened without waiting: a pipe has perhaps nobody at its other end.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file: File =
        OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path).map_err(|error| wrong(&error))?;
    let metadata = file.metadata().map_err(|error| wrong(&error))?;
    if !metadata.is_file() {
        return Err(wrong(&"it is no regular file; name one"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| wrong(&error))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(wrong(&"it is larger than 1 MiB, and holds something else than was to be named"));
    }
    Ok(bytes)
}

/// The same as text.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    String::from_utf8(read(path)?).map_err(|_| format!("{}: it is no text; name another file", path.display()))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// P-206.
    #[test]
    fn what_is_no_such_file_keeps_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, large, keys) = (folder.path().join("pipe"), folder.path().join("large"), folder.path().join("keys"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        File::create(&large).unwrap().set_len(8 << 30).unwrap();
        std::fs::write(&keys, "access_key=a\n").unwrap();
        let begun = Instant::now();
        for (path, words) in [
            (pipe.as_path(), "no regular file"),
            (Path::new("/dev/zero"), "no regular file"),
            (folder.path(), "no regular file"),
            (large.as_path(), "larger than 1 MiB"),
            (Path::new("keys"), "whole path"),
            (Path::new("/nowhere/at/all"), "No such file"),
        ] {
            let why = read_text(path).unwrap_err();
            assert!(why.contains(words) && why.contains(&*path.to_string_lossy()), "{why}");
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(read_text(&keys).unwrap(), "access_key=a\n");
    }
}
