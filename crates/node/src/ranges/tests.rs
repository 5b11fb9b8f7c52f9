use proptest::prelude::*;

use super::*;
use crate::export::{Directory, Standing};

const SIZE_BYTES: u64 = 256 << 10;
const SLOT_BYTES: u64 = 32 << 10;

#[derive(Debug, Clone)]
enum Step {
    Write(u64, u64, u8),
    Zero(u64, u64, bool),
    Trim(u64, u64),
    Tell(u64, u8),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || (0..SIZE_BYTES / 512, 1_u64..160);
    let within = |(at, count): (u64, u64)| (at * 512, (count * 512).min(SIZE_BYTES - at * 512));
    let step = prop_oneof![
        4 => (place(), 1_u8..).prop_map(move |(place, byte)| Step::Write(within(place).0, within(place).1, byte)),
        1 => (place(), any::<bool>()).prop_map(move |(place, hole)| Step::Zero(within(place).0, within(place).1, hole)),
        1 => place().prop_map(move |place| Step::Trim(within(place).0, within(place).1)),
        3 => (0..SIZE_BYTES / SLOT_BYTES, 0_u8..3).prop_map(|(slot, settings)| Step::Tell(slot, settings)),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// P-282: whatever ranges are told, and when, the export has the bytes that were written.
    #[test]
    fn ranges_change_no_byte(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let mut directory = Directory::open(folder.path()).unwrap();
        directory.provide("disk", SIZE_BYTES).unwrap();
        let (mut expected, standing) = (vec![0; SIZE_BYTES as usize], Standing::default());
        let range = |at: u64, length: u64| at as usize..(at + length) as usize;
        for step in steps {
            let export = directory.export("disk").unwrap();
            match step {
                Step::Write(at, length, byte) => {
                    export.write(&standing, at, &vec![byte; length as usize]).unwrap();
                    expected[range(at, length)].fill(byte);
                }
                Step::Zero(at, length, may_be_hole) => {
                    export.zero(&standing, at, length, may_be_hole).unwrap();
                    expected[range(at, length)].fill(0);
                }
                Step::Trim(at, length) => {
                    export.trim(&standing, at, length).unwrap();
                    expected[range(at, length)].fill(0);
                }
                // A file system without such attributes says so, and has the range all the same.
                Step::Tell(slot, settings) => {
                    let settings = ["", "compress=zstd", "compress=lz4,copies=2"][usize::from(settings)];
                    let _is_taken = export.tell(&standing, slot * SLOT_BYTES, SLOT_BYTES, settings);
                }
                Step::Restart => {
                    drop(export);
                    directory.flush().unwrap();
                    drop(directory);
                    directory = Directory::open(folder.path()).unwrap();
                    continue;
                }
            }
            export.flush(&standing).unwrap();
            let mut found = vec![1; SIZE_BYTES as usize];
            export.read(0, &mut found).unwrap();
            prop_assert!(found == expected);
        }
    }
}

/// P-282.
#[test]
fn a_range_has_what_it_is_told_as_attributes() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let directory = Directory::open(folder.path()).unwrap();
    let export = directory.provide("disk", SIZE_BYTES).unwrap();
    let standing = Standing::default();
    let told = export.tell(&standing, SLOT_BYTES, SLOT_BYTES, "compress=zstd,copies=2");
    let path = folder_of(&folder.path().join("disk")).join(format!("{SLOT_BYTES:016x}"));
    let attributes = || attributes_of(&File::open(&path).unwrap()).unwrap();
    if told.is_err() {
        println!("SKIPPED: the file system of {} has no attributes", folder.path().display());
        return;
    }
    assert_eq!(attributes().len(), 2);
    let value = |key: &str| {
        let mut value = [0; 64];
        let length = rustix::fs::getxattr(&path, format!("{PREFIX}{key}"), &mut value[..]).unwrap();
        String::from_utf8(value[..length].to_vec()).unwrap()
    };
    assert_eq!((value("compress"), value("copies")), ("zstd".to_owned(), "2".to_owned()));
    // What is told later takes its place.
    export.tell(&standing, SLOT_BYTES, SLOT_BYTES, "copies=3").unwrap();
    assert_eq!((attributes(), value("copies")), (vec!["copies".to_owned()], "3".to_owned()));
    export.tell(&standing, SLOT_BYTES, SLOT_BYTES, "").unwrap();
    assert!(attributes().is_empty());
    // Nobody makes a node's files unchangeable; the rest is taken.
    assert!(export.tell(&standing, SLOT_BYTES, SLOT_BYTES, "copies=2,retain=10y").is_err());
    assert_eq!(attributes(), ["copies"]);
    // Another size, or a place beside: of another pool.
    assert!(export.tell(&standing, SLOT_BYTES, 2 * SLOT_BYTES, "copies=2").is_err());
    assert!(export.tell(&standing, SLOT_BYTES / 2, SLOT_BYTES, "copies=2").is_err());
    assert!(export.tell(&standing, SIZE_BYTES, SLOT_BYTES, "copies=2").is_err());
    assert!(export.tell(&standing, u64::MAX - 4095, 4096, "copies=2").is_err());
    assert!(export.tell(&standing, 1, SLOT_BYTES, "copies=2").is_err());
}

/// P-245, P-282: an older owner tells nothing; a new pool begins with none.
#[test]
fn ranges_are_told_by_the_owner_and_go_with_its_pool() {
    let folder = tempfile::tempdir().unwrap();
    let directory = Directory::open(folder.path()).unwrap();
    let export = directory.provide("disk", SIZE_BYTES).unwrap();
    let (mut old, mut new) = (Standing::default(), Standing::default());
    export.fence(&mut old, 7).unwrap();
    let _is_taken = export.tell(&old, 0, SLOT_BYTES, "copies=2");
    export.write(&old, 0, &vec![7; SLOT_BYTES as usize]).unwrap();
    export.fence(&mut new, 8).unwrap();
    assert_eq!(export.tell(&old, SLOT_BYTES, SLOT_BYTES, "copies=2"), Err(1));
    let ranges = || fs::read_dir(folder_of(&folder.path().join("disk"))).unwrap().count();
    assert_eq!(ranges(), 1);
    export.fence(&mut new, 0).unwrap();
    assert_eq!(ranges(), 0);
    let mut found = vec![1; SLOT_BYTES as usize];
    export.read(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 0));
}

/// P-282: a flush covers what was acknowledged before it, also where another one is under way.
#[test]
fn ranges_are_flushed_once_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let rest = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    rest.set_len(SIZE_BYTES).unwrap();
    let ranges = Ranges::load(&path).unwrap();
    let _is_taken = ranges.tell(&rest, 0, SLOT_BYTES, "copies=2");
    ranges.flush().unwrap();
    let waiting = || ranges.unflushed.lock().clone();
    assert!(waiting().is_empty());
    ranges.steady().parts(0, 4096).iter().for_each(|part| ranges.steady().note_written(part));
    assert_eq!(waiting(), BTreeSet::from([0]));
    // Another flush has taken it and is not done: this one waits for that.
    let under_way = ranges.flushing.lock();
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| ranges.flush());
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!flush.is_finished());
        drop(under_way);
        flush.join().unwrap().unwrap();
    });
    assert!(waiting().is_empty());
}

/// P-282: a crash may leave a range that was made and not flushed: it has nothing.
#[test]
fn a_range_that_was_not_flushed_has_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let directory = Directory::open(folder.path()).unwrap();
    directory.provide("disk", SIZE_BYTES).unwrap();
    drop(directory);
    let ranges = folder_of(&folder.path().join("disk"));
    fs::create_dir(&ranges).unwrap();
    for name in ["0000000000008000", "new", "nonsense", "zzzzzzzzzzzzzzzz"] {
        fs::write(ranges.join(name), b"").unwrap();
    }
    let export = Directory::open(folder.path()).unwrap().export("disk").unwrap();
    let standing = Standing::default();
    export.write(&standing, 0, &vec![5; SIZE_BYTES as usize]).unwrap();
    let _is_taken = export.tell(&standing, SLOT_BYTES, SLOT_BYTES, "copies=2");
    assert_eq!(fs::metadata(ranges.join("0000000000008000")).unwrap().len(), SLOT_BYTES);
    let mut found = vec![0; SIZE_BYTES as usize];
    export.read(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 5));
}

#[test]
fn parts_are_all_of_what_was_asked_for() {
    let ranges = Ranges {
        folder: PathBuf::new(),
        lengths: RwLock::new(BTreeMap::from([(100, 50), (150, 10), (300, 100)])),
        open: Mutex::default(),
        unflushed: Mutex::default(),
        flushing: Mutex::default(),
        is_grown: AtomicBool::new(false),
    };
    let parts = ranges.steady().parts(90, 240);
    let seen: Vec<_> = parts.iter().map(|part| (part.range, part.at, part.bytes.end - part.bytes.start)).collect();
    let expected = [(None, 90, 10), (Some(100), 0, 50), (Some(150), 0, 10), (None, 160, 140), (Some(300), 0, 30)];
    assert_eq!(seen, expected);
    assert!(ranges.steady().parts(5, 0).is_empty());
}
