//! Tertiary volumes on other machines.
//!
//! Each is a `Volume`: an S3 bucket or a prefix in one (`s3://bucket/prefix,endpoint=URL`), a folder on a WebDAV server
//! (`dav://host/folder`, `davs://` with TLS), and a directory that ssh reaches (`sftp://user@host/path`). S3 requests are signed by
//! `rusty-s3`, which does no I/O, and both of HTTP are sent by `ureq`, which blocks; SFTP is spoken over the pipes of the machine's own
//! `ssh`. So nothing here needs threads or a runtime of its own, and whoever calls may wait. Conditional writes are ignored by some
//! servers, so nothing relies on them.
//!
//! Invariants: whatever a server answers that is not plainly "there is no such object" counts as *away*: later is another try. An object
//! is under its name whole or not at all. No secret is part of a place: places are shown, and stand in the pool.
//! Read next: `place.rs`, `http.rs`, `s3.rs`, `dav.rs`, `sftp.rs`, the crate `recall`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stere_device::Volume;

mod dav;
mod http;
mod named_file;
mod partial;
mod place;
mod s3;
mod sftp;
mod timeouts;

pub use dav::DavVolume;
#[doc(hidden)]
pub use dav::multistatus;
pub use place::{DavPlace, Place, PlaceError, SftpPlace};
pub use s3::S3Volume;
pub use sftp::SftpVolume;
#[doc(hidden)]
pub use sftp::packet;

/// Names in one list, of all its pages and folders: a volume of 16 TiB in objects of 4 MiB. A list is in memory, so it must have an end.
#[cfg(not(test))]
const NAMES_MAX: usize = 4 << 20;
/// Few enough for a test to play a server that goes beyond.
#[cfg(test)]
const NAMES_MAX: usize = 1 << 16;
/// A list takes minutes where there are millions of names.
const LIST_TIME: Duration = Duration::from_secs(3600);
/// What is said of a server whose list has none.
const LIST_WITHOUT_END: &str = "its list does not end; look what the server is, and whether the place is the right one";

/// The keys that belong to a place, by how it begins.
const PLACES: [(&str, &[&str]); 4] = [
    ("s3://", &["endpoint", "region", "credentials"]),
    ("dav://", &["credentials"]),
    ("davs://", &["credentials", "ca"]),
    ("sftp://", &["identity", "known_hosts"]),
];

/// Whether this names a volume of this crate.
pub fn is_place(text: &str) -> bool {
    PLACES.iter().any(|(begin, _)| text.starts_with(begin))
}

/// Which keys belong to this place.
pub fn keys_of(place: &str) -> &'static [&'static str] {
    PLACES.iter().find(|(begin, _)| place.starts_with(begin)).map_or(&[], |(_, keys)| keys)
}

/// The files of this machine that a place names, to be used for the server that it names too. None for what cannot be opened.
pub fn named_files(place: &str) -> Vec<PathBuf> {
    let files = match place.split_once("://").map(|(scheme, _)| scheme) {
        Some("dav" | "davs") => place.parse().ok().map(|place: DavPlace| vec![place.credentials, place.authorities]),
        Some("sftp") => place.parse().ok().map(|place: SftpPlace| vec![place.identity, place.known_hosts]),
        Some("s3") => place.parse().ok().map(|place: Place| vec![place.credentials]),
        _ => None,
    };
    files.into_iter().flatten().flatten().collect()
}

/// How to reach what is named; nothing is said to it yet.
pub fn open(place: &str) -> Result<Arc<dyn Volume>, String> {
    match place.split_once("://").map(|(scheme, _)| scheme) {
        Some("dav" | "davs") => Ok(Arc::new(DavVolume::open(place)?)),
        Some("sftp") => Ok(Arc::new(SftpVolume::open(place)?)),
        _ => Ok(Arc::new(S3Volume::open(place)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P-210: no key that names a file is forgotten here.
    #[test]
    fn all_named_files_are_found() {
        for (place, files) in [
            ("dav://nas/cold", &[][..]),
            ("dir:/mnt,credentials=/a", &[]),
            ("dav://nas/cold,credentials=/a", &["/a"]),
            ("davs://nas/cold,ca=/b,credentials=/a", &["/a", "/b"]),
            ("sftp://shed/x", &[]),
            ("sftp://shed/x,known_hosts=/b,identity=/a", &["/a", "/b"]),
            ("s3://cold,region=here", &[]),
            ("s3://cold,region=here,credentials=/a", &["/a"]),
        ] {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            assert_eq!(named_files(place), files, "{place}");
        }
        // A place that gets a new key with a file must be thought of.
        let keys: Vec<&str> = PLACES.iter().flat_map(|(_, keys)| *keys).copied().collect();
        let known =
            ["endpoint", "region", "credentials", "credentials", "credentials", "ca", "identity", "known_hosts"];
        assert_eq!(keys, known);
    }
}
