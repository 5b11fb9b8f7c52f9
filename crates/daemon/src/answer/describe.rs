//! What is told on a medium of the files whose segments go there.

use std::collections::BTreeSet;

use serde::Serialize;
use stere_naming::{FileSystem, Io};

/// A line of a catalogue.
#[derive(Serialize)]
struct Line {
    inode: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: i64,
}

/// What is known of inodes, a line of JSON with its checksum each; those without a name are left out.
pub fn describe(filesystem: &FileSystem, inodes: &BTreeSet<u64>) -> Vec<u8> {
    let mut text = Vec::new();
    for &inode in inodes {
        let Ok(Some((path, value))) = filesystem.tiers().named_inode(Io::BLOCKING, inode) else { continue };
        let (path, path_hex) = match String::from_utf8(path) {
            Ok(path) => (Some(path), None),
            Err(error) => (None, Some(error.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect())),
        };
        let (mode, uid, gid, size, mtime) = (value.mode, value.uid, value.gid, value.size, value.mtime.seconds);
        let line = Line { inode, path, path_hex, mode, uid, gid, size, mtime };
        // Plain numbers and texts always become JSON.
        if let Ok(mut line) = serde_json::to_vec(&line) {
            stere_format::seal_catalogue_line(&mut line);
            text.extend_from_slice(&line);
            text.push(b'\n');
        }
    }
    text
}
