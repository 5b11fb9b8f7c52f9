//! Heat of archived segments (P-137), and how much of them may come back (P-138): what readers use stays, whatever file it is in.

use super::*;
use stere_store::{ReleaseOrder, TierMarks, TierPolicy};

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 24 * MIB;
/// The part that is used, and one that is not.
const HOT: std::ops::Range<u64> = 10 * MIB..14 * MIB;
const COLD: std::ops::Range<u64> = 0..4 * MIB;

/// A file of many segments, on the volume and on devices.
fn large() -> (Rig, FileSystem, Arc<MemoryVolume>, u64) {
    let (rig, fs) = Rig::new(2, 96 << 20);
    let volume = add_volume(&fs);
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at / 4096 * 31 + at) as u8).collect();
    let inode = make(&fs, ROOT, "large", &bytes);
    fs.syncfs(&caller(3)).unwrap();
    send_down(&fs, inode);
    fs.syncfs(&caller(3)).unwrap();
    (rig, fs, volume, inode)
}

/// Somebody reads a range at this time.
fn read(fs: &FileSystem, inode: u64, range: std::ops::Range<u64>, seconds: i64) {
    let mut out = vec![0; MIB as usize];
    for at in range.step_by(MIB as usize) {
        assert_eq!(fs.read(&caller(seconds), inode, at, &mut out).unwrap(), out.len());
    }
}

fn is_local(fs: &FileSystem, inode: u64, range: std::ops::Range<u64>) -> bool {
    fs.recalls().volumes_of_released(Io::BLOCKING, inode, range.start, range.end - range.start).unwrap() == 0
}

fn heats(fs: &FileSystem, inode: u64) -> Vec<stere_store::SegmentHeat> {
    segments_of(fs, inode).into_iter().map(|segment| fs.store().tier.heat.heat_of(segment)).collect()
}

/// P-137: of a large file what is cold goes and what is hot stays, after another mount too; names are not needed for it.
#[test]
fn cold_ranges_of_a_large_file_go_and_hot_ones_stay() {
    let (rig, fs, volume, inode) = large();
    let known = heats(&fs, inode);
    assert!(known.len() > 20 && known.iter().all(|heat| heat.used_seconds > 0 && heat.references == 0), "{known:?}");
    read(&fs, inode, HOT, 5000);
    let (noted, pages) = (heats(&fs, inode), fs.store().tier.heat.keep_heat().unwrap());
    assert!((4..8).contains(&noted.iter().filter(|heat| heat.references == 1).count()), "{noted:?}");
    assert!(pages > 0 && fs.store().tier.heat.keep_heat().unwrap() == 0, "only what changed is put");
    // Whoever copies uses nothing.
    let mut out = vec![0; MIB as usize];
    fs.backups().read_for_backup(&caller(5500), inode, 0, &mut out).unwrap();
    assert_eq!(heats(&fs, inode), noted);
    fs.syncfs(&caller(5600)).unwrap();
    let fs = rig.reopen(fs, true);
    fs.store().tier.media.attach_volume(0, volume.clone(), None, false).unwrap();
    assert_eq!(heats(&fs, inode), noted, "kept across mounts");
    let used = fs.store().space().used_percent();
    fs.store().tier.media.set_tier_marks(TierMarks::new(used, used - 2).unwrap()).unwrap();
    let released = fs.eviction().keep_room(&caller(6000)).unwrap().unwrap();
    assert!(released >= 2 && released < known.len() as u64, "{released}");
    assert!(is_local(&fs, inode, HOT), "what is used stays");
    assert!(!is_local(&fs, inode, COLD), "what is not goes");
    assert!(fs.eviction().take_released_inodes().contains(&inode), "whose blocks are fewer is told");
    assert_clean(&fs);
}

/// P-137: what is not known is found out from the files, once, and the newest files stay.
#[test]
fn what_is_not_known_is_found_out() {
    let (rig, fs, volume, inode) = large();
    // Nothing was kept.
    let fs = rig.reopen(fs, true);
    fs.store().tier.media.attach_volume(0, volume.clone(), None, false).unwrap();
    assert!(heats(&fs, inode).iter().all(|heat| heat.used_seconds == 0));
    let used = fs.store().space().used_percent();
    fs.store().tier.media.set_tier_marks(TierMarks::new(used, used - 2).unwrap()).unwrap();
    assert!(fs.eviction().keep_room(&caller(6000)).unwrap().unwrap() >= 2);
    let attributes = fs.getattr(&caller(6000), inode).unwrap();
    let seconds = attributes.mtime.seconds.max(attributes.atime.seconds);
    assert!(heats(&fs, inode).iter().all(|heat| heat.used_seconds == seconds as u64));
}

/// P-138: what came back takes no more than it may; what was used once goes before what is used again and again.
#[test]
fn what_came_back_is_bounded() {
    let (_rig, fs, _volume, inode) = large();
    let segments = segments_of(&fs, inode);
    assert_eq!(fs.store().tier.heat.bytes_back(), 0);
    release(&fs, inode);
    fs.store().tier.recalls.want_back(&segments);
    while fs.store().tier.step(false, &|_| Vec::new()).unwrap().is_busy {}
    assert!(is_local(&fs, inode, 0..FILE_BYTES));
    assert!(heats(&fs, inode).iter().all(|heat| heat.is_back && heat.references == 0), "nobody used it yet");
    let all = fs.store().tier.heat.bytes_back();
    assert!(all >= FILE_BYTES, "{all}");
    [1000, 2000, 3000].into_iter().for_each(|seconds| read(&fs, inode, HOT, seconds));
    read(&fs, inode, COLD, 4000);
    assert_eq!(fs.eviction().keep_room(&caller(5000)).unwrap(), None, "there is no bound");
    let policy = TierPolicy { order: ReleaseOrder::Once, cache_bytes: all / 3, ..TierPolicy::default() };
    fs.store().tier.heat.set_tier_policy(policy).unwrap();
    assert!(fs.eviction().keep_room(&caller(5000)).unwrap().unwrap() > 0);
    assert!(fs.store().tier.heat.bytes_back() <= all / 3);
    assert!(
        is_local(&fs, inode, HOT),
        "what is used again and again stays, although what was read once was read later"
    );
    assert!(!is_local(&fs, inode, COLD) || !is_local(&fs, inode, 16 * MIB..FILE_BYTES));
    assert_eq!(fs.eviction().keep_room(&caller(5001)).unwrap(), None, "once is enough");
    // By the time of the last use alone the others stay.
    fs.store().tier.recalls.want_back(&segments);
    while fs.store().tier.step(false, &|_| Vec::new()).unwrap().is_busy {}
    read(&fs, inode, COLD, 9000);
    fs.store().tier.heat.set_tier_policy(TierPolicy { order: ReleaseOrder::LeastRecent, ..policy }).unwrap();
    assert!(fs.eviction().keep_room(&caller(9500)).unwrap().unwrap() > 0);
    assert!(is_local(&fs, inode, COLD) && !is_local(&fs, inode, 16 * MIB..FILE_BYTES));
    assert_clean(&fs);
}
