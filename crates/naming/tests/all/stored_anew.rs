//! P-205: what is stored anew through the file, because it is encrypted or passed plugins, is stored anew to its end.

use crate::support;

use stere_format::{BlobValue, Key, key};
use stere_naming::{FileSystem, ROOT};
use support::edits::{Random, fact, set};
use support::files::{assert_clean, check, directory, make};
use support::keys::create_key;
use support::{Rig, caller, reconcile};

/// Which keys blobs have, and how many of each.
fn keys_of_blobs(fs: &FileSystem) -> std::collections::BTreeMap<u16, usize> {
    let mut keys = std::collections::BTreeMap::new();
    let (from, to) = (Key::new(key::tree::BLOBS, 0, 0, 0), Key::new(key::tree::BLOBS + 1, 0, 0, 0));
    fs.store()
        .for_each_key(from, to, |_, bytes| *keys.entry(BlobValue::decode(bytes).unwrap().key).or_default() += 1)
        .unwrap();
    keys
}

fn settled(fs: &FileSystem, inode: u64) -> String {
    fs.syncfs(&caller(3)).unwrap();
    reconcile(fs);
    fs.syncfs(&caller(3)).unwrap();
    fact(fs, inode, "state")
}

/// A file of 700 records, more than one look at it takes in, of small records and of large ones.
#[test]
fn a_long_file_is_encrypted_recompressed_and_decrypted_to_its_end() {
    let (_rig, fs) = Rig::new(2, 256 << 20);
    create_key(&fs, "main", 1);
    create_key(&fs, "other", 2);
    let top = directory(&fs, "top", "record", "16K");
    let large = fs.mkdir(&caller(2), ROOT, b"large", 0o755).unwrap().inode;
    let mut files = Vec::new();
    for (at, length) in [(top, 700 * (16 << 10)), (large, 300 * (128 << 10) + 5)] {
        // Half of it can be compressed.
        let mut bytes = Random(7).noise(length);
        bytes.chunks_mut(32 << 10).step_by(2).for_each(|chunk| chunk.fill(0x5a));
        files.push((make(&fs, at, "file", &bytes), bytes));
    }
    let steps =
        [("encrypt", "yes"), ("encrypt", "other"), ("compress", "zstd"), ("compress", "none"), ("encrypt", "no")];
    for (name, value) in steps {
        for at in [top, large] {
            set(&fs, at, name, value);
        }
        for (inode, _) in &files {
            assert_eq!(settled(&fs, *inode), "compliant", "{name}={value}");
        }
        let keys = keys_of_blobs(&fs);
        assert_eq!(keys.len(), 1, "after {name}={value} blobs have the keys {keys:?}");
    }
    for (inode, bytes) in &files {
        check(&fs, *inode, bytes);
    }
    fs.syncfs(&caller(4)).unwrap();
    assert_clean(&fs);
}
