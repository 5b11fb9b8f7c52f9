//! Content comes back byte for byte whatever is done to it and however the file is stored; a save that is torn at any byte leaves
//! the state before it or after it; what was changed beneath is an error (P-67).

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use stere_crypt::DataKey;
use stere_plugin::Loader;
use stere_sandbox::{Limits, Sandbox};

use super::*;

/// A file that goes away.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Temporary {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("stere-stacked-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Temporary(std::env::temp_dir().join(name))
    }

    fn file(&self) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(&self.0).unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn coder() -> Arc<Coder> {
    let text = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/rotate.wat");
    let rotate = Sandbox::new(Limits::default()).unwrap().load(&wat::parse_file(text).unwrap()).unwrap();
    let key = DataKey::new(1, zeroize::Zeroizing::new([7; 32]));
    Arc::new(Coder { plugins: BTreeMap::from([("rotate".to_owned(), rotate)]), key: Some(key) })
}

fn text(number: u64, length: usize) -> Vec<u8> {
    let line = |at: usize| format!("line {at} of text {number}, all well\n").into_bytes();
    (0..length / 20 + 1).flat_map(line).take(length).collect()
}

const WAYS: [&str; 5] = [
    "compress=zstd",
    "encrypt=yes",
    "plugins=rotate:5",
    "compress=lz4,encrypt=yes,plugins=rotate+rotate:9",
    "compress=none",
];

fn check(stacked: &mut Stacked, expected: &[u8]) {
    assert_eq!(stacked.size(), expected.len() as u64);
    let mut out = vec![0xaa; expected.len() + 10];
    assert_eq!(stacked.read(0, &mut out).unwrap(), expected.len());
    assert!(out[..expected.len()] == *expected, "other content");
}

#[test]
fn any_change_leaves_the_right_bytes() {
    let coder = coder();
    for (seed, way) in WAYS.into_iter().enumerate() {
        let temporary = Temporary::new();
        let mut stacked = Stacked::create(temporary.file(), coder.clone(), Way::parse(way).unwrap()).unwrap();
        let (mut expected, mut random) = (Vec::new(), Random(seed as u64 + 1));
        for step in 0..150 {
            let offset = random.next(600_000) as usize;
            match random.next(8) {
                0..=3 => {
                    let length = [1, 100, 5000, 131_072, 300_000][random.next(5) as usize];
                    let data = text(step, length);
                    stacked.write(offset as u64, &data).unwrap();
                    if expected.len() < offset + length {
                        expected.resize(offset + length, 0);
                    }
                    expected[offset..offset + length].copy_from_slice(&data);
                }
                4 => {
                    stacked.set_size(offset as u64).unwrap();
                    expected.resize(offset, 0);
                }
                5 => stacked.save(random.next(2) == 0).unwrap(),
                6 => {
                    let mut out = vec![0; 3000];
                    let length = stacked.read(offset as u64, &mut out).unwrap();
                    let from = offset.min(expected.len());
                    assert!(out[..length] == expected[from..(from + 3000).min(expected.len())], "{way} step {step}");
                }
                _ => {
                    stacked.save(false).unwrap();
                    drop(stacked);
                    stacked = Stacked::open(temporary.file(), coder.clone()).unwrap();
                }
            }
        }
        check(&mut stacked, &expected);
        stacked.save(true).unwrap();
        drop(stacked);
        let found = find(&temporary.file()).unwrap();
        assert_eq!(found, Found::Stacked { size: expected.len() as u64, way: Way::parse(way).unwrap() });
        check(&mut Stacked::open(temporary.file(), coder.clone()).unwrap(), &expected);
    }
}

#[test]
fn a_torn_save_leaves_one_of_both_states() {
    let coder = coder();
    let temporary = Temporary::new();
    let way = Way::parse("compress=lz4,plugins=rotate").unwrap();
    let mut stacked = Stacked::create(temporary.file(), coder.clone(), way).unwrap();
    let before = text(1, 200_000);
    stacked.write(0, &before).unwrap();
    stacked.save(true).unwrap();
    let image_before = std::fs::read(&temporary.0).unwrap();
    let mut after = before.clone();
    after[100_000..150_000].copy_from_slice(&text(2, 50_000));
    stacked.write(100_000, &after[100_000..150_000]).unwrap();
    stacked.save(false).unwrap();
    let image_after = std::fs::read(&temporary.0).unwrap();
    assert!(image_after.len() > image_before.len() + 1000);
    // Any part of what was written may have reached the disk: a beginning of it, with the header or without.
    let mut seen = [false; 2];
    for cut in (image_before.len()..=image_after.len()).step_by(97).chain([image_after.len()]) {
        for header_bytes in [0, 100, 512, 1024] {
            let torn = Temporary::new();
            let mut image = image_before.clone();
            image.extend_from_slice(&image_after[image_before.len()..cut]);
            image[..header_bytes].copy_from_slice(&image_after[..header_bytes]);
            std::fs::write(&torn.0, &image).unwrap();
            let mut found = Stacked::open(torn.file(), coder.clone()).unwrap();
            let mut out = vec![0; 200_000];
            found.read(0, &mut out).unwrap();
            assert!(out == before || out == after, "torn at {cut} with {header_bytes} of the headers");
            seen[usize::from(out == after)] = true;
        }
    }
    assert_eq!(seen, [true, true]);
}

#[test]
fn what_was_changed_beneath_is_an_error_and_never_content() {
    let coder = coder();
    for way in WAYS {
        let temporary = Temporary::new();
        let mut stacked = Stacked::create(temporary.file(), coder.clone(), Way::parse(way).unwrap()).unwrap();
        let content = text(3, 3000);
        stacked.write(0, &content).unwrap();
        stacked.save(true).unwrap();
        drop(stacked);
        let image = std::fs::read(&temporary.0).unwrap();
        for at in (0..image.len()).step_by(7) {
            let changed = Temporary::new();
            let mut bytes = image.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&changed.0, &bytes).unwrap();
            let Ok(mut stacked) = Stacked::open(changed.file(), coder.clone()) else { continue };
            let mut out = vec![0; 3000];
            match stacked.read(0, &mut out) {
                // The older header, of the empty file, or bytes that nobody reads.
                Ok(length) => assert!(length == 0 || out[..length] == content, "{way} at {at}"),
                Err(error) => assert_eq!(error.errno(), libc::EIO),
            }
        }
    }
}

#[test]
fn encrypted_records_open_in_their_own_file_only_and_not_without_the_key() {
    let coder = coder();
    let files = [Temporary::new(), Temporary::new()];
    for (number, file) in files.iter().enumerate() {
        let mut stacked = Stacked::create(file.file(), coder.clone(), Way::parse("encrypt=yes").unwrap()).unwrap();
        stacked.write(0, &text(number as u64, 5000)).unwrap();
        stacked.save(true).unwrap();
    }
    let images = files.each_ref().map(|file| std::fs::read(&file.0).unwrap());
    assert!(!images[0].windows(9).any(|window| window == b"of text 0"), "nothing is in the clear");
    let none = Arc::new(Coder::default());
    let mut locked = Stacked::open(files[0].file(), none).unwrap();
    assert_eq!(locked.read(0, &mut [0; 10]).unwrap_err().errno(), libc::ENOKEY);
    assert_eq!(locked.size(), 5000, "sizes are told");
    let mut stacked = Stacked::open(files[1].file(), coder.clone()).unwrap();
    stacked.id ^= 1;
    assert!(matches!(stacked.read(0, &mut [0; 10]), Err(Error::Key(_))), "it is bound to its file");
}

#[test]
fn rewriting_does_not_let_the_file_grow_without_end() {
    use std::os::unix::fs::MetadataExt;
    let coder = coder();
    let temporary = Temporary::new();
    let mut stacked = Stacked::create(temporary.file(), coder, Way::parse("plugins=rotate").unwrap()).unwrap();
    for round in 0..40 {
        stacked.write(0, &text(round, 300_000)).unwrap();
        stacked.save(false).unwrap();
    }
    let stored = stacked.beneath().metadata().unwrap().blocks() * 512;
    assert!(stored < 4 << 20, "{stored} bytes are stored of 300000");
    check(&mut stacked, &text(39, 300_000));
}

#[test]
fn a_plugin_that_is_missing_fails_when_it_is_needed_and_loses_nothing() {
    let temporary = Temporary::new();
    let way = Way::parse("plugins=absent").unwrap();
    assert!(matches!(Stacked::create(temporary.file(), coder(), way), Err(Error::NoPlugin(_))));
    assert_eq!(find(&temporary.file()).unwrap(), Found::Plain, "nothing was written");
}

/// It fails where a write that fails on the way leaves the record in memory that was read before it: what is saved
/// then is other content than what is read.
#[test]
fn what_a_failed_write_has_changed_is_what_is_read_when_it_was_saved() {
    let temporary = Temporary::new();
    let mut stacked = Stacked::create(temporary.file(), coder(), Way::parse("compress=none").unwrap()).unwrap();
    stacked.write(0, &text(1, 2 * RECORD_BYTES as usize)).unwrap();
    stacked.save(true).unwrap();
    // In the second record, which a write of its beginning has to read.
    temporary.file().write_all_at(b"\0rotten\0", DATA_START + RECORD_BYTES + 5).unwrap();
    let mut out = [0; 20];
    assert_eq!(stacked.read(0, &mut out).unwrap(), out.len());
    let changed = text(2, RECORD_BYTES as usize + 100);
    assert_eq!(stacked.write(0, &changed).unwrap_err().errno(), libc::EIO);
    stacked.save(true).unwrap();
    assert_eq!(stacked.read(0, &mut out).unwrap(), out.len());
    assert_eq!(out, changed[..20]);
}
