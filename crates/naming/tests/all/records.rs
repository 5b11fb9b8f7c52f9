//! The size of records: what files are cut into that ask for one, by themselves, by class and by rule (P-118).

use crate::support;

use stere_format::{BlobValue, Key, key};
use stere_naming::{FileSystem, ROOT};
use support::edits::{Random, fact, set};
use support::files::{Walk, assert_clean, check, create, directory, make};
use support::{Rig, caller};

const DEVICE_BYTES: u64 = 256 << 20;

fn text(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| b"what is written again and again "[(at + number) % 32] ^ (at / 3000) as u8).collect()
}

/// How long the blobs of the pool are, the longest first.
fn blobs(fs: &FileSystem) -> Vec<u32> {
    fs.syncfs(&caller(3)).unwrap();
    let (mut lengths, from, to) =
        (Vec::new(), Key::new(key::tree::BLOBS, 0, 0, 0), Key::new(key::tree::BLOBS + 1, 0, 0, 0));
    fs.store()
        .for_each_key(from, to, |_, bytes| lengths.push(BlobValue::decode(bytes).unwrap().logical_bytes))
        .unwrap();
    lengths.sort_unstable_by(|one, other| other.cmp(one));
    lengths
}

/// P-118.
#[test]
fn files_are_cut_into_records_of_the_size_that_is_asked_for() {
    for (record, encode, longest) in [
        ("4K", "none", 4 << 10),
        ("16K", "zstd", 16 << 10),
        ("64K", "lz4", 64 << 10),
        ("128K", "none", 128 << 10),
        ("1M", "none", 128 << 10),
    ] {
        let (rig, fs) = Rig::new(2, DEVICE_BYTES);
        let top = directory(&fs, "d", "record", record);
        set(&fs, top, "compress", encode);
        let bytes = text(1, 700_001);
        let inode = make(&fs, top, "f", &bytes);
        assert_eq!(fact(&fs, inode, "effective.record"), record);
        assert_eq!(blobs(&fs)[0], longest, "{record}");
        assert_eq!(blobs(&fs).len(), 700_001_usize.div_ceil(longest as usize), "{record}");
        // What is written in pieces that do not fit ends where records end.
        let (second, handle) = create(&fs, top, "g");
        for at in (0..300_000).step_by(12_288) {
            assert_eq!(fs.write(&caller(3), second, at as u64, &bytes[at..at + 12_288], false).unwrap(), 12_288);
        }
        fs.release(&caller(3), second, handle).unwrap();
        assert!(blobs(&fs).iter().all(|length| *length <= longest), "{record}");
        let fs = rig.reopen(fs, true);
        check(&fs, inode, &bytes);
        assert_clean(&fs);
    }
}

/// P-118: by class, by rule (the smallest of those that match) and by lock.
#[test]
fn classes_rules_and_locks_say_it_too() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let settings = [("record".to_owned(), "32K".to_owned())];
    fs.policy().create_class(&caller(2), "database", &settings).unwrap();
    let top = directory(&fs, "d", "class", "database");
    let file = make(&fs, top, "f", &text(1, 100_000));
    assert_eq!(fact(&fs, file, "effective.record"), "32K");
    set(&fs, top, "rules", "*.db: record=8K; a*: record=16K");
    let (both, one) = (make(&fs, top, "a.db", &text(1, 100_000)), make(&fs, top, "a", &text(2, 100_000)));
    assert_eq!((fact(&fs, both, "effective.record"), fact(&fs, one, "effective.record")), ("8K".into(), "16K".into()));
    assert!(fact(&fs, both, "source.record").contains("*.db: record=8K"));
    set(&fs, both, "record", "4K");
    assert_eq!(fact(&fs, both, "effective.record"), "4K");
    assert_eq!(
        fs.classes().list_classes(stere_naming::Io::BLOCKING).unwrap().last().unwrap().settings,
        [("record", "32K".to_owned())]
    );
    fs.setxattr(&caller(3), top, b"trusted.stere.record", b"64K", stere_naming::SetMode::Any, false).unwrap();
    assert_eq!(fact(&fs, both, "effective.record"), "64K");
    assert!(fs.setxattr(&caller(3), one, b"user.stere.record", b"6K", stere_naming::SetMode::Any, false).is_err());
    assert_clean(&fs);
}

/// P-118 and P-8: random writes, cuts, holes and copies, with the size of records and compression changing in between.
#[test]
fn any_change_of_sizes_leaves_the_right_bytes() {
    for seed in 0..8u64 {
        let (rig, fs) = Rig::new(2, DEVICE_BYTES);
        println!("seed {seed}");
        let mut random = Random(seed + 770);
        let top = directory(&fs, "d", "record", "8K");
        let asks = |random: &mut Random| match random.next(3) {
            0 => ("compress", ["none", "zstd"][random.next(2) as usize]),
            _ => ("record", ["4K", "16K", "128K", "1M"][random.next(4) as usize]),
        };
        let fs = Walk { steps: 120, reach_bytes: 500_000, text, asks }.run(&rig, fs, top, &mut random);
        fs.syncfs(&caller(5)).unwrap();
        assert_clean(&fs);
        assert!(fs.lookup(&caller(5), ROOT, b"d").is_ok());
    }
}
