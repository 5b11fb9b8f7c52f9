//! What stored content is known to be right by, as files, directories, classes, rules and locks ask for it (P-120).

use crate::support;

use std::sync::Arc;

use stere_device::{Device, MemoryDevice};
use stere_format::{BlobValue, ChecksumKind, Key, key};
use stere_naming::{FileSystem, ROOT, SetMode};
use support::edits::{Random, fact, set};
use support::files::{Walk, assert_clean, check, create, directory, make, mkdir};
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 64 << 20;
const BLOCK: usize = 4096;
const SECTOR: u64 = 512;

/// The polynomial of CRC32C, reflected and made whole bytes: what differs by it has the same CRC.
const UNSEEN: [u8; 5] = [0xf1, 0x76, 0xec, 0x05, 0x01];

fn text(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| b"what is written again and again "[(at + number) % 32] ^ (at / 3000) as u8).collect()
}

fn blobs(fs: &FileSystem) -> Vec<BlobValue> {
    fs.syncfs(&caller(3)).unwrap();
    let mut blobs = Vec::new();
    let (from, to) = (Key::new(key::tree::BLOBS, 0, 0, 0), Key::new(key::tree::BLOBS + 1, 0, 0, 0));
    fs.store().for_each_key(from, to, |_, bytes| blobs.push(BlobValue::decode(bytes).unwrap())).unwrap();
    blobs
}

/// What all blobs are known by.
fn kinds(fs: &FileSystem) -> Vec<ChecksumKind> {
    let mut kinds: Vec<_> = blobs(fs).iter().map(|blob| blob.checksums.kind()).collect();
    kinds.dedup();
    kinds
}

/// Changes the first stored block of a blob wherever it lies on a device, so that its CRC stays as it is; tells how often it was there.
fn forge(device: &MemoryDevice, blob: &BlobValue) -> usize {
    let length = BLOCK.min(blob.address.length as usize);
    let (mut forged, mut block) = (0, vec![0; length]);
    for at in (0..DEVICE_BYTES - BLOCK as u64).step_by(SECTOR as usize) {
        device.read(at, &mut block).unwrap();
        if stere_format::crc32c(&block) != blob.checksums[0] {
            continue;
        }
        block[100..105].iter_mut().zip(UNSEEN).for_each(|(byte, unseen)| *byte ^= unseen);
        assert_eq!(stere_format::crc32c(&block), blob.checksums[0], "the CRC does not see it");
        device.write_bytes(at / BLOCK as u64 * BLOCK as u64, &with(device, at, &block)).unwrap();
        device.flush().unwrap();
        forged += 1;
    }
    forged
}

/// The whole blocks around these bytes, with them.
fn with(device: &MemoryDevice, at: u64, bytes: &[u8]) -> Vec<u8> {
    let start = at / BLOCK as u64 * BLOCK as u64;
    let skip = (at - start) as usize;
    let mut whole = vec![0; (skip + bytes.len()).next_multiple_of(BLOCK)];
    device.read(start, &mut whole).unwrap();
    whole[skip..skip + bytes.len()].copy_from_slice(bytes);
    whole
}

/// A pool of these devices with one file of one blob, changed on the first so many devices that have it.
fn forged_pool(
    settings: &[(&str, &str)],
    devices: u16,
    on: usize,
) -> (FileSystem, Vec<Arc<MemoryDevice>>, u64, Vec<u8>) {
    let (rig, fs) = Rig::new(devices, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "d");
    settings.iter().for_each(|(key, value)| set(&fs, top, key, value));
    let bytes = text(1, 100_000);
    let inode = make(&fs, top, "f", &bytes);
    let blob = blobs(&fs).pop().unwrap();
    while fs.store().step(true).unwrap() {}
    std::mem::forget(fs);
    let images = rig.images();
    let forged = images.iter().filter(|image| forge(image, &blob) > 0).take(on).count();
    assert_eq!(forged, on, "it lies on as many devices");
    (rig.open(&images), images, inode, bytes)
}

fn read(fs: &FileSystem, inode: u64, length: usize) -> Result<Vec<u8>, stere_naming::Error> {
    let mut out = vec![0; length];
    let read = fs.read(&caller(5), inode, 0, &mut out)?;
    out.truncate(read);
    Ok(out)
}

/// P-120: what has the CRC of the right bytes and is not those is never given as them, and put right from what is.
#[test]
fn a_change_that_the_crc_does_not_see_is_found_by_the_digest() {
    for (kind, compress) in [("xxh3", "none"), ("blake3", "none"), ("xxh3", "zstd"), ("blake3", "lz4")] {
        let settings = [("checksum", kind), ("compress", compress), ("copies", "2")];
        let (fs, images, inode, bytes) = forged_pool(&settings, 2, 1);
        assert!(read(&fs, inode, bytes.len()).unwrap() == bytes, "{kind}, {compress}: the other copy");
        let report = fs.store().scrubber.scrub().unwrap();
        assert!(report.is_clean(), "{kind}, {compress}: {report:?}");
        assert_clean(&fs);
        drop(fs);
        images[1].set_offline(true);

        let (fs, images, inode, bytes) = forged_pool(&settings, 2, 1);
        let report = fs.store().scrubber.scrub().unwrap();
        assert!(report.is_clean() && report.repaired_blocks > 0, "{kind}, {compress}: scrubbing finds it: {report:?}");
        images[1].set_offline(true);
        assert!(read(&fs, inode, bytes.len()).unwrap() == bytes, "{kind}, {compress}: it was put right");

        let (fs, _, inode, bytes) = forged_pool(&settings, 2, 2);
        assert!(read(&fs, inode, bytes.len()).is_err(), "{kind}, {compress}: no copy is right");
        for at in [0, 50, 4096, 60_000, 99_999] {
            let mut out = [0; 100];
            let read = fs.read(&caller(5), inode, at, &mut out);
            assert!(read.is_err(), "{kind}, {compress}: a part is no more right than the whole, at {at}");
        }
        assert!(!fs.store().checker.check(true).unwrap().findings.is_empty(), "{kind}, {compress}: check");
        let report = fs.store().scrubber.scrub().unwrap();
        assert_eq!(report.unrepairable.len(), 1, "{kind}, {compress}: {report:?}");
    }
}

/// P-120: what was cut out of a record leaves the rest of it as it was, and known.
#[test]
fn what_is_left_of_a_record_is_read_in_parts() {
    for kind in ["xxh3", "blake3", "none"] {
        let (rig, fs) = Rig::new(2, DEVICE_BYTES);
        let top = directory(&fs, "d", "checksum", kind);
        let mut bytes = text(1, 120_000);
        let inode = make(&fs, top, "f", &bytes);
        fs.syncfs(&caller(3)).unwrap();
        for at in [8192_usize, 40_960, 90_112] {
            let replaced = text(at, 8192);
            fs.write(&caller(4), inode, at as u64, &replaced, false).unwrap();
            bytes[at..at + 8192].copy_from_slice(&replaced);
        }
        fs.syncfs(&caller(5)).unwrap();
        check(&fs, inode, &bytes);
        // The next policy trims what is dead.
        set(&fs, top, "copies", "1");
        reconcile(&fs);
        assert!(
            blobs(&fs).iter().any(|blob| blob.live_blocks() < blob.blocks() && blob.live == blob.present),
            "{kind}"
        );
        check(&fs, inode, &bytes);
        set(&fs, top, "checksum", "blake3");
        reconcile(&fs);
        check(&fs, inode, &bytes);
        let fs = rig.reopen(fs, true);
        check(&fs, inode, &bytes);
        assert_eq!(kinds(&fs), [ChecksumKind::Blake3]);
        assert_clean(&fs);
    }
}

/// P-120: the same with parity.
#[test]
fn parity_gives_back_what_the_digest_asks_for() {
    let settings = [("checksum", "blake3"), ("parity", "2+1")];
    let (fs, _, inode, bytes) = forged_pool(&settings, 3, 1);
    assert!(read(&fs, inode, bytes.len()).unwrap() == bytes);
    assert!(fs.store().scrubber.scrub().unwrap().is_clean());
    assert_clean(&fs);
}

/// P-120, the other way round: without a digest nobody notices, which is why there are digests. And without reading CRCs nobody
/// notices more, but scrubbing does.
#[test]
fn without_a_digest_nobody_notices() {
    for kind in ["crc32c", "none"] {
        let settings = [("checksum", kind), ("copies", "2")];
        let (fs, _, inode, bytes) = forged_pool(&settings, 2, 2);
        assert!(read(&fs, inode, bytes.len()).unwrap() != bytes, "{kind}");
        assert_clean(&fs);
    }
    for (kind, is_seen) in [("crc32c", true), ("none", false)] {
        let (rig, fs) = Rig::new(1, DEVICE_BYTES);
        let top = directory(&fs, "d", "checksum", kind);
        let bytes = text(1, 100_000);
        let inode = make(&fs, top, "f", &bytes);
        let blob = blobs(&fs).pop().unwrap();
        while fs.store().step(true).unwrap() {}
        std::mem::forget(fs);
        let images = rig.images();
        let mut block = vec![0; BLOCK];
        for at in (0..DEVICE_BYTES - BLOCK as u64).step_by(SECTOR as usize) {
            images[0].read(at, &mut block).unwrap();
            if stere_format::crc32c(&block) == blob.checksums[0] {
                block[0] ^= 1;
                images[0].write_bytes(at / BLOCK as u64 * BLOCK as u64, &with(&images[0], at, &block)).unwrap();
            }
        }
        let fs = rig.open(&images);
        assert_eq!(read(&fs, inode, bytes.len()).is_err(), is_seen, "{kind}");
        assert_eq!(
            fs.store().scrubber.scrub().unwrap().unrepairable.len(),
            1,
            "{kind}: the CRCs are there all the same"
        );
    }
}

/// P-120 and P-18: what exists follows, and is pending till then.
#[test]
fn a_changed_policy_reaches_what_exists() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "d");
    let bytes = text(1, 300_000);
    let inode = make(&fs, top, "f", &bytes);
    assert_eq!((kinds(&fs), fact(&fs, inode, "effective.checksum")), (vec![ChecksumKind::Crc32c], "crc32c".into()));
    for (value, kind) in [
        ("blake3", ChecksumKind::Blake3),
        ("none", ChecksumKind::None),
        ("xxh3", ChecksumKind::Xxh3),
        ("crc32c", ChecksumKind::Crc32c),
    ] {
        set(&fs, top, "checksum", value);
        assert!(fact(&fs, inode, "state").starts_with("pending"), "{value}");
        reconcile(&fs);
        assert_eq!((kinds(&fs), fact(&fs, inode, "state")), (vec![kind], "compliant".into()), "{value}");
        check(&fs, inode, &bytes);
    }
    set(&fs, top, "checksum", "blake3");
    set(&fs, top, "compress", "zstd");
    reconcile(&fs);
    let fs = rig.reopen(fs, true);
    assert_eq!(kinds(&fs), [ChecksumKind::Blake3]);
    check(&fs, inode, &bytes);
    assert_clean(&fs);
}

/// P-120: by class, by rule (what tells most of those that match) and by lock.
#[test]
fn classes_rules_and_locks_say_it_too() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let settings = [("checksum".to_owned(), "xxh3".to_owned())];
    fs.policy().create_class(&caller(2), "dear", &settings).unwrap();
    let top = directory(&fs, "d", "class", "dear");
    let file = make(&fs, top, "f", &text(1, 100_000));
    assert_eq!((kinds(&fs), fact(&fs, file, "effective.checksum")), (vec![ChecksumKind::Xxh3], "xxh3".into()));
    set(&fs, top, "rules", "*.db: checksum=blake3; a*: checksum=none");
    let (both, one) = (create(&fs, top, "a.db").0, create(&fs, top, "a").0);
    let said = |inode| fact(&fs, inode, "effective.checksum");
    assert_eq!((said(both), said(one)), ("blake3".into(), "none".into()));
    assert!(fact(&fs, both, "source.checksum").contains("*.db: checksum=blake3"));
    set(&fs, both, "checksum", "crc32c");
    assert_eq!(said(both), "crc32c");
    fs.setxattr(&caller(3), top, b"trusted.stere.checksum", b"xxh3", SetMode::Any, false).unwrap();
    assert_eq!((said(both), said(one)), ("xxh3".into(), "xxh3".into()));
    for refused in [&b"blake3"[..], b"md5"] {
        assert!(fs.setxattr(&caller(3), one, b"user.stere.checksum", refused, SetMode::Any, false).is_err());
    }
    assert_eq!(
        fs.classes().list_classes(stere_naming::Io::BLOCKING).unwrap().last().unwrap().settings,
        [("checksum", "xxh3".to_owned())]
    );
}

/// P-120 and P-8: random writes, cuts, holes and copies, with checksums and compression changing in between.
#[test]
fn any_change_of_checksums_leaves_the_right_bytes() {
    for seed in 0..6u64 {
        let (rig, fs) = Rig::new(2, 256 << 20);
        println!("seed {seed}");
        let mut random = Random(seed + 120);
        let top = directory(&fs, "d", "checksum", "blake3");
        let asks = |random: &mut Random| match random.next(3) {
            0 => ("compress", ["none", "zstd"][random.next(2) as usize]),
            _ => ("checksum", ["crc32c", "xxh3", "blake3", "none"][random.next(4) as usize]),
        };
        let fs = Walk { steps: 120, reach_bytes: 500_000, text, asks }.run(&rig, fs, top, &mut random);
        assert!(fs.store().scrubber.scrub().unwrap().is_clean());
        assert_clean(&fs);
    }
}
