//! Files on a tertiary volume that is away: whoever needs its bytes is told, and nobody else notices (P-62).

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;

use stere_device::{MemoryVolume, VolumeFault};
use stere_format::{VolumeEntry, VolumeId};
use stere_naming::{FileSystem, ROOT, SetMode, Wait};
use support::files::{assert_clean, make};
use support::{Rig, caller, reconcile};

const LENGTH: usize = 300_000;

fn content() -> Vec<u8> {
    (0..LENGTH).map(|at| (at / 512 * 7 + at) as u8).collect()
}

fn add_volume(fs: &FileSystem) -> Arc<MemoryVolume> {
    let volume = Arc::new(MemoryVolume::new("cold"));
    let (name, place) = ("cold".to_owned(), "memory:cold".to_owned());
    let id = VolumeId([1; 16]);
    let entry = VolumeEntry { number: 0, id, class: 3, is_offline: false, takes_metadata: false, name, place };
    fs.store().add_volume(entry, volume.clone(), "tank", false).unwrap();
    volume
}

fn segments_of(fs: &FileSystem, inode: u64) -> Vec<u64> {
    let mut segments = Vec::new();
    fs.tier_walk(&caller(3), inode, &mut |met| {
        segments.extend(met.segments);
        ControlFlow::Continue(())
    })
    .unwrap();
    segments
}

/// A file that is on the volume, and on devices still.
fn archived() -> (Rig, FileSystem, Arc<MemoryVolume>, u64) {
    let (rig, fs) = Rig::new(2, 96 << 20);
    let volume = add_volume(&fs);
    let inode = make(&fs, ROOT, "cold", &content());
    fs.syncfs(&caller(3)).unwrap();
    fs.setxattr(&caller(3), inode, b"user.stere.tier", b"cold", SetMode::Any, false).unwrap();
    reconcile(&fs);
    while fs.store().tertiary_step(true, &|_| Vec::new()).unwrap().is_busy {}
    (rig, fs, volume, inode)
}

fn release(fs: &FileSystem, inode: u64) {
    assert!(fs.release_segments(&caller(3), &segments_of(fs, inode)).unwrap().segments > 0);
    fs.store().checkpoint().unwrap();
    assert_eq!(fs.tier_file(&caller(3), inode).unwrap().residency(), "nearline");
}

fn read(fs: &FileSystem, inode: u64) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    assert_eq!(fs.read(&caller(4), inode, 0, &mut bytes).unwrap(), LENGTH);
    bytes
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
    assert_eq!(fs.write(&caller(5), inode, 40_960, &block, false).unwrap(), block.len());
    expected[40_960..40_960 + block.len()].copy_from_slice(&block);
    let beside = make(&fs, ROOT, "beside", b"others go on");
    fs.fsync(&caller(5), beside, false).unwrap();
    fs.syncfs(&caller(5)).unwrap();
    volume.set_fault(None);
    let late = b"in the middle of a block";
    assert_eq!(fs.write(&caller(5), inode, 5000, late, false).unwrap(), late.len());
    expected[5000..5000 + late.len()].copy_from_slice(late);
    // What was accepted needs the volume no more.
    volume.set_fault(Some(VolumeFault::Away));
    fs.syncfs(&caller(5)).unwrap();
    volume.set_fault(None);
    assert_eq!(read(&fs, inode), expected);
    assert_clean(&fs);
}

#[test]
fn what_was_dirty_when_it_was_released_is_saved_without_its_volume() {
    let (_rig, fs, volume, inode) = archived();
    let mut expected = content();
    for (offset, text) in [(10_u64, &b"at the beginning"[..]), (200_001, b"and behind")] {
        assert_eq!(fs.write(&caller(5), inode, offset, text, false).unwrap(), text.len());
        expected[offset as usize..offset as usize + text.len()].copy_from_slice(text);
    }
    release(&fs, inode);
    volume.set_fault(Some(VolumeFault::Away));
    fs.syncfs(&caller(5)).unwrap();
    volume.set_fault(None);
    assert_eq!(read(&fs, inode), expected);
    assert_clean(&fs);
}

#[test]
fn what_was_dirty_before_it_went_down_is_saved_without_its_volume() {
    let (_rig, fs) = Rig::new(2, 96 << 20);
    let volume = add_volume(&fs);
    let inode = make(&fs, ROOT, "cold", &content());
    fs.syncfs(&caller(3)).unwrap();
    let text = b"before anybody archived it";
    assert_eq!(fs.write(&caller(5), inode, 100, text, false).unwrap(), text.len());
    fs.setxattr(&caller(3), inode, b"user.stere.tier", b"cold", SetMode::Any, false).unwrap();
    reconcile(&fs);
    while fs.store().tertiary_step(true, &|_| Vec::new()).unwrap().is_busy {}
    release(&fs, inode);
    volume.set_fault(Some(VolumeFault::Away));
    fs.syncfs(&caller(5)).unwrap();
    volume.set_fault(None);
    let mut expected = content();
    expected[100..100 + text.len()].copy_from_slice(text);
    assert_eq!(read(&fs, inode), expected);
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
    fs.setxattr(&caller(3), inode, b"user.stere.tier", b"cold", SetMode::Any, false).unwrap();
    reconcile(&fs);
    while fs.store().tertiary_step(true, &|_| Vec::new()).unwrap().is_busy {}
    // Behind the back of whoever completes what is dirty.
    assert!(fs.store().release(&segments_of(&fs, inode)).unwrap().segments > 0);
    volume.set_fault(Some(VolumeFault::Away));
    let other = make(&fs, ROOT, "other", b"");
    for at in 0..40 {
        assert_eq!(fs.write(&caller(6), other, at * 16_000, &[3; 12_000], false).unwrap(), 12_000);
    }
    assert_eq!(fs.syncfs(&caller(6)).unwrap_err().errno(), libc::EIO, "one file cannot be saved, and that is told");
    fs.fsync(&caller(6), other, false).unwrap();
    volume.set_fault(None);
    fs.syncfs(&caller(6)).unwrap();
    fs.store().commit(Wait::Allowed).unwrap();
    let mut expected = content();
    expected[100..105].copy_from_slice(b"dirty");
    assert_eq!(read(&fs, inode), expected);
}
