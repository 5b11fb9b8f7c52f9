//! Pools on devices in memory: what is made is found again, and every refusal names its finding and changes nothing.

use std::sync::Arc;

use stere_device::memory::Fault;
use stere_device::{Device, MemoryDevice, Operation};
use stere_format::{DeviceEntry, DeviceState, Key, PoolId, Scheme, Superblock};
use stere_store::{Io, Owner, Placement, Store};

use crate::{
    AssembleOptions, Assembly, Candidate, CreateOptions, Degraded, DeviceClass, Error, Holds, Joining, MetadataCopies,
    NewDevice, OpenOptions, Return, WhyLeftOut, check_newcomer, chunk_bytes_for, create, identify, judge_return,
    newcomer,
};

mod epochs;
mod shared_log;

const MIB: u64 = 1 << 20;

/// Bytes that look random and are the same in every run.
struct Counting(u8);

impl crate::Randomness for Counting {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(5).wrapping_add(17);
            *byte = self.0;
        }
    }
}

fn memory_devices(sizes: &[u64]) -> Vec<Arc<MemoryDevice>> {
    sizes.iter().map(|size| Arc::new(MemoryDevice::new(*size))).collect()
}

fn new_devices(devices: &[Arc<MemoryDevice>]) -> Vec<NewDevice> {
    let new = |(index, device): (usize, &Arc<MemoryDevice>)| NewDevice {
        path: format!("/images/{index}"),
        device: device.clone(),
        name: String::new(),
        class: DeviceClass::Ssd,
        tags: vec!["fast".into()],
        host: "shed".into(),
        shelf: String::new(),
        foreign: None,
    };
    devices.iter().enumerate().map(new).collect()
}

fn options() -> CreateOptions {
    CreateOptions { pool_name: "tank".into(), memory_bytes: 64 << 20, ..CreateOptions::default() }
}

fn make(sizes: &[u64], seed: u8) -> Vec<Arc<MemoryDevice>> {
    let devices = memory_devices(sizes);
    let store = create(new_devices(&devices), &options(), &mut Counting(seed)).unwrap();
    change(&store);
    store.close().unwrap();
    devices
}

/// A durable change, so that the next superblock differs from the last.
fn change(store: &Store) {
    let changed: Result<(), stere_store::Error> = store.update(Io::BLOCKING, |transaction| {
        let inode = transaction.allocate_inode();
        transaction.put(Key::inode(inode), &[7; 16]);
        Ok(())
    });
    changed.unwrap();
    store.commit(Io::BLOCKING).unwrap();
}

/// How many of the first changes there are.
fn changes_in(store: &Store) -> usize {
    let is_there = |inode: &u64| {
        let value = store.view(Io::BLOCKING, |view| view.get(&Key::inode(*inode)));
        value.unwrap_or_else(|error: stere_store::Error| panic!("{error}")).is_some()
    };
    (0..100).filter(is_there).count()
}

/// A blob of its own, as large as half a chunk.
fn write_blob(store: &Store, scheme: Scheme, number: u8) {
    let owner = Owner { inode: 1000 + u64::from(number), offset: 0 };
    let content = vec![number; store.blob_bytes_max().min(400_000)];
    let blob = store
        .append_blob(Io::BLOCKING, Placement { scheme, class: 2, site: stere_format::Site::ANYWHERE }, owner, &content)
        .unwrap();
    store
        .update(Io::BLOCKING, |transaction| {
            transaction.insert_blob(&blob);
            Ok::<_, stere_store::Error>(())
        })
        .unwrap();
    store.commit(Io::BLOCKING).unwrap();
}

fn candidates(devices: &[&Arc<MemoryDevice>]) -> Vec<Candidate> {
    let candidate = |(index, device): (usize, &&Arc<MemoryDevice>)| {
        let device: Arc<dyn Device> = (*device).clone();
        Candidate { path: format!("/images/{index}"), device }
    };
    devices.iter().enumerate().map(candidate).collect()
}

fn assemble(devices: &[&Arc<MemoryDevice>]) -> Result<Assembly, Error> {
    Assembly::new(candidates(devices))
}

fn refusal(devices: &[&Arc<MemoryDevice>]) -> String {
    let before: Vec<Vec<u8>> = devices.iter().map(|device| contents(device)).collect();
    let error = match assemble(devices) {
        Err(error) => error.to_string(),
        Ok(assembly) => match assembly.open(&OpenOptions { degraded: Degraded::Ask, ..open_options() }, &nowhere) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("the pool was opened although it should be refused"),
        },
    };
    let after: Vec<Vec<u8>> = devices.iter().map(|device| contents(device)).collect();
    assert!(before == after, "a refusal changed a device");
    error
}

fn nowhere(_: &DeviceEntry) -> Option<String> {
    None
}

fn open_options() -> OpenOptions {
    OpenOptions { memory_bytes: 64 << 20, ..OpenOptions::default() }
}

fn contents(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read(0, &mut bytes).unwrap();
    bytes
}

fn copy_of(device: &MemoryDevice, size_bytes: u64) -> Arc<MemoryDevice> {
    let copy = MemoryDevice::new(size_bytes);
    let bytes = contents(device);
    let length = bytes.len().min(size_bytes as usize);
    for (at, piece) in bytes[..length].chunks(1 << 20).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            copy.write_bytes(at as u64 * MIB, piece).unwrap();
        }
    }
    Arc::new(copy)
}

fn mount_and_change(devices: &[&Arc<MemoryDevice>], times: usize) {
    for _ in 0..times {
        let opened = assemble(devices).unwrap().open(&open_options(), &nowhere).unwrap();
        change(&opened.store);
        opened.store.close().unwrap();
    }
}

fn superblock_of(device: &MemoryDevice) -> Superblock {
    match identify(device) {
        Holds::Member(identity) => identity.superblock,
        other => panic!("not a member: {other:?}"),
    }
}

#[test]
fn a_pool_of_unlike_devices_is_found_again_in_any_order() {
    let devices = make(&[64 * MIB, 300 * MIB, 100 * MIB], 1);
    let assembly = assemble(&[&devices[2], &devices[0], &devices[1]]).unwrap();
    assert_eq!(assembly.newest.pool_name, "tank");
    assert_eq!(assembly.members.len(), 3);
    assert!(assembly.missing().is_empty() && assembly.left_out.is_empty() && assembly.warnings().is_empty());
    let names: Vec<&str> = assembly.entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["d1", "d2", "d3"]);
    assert_eq!(assembly.entries[1].tags, ["fast"]);
    assert_eq!(assembly.class_of(&assembly.members[0]), DeviceClass::Ssd);
    let opened = assembly.open(&open_options(), &nowhere).unwrap();
    assert!(opened.recovery.clean && !opened.read_only && opened.warnings.is_empty());
    assert!(opened.store.checker.check(true).unwrap().findings.is_empty());
}

#[test]
fn a_pool_of_one_device_works() {
    let devices = make(&[64 * MIB], 1);
    mount_and_change(&[&devices[0]], 3);
    assert!(assemble(&[&devices[0]]).unwrap().open(&open_options(), &nowhere).is_ok());
}

#[test]
fn chunk_sizes_suit_the_smallest_device() {
    const GIB: u64 = 1 << 30;
    assert_eq!(chunk_bytes_for(64 * MIB), 1 << 20);
    assert_eq!(chunk_bytes_for(4 * GIB), 1 << 20);
    assert_eq!(chunk_bytes_for(4 * GIB + 4096), 4 << 20);
    assert_eq!(chunk_bytes_for(256 * GIB), 4 << 20);
    assert_eq!(chunk_bytes_for(2000 * GIB), 16 << 20);
}

#[test]
fn create_refuses_what_belongs_to_others() {
    let devices = memory_devices(&[64 * MIB, 64 * MIB]);
    let mut new = new_devices(&devices);
    new[1].foreign = Some("ext4 file system".into());
    let error = create(new, &options(), &mut Counting(1)).err().unwrap().to_string();
    assert!(error.contains("/images/1 holds ext4 file system") && error.contains("--force"), "{error}");
    assert!(contents(&devices[0]).iter().all(|byte| *byte == 0), "nothing was written");

    let mut new = new_devices(&devices);
    new[1].foreign = Some("ext4 file system".into());
    let forced = CreateOptions { force: true, ..options() };
    assert!(create(new, &forced, &mut Counting(1)).is_ok());

    let error = create(new_devices(&devices), &options(), &mut Counting(2)).err().unwrap().to_string();
    assert!(error.contains("belongs to the pool 'tank'"), "{error}");
}

#[test]
fn force_leaves_nothing_of_the_old_pool() {
    let devices = make(&[64 * MIB, 64 * MIB], 1);
    mount_and_change(&[&devices[0], &devices[1]], 4);
    let old = superblock_of(&devices[0]);
    let forced = CreateOptions { force: true, ..options() };
    let store = create(new_devices(&devices), &forced, &mut Counting(9)).unwrap();
    store.close().unwrap();
    let new = superblock_of(&devices[0]);
    assert_ne!(old.pool, new.pool);
    assert!(new.generation < old.generation, "generations begin again");
    assert!(assemble(&[&devices[0], &devices[1]]).unwrap().open(&open_options(), &nowhere).is_ok());
}

#[test]
fn create_refuses_small_devices_and_impossible_copies() {
    let refuse = |sizes: &[u64], options: CreateOptions| {
        create(new_devices(&memory_devices(sizes)), &options, &mut Counting(1)).err().unwrap().to_string()
    };
    assert!(refuse(&[64 * MIB - 4096], options()).contains("at least 64 MiB"));
    assert!(refuse(&[], options()).contains("no device"));
    let copies = |copies| CreateOptions { metadata_copies: MetadataCopies::Exactly(copies), ..options() };
    assert!(refuse(&[64 * MIB, 64 * MIB], copies(3)).contains("3 metadata copies need 3 devices"));
    assert!(refuse(&[64 * MIB], copies(0)).contains("ask for 1 to"));
    let chunks = |bytes| CreateOptions { chunk_bytes: Some(bytes), ..options() };
    assert!(refuse(&[64 * MIB], chunks(16 << 20)).contains("slots"));
    assert!(refuse(&[64 * MIB], chunks(3 << 20)).contains("power of two"));
    let name = CreateOptions { pool_name: "n".repeat(64), ..options() };
    assert!(refuse(&[64 * MIB], name).contains("at most 63"));
}

#[test]
fn a_tiny_third_device_gets_no_metadata() {
    let copies = |sizes: &[u64]| {
        let devices = memory_devices(sizes);
        create(new_devices(&devices), &options(), &mut Counting(1)).unwrap();
        superblock_of(&devices[0]).checkpoint[0].place.scheme.width()
    };
    assert_eq!(copies(&[64 * MIB]), 1);
    assert_eq!(copies(&[64 * MIB, 9000 * MIB]), 2);
    assert_eq!(copies(&[64 * MIB, 9000 * MIB, 7000 * MIB]), 2);
    assert_eq!(copies(&[64 * MIB, 300 * MIB, 900 * MIB]), 3);
}

#[test]
fn metadata_copies_are_kept_when_the_pool_is_opened_again() {
    let devices = memory_devices(&[64 * MIB; 5]);
    let all = CreateOptions { metadata_copies: MetadataCopies::All, ..options() };
    create(new_devices(&devices), &all, &mut Counting(1)).unwrap();
    let all: Vec<&Arc<MemoryDevice>> = devices.iter().collect();
    mount_and_change(&all, 2);
    let superblock = superblock_of(&devices[0]);
    assert_eq!(superblock.checkpoint[0].place.scheme.width(), 5);
    assert_eq!(superblock.journal_devices.len(), 5);
    // "All" goes on to mean all, and what was fitted while devices were away is no wish.
    mount_and_change(&all[..2], 1);
    let opened = assemble(&all).unwrap().open(&open_options(), &nowhere).unwrap();
    let sixth = memory_devices(&[64 * MIB]);
    let joining = Joining { index: 5, state: DeviceState::Active, force: false };
    let newest = superblock_of(&devices[0]);
    let (device_in, entry) = newcomer(&newest, &new_devices(&sixth)[0], joining, &mut Counting(77)).unwrap();
    opened.store.devices.add_device(device_in, entry).unwrap();
    while !opened.store.rebuilder.mend_step(64 << 20).unwrap().is_done {}
    change(&opened.store);
    opened.store.close().unwrap();
    assert_eq!(superblock_of(&devices[0]).checkpoint[0].place.scheme.width(), 6);
}

/// P-20: a pool that begins with one device has its names on two and three as soon as it has them, also after it was mounted
/// anew with the copies it had until then; where one copy was asked for, it stays one.
#[test]
fn metadata_gets_more_copies_as_a_pool_grows() {
    for (asked, wanted) in [(MetadataCopies::Default, [2, 3, 3]), (MetadataCopies::Exactly(1), [1, 1, 1])] {
        let mut devices = memory_devices(&[64 * MIB]);
        let options = CreateOptions { metadata_copies: asked, ..options() };
        drop(create(new_devices(&devices), &options, &mut Counting(1)).unwrap());
        for (turn, copies) in wanted.into_iter().enumerate() {
            let all: Vec<&Arc<MemoryDevice>> = devices.iter().collect();
            let opened = assemble(&all).unwrap().open(&open_options(), &nowhere).unwrap();
            let newcomers = memory_devices(&[64 * MIB]);
            let joining = Joining { index: turn as u16 + 1, state: DeviceState::Active, force: false };
            let newest = superblock_of(&devices[0]);
            let mut randomness = Counting(70 + turn as u8);
            let (device_in, entry) = newcomer(&newest, &new_devices(&newcomers)[0], joining, &mut randomness).unwrap();
            opened.store.devices.add_device(device_in, entry).unwrap();
            while !opened.store.rebuilder.mend_step(64 << 20).unwrap().is_done {}
            change(&opened.store);
            opened.store.close().unwrap();
            devices.extend(newcomers);
            let superblock = superblock_of(&devices[0]);
            assert_eq!(superblock.checkpoint[0].place.scheme.width(), copies, "{asked:?}, {} devices", turn + 2);
            assert_eq!(superblock.journal_devices.len(), copies);
            let segments = opened.store.segments().all();
            let narrow = segments.iter().find(|one| {
                one.kind == stere_format::SegmentKind::Meta && one.live_bytes() > 0 && one.scheme.width() != copies
            });
            assert!(narrow.is_none(), "{asked:?}, {} devices: {:?}", turn + 2, narrow.map(|one| one.scheme));
        }
    }
}

#[test]
fn one_good_superblock_copy_is_enough_and_the_others_are_told() {
    let devices = make(&[64 * MIB], 1);
    let newest = superblock_of(&devices[0]);
    let places = newest.layout.superblock_offsets();
    let keep = newest.layout.superblock_offsets_of_generation(newest.generation)[1];
    for place in places.into_iter().filter(|place| *place != keep) {
        devices[0].corrupt(place + 100, 8);
    }
    let assembly = assemble(&[&devices[0]]).unwrap();
    assert_eq!(assembly.newest.generation, newest.generation);
    assert_eq!(assembly.members[0].damaged.len(), 3);
    assert!(assembly.warnings()[0].contains("damaged superblock copies"));
    devices[0].corrupt(keep + 100, 8);
    let text = refusal(&[&devices[0]]);
    assert!(text.contains("no copy of its superblock is whole") && text.contains("at byte 65536"), "{text}");
}

#[test]
fn a_superblock_in_the_wrong_place_is_not_believed() {
    let devices = make(&[64 * MIB], 1);
    let newest = superblock_of(&devices[0]);
    let [own, _] = newest.layout.superblock_offsets_of_generation(newest.generation);
    let [other, _] = newest.layout.superblock_offsets_of_generation(newest.generation + 1);
    let mut bytes = vec![0; Superblock::SIZE];
    devices[0].read(own, &mut bytes).unwrap();
    devices[0].write_bytes(other, &bytes).unwrap();
    let assembly = assemble(&[&devices[0]]).unwrap();
    assert!(
        assembly.members[0].damaged.iter().any(|copy| copy.offset == other && copy.cause.contains("another place"))
    );
}

#[test]
fn a_truncated_device_is_refused_and_a_grown_one_is_not() {
    let devices = make(&[96 * MIB], 1);
    let text = refusal(&[&copy_of(&devices[0], 80 * MIB)]);
    assert!(text.contains("cut short") && text.contains(&(96 * MIB).to_string()), "{text}");
    let grown = copy_of(&devices[0], 128 * MIB);
    mount_and_change(&[&grown], 2);
}

/// P-13: a device whose superblocks were all written over counts as missing, with a finding of its own; where nobody is missing, or
/// nobody of its size, it is foreign and refused.
#[test]
fn a_device_that_was_written_over_counts_as_missing() {
    let devices = make(&[64 * MIB, 96 * MIB, 64 * MIB], 1);
    let spoiled = copy_of(&devices[1], 96 * MIB);
    for place in superblock_of(&spoiled).layout.superblock_offsets() {
        spoiled.write_bytes(place + 512, &[0x5a; 512]).unwrap();
    }
    let zeros = memory_devices(&[96 * MIB, 64 * MIB]);
    for (one, words) in [(&spoiled, "no copy of its superblock is whole"), (&zeros[0], "written over")] {
        let before = contents(one);
        let assembly = assemble(&[&devices[0], one, &devices[2]]).unwrap();
        assert_eq!((assembly.members.len(), assembly.unexpectedly_missing().len()), (2, 1));
        let warnings = assembly.warnings().join("; ");
        assert!(warnings.contains("/images/1 counts as missing") && warnings.contains(words), "{warnings}");
        let opened = assembly.open(&open_options(), &nowhere).unwrap();
        assert!(!opened.read_only);
        opened.store.close().unwrap();
        assert!(contents(one) == before, "nothing is written to it");
    }
    assert!(refusal(&[&devices[0], &zeros[1], &devices[2]]).contains("not a device of a stere pool"));
    let all = [&devices[0], &devices[1], &devices[2], &zeros[1]];
    assert!(assemble(&all).err().unwrap().to_string().contains("not a device of a stere pool"));
    // Nobody says anything: the finding is theirs.
    assert!(refusal(&[&spoiled]).contains("no copy of its superblock is whole"));
}

/// P-13: refused with a finding of its own.
#[test]
fn a_foreign_device_and_other_versions_are_refused() {
    let devices = make(&[64 * MIB], 1);
    let empty = memory_devices(&[64 * MIB]);
    assert!(refusal(&[&empty[0]]).contains("not a device of a stere pool"));
    for (version, word) in [(9_u16, "newer stere"), (0, "older stere")] {
        let copy = copy_of(&devices[0], 64 * MIB);
        for place in superblock_of(&devices[0]).layout.superblock_offsets() {
            let mut bytes = vec![0; Superblock::SIZE];
            copy.read(place, &mut bytes).unwrap();
            if bytes.iter().all(|byte| *byte == 0) {
                continue;
            }
            bytes[8..10].copy_from_slice(&version.to_le_bytes());
            let end = Superblock::SIZE - 4;
            let checksum = stere_format::crc32c(&bytes[..end]);
            bytes[end..].copy_from_slice(&checksum.to_le_bytes());
            copy.write_bytes(place, &bytes).unwrap();
        }
        let text = refusal(&[&copy]);
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn devices_of_two_pools_and_copies_of_one_device_are_refused() {
    let one = make(&[64 * MIB, 64 * MIB], 1);
    let other = make(&[64 * MIB, 64 * MIB], 99);
    assert!(refusal(&[&one[0], &other[1]]).contains("different pools"));
    let copy = copy_of(&one[0], 64 * MIB);
    assert!(refusal(&[&one[0], &one[1], &copy]).contains("same device id"));
    let twice = vec![
        Candidate { path: "/images/0".into(), device: one[0].clone() },
        Candidate { path: "/images/0".into(), device: one[0].clone() },
    ];
    assert!(matches!(Assembly::new(twice), Err(Error::SameDevice { .. })));
}

#[test]
fn a_missing_device_is_named_and_the_pool_goes_on_without_it() {
    let devices = make(&[64 * MIB; 4], 1);
    let id = superblock_of(&devices[3]).device;
    let present = [&devices[0], &devices[1], &devices[2]];
    let text = refusal(&present);
    assert!(text.contains("d4") && text.contains(&id.to_string()) && text.contains("host shed"), "{text}");
    let assembly = assemble(&present).unwrap();
    let text = assembly.describe_missing(&|entry| (entry.id == id).then(|| "/dev/disk/by-id/gone".into()));
    assert!(text.contains("/dev/disk/by-id/gone"), "{text}");
    let opened = assembly.open(&open_options(), &nowhere).unwrap();
    assert!(!opened.read_only && opened.warnings[0].contains("goes on with the others"), "{:?}", opened.warnings);
    assert!(opened.floors.allow_writing() && !opened.floors.is_lossy());
    change(&opened.store);
    opened.store.close().unwrap();
}

#[test]
fn below_the_floor_the_pool_only_reads_and_nothing_is_written() {
    let devices = make(&[64 * MIB; 4], 1);
    let opened = assemble(&devices.iter().collect::<Vec<_>>()).unwrap().open(&open_options(), &nowhere).unwrap();
    // Two copies each, on all pairs of devices in turn.
    for round in 0..24 {
        write_blob(&opened.store, Scheme { data: 1, parity: 1 }, round);
    }
    opened.store.close().unwrap();
    // Both devices of some data go; of the three copies of metadata at least one stays.
    let segments = opened.store.segments().all();
    let pair = segments.iter().find(|segment| segment.scheme.parity == 1 && segment.live_bytes() > 0).unwrap().placed();
    let is_lost = |index: usize| pair.chunks.iter().any(|place| usize::from(place.device) == index);
    drop(opened);
    let present: Vec<&Arc<MemoryDevice>> =
        (0..4).filter(|index| !is_lost(*index)).map(|index| &devices[index]).collect();
    let present = [present[0], present[1]];
    let before = present.map(|device| contents(device));
    let assembly = assemble(&present).unwrap();
    let opened = assembly.open(&open_options(), &nowhere).unwrap();
    assert!(opened.floors.lost_bytes > 0, "{:?}", opened.floors);
    assert!(opened.read_only && opened.warnings.iter().any(|text| text.contains("reading only")));
    let refused = opened.store.update(Io::BLOCKING, |transaction| {
        transaction.allocate_inode();
        Ok::<_, stere_store::Error>(())
    });
    assert!(matches!(refused, Err(stere_store::Error::OnlyRead)));
    opened.store.close().unwrap();
    assert!(before == present.map(|device| contents(device)), "reading only writes nothing");
}

#[test]
fn what_was_to_have_one_copy_does_not_stop_writing() {
    let devices = make(&[64 * MIB; 3], 1);
    let opened = assemble(&devices.iter().collect::<Vec<_>>()).unwrap().open(&open_options(), &nowhere).unwrap();
    for round in 0..6 {
        write_blob(&opened.store, Scheme { data: 1, parity: 0 }, round);
    }
    opened.store.close().unwrap();
    drop(opened);
    let opened = assemble(&[&devices[0], &devices[1]]).unwrap().open(&open_options(), &nowhere).unwrap();
    assert!(
        !opened.read_only && opened.floors.lost_single_bytes > 0 && opened.floors.is_lossy(),
        "{:?}",
        opened.floors
    );
}

#[test]
fn without_any_copy_of_the_metadata_the_refusal_says_so() {
    let devices = memory_devices(&[64 * MIB; 3]);
    let one = CreateOptions { metadata_copies: MetadataCopies::Exactly(1), ..options() };
    create(new_devices(&devices), &one, &mut Counting(1)).unwrap();
    let holder = superblock_of(&devices[0]).checkpoint[0].place.chunks[0].device;
    let others: Vec<&Arc<MemoryDevice>> =
        (0..3).filter(|index| *index != holder).map(|index| &devices[usize::from(index)]).collect();
    let text = refusal(&others);
    assert!(text.contains("no copy of its metadata is there"), "{text}");
    assert!(text.contains(&format!("device number {}", holder + 1)), "{text}");
}

#[test]
fn a_device_that_was_away_comes_back_and_its_old_contents_do_not_win() {
    let devices = make(&[64 * MIB, 64 * MIB], 1);
    let old = copy_of(&devices[1], 64 * MIB);
    mount_and_change(&[&devices[0], &devices[1]], 3);
    let generation = superblock_of(&devices[0]).generation;
    let assembly = assemble(&[&devices[0], &old]).unwrap();
    assert_eq!((assembly.members.len(), assembly.left_out.len(), assembly.returning().count()), (2, 0, 1));
    assert_eq!(assembly.newest.generation, generation);
    assert!(assembly.warnings()[0].contains("/images/1 was away"), "{:?}", assembly.warnings());
    let opened = assembly.open(&open_options(), &nowhere).unwrap();
    assert!(!opened.read_only);
    assert_eq!(superblock_of(&old).epochs, superblock_of(&devices[0]).epochs, "it is of the present again");
}

#[test]
fn a_device_that_was_away_longer_than_the_epochs_tell_is_left_out() {
    let devices = make(&[64 * MIB, 64 * MIB], 1);
    let old = copy_of(&devices[1], 64 * MIB);
    mount_and_change(&[&devices[0], &devices[1]], Superblock::EPOCHS_MAX + 2);
    let assembly = assemble(&[&devices[0], &old]).unwrap();
    assert_eq!(assembly.members.len(), 1);
    assert_eq!(assembly.left_out[0].why, WhyLeftOut::AwayTooLong);
    let text = refusal(&[&devices[0], &old]);
    assert!(text.contains("/images/1 is that device") && text.contains("away too long"), "{text}");
}

#[test]
fn a_newcomer_is_looked_at_before_it_is_wiped() {
    let devices = make(&[64 * MIB, 64 * MIB], 1);
    let newest = superblock_of(&devices[0]);
    let strangers = memory_devices(&[64 * MIB, 4 * MIB, 64 * MIB]);
    let mut new = new_devices(&strangers);
    new[2].foreign = Some("letters to a friend".into());
    let refuse = |new: &NewDevice| check_newcomer(&newest, new, false).err().unwrap().to_string();
    assert!(refuse(&new[1]).contains("at least 64 MiB"));
    assert!(refuse(&new[2]).contains("letters to a friend"));
    let mut own = new_devices(&[devices[1].clone()]);
    assert!(refuse(&own[0]).contains("device of this very pool"));
    own[0].name = "n".repeat(64);
    assert!(refuse(&own[0]).contains("at most 63"));
    let joining = Joining { index: 2, state: DeviceState::Spare, force: false };
    let (device_in, entry) = newcomer(&newest, &new[0], joining, &mut Counting(77)).unwrap();
    assert_eq!((entry.index, entry.state, entry.name.as_str()), (2, DeviceState::Spare.code(), "d3"));
    assert_eq!((device_in.superblock.pool, device_in.superblock.device), (newest.pool, entry.id));
    assert!(contents(&strangers[0]).iter().all(|byte| *byte == 0), "the store writes the first superblock");
}

#[test]
fn a_device_taken_offline_or_replaced_is_left_out() {
    let devices = make(&[64 * MIB; 3], 1);
    let all: Vec<&Arc<MemoryDevice>> = devices.iter().collect();
    let opened = assemble(&all).unwrap().open(&open_options(), &nowhere).unwrap();
    opened.store.devices.set_device_state(2, DeviceState::Offline).unwrap();
    opened.store.close().unwrap();
    let assembly = assemble(&all).unwrap();
    assert_eq!(assembly.left_out[0].why, WhyLeftOut::Offline);
    assert!(assembly.unexpectedly_missing().is_empty());
    // Away on purpose: nobody is asked.
    let ask = OpenOptions { degraded: Degraded::Ask, ..open_options() };
    assert!(!assembly.open(&ask, &nowhere).unwrap().read_only);
}

#[test]
fn a_crash_between_superblocks_leaves_nobody_out() {
    let devices = make(&[64 * MIB; 4], 1);
    let all: Vec<&Arc<MemoryDevice>> = devices.iter().collect();
    for late in 0..4 {
        let before = superblock_of(&devices[late]);
        mount_and_change(&all, 1);
        // Losing the newest pair is what a crash before their write leaves; the journal is clean, so nothing else differs.
        let newest = superblock_of(&devices[late]);
        assert!(newest.generation > before.generation);
        for place in newest.layout.superblock_offsets_of_generation(newest.generation) {
            devices[late].write_bytes(place, &vec![0; Superblock::SIZE]).unwrap();
        }
        assert_eq!(superblock_of(&devices[late]).generation + 1, newest.generation);
        let assembly = assemble(&all).unwrap();
        assert_eq!((assembly.members.len(), assembly.left_out.len()), (4, 0));
        let opened = assembly.open(&open_options(), &nowhere).unwrap();
        drop(opened);
        let generations: Vec<u64> = devices.iter().map(|device| superblock_of(device).generation).collect();
        assert!(generations.iter().all(|generation| *generation == generations[0]), "{generations:?}");
    }
}

/// P-216: a device that is behind and takes no writes keeps nobody from mounting, whatever it is that fails; it is told, and what was
/// written without it is there when it is well again.
#[test]
fn a_device_that_is_behind_and_takes_no_writes_is_told() {
    for refused in [Operation::Write, Operation::Flush] {
        let devices = make(&[64 * MIB; 3], 1);
        let all: Vec<&Arc<MemoryDevice>> = devices.iter().collect();
        let newest = superblock_of(&devices[2]);
        for place in newest.layout.superblock_offsets_of_generation(newest.generation) {
            devices[2].write_bytes(place, &vec![0; Superblock::SIZE]).unwrap();
        }
        let refuse = move |operation: Operation, _, _| (operation == refused).then_some(Fault::Error);
        devices[2].set_fault_hook(Some(Box::new(refuse)));
        let opened = assemble(&all).unwrap().open(&open_options(), &nowhere).unwrap();
        assert!(!opened.read_only);
        let warnings = opened.warnings.join("\n");
        assert!(warnings.contains("/images/2") && warnings.contains("takes no writes"), "{warnings}");
        change(&opened.store);
        let changed = changes_in(&opened.store);
        opened.store.close().unwrap();
        devices[2].set_fault_hook(None);
        devices[2].lose_unflushed(|_| true);
        let opened = assemble(&all).unwrap().open(&open_options(), &nowhere).unwrap();
        assert_eq!(changes_in(&opened.store), changed, "nothing old wins");
    }
}

#[test]
fn one_generation_behind_without_the_newest_checkpoint_was_away() {
    let devices = make(&[64 * MIB; 2], 1);
    let both = [&devices[0], &devices[1]];
    let opened = assemble(&both).unwrap().open(&open_options(), &nowhere).unwrap();
    let old = copy_of(&devices[1], 64 * MIB);
    change(&opened.store);
    opened.store.close().unwrap();
    assert_eq!(superblock_of(&old).generation + 1, superblock_of(&devices[0]).generation);
    let assembly = assemble(&[&devices[0], &old]).unwrap();
    assert_eq!((assembly.members.len(), assembly.returning().count()), (2, 1));
}

#[test]
fn an_unreadable_device_counts_as_missing_and_is_told() {
    let devices = make(&[64 * MIB, 64 * MIB], 1);
    devices[1].set_offline(true);
    let assembly = assemble(&[&devices[0], &devices[1]]).unwrap();
    assert_eq!((assembly.members.len(), assembly.missing().len()), (1, 1));
    let warnings = assembly.warnings().join("\n");
    assert!(warnings.contains("/images/1") && warnings.contains("cannot be read"), "{warnings}");
    devices[0].set_offline(true);
    let error = assemble(&[&devices[0], &devices[1]]).err().unwrap().to_string();
    assert!(error.contains("cannot be read"), "{error}");
}

#[test]
fn identities_are_random_uuids() {
    let devices = make(&[64 * MIB, 64 * MIB], 1);
    let superblocks = [superblock_of(&devices[0]), superblock_of(&devices[1])];
    assert_ne!(superblocks[0].device, superblocks[1].device);
    assert_ne!(superblocks[0].pool, PoolId::default());
    assert_eq!(superblocks[0].pool.0[6] >> 4, 4, "version 4");
}
