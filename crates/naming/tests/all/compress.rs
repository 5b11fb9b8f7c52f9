//! Compression: content comes back byte for byte whatever is done to it, accounts stay exact, what exists is brought in line
//! with what is asked for, also across crashes, and what cannot be decoded is an error for that record alone (P-50, P-51).

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stere_device::{Job, Parallel};
use stere_file::Coders;
use stere_format::{BlobEncoding, BlobValue, ExtentValue, Key, key};
use stere_naming::{Error, FileSystem, Io, OpenFlags, ROOT, SetMode};
use support::edits::{Random, fact, set};
use support::files::{Walk, assert_clean, check, directory, make, mkdir};
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 96 << 20;
const RECORD: usize = 128 << 10;

fn text(number: usize, length: usize) -> Vec<u8> {
    let line =
        |at: usize| format!("record number {:>6} of segment {:>3}, all well\n", at * 7, number % 1000).into_bytes();
    (0..length / 40 + 1).flat_map(line).take(length).collect()
}

fn stored(fs: &FileSystem, inode: u64) -> u64 {
    fact(fs, inode, "stored").parse().unwrap()
}

fn live_bytes(fs: &FileSystem) -> u64 {
    fs.store().space().statistics(stere_format::Scheme { data: 1, parity: 1 }).live_raw_bytes
}

/// Threads that are there for each call alone; counts the calls.
#[derive(Default)]
struct Threads(AtomicUsize);

impl Parallel for Threads {
    fn run<'a>(&self, jobs: Vec<Job<'a>>) {
        assert!(jobs.len() > 1, "one job needs no thread");
        self.0.fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|scope| jobs.into_iter().rev().for_each(|job| drop(scope.spawn(job))));
    }
}

/// P-50: who encodes the records of a request changes nothing about what is stored, and in which order.
#[test]
fn records_that_several_threads_encode_are_stored_and_read_in_order() {
    let threads = Arc::new(Threads::default());
    let (mut rig, fs) = Rig::new(2, DEVICE_BYTES);
    let keyed = [("compress", "zstd"), ("compress", "lz4")];
    // Noise and text in turn take their time each in another way.
    let mixed = |number: usize| {
        let mut random = Random(number as u64);
        let piece = |at: usize| if at % 3 == 1 { random.noise(RECORD) } else { text(number + at, RECORD) };
        (0..24).flat_map(piece).take(24 * RECORD - 700).collect::<Vec<u8>>()
    };
    let mut written = Vec::new();
    for (number, (key, value)) in keyed.into_iter().enumerate() {
        let directory = directory(&fs, value, key, value);
        let small = mkdir(&fs, directory, "small");
        set(&fs, small, "record", "16K");
        written.push((directory, small, mixed(number), make(&fs, directory, "alone", &mixed(number))));
    }
    fs.syncfs(&caller(3)).unwrap();
    rig.options.files.coders = Coders::new(4, threads.clone());
    let fs = rig.reopen(fs, false);
    for (directory, small, bytes, before) in &written {
        let one = make(&fs, *directory, "together", bytes);
        let gathered = make(&fs, *small, "gathered", b"");
        bytes.chunks(50_000).enumerate().for_each(|(at, piece)| {
            fs.write(&caller(3), gathered, at as u64 * 50_000, piece, false).unwrap();
        });
        assert_eq!(stored(&fs, one), stored(&fs, *before));
        for inode in [*before, one, gathered] {
            check(&fs, inode, bytes);
        }
    }
    assert!(threads.0.load(Ordering::Relaxed) > 4, "they were asked");
    fs.syncfs(&caller(4)).unwrap();
    let fs = rig.reopen(fs, true);
    written.iter().for_each(|(_, _, bytes, before)| check(&fs, *before, bytes));
    assert_clean(&fs);
}

#[test]
fn what_becomes_smaller_takes_less_and_the_rest_is_as_it_was() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let mut random = Random(1);
    let mut files = Vec::new();
    for compress in ["lz4", "zstd", "zstd:1", "zstd:19", "none"] {
        let directory = directory(&fs, compress, "compress", compress);
        assert_eq!(fact(&fs, directory, "compress"), compress);
        for (number, length) in [1, 700, 5000, RECORD, 700_000].into_iter().enumerate() {
            let bytes = text(number, length);
            files.push((make(&fs, directory, &format!("text{number}"), &bytes), bytes, compress != "none"));
        }
        let bytes = random.noise(400_000);
        files.push((make(&fs, directory, "noise", &bytes), bytes, false));
    }
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, true);
    for (inode, bytes, is_smaller) in &files {
        check(&fs, *inode, bytes);
        assert_eq!(fact(&fs, *inode, "state"), "compliant");
        let stored = stored(&fs, *inode);
        match *is_smaller && bytes.len() >= 700 {
            true => assert!(
                stored < bytes.len() as u64 * 3 / 4,
                "{stored} of {}: {}",
                bytes.len(),
                fact(&fs, *inode, "effective.compress")
            ),
            false => assert_eq!(stored, bytes.len() as u64),
        }
    }
    assert_clean(&fs);
}

/// P-8 and P-4: random writes, cuts, holes and copies, with the policy changing in between, against the bytes they should leave.
#[test]
fn any_change_of_a_compressed_file_leaves_the_right_bytes_and_exact_accounts() {
    for seed in 0..12u64 {
        let (rig, fs) = Rig::new(2, DEVICE_BYTES);
        println!("seed {seed}");
        let mut random = Random(seed + 77);
        let empty = live_bytes(&fs);
        let top = directory(&fs, "d", "compress", "zstd");
        let asks = |random: &mut Random| ("compress", ["none", "lz4", "zstd", "zstd:7"][random.next(4) as usize]);
        let fs = Walk { steps: 160, reach_bytes: 500_000, text, asks }.run(&rig, fs, top, &mut random);
        for at in 0..3 {
            fs.unlink(&caller(5), top, format!("f{at}").as_bytes()).unwrap();
        }
        fs.rmdir(&caller(5), ROOT, b"d").unwrap();
        fs.syncfs(&caller(5)).unwrap();
        while fs.step(&caller(5), 100).unwrap() {}
        while fs.store().step(true).unwrap() {}
        assert_clean(&fs);
        // Only the tree's own nodes may differ.
        assert!(live_bytes(&fs) < empty + (1 << 20), "seed {seed}: {} of {empty}", live_bytes(&fs));
    }
}

#[test]
fn what_exists_is_brought_in_line_and_back() {
    let (rig, fs) = Rig::new(3, DEVICE_BYTES);
    let top = fs.mkdir(&caller(2), ROOT, b"d", 0o755).unwrap().inode;
    let noise = Random(5).noise(300_000);
    let files: Vec<(u64, Vec<u8>)> = (0..6)
        .map(|number| {
            let bytes = if number == 5 { noise.clone() } else { text(number, 30_000 + number * 90_000) };
            (make(&fs, top, &format!("f{number}"), &bytes), bytes)
        })
        .collect();
    let copy = make(&fs, ROOT, "copy", b"");
    fs.copy_range(&caller(3), files[4].0, 0, copy, 0, 1 << 20).unwrap();
    fs.syncfs(&caller(3)).unwrap();
    let mut fs = fs;
    for (compress, is_smaller) in [("zstd", true), ("lz4", true), ("zstd:9", true), ("none", false), ("lz4", true)] {
        set(&fs, top, "compress", compress);
        fs.syncfs(&caller(3)).unwrap();
        assert!(files.iter().any(|(inode, _)| fact(&fs, *inode, "state").starts_with("pending")), "{compress}");
        // In small steps, with a crash in between.
        for _ in 0..3 {
            fs.reconciler().reconcile_step(&caller(7), 50_000).unwrap();
        }
        fs = rig.reopen(fs, true);
        reconcile(&fs);
        for (number, (inode, bytes)) in files.iter().enumerate() {
            check(&fs, *inode, bytes);
            assert_eq!(fact(&fs, *inode, "state"), "compliant", "{compress} {number}");
            let (stored, size) = (stored(&fs, *inode), bytes.len() as u64);
            // What another file shares stays as it is until both ask for the same.
            match is_smaller && number < 4 {
                true => assert!(stored < size / 2, "{compress}: {stored} of {size}"),
                false if number == 4 => {}
                false => assert_eq!(stored, size, "{compress}"),
            }
        }
        let moved = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().moved_bytes;
        fs.reconciler().reconcile(&caller(4), top).unwrap();
        reconcile(&fs);
        assert_eq!(
            fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().moved_bytes,
            moved,
            "done is done: {compress}"
        );
        assert_clean(&fs);
    }
    set(&fs, ROOT, "compress", "lz4");
    reconcile(&fs);
    assert!(stored(&fs, copy) < files[4].1.len() as u64 / 2, "both ask for it now");
    check(&fs, copy, &files[4].1);
    assert_clean(&fs);
}

#[test]
fn a_class_and_its_directory_agree_on_what_is_nearest() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    let archive = fs.mkdir(&caller(2), ROOT, b"archive", 0o755).unwrap().inode;
    set(&fs, archive, "class", "archive");
    let below = make(&fs, archive, "file", &text(1, 100_000));
    assert_eq!(fact(&fs, below, "effective.compress"), "zstd");
    assert_eq!(fact(&fs, below, "source.compress"), "inherited from /archive");
    assert!(stored(&fs, below) < 50_000);
    set(&fs, below, "compress", "none");
    assert_eq!(fact(&fs, below, "source.compress"), "set here");
    reconcile(&fs);
    assert_eq!(stored(&fs, below), 100_000);
    for bad in ["gzip", "zstd:20", "zstd:0", "LZ4"] {
        let refused = fs.setxattr(&caller(3), below, b"user.stere.compress", bad.as_bytes(), SetMode::Any, false);
        assert_eq!(refused.unwrap_err().errno(), libc::EINVAL, "{bad}");
    }
    assert_eq!(fact(&fs, below, "compress"), "none");
}

/// The blobs of a file, in order.
fn blobs(fs: &FileSystem, inode: u64) -> Vec<u64> {
    let mut blobs = Vec::new();
    let (from, to) = (Key::extent(inode, 0), Key::new(key::tree::NAMES, inode, key::kind::EXTENT + 1, 0));
    fs.store().for_each_key(from, to, |_, bytes| blobs.push(ExtentValue::decode(bytes).unwrap().blob)).unwrap();
    blobs
}

fn change_blob(fs: &FileSystem, blob: u64, change: impl Fn(&mut BlobValue)) {
    let changed = fs.store().update(Io::BLOCKING, |transaction| {
        let mut value = BlobValue::decode(&transaction.get(&Key::blob(blob))?.unwrap()).unwrap();
        change(&mut value);
        transaction.put(Key::blob(blob), &value.encode());
        Ok::<_, stere_store::Error>(())
    });
    changed.unwrap();
}

#[test]
fn what_cannot_be_decoded_is_an_error_for_that_record_alone() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let top = directory(&fs, "d", "compress", "zstd");
    let bytes = text(3, 4 * RECORD);
    let (unknown, wrong, beside) =
        (make(&fs, top, "a", &bytes), make(&fs, top, "b", &bytes), make(&fs, top, "c", &bytes));
    fs.syncfs(&caller(3)).unwrap();
    // As a newer stere would have stored it; and as one with a bug would have.
    change_blob(&fs, blobs(&fs, unknown)[1], |value| value.encoding = BlobEncoding(0x4d));
    change_blob(&fs, blobs(&fs, wrong)[2], |value| value.encoding = BlobEncoding::LZ4);
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, false);
    for (inode, record, says) in [(unknown, 1, "0x4d"), (wrong, 2, "LZ4")] {
        let mut out = vec![0; RECORD];
        for at in 0..4 {
            let read = fs.read(&caller(4), inode, (at * RECORD) as u64, &mut out);
            match at == record {
                true => {
                    let error = read.unwrap_err();
                    assert!(matches!(&error, Error::Damaged(text) if text.contains(says)), "{error}");
                    assert_eq!(error.errno(), libc::EIO);
                }
                false => assert!(read.unwrap() == RECORD && out == bytes[at * RECORD..][..RECORD]),
            }
        }
    }
    check(&fs, beside, &bytes);
    let findings = fs.store().checker.check(true).unwrap().findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].text.contains("encoding 0x4d"), "{findings:?}");
    // It moves, whatever it is, and the work on the others goes on.
    set(&fs, top, "compress", "lz4");
    set(&fs, top, "copies", "1");
    reconcile(&fs);
    assert!(fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().blocked.is_empty());
    check(&fs, beside, &bytes);
    for blob in blobs(&fs, beside) {
        let value = fs.store().view(Io::BLOCKING, |view| view.blob(blob)).unwrap().value;
        assert_eq!(value.encoding, BlobEncoding::LZ4);
    }
    let blob = blobs(&fs, unknown)[1];
    let value = fs.store().view(Io::BLOCKING, |view| view.blob(blob)).unwrap();
    assert_eq!((value.value.encoding, value.scheme().parity), (BlobEncoding(0x4d), 0));
    fs.unlink(&caller(5), top, b"a").unwrap();
    fs.syncfs(&caller(5)).unwrap();
}

/// P-6: what was accepted has its room, though a part of what is compressed frees nothing when it is replaced.
#[test]
fn a_pool_full_of_compressed_files_keeps_what_it_accepts_and_empties() {
    let (rig, fs) = Rig::new(1, 64 << 20);
    set(&fs, ROOT, "compress", "zstd:1");
    set(&fs, ROOT, "copies", "1");
    let mut random = Random(11);
    let mut files: Vec<(String, u64, Vec<u8>)> = Vec::new();
    'filling: for number in 0.. {
        let name = format!("f{number}");
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let Ok((made, handle)) = fs.create(&caller(2), ROOT, name.as_bytes(), 0o644, flags) else { break };
        let mut bytes = Vec::new();
        for _ in 0..8 {
            // About half of it becomes smaller.
            let data = [random.noise(RECORD / 2), text(number, RECORD / 2)].concat();
            match fs.write(&caller(2), made.inode, bytes.len() as u64, &data, false) {
                Ok(length) => bytes.extend_from_slice(&data[..length]),
                Err(Error::NoSpace) => {
                    fs.release(&caller(2), made.inode, handle).unwrap();
                    files.push((name, made.inode, bytes));
                    break 'filling;
                }
                Err(error) => panic!("{error}"),
            }
        }
        fs.release(&caller(2), made.inode, handle).unwrap();
        files.push((name, made.inode, bytes));
        while fs.store().step(false).unwrap() {}
    }
    let logical: usize = files.iter().map(|(_, _, bytes)| bytes.len()).sum();
    assert!(logical > 64 << 20, "{logical} bytes went in");
    let mut accepted = 0;
    for _ in 0..400 {
        let at = random.next(files.len() as u64) as usize;
        let (_, inode, bytes) = &mut files[at];
        if bytes.len() < 2 * RECORD {
            continue;
        }
        let offset = random.next(bytes.len() as u64 - 20_000) as usize;
        let data = random.noise(1 + random.0 as usize % 20_000);
        match fs.write(&caller(3), *inode, offset as u64, &data, false) {
            Ok(length) => {
                bytes[offset..offset + length].copy_from_slice(&data[..length]);
                accepted += 1;
            }
            Err(Error::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
        fs.fsync(&caller(3), *inode, false).expect("what was accepted has its room");
    }
    eprintln!("{accepted} overwrites of 400 were accepted");
    let fs = rig.reopen(fs, true);
    for (_, inode, bytes) in &files {
        check(&fs, *inode, bytes);
    }
    for (name, _, _) in &files {
        fs.unlink(&caller(4), ROOT, name.as_bytes()).expect("unlinking works in a full pool");
    }
    fs.syncfs(&caller(4)).unwrap();
    while fs.step(&caller(5), 100).unwrap() {}
    while fs.store().step(true).unwrap() {}
    assert!(live_bytes(&fs) < 4 << 20, "{} bytes", live_bytes(&fs));
    assert_clean(&fs);
}
