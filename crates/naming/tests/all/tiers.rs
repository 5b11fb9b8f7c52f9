//! Files on a medium that is away: whoever needs its bytes is told, and nobody else notices (P-62).

mod heat;
use crate::support;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use stere_device::{MediumWait, MemoryVolume, Volume, VolumeError, VolumeFault};
use stere_format::VolumeEntry;
use stere_naming::{Account, Caller, Error, FileSystem, Holder, Io, Limits, ROOT, SetAttributes, SetMode};
use support::files::{assert_clean, make};
use support::volume::{add, add_volume, entry, segments_of};
use support::{Rig, caller, reconcile};

const LENGTH: usize = 300_000;

fn content() -> Vec<u8> {
    (0..LENGTH).map(|at| (at / 512 * 7 + at) as u8).collect()
}

/// A file that is on the volume, and on devices still.
fn archived() -> (Rig, FileSystem, Arc<MemoryVolume>, u64) {
    let (rig, fs) = Rig::new(2, 96 << 20);
    let volume = add_volume(&fs);
    let inode = make(&fs, ROOT, "cold", &content());
    fs.syncfs(&caller(3)).unwrap();
    send_down(&fs, inode);
    (rig, fs, volume, inode)
}

fn send_down(fs: &FileSystem, inode: u64) {
    fs.setxattr(&caller(3), inode, b"user.stere.tier", b"cold", SetMode::Any, false).unwrap();
    reconcile(fs);
    while fs.store().tier.step(true, &|_| Vec::new()).unwrap().is_busy {}
}

fn release(fs: &FileSystem, inode: u64) {
    assert!(fs.tiers().release_segments(&caller(3), &segments_of(fs, inode)).unwrap().segments > 0);
    fs.store().checkpoint().unwrap();
    assert_eq!(fs.tiers().tier_file(&caller(3), inode).unwrap().residency(), "nearline");
}

/// A write of some text, by somebody who is not in the way of others.
fn write(fs: &FileSystem, inode: u64, offset: u64, text: &[u8], expected: &mut [u8]) {
    assert_eq!(fs.write(&caller(5), inode, offset, text, false).unwrap(), text.len());
    expected[offset as usize..offset as usize + text.len()].copy_from_slice(text);
}

fn read(fs: &FileSystem, inode: u64) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    assert_eq!(fs.read(&caller(4), inode, 0, &mut bytes).unwrap(), LENGTH);
    bytes
}

/// What is dirty is saved while its volume is away, and all of it is right.
fn assert_saved_without(fs: &FileSystem, volume: &MemoryVolume, inode: u64, expected: &[u8]) {
    volume.set_fault(Some(VolumeFault::Away));
    fs.syncfs(&caller(5)).unwrap();
    volume.set_fault(None);
    assert_eq!(read(fs, inode), expected);
    assert_clean(fs);
}

#[test]
fn a_write_that_needs_a_volume_is_told_and_no_sync_fails_for_it() {
    let (_rig, fs, volume, inode) = archived();
    release(&fs, inode);
    volume.set_fault(Some(VolumeFault::Away));
    let refused = fs.write(&caller(5), inode, 5000, b"in the middle of a block", false);
    assert_eq!(refused.unwrap_err().errno(), libc::EIO);
    let mut expected = content();
    // Whole blocks need nothing of what was there.
    let block = vec![7; 8192];
    write(&fs, inode, 40_960, &block, &mut expected);
    let beside = make(&fs, ROOT, "beside", b"others go on");
    fs.fsync(&caller(5), beside, false).unwrap();
    fs.syncfs(&caller(5)).unwrap();
    volume.set_fault(None);
    write(&fs, inode, 5000, b"in the middle of a block", &mut expected);
    // What was accepted needs the volume no more.
    assert_saved_without(&fs, &volume, inode, &expected);
}

#[test]
fn what_was_dirty_when_it_was_released_is_saved_without_its_volume() {
    let (_rig, fs, volume, inode) = archived();
    let mut expected = content();
    for (offset, text) in [(10_u64, &b"at the beginning"[..]), (200_001, b"and behind")] {
        write(&fs, inode, offset, text, &mut expected);
    }
    release(&fs, inode);
    assert_saved_without(&fs, &volume, inode, &expected);
}

#[test]
fn what_was_dirty_before_it_went_down_is_saved_without_its_volume() {
    let (_rig, fs) = Rig::new(2, 96 << 20);
    let volume = add_volume(&fs);
    let inode = make(&fs, ROOT, "cold", &content());
    fs.syncfs(&caller(3)).unwrap();
    let mut expected = content();
    write(&fs, inode, 100, b"before anybody archived it", &mut expected);
    send_down(&fs, inode);
    release(&fs, inode);
    assert_saved_without(&fs, &volume, inode, &expected);
}

#[test]
fn who_needs_memory_does_not_wait_for_what_another_file_cannot_save() {
    let (mut rig, fs) = Rig::new(2, 96 << 20);
    rig.options.files.dirty_bytes_max = 256 << 10;
    let fs = rig.reopen(fs, false);
    let volume = add_volume(&fs);
    let inode = make(&fs, ROOT, "cold", &content());
    fs.syncfs(&caller(3)).unwrap();
    assert_eq!(fs.write(&caller(5), inode, 100, b"dirty", false).unwrap(), 5);
    send_down(&fs, inode);
    // Behind the back of whoever completes what is dirty.
    assert!(fs.store().tier.stager.release(&segments_of(&fs, inode)).unwrap().segments > 0);
    volume.set_fault(Some(VolumeFault::Away));
    let other = make(&fs, ROOT, "other", b"");
    for at in 0..40 {
        assert_eq!(fs.write(&caller(6), other, at * 16_000, &[3; 12_000], false).unwrap(), 12_000);
    }
    assert_eq!(fs.syncfs(&caller(6)).unwrap_err().errno(), libc::EIO, "one file cannot be saved, and that is told");
    fs.fsync(&caller(6), other, false).unwrap();
    volume.set_fault(None);
    fs.syncfs(&caller(6)).unwrap();
    fs.store().commit(Io::BLOCKING).unwrap();
    let mut expected = content();
    expected[100..105].copy_from_slice(b"dirty");
    assert_eq!(read(&fs, inode), expected);
}

/// P-113. A removed volume's number is nobody's as long as a policy names it: what was meant for the one does not go to the other.
#[test]
fn what_was_meant_for_a_removed_volume_goes_to_no_newcomer() {
    let (_rig, fs, _volume, inode) = archived();
    fs.store().tier.media.remove_volume(0).unwrap();
    let newcomer = Arc::new(MemoryVolume::new("newcomer"));
    assert_eq!(fs.store().tier.media.add_volume(entry(2, "newcomer"), newcomer.clone(), "tank", false).unwrap(), 1);
    reconcile(&fs);
    while fs.store().tier.step(true, &|_| Vec::new()).unwrap().is_busy {}
    assert_eq!(newcomer.list("segments/").unwrap(), [], "nobody sent it there");
    assert_eq!(read(&fs, inode), content());
    assert!(fs.search().parse_search("tier=#0").is_ok(), "who asks for it can be found");
    // With nobody left that names it the number is free again, for what is sent there from then on.
    fs.setxattr(&caller(3), inode, b"user.stere.tier", b"none", SetMode::Any, false).unwrap();
    reconcile(&fs);
    while fs.store().tier.step(true, &|_| Vec::new()).unwrap().is_busy {}
    fs.store().tier.media.remove_volume(1).unwrap();
    assert_eq!(fs.store().tier.media.add_volume(entry(2, "newcomer"), newcomer, "tank", true).unwrap(), 0);
    assert_clean(&fs);
}

fn newcomer(name: &str) -> (VolumeEntry, Arc<MemoryVolume>) {
    (entry(name.len() as u8, name), Arc::new(MemoryVolume::new(name)))
}

fn work(fs: &FileSystem) {
    reconcile(fs);
    while fs.store().tier.step(true, &|_| Vec::new()).unwrap().is_busy {}
}

fn tier_of(fs: &FileSystem, inode: u64) -> String {
    let value = fs.getxattr(&caller(3), inode, b"user.stere.tier").unwrap();
    String::from_utf8(value).unwrap()
}

/// P-116. Where somebody asks for copies on both, one does not take over from the other.
#[test]
fn what_asks_for_two_volumes_is_not_left_with_one() {
    let (_rig, fs, _cold, _inode) = archived();
    let (entry, warm) = newcomer("warm");
    assert_eq!(fs.store().tier.media.add_volume(entry, warm, "tank", false).unwrap(), 1);
    // There is nothing in it, so nothing is on both.
    let asking = make(&fs, ROOT, "asking", b"");
    fs.setxattr(&caller(3), asking, b"user.stere.tier", b"cold+warm", SetMode::Any, false).unwrap();
    let said = fs.store().tier.media.retire_volume(0, 1).unwrap_err().to_string();
    assert!(said.contains("fewer copies") && said.contains("1 files or directories ask for both"), "{said}");
    assert!(fs.store().tier.media.heir_for(0).is_err());
    fs.setxattr(&caller(3), asking, b"user.stere.tier", b"warm", SetMode::Any, false).unwrap();
    assert_eq!(fs.store().tier.media.heir_for(0).unwrap(), 1);
    fs.store().tier.media.retire_volume(0, 1).unwrap();
    work(&fs);
    assert_eq!(fs.store().tier.media.volumes().len(), 1);
}

/// P-116. Who asked for a volume that is retired asks for its heir, and its number is nobody's until nobody does any more.
#[test]
fn what_was_meant_for_a_retired_volume_goes_to_its_heir() {
    let (_rig, fs, cold, inode) = archived();
    let (entry, warm) = newcomer("warm");
    assert_eq!(fs.store().tier.media.add_volume(entry, warm.clone(), "tank", false).unwrap(), 1);
    fs.store().tier.media.retire_volume(0, 1).unwrap();
    let before = segments_of(&fs, inode);
    work(&fs);
    assert_eq!(
        (segments_of(&fs, inode), tier_of(&fs, inode)),
        (before, "warm".into()),
        "nothing is stored anew for it"
    );
    assert_eq!(fs.store().tier.media.volumes().len(), 1);
    cold.set_fault(Some(VolumeFault::Away));
    release(&fs, inode);
    assert_eq!(read(&fs, inode), content());
    // The next ones are retired as well, and whoever asks for the first gets to the last.
    let (entry, third) = newcomer("third");
    assert_eq!(fs.store().tier.media.add_volume(entry, third.clone(), "tank", false).unwrap(), 2);
    fs.store().tier.media.retire_volume(1, 2).unwrap();
    work(&fs);
    let (entry, fourth) = newcomer("the-fourth");
    assert_eq!(fs.store().tier.media.add_volume(entry, fourth.clone(), "tank", false).unwrap(), 3, "0 and 1 lead to 2");
    assert_eq!(tier_of(&fs, inode), "third");
    let mut expected = content();
    write(&fs, inode, 0, &[5; 8192], &mut expected);
    fs.syncfs(&caller(5)).unwrap();
    work(&fs);
    let ends_there = fs.tiers().tier_file(&caller(3), inode).unwrap();
    assert_eq!((ends_there.volumes, ends_there.waiting_bytes), (0b100, 0), "{ends_there:?}");
    assert!(fourth.list("segments/").unwrap().is_empty());
    // With nobody left that names it the number is free again.
    fs.setxattr(&caller(3), inode, b"user.stere.tier", b"none", SetMode::Any, false).unwrap();
    work(&fs);
    fs.store().tier.media.remove_volume(3).unwrap();
    let (entry, _) = newcomer("fifth-of-all");
    assert_eq!(fs.store().tier.media.add_volume(entry, fourth, "tank", true).unwrap(), 0);
    fs.setxattr(&caller(3), inode, b"user.stere.tier", b"fifth-of-all", SetMode::Any, false).unwrap();
    assert_eq!(tier_of(&fs, inode), "fifth-of-all");
    assert_eq!(read(&fs, inode), expected);
    assert_clean(&fs);
}

/// A volume that tells of the next read when it is asked for, and waits with it until it may go on.
struct Held {
    volume: MemoryVolume,
    gate: Mutex<Option<(SyncSender<()>, Receiver<()>)>>,
}

impl Volume for Held {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        self.volume.put(object, bytes)
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Result<(), VolumeError> {
        if let Some((reached, may_go_on)) = self.gate.lock().take() {
            reached.send(()).unwrap();
            may_go_on.recv_timeout(PATIENCE).expect("somebody lets it go on");
        }
        self.volume.get(object, offset, into, wait)
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        self.volume.length(object)
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        self.volume.delete(object)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        self.volume.list(prefix)
    }

    fn describe(&self) -> String {
        self.volume.describe()
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

/// While a write waits for the rest of its block, others may change that very block.
fn write_while(meanwhile: impl FnOnce(&FileSystem, u64)) -> Vec<u8> {
    let (_rig, fs) = Rig::new(2, 96 << 20);
    let held = Arc::new(Held { volume: MemoryVolume::new("cold"), gate: Mutex::new(None) });
    add(&fs, held.clone());
    let inode = make(&fs, ROOT, "cold", &content());
    fs.syncfs(&caller(3)).unwrap();
    send_down(&fs, inode);
    release(&fs, inode);
    // What is written from now on stays on devices.
    fs.setxattr(&caller(3), inode, b"user.stere.tier", b"none", SetMode::Any, false).unwrap();
    let (reached, is_reached) = sync_channel(1);
    let (go_on, may_go_on) = sync_channel(1);
    *held.gate.lock() = Some((reached, may_go_on));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| fs.write(&caller(5), inode, 5000, TEXT, false));
        is_reached.recv_timeout(PATIENCE).expect("the rest of the block is on the volume");
        meanwhile(&fs, inode);
        go_on.send(()).unwrap();
        assert_eq!(writer.join().unwrap().unwrap(), TEXT.len());
    });
    fs.syncfs(&caller(3)).unwrap();
    let length = fs.getattr(&caller(3), inode).unwrap().size as usize;
    let mut bytes = vec![0xFF; length];
    assert_eq!(fs.read(&caller(4), inode, 0, &mut bytes).unwrap(), length);
    assert_clean(&fs);
    bytes
}

const TEXT: &[u8] = b"in the middle of a block";

/// P-62: what a write read of its block is not used if somebody else changed the block meanwhile.
#[test]
fn a_block_that_changes_while_a_write_waits_for_it_keeps_what_changed() {
    let block = vec![7; 4096];
    let bytes = write_while(|fs, inode| {
        assert_eq!(fs.write(&caller(6), inode, 4096, &block, false).unwrap(), block.len());
        fs.fsync(&caller(6), inode, false).unwrap();
    });
    let mut expected = content();
    expected[4096..8192].copy_from_slice(&block);
    expected[5000..5000 + TEXT.len()].copy_from_slice(TEXT);
    assert!(bytes == expected, "the block is not what both wrote");
}

#[test]
fn a_file_that_is_cut_while_a_write_waits_for_it_stays_cut() {
    let bytes = write_while(|fs, inode| {
        let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
        fs.setattr(&caller(6), inode, &empty).unwrap();
        fs.syncfs(&caller(6)).unwrap();
    });
    let mut expected = vec![0; 5000 + TEXT.len()];
    expected[5000..].copy_from_slice(TEXT);
    assert!(bytes == expected, "what was cut off came back: {} bytes", bytes.len());
}

type Call = fn(&FileSystem, u64, usize) -> Result<(), stere_naming::Error>;

fn long_name(number: usize) -> Vec<u8> {
    format!("{number:0200}").into_bytes()
}

/// Everything that makes or changes names and attributes; the file it is given is called `cold`.
const CALLS: [(&str, Call); 8] = [
    ("create", |fs, _, number| {
        let flags = stere_naming::OpenFlags { write: true, truncate: false, exclusive: true, read: false };
        fs.create(&caller(3), ROOT, &long_name(number), 0o600, flags).map(drop)
    }),
    ("mkdir", |fs, _, number| fs.mkdir(&caller(3), ROOT, &long_name(number), 0o755).map(drop)),
    ("symlink", |fs, _, number| fs.symlink(&caller(3), ROOT, &long_name(number), &[b'x'; 4000]).map(drop)),
    ("mknod", |fs, _, number| fs.mknod(&caller(3), ROOT, &long_name(number), libc::S_IFIFO | 0o644, 0).map(drop)),
    ("link", |fs, file, number| fs.link(&caller(3), file, ROOT, &long_name(number)).map(drop)),
    ("rename", |fs, _, number| {
        let from = if number == 0 { b"small".to_vec() } else { long_name(number - 1) };
        fs.rename(&caller(3), ROOT, &from, ROOT, &long_name(number), 0)
    }),
    ("setxattr", |fs, file, number| {
        let name = format!("user.{}", number % 50);
        fs.setxattr(&caller(3), file, name.as_bytes(), &[number as u8; 50_000], SetMode::Any, false)
    }),
    ("tmpfile", |fs, _, _| {
        let flags = stere_naming::OpenFlags { write: true, truncate: false, exclusive: true, read: false };
        fs.tmpfile(&caller(3), ROOT, 0o600, flags).map(drop)
    }),
];

/// P-110. What stayed because of its directory may go as soon as it is moved out of it, or loses its name there.
#[test]
fn what_leaves_a_pinned_directory_may_go_at_once() {
    let moves: [fn(&FileSystem, u64); 2] = [
        |fs, directory| fs.rename(&caller(3), directory, b"cold", ROOT, b"cold", 0).unwrap(),
        |fs, directory| fs.unlink(&caller(3), directory, b"cold").unwrap(),
    ];
    for (number, leave) in moves.into_iter().enumerate() {
        let (_rig, fs) = Rig::new(2, 64 << 20);
        add_volume(&fs);
        let directory = fs.mkdir(&caller(3), ROOT, b"pinned", 0o755).unwrap().inode;
        let inode = make(&fs, directory, "cold", &content().repeat(20));
        if number == 1 {
            fs.link(&caller(3), inode, ROOT, b"other").unwrap();
        }
        fs.syncfs(&caller(3)).unwrap();
        send_down(&fs, inode);
        fs.eviction().set_pinned(Io::BLOCKING, directory, true).unwrap();
        let filler = make(&fs, ROOT, "filler", b"");
        let write = |at: u64| fs.write(&caller(3), filler, at << 16, &[7; 1 << 16], false);
        let refused = (0..).find(|at| write(*at).is_err()).expect("the pool is full");
        assert!(write(refused).is_err(), "it stays full");
        assert_eq!(fs.tiers().tier_file(&caller(3), inode).unwrap().residency(), "online", "its directory is pinned");
        leave(&fs, directory);
        write(refused).expect("what left gives its room");
        assert_ne!(fs.tiers().tier_file(&caller(3), inode).unwrap().residency(), "online", "{number}");
        assert_clean(&fs);
    }
}

/// P-110. A change of names or attributes that finds no room gets it from archived files; what is pinned stays, and then it is refused.
#[test]
fn names_and_attributes_get_room_from_archived_files() {
    CALLS.into_iter().for_each(|(call_name, call)| assert_gets_room(call_name, call));
}

/// Commands that change what the pool keeps, as a mount's daemon gives them.
const COMMANDS: [(&str, Call); 5] = [
    ("load_rules", |fs, _, number| {
        let text = format!("*.{number}: copies=1 # {}", "x".repeat(2000));
        fs.command(&caller(0), || fs.policy().load_rules(&caller(0), &text)).map(drop)
    }),
    ("create_class", |fs, _, number| {
        let (name, settings) = (format!("class{number}"), [("copies".to_owned(), "1".to_owned())]);
        fs.command(&caller(0), || fs.policy().create_class(&caller(0), &name, &settings))
    }),
    ("set_quota", |fs, _, number| {
        let whose = Account { holder: Holder::User, number: number as u32 + 1 };
        let limits = Limits { bytes: Some(Some(1 << 30)), ..Limits::default() };
        fs.command(&caller(0), || fs.quotas().set_quota(&caller(0), whose, limits))
    }),
    ("create_volume", |fs, _, number| {
        let name = format!("volume{number}").into_bytes();
        let inode = fs.lookup(&caller(0), ROOT, &name)?.inode;
        fs.command(&caller(0), || fs.quotas().create_volume(&caller(0), inode, Limits::default())).map(drop)
    }),
    ("reconcile", |fs, _, number| {
        let name = format!("volume{number}").into_bytes();
        let inode = fs.lookup(&caller(0), ROOT, &name)?.inode;
        fs.command(&caller(0), || fs.reconciler().reconcile(&caller(0), inode))
    }),
];

/// P-110. A command that finds no room gets it in the same way.
#[test]
fn commands_get_room_from_archived_files() {
    COMMANDS.into_iter().for_each(|(call_name, call)| assert_gets_room(call_name, call));
}

fn assert_gets_room(call_name: &str, call: Call) {
    let (_rig, fs) = Rig::new(2, 64 << 20);
    add_volume(&fs);
    make(&fs, ROOT, "small", b"small");
    for number in 0..100 {
        fs.mkdir(&caller(3), ROOT, format!("volume{number}").as_bytes(), 0o755).unwrap();
    }
    let inode = make(&fs, ROOT, "cold", &content().repeat(20));
    fs.syncfs(&caller(3)).unwrap();
    send_down(&fs, inode);
    fs.eviction().set_pinned(Io::BLOCKING, inode, true).unwrap();
    let is_full = |outcome: Result<(), stere_naming::Error>| match outcome {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.errno(), libc::ENOSPC, "{call_name}: {error}");
            true
        }
    };
    // Whatever takes room, the larger first.
    let filler = make(&fs, ROOT, "filler", b"");
    let filled = (0..).find(|at| is_full(fs.write(&caller(3), filler, at << 16, &[7; 1 << 16], false).map(drop)));
    let name = |number: usize| format!("filler{number}").into_bytes();
    (0..).find(|number| is_full(fs.symlink(&caller(3), ROOT, &name(*number), &[b'x'; 4000]).map(drop)));
    let refused = (0..20_000).find(|number| is_full(call(&fs, inode, *number)));
    println!("{call_name}: {filled:?} writes, then {refused:?} calls");
    let refused = refused.expect("the pool is full");
    assert_eq!(fs.tiers().tier_file(&caller(3), inode).unwrap().residency(), "online", "it is pinned");
    fs.eviction().set_pinned(Io::BLOCKING, inode, false).unwrap();
    call(&fs, inode, refused).unwrap_or_else(|error| panic!("{call_name}: {error}"));
    assert_ne!(fs.tiers().tier_file(&caller(3), inode).unwrap().residency(), "online", "{call_name}");
    assert_clean(&fs);
}

/// P-110: a write for which room ends in its middle gets room for the rest too, and is not cut short while archived files may go.
#[test]
fn a_write_is_not_cut_short_while_archived_files_may_go() {
    for write_bytes in (400_000..1_000_000).step_by(57_123) {
        let (_rig, fs) = Rig::new(2, 64 << 20);
        add_volume(&fs);
        let cold: Vec<u64> =
            (0..8).map(|number| make(&fs, ROOT, &format!("cold{number}"), &content().repeat(10))).collect();
        fs.syncfs(&caller(3)).unwrap();
        cold.iter().for_each(|inode| send_down(&fs, *inode));
        let is_online = |inode: &&u64| fs.tiers().tier_file(&caller(3), **inode).unwrap().residency() == "online";
        let first_short = (0..400).find_map(|number| {
            let inode = make(&fs, ROOT, &format!("new{number}"), b"");
            let written = fs.write(&caller(3), inode, 0, &vec![number as u8; write_bytes], false);
            (!written.as_ref().is_ok_and(|length| *length == write_bytes))
                .then(|| format!("write {number}: {written:?}"))
        });
        let (first_short, online) = (first_short.expect("the pool fills up"), cold.iter().filter(is_online).count());
        assert_eq!(online, 0, "of {write_bytes} bytes, {first_short}");
        assert_clean(&fs);
    }
}

/// Every thread of a number beyond 100 runs `updatedb`.
#[derive(Debug)]
struct Programs;

impl stere_policy::Processes for Programs {
    fn process(&self, task: u32) -> Option<stere_policy::Process> {
        let executable = if task > 100 { b"/usr/bin/updatedb".to_vec() } else { b"/usr/bin/cat".to_vec() };
        Some(stere_policy::Process { number: task, executable, ..stere_policy::Process::default() })
    }
}

/// Reads a file as a program that may be refused recalls.
fn read_for(fs: &Arc<FileSystem>, thread: u32, inode: u64, out: &mut [u8]) -> Result<usize, Error> {
    let call = fs.recalls().refusing_recalls(thread, stere_store::Call::default());
    fs.read(&Caller { io: Io::BLOCKING.of(&call), ..caller(5) }, inode, 0, out)
}

/// P-139: a program that is named is refused at once what is on volumes only, and nothing is asked of them for it; others get it.
#[test]
fn programs_that_are_named_are_refused() {
    let (mut rig, fs, volume, inode) = archived();
    let local = make(&fs, ROOT, "local", &content());
    fs.syncfs(&caller(3)).unwrap();
    release(&fs, inode);
    rig.options.processes = Some(Arc::new(Programs));
    rig.options.refused_programs = vec!["file".into(), "updatedb".into()];
    let fs = Arc::new(rig.reopen(fs, false));
    fs.store().tier.media.attach_volume(0, volume.clone(), None, false).unwrap();
    let mut out = vec![0; LENGTH];
    let requests = volume.requests();
    for _ in 0..3 {
        let refused = read_for(&fs, 101, inode, &mut out);
        assert_eq!(refused.unwrap_err().errno(), libc::EPERM);
    }
    assert_eq!((volume.requests(), fs.store().tier.recalls.wanted_back()), (requests, 0), "nothing is fetched");
    assert_eq!(read_for(&fs, 101, local, &mut out).unwrap(), LENGTH);
    for thread in [0, 100] {
        assert_eq!(read_for(&fs, thread, inode, &mut out).unwrap(), LENGTH);
        assert!(out == content());
    }
    assert_eq!(fs.recalls().volumes_of_released(Io::BLOCKING, inode, 4096, 1).unwrap(), 1);
    assert_eq!(fs.recalls().volumes_of_released(Io::BLOCKING, inode, LENGTH as u64 + 8192, 1).unwrap(), 0);
    assert_eq!(fs.recalls().volumes_of_released(Io::BLOCKING, local, 0, LENGTH as u64).unwrap(), 0);
}

/// P-96. A file that is read from its beginning is one request in each segment that it lies in, in however many pieces it is read.
#[test]
fn a_recalled_file_costs_a_request_a_segment() {
    let (_rig, fs, volume, inode) = archived();
    release(&fs, inode);
    let (before, expected) = (volume.requests(), content());
    let mut bytes = vec![0; LENGTH];
    for at in (0..LENGTH).step_by(16 << 10) {
        let end = (at + (16 << 10)).min(LENGTH);
        fs.read(&caller(4), inode, at as u64, &mut bytes[at..end]).unwrap();
    }
    assert!(bytes == expected);
    assert_eq!(volume.requests() - before, segments_of(&fs, inode).len() as u64);
}
