//! Histories that once failed.

use stere_sim::area::Area;
use stere_sim::encryption::Encrypts;
use stere_sim::fault::FaultKind;
use stere_sim::history::{Budget, Plan};
use stere_sim::metadata_offload::ColdStep;
use stere_sim::operation::{CrashManner, Operation, Path, Releasing, Target};
use stere_sim::placement::Place;
use stere_sim::pool::PoolConfig;
use stere_sim::run;
use stere_sim::tiers::TierStep;
use stere_sim::volume::VolumeTrouble;
use stere_store::CleanerPolicy;

/// P-1, P-3: in a nearly full pool a crash left data with one copy, for whose rewriting recovery found no room.
#[test]
fn recovery_of_a_full_pool_gives_data_its_copies_again() {
    let pool = PoolConfig::of(&[69_226_496, 75_661_312])
        .blocks(&[512, 4096])
        .chunks(2 << 20)
        .memory(64 << 20)
        .dirty(1 << 20, 5)
        .cleaner(CleanerPolicy::Greedy);
    let operations = [
        Operation::Faults { device: 0, kind: FaultKind::TransientReadError, per_million: 1_000 },
        Operation::Fill { bytes: 800_000 },
        Operation::Crash { manner: CrashManner::Mixed, again: None },
        Operation::Checkpoint,
        Operation::Fill { bytes: 3_300_000 },
        Operation::Empty { every: 2 },
        Operation::ArmCrash { events: 24, manner: CrashManner::Mixed },
        Operation::Fill { bytes: 900_000 },
    ];
    for seed in 0..8 {
        let plan = Plan { seed, pool: pool.clone(), budget: Budget::Tolerated, may_fill: true, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-6, P-230: two full devices got a large one; segments that had a chunk there already were moved from one full device to the other
/// until the search had moved as much as it may, and an accepted file found no room.
#[test]
fn what_was_accepted_finds_room_on_a_device_that_was_added() {
    let pool = PoolConfig::of(&[69_353_472, 69_414_912])
        .blocks(&[4096, 512])
        .chunks(2 << 20)
        .memory(64 << 20)
        .dirty(256 << 10, 2)
        .cleaner(CleanerPolicy::Greedy);
    let operations = [
        Operation::ArmCrash { events: 7, manner: CrashManner::Everything },
        Operation::Write { target: Target::Slot(3), offset: 0, length: 131_072, seed: 8_075_653_523_923_453_932 },
        Operation::Fsync { target: Target::Slot(0) },
        Operation::Fill { bytes: 1_500_000 },
        Operation::AddDevice { mebibytes: 3000, spare: false },
        Operation::Write { target: Target::Slot(0), offset: 264_029, length: 22, seed: 18_053_059_925_142_574_783 },
        Operation::Fill { bytes: 3_000_000 },
        Operation::Fill { bytes: 1_300_000 },
        Operation::Remount,
    ];
    for seed in 90_036..90_046 {
        let plan = Plan { seed, pool: pool.clone(), budget: Budget::Tolerated, may_fill: true, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-6: two full devices got a large one; each pass of the cleaner filled as many segments as it emptied, so that nothing was evened
/// out, and an accepted file found no room.
#[test]
fn what_was_accepted_finds_room_although_cleaning_gains_nothing() {
    let pool = PoolConfig::of(&[69_279_744, 67_305_472])
        .blocks(&[4096, 512])
        .dirty(64 << 20, 1)
        .cleaner(CleanerPolicy::Greedy)
        .encrypts(Encrypts::Some)
        .keeps_versions();
    let operations = [
        Operation::Fill { bytes: 900_000 },
        Operation::AddDevice { mebibytes: 3000, spare: false },
        Operation::Crash { manner: CrashManner::Nothing, again: None },
        Operation::Fill { bytes: 2_500_000 },
    ];
    for seed in 770_001_125..770_001_129 {
        let plan = Plan { seed, pool: pool.clone(), budget: Budget::Beyond, may_fill: true, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-6: a device was lost. Half-empty segments that lay in part on it came after full ones whose cleaning gained nothing, since large
/// blobs left room at the end of each; so they never came, and an accepted file found no room.
#[test]
fn what_was_accepted_finds_room_in_half_empty_segments_of_a_lost_device() {
    let pool = PoolConfig::of(&[67_256_320, 69_316_608])
        .blocks(&[512, 4096])
        .dirty(64 << 20, 3)
        .cleaner(CleanerPolicy::Greedy)
        .encrypts(Encrypts::Some);
    let operations = [
        Operation::Fill { bytes: 400_000 },
        Operation::Lose { device: 0, events: 0 },
        Operation::AddDevice { mebibytes: 3000, spare: false },
        Operation::Crash { manner: CrashManner::Mixed, again: Some(3) },
        Operation::Empty { every: 2 },
        Operation::Fill { bytes: 4_000_000 },
    ];
    for seed in 770_008_808..770_008_812 {
        let plan = Plan { seed, pool: pool.clone(), budget: Budget::Tolerated, may_fill: true, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-6: where segments lay in part on a lost device, nearly full ones on good devices were cleaned again and again, which gained
/// nothing, and an accepted file found no room.
#[test]
fn what_was_accepted_finds_room_although_a_device_is_lost() {
    let pool = PoolConfig::of(&[69_378_048, 75_575_296])
        .chunks(1 << 20)
        .memory(64 << 20)
        .dirty(64 << 20, 2)
        .cleaner(CleanerPolicy::Greedy);
    let operations = [
        Operation::Lose { device: 0, events: 46 },
        Operation::Fill { bytes: 900_000 },
        Operation::AddDevice { mebibytes: 80, spare: false },
        Operation::Empty { every: 3 },
        Operation::Fill { bytes: 3_600_000 },
    ];
    for seed in 733_000_015..733_000_023 {
        let plan = Plan { seed, pool: pool.clone(), budget: Budget::Tolerated, may_fill: true, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-31: what a scrub had written again was not flushed, so that a power cut took it back, and the loss of the other device the rest.
#[test]
fn what_a_scrub_repaired_stays_repaired_when_the_power_goes() {
    let pool = PoolConfig::of(&[3_145_973_760, 209_715_200]);
    let path = |directory, name| Path { directory, name };
    let operations = [
        Operation::Write { target: Target::Slot(2), offset: 0, length: 275_581, seed: 1 },
        Operation::Mkdir { path: path(0, 4) },
        Operation::SyncAll,
        Operation::Remount,
        Operation::KeepImage { device: 1 },
        Operation::Mkdir { path: path(3, 5) },
        Operation::Fsync { target: Target::Slot(2) },
        Operation::Truncate { target: Target::Slot(1), size: 4_897 },
        Operation::Remount,
        Operation::Create { path: path(0, 3), slot: 4 },
        Operation::Crash { manner: CrashManner::Nothing, again: None },
        Operation::Create { path: path(0, 4), slot: 0 },
        Operation::Step { count: 5, idle: true },
        Operation::SyncAll,
        Operation::Scrub,
    ];
    let mut proofs = 0;
    // Without the flush all of these fail, and 58 of the first 200.
    for seed in [1, 2, 20, 22, 23, 24, 27, 28] {
        let plan = Plan { seed, pool: pool.clone(), budget: Budget::Tolerated, may_fill: false, canary: false };
        let outcome = run::run(&plan, &operations, false);
        proofs += outcome.unwrap_or_else(|failure| panic!("seed {seed}: {failure}")).proofs;
    }
    assert!(proofs > 0, "nobody looked");
}

/// P-31: after a crash a device lost the write of a checkpoint's row and went on holding the row of the checkpoint that the crash had
/// stopped; the scrub took that for the truth, on all devices.
#[test]
fn a_row_of_a_checkpoint_that_never_was_is_not_taken_for_the_one_that_is() {
    let pool =
        PoolConfig::of(&[3_145_949_184, 209_870_848, 100_872_192]).dirty(256 << 10, 1).cleaner(CleanerPolicy::Greedy);
    let path = Path { directory: 0, name: 2 };
    let operations = [
        Operation::Crash { manner: CrashManner::Mixed, again: None },
        Operation::Create { path, slot: 3 },
        Operation::Faults { device: 0, kind: FaultKind::LostWrite, per_million: 100_000 },
        Operation::Write { target: Target::Path(path), offset: 5109, length: 4135, seed: 1 },
        Operation::SyncAll,
        Operation::LoadRules { number: 3 },
        Operation::ArmCrash { events: 19, manner: CrashManner::Nothing },
        Operation::Step { count: 1, idle: true },
        Operation::Checkpoint,
        Operation::Checkpoint,
        Operation::Scrub,
    ];
    // It is shown by no seed of the first 1,000 any more when the older row is believed again: something else keeps the two apart too.
    for seed in 0..50 {
        let plan = Plan { seed, pool: pool.clone(), budget: Budget::Tolerated, may_fill: false, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-2: a mount whose superblocks were all lost wrote records of an epoch that the next mount used again, so that the records of
/// both were replayed as one history.
#[test]
fn a_mount_that_left_no_trace_in_superblocks_is_not_mixed_with_the_next() {
    let path = |directory, name| Path { directory, name };
    let fault = |kind, per_million| Operation::Faults { device: 0, kind, per_million };
    let crash = |events| Operation::ArmCrash { events, manner: CrashManner::Mixed };
    let operations = [
        Operation::Create { path: path(0, 5), slot: 0 },
        fault(FaultKind::FailedWrite, 300),
        Operation::Remount,
        crash(4),
        fault(FaultKind::LostWrite, 200_000),
        Operation::Checkpoint,
        Operation::Create { path: path(0, 1), slot: 1 },
        Operation::SyncAll,
        Operation::Mkdir { path: path(0, 4) },
        crash(4),
        Operation::Checkpoint,
    ];
    // Where epochs are counted by one, all of these fail, and 37 of the first 2,000.
    for seed in [58, 81, 121, 181, 188, 264, 267, 312] {
        let plan = Plan { seed, pool: one_device(), budget: Budget::Beyond, may_fill: false, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-1: superblocks keep sixteen epochs; the one whose records the journal still needed was dropped.
#[test]
fn many_crashes_in_a_row_lose_nothing() {
    let mut operations = Vec::new();
    for round in 0..24 {
        let path = Path { directory: 0, name: round % 6 };
        operations.push(Operation::Create { path, slot: 0 });
        let target = Target::Path(path);
        operations.push(Operation::Write { target, offset: 0, length: 5_000, seed: u64::from(round) });
        operations.push(Operation::Fsync { target });
        operations.push(Operation::Crash { manner: CrashManner::Mixed, again: Some(u32::from(round % 5) + 1) });
    }
    for devices in [one_device(), two_devices()] {
        let plan = Plan { seed: 1, pool: devices, budget: Budget::None, may_fill: false, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
    }
}

/// P-1, P-2: a crash; then the device that alone held some of what recovery had taken goes away, and there is another crash. What
/// was seen after the first one was lost; where the journal then ended before the newest epoch, superblocks were written that
/// could not be read.
#[test]
fn what_recovery_showed_once_is_there_again() {
    let slot = Target::Slot;
    for events in 5..24 {
        for cut in [4, 6] {
            let operations = [
                Operation::Remount,
                Operation::Write { target: slot(0), offset: 262_144, length: 196_608, seed: 1 },
                Operation::Write { target: slot(1), offset: 131_072, length: 20_000, seed: 2 },
                Operation::TakeAway { device: 0, events },
                Operation::ArmCrash { events: cut, manner: CrashManner::Mixed },
                Operation::Fsync { target: slot(1) },
                Operation::Crash { manner: CrashManner::Everything, again: None },
                Operation::Write { target: slot(1), offset: 0, length: 20_000, seed: 3 },
                Operation::Fsync { target: slot(1) },
                Operation::Crash { manner: CrashManner::Mixed, again: None },
                Operation::BringBack { device: 0 },
            ];
            for seed in 0..12 {
                let pool = two_devices();
                let plan = Plan { seed, pool, budget: Budget::Tolerated, may_fill: false, canary: false };
                let outcome = run::run(&plan, &operations, false);
                assert!(outcome.is_ok(), "{events}, {cut}, seed {seed}: {}", outcome.expect_err("it failed"));
            }
        }
    }
}

/// P-22: a crash in the middle of adding a device left one that said it was of the pool, which did not know it; the pool was then
/// refused.
#[test]
fn a_crash_while_a_device_is_added_keeps_nobody_out() {
    for events in 1..40 {
        let operations = [
            Operation::ArmCrash { events, manner: CrashManner::Mixed },
            Operation::AddDevice { mebibytes: 80, spare: false },
            Operation::Mend,
            Operation::Check,
        ];
        for seed in 0..4 {
            let plan = Plan { seed, pool: two_devices(), budget: Budget::None, may_fill: false, canary: false };
            let outcome = run::run(&plan, &operations, false);
            assert!(outcome.is_ok(), "{events}, seed {seed}: {}", outcome.expect_err("it failed"));
        }
    }
}

/// P-20: a spare that came after the loss was not called in, because what was left had been written anew without copies.
#[test]
fn a_spare_that_comes_late_takes_over() {
    let slot = Target::Slot;
    let operations = [
        Operation::Write { target: slot(4), offset: 0, length: 18, seed: 1 },
        Operation::Lose { device: 1, events: 0 },
        Operation::Fsync { target: slot(4) },
        Operation::Mend,
        Operation::Write { target: slot(4), offset: 5_432, length: 262_144, seed: 2 },
        Operation::AddDevice { mebibytes: 200, spare: true },
        Operation::Mend,
        Operation::Lose { device: 0, events: 0 },
        Operation::Crash { manner: CrashManner::Mixed, again: None },
        Operation::VerifyAll,
    ];
    for seed in 0..4 {
        let plan = Plan { seed, pool: two_devices(), budget: Budget::Tolerated, may_fill: false, canary: false };
        let outcome = run::run(&plan, &operations, false).expect("nothing is lost");
        assert!(outcome.mended >= 1, "{outcome:?}");
    }
}

fn two_devices() -> PoolConfig {
    PoolConfig::of(&[64 << 20, 96 << 20]).blocks(&[512, 4096]).cleaner(CleanerPolicy::Greedy)
}

fn one_device() -> PoolConfig {
    PoolConfig::of(&[64 << 20]).cleaner(CleanerPolicy::Greedy)
}

/// P-6: a crash tore many blocks of one device, which was held against it: it was given up, and in a full pool what had been
/// accepted for it then had no room.
#[test]
fn what_a_crash_tore_is_not_held_against_devices() {
    let pool = PoolConfig::of(&[67_358_720, 67_358_720, 67_358_720])
        .blocks(&[4096, 512, 512])
        .chunks(2 << 20)
        .memory(16 << 20)
        .dirty(256 << 10, 5);
    for events in 2..6 {
        let operations = [
            Operation::Fill { bytes: 1_400_000 },
            Operation::ArmCrash { events, manner: CrashManner::Mixed },
            Operation::Empty { every: 9 },
            Operation::SyncAll,
            Operation::Step { count: 20, idle: true },
            Operation::Check,
            Operation::Fill { bytes: 3_400_000 },
        ];
        for seed in 0..6 {
            let plan = Plan { seed, pool: pool.clone(), budget: Budget::None, may_fill: true, canary: false };
            let outcome = run::run(&plan, &operations, false);
            assert!(outcome.is_ok(), "{events}, seed {seed}: {}", outcome.expect_err("it failed"));
        }
    }
}

/// P-6: a crash tore what tells of a row; the cleaner stopped there for good, instead of moving what the other rows hold.
#[test]
fn a_row_that_a_crash_tore_does_not_stop_the_cleaner() {
    let path = |directory, name| Path { directory, name };
    let pool = PoolConfig::of(&[209_727_488, 3_145_728_000, 67_219_456])
        .chunks(2 << 20)
        .memory(64 << 20)
        .cleaner(CleanerPolicy::Greedy);
    let operations = [
        Operation::Mkdir { path: path(0, 3) },
        Operation::Mkdir { path: path(1, 5) },
        Operation::Create { path: path(3, 2), slot: 2 },
        Operation::Write { target: Target::Slot(3), offset: 0, length: 445, seed: 5_797_394_336_235_742_429 },
        Operation::Create { path: path(1, 1), slot: 4 },
        Operation::Write { target: Target::Slot(4), offset: 0, length: 4096, seed: 13_335_804_566_658_943_072 },
        Operation::Remount,
        Operation::SetPolicy { path: path(0, 3), policy: 10 },
        Operation::Step { count: 5, idle: false },
        Operation::ArmCrash { events: 3, manner: CrashManner::Everything },
        Operation::SyncAll,
        Operation::ArmCrash { events: 7, manner: CrashManner::Nothing },
        Operation::Write { target: Target::Slot(4), offset: 1781, length: 194, seed: 4_097_031_667_626_635_886 },
        Operation::SyncAll,
        Operation::EmptyDevice { device: 1, leaves: false },
        Operation::Step { count: 5, idle: true },
    ];
    for seed in (50_000_094..50_000_100).chain(0..20) {
        let plan = Plan { seed, pool: pool.clone(), budget: Budget::None, may_fill: false, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-62: a file that was written with one device, and archived then, kept its one copy when a second device came, until a volume had it.
#[test]
fn what_waits_for_a_volume_gets_its_copies_when_there_are_devices() {
    let path = Path { directory: 0, name: 1 };
    let operations = [
        Operation::Lose { device: 1, events: 0 },
        Operation::AddVolume { is_slow: false },
        Operation::Mend,
        Operation::Create { path, slot: 1 },
        Operation::Write { target: Target::Path(path), offset: 262_144, length: 148_166, seed: 1 },
        Operation::AddDevice { mebibytes: 3000, spare: true },
        Operation::Archive { path, volumes: 1 },
        Operation::Step { count: 4, idle: true },
        Operation::Mend,
    ];
    for seed in 0..4 {
        let plan = Plan { seed, pool: two_devices(), budget: Budget::Tolerated, may_fill: false, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-62: a device that went away while a segment came back made the work for volumes fail, and forget the segment.
#[test]
fn a_device_that_goes_while_a_segment_comes_back_is_no_error() {
    let path = Path { directory: 0, name: 1 };
    for events in 1..12 {
        let operations = [
            Operation::Create { path, slot: 1 },
            Operation::Write { target: Target::Path(path), offset: 0, length: 140_000, seed: 1 },
            Operation::SyncAll,
            Operation::AddVolume { is_slow: false },
            Operation::Archive { path, volumes: 1 },
            Operation::Step { count: 4, idle: true },
            Operation::StepVolumes { count: 8, ends: true },
            Operation::Release { path, releasing: Releasing::Checkpoints },
            Operation::Stage { path },
            Operation::TakeAway { device: 0, events },
            Operation::StepVolumes { count: 3, ends: true },
            Operation::VerifyAll,
        ];
        for seed in 0..4 {
            let plan = Plan { seed, pool: two_devices(), budget: Budget::Tolerated, may_fill: false, canary: false };
            let outcome = run::run(&plan, &operations, false).expect("nothing is lost");
            assert!(outcome.tier.segments_released > 0, "{outcome:?}");
        }
    }
}

/// P-6, P-82: a version that found no room refused the truncation that it was made for.
#[test]
fn a_version_that_finds_no_room_refuses_no_change() {
    let pool =
        PoolConfig::of(&[67_215_360]).chunks(2 << 20).dirty(256 << 10, 5).encrypts(Encrypts::Some).keeps_versions();
    let operations = [
        Operation::Allocate { target: Target::Slot(1), offset: 20_480, length: 4096, mode: 65 },
        Operation::ArmCrash { events: 3, manner: CrashManner::Everything },
        Operation::Write { target: Target::Slot(4), offset: 0, length: 19_792, seed: 1 },
        Operation::Fsync { target: Target::Slot(1) },
        Operation::Write { target: Target::Slot(4), offset: 0, length: 4513, seed: 2 },
        Operation::Fill { bytes: 1_800_000 },
        Operation::Truncate { target: Target::Slot(3), size: 0 },
    ];
    let plan = Plan { seed: 90_000_025, pool, budget: Budget::Beyond, may_fill: true, canary: false };
    let outcome = run::run(&plan, &operations, false);
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
}

/// P-6: what is left of an encrypted record that a truncation cuts takes as much room as before, and the note of what is dead some more.
#[test]
fn an_encrypted_file_is_cut_within_a_record_in_a_full_pool() {
    let pool = PoolConfig::of(&[69_427_200, 67_244_032])
        .blocks(&[4096, 4096])
        .chunks(2 << 20)
        .dirty(64 << 20, 2)
        .encrypts(Encrypts::Everything);
    let operations = [
        Operation::Write { target: Target::Slot(1), offset: 0, length: 239_958, seed: 1 },
        Operation::Fill { bytes: 3_900_000 },
        Operation::Truncate { target: Target::Path(Path { directory: 0, name: 1 }), size: 8683 },
    ];
    let plan = Plan { seed: 70_000_323, pool, budget: Budget::Tolerated, may_fill: true, canary: false };
    let outcome = run::run(&plan, &operations, false);
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
}

/// P-6: the open segment of a full pool lacked what a device had missed that came back, so it was ended by the next mount, and what was
/// written over found no segment to begin.
#[test]
fn what_replaces_has_its_room_when_a_device_is_back_in_a_full_pool() {
    let pool =
        PoolConfig::of(&[67_166_208, 67_330_048]).chunks(2 << 20).dirty(256 << 10, 5).cleaner(CleanerPolicy::Greedy);
    let operations = [
        Operation::Offline { device: 0 },
        Operation::Fill { bytes: 900_000 },
        Operation::Fill { bytes: 200_000 },
        Operation::Online { device: 0 },
        Operation::Crash { manner: CrashManner::Everything, again: Some(1) },
        Operation::Mend,
        Operation::Write { target: Target::Slot(2), offset: 581_278, length: 4096, seed: 1 },
    ];
    let plan = Plan { seed: 70_000_527, pool, budget: Budget::Tolerated, may_fill: true, canary: false };
    let outcome = run::run(&plan, &operations, false);
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
}

/// P-6: with a small device away, the promise left no room on the other small one for metadata, which lacks a chunk on the one that
/// is away but lies on all that are there.
#[test]
fn what_was_accepted_has_room_beside_metadata_that_is_owed_chunks() {
    let pool = PoolConfig::of(&[69_238_784, 67_211_264])
        .blocks(&[4096, 512])
        .chunks(2 << 20)
        .dirty(64 << 20, 2)
        .cleaner(CleanerPolicy::Greedy)
        .keeps_versions();
    let operations = [
        Operation::Lose { device: 1, events: 46 },
        Operation::AddDevice { mebibytes: 3000, spare: false },
        Operation::Crash { manner: CrashManner::Mixed, again: None },
        Operation::Fill { bytes: 600_000 },
        Operation::Write { target: Target::Slot(3), offset: 8192, length: 502, seed: 1 },
        Operation::Empty { every: 3 },
        Operation::Fill { bytes: 4_000_000 },
    ];
    let plan = Plan { seed: 12_696, pool, budget: Budget::Tolerated, may_fill: true, canary: false };
    let outcome = run::run(&plan, &operations, false);
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
}

/// P-63: what had one copy on devices and one on a volume is read from there when the device is gone, and checking called it unreadable.
#[test]
fn what_a_volume_gives_is_not_called_unreadable() {
    let pool = PoolConfig::of(&[3_145_850_880, 100_802_560])
        .blocks(&[4096, 4096])
        .memory(16 << 20)
        .dirty(64 << 20, 5)
        .cleaner(CleanerPolicy::Greedy)
        .encrypts(Encrypts::Some)
        .keeps_versions()
        .takes_part_in(Area::Tiers);
    let path = Path { directory: 3, name: 1 };
    let operations = [
        Operation::Mkdir { path: Path { directory: 0, name: 3 } },
        Operation::Mkdir { path: Path { directory: 1, name: 5 } },
        Operation::Write { target: Target::Slot(2), offset: 0, length: 262_144, seed: 6_525_781_699_308_018_570 },
        Operation::AddVolume { is_slow: true },
        Operation::Lose { device: 1, events: 17 },
        Operation::Crash { manner: CrashManner::Mixed, again: None },
        Operation::Tiers(TierStep::ProveFollowers { seed: 1_667_840_097_040_756_167 }),
        Operation::Mend,
        Operation::Create { path, slot: 1 },
        Operation::Write { target: Target::Path(path), offset: 0, length: 395_713, seed: 14_185_680_834_698_844_970 },
        Operation::Archive { path, volumes: u8::MAX },
        Operation::SettleVolumes,
        Operation::AddDevice { mebibytes: 3000, spare: false },
        Operation::Mend,
        Operation::Lose { device: 0, events: 17 },
        Operation::VerifyAll,
        Operation::SettleVolumes,
        Operation::Remount,
        Operation::VerifyAll,
        Operation::Check,
    ];
    let plan = Plan { seed: 7_345, pool, budget: Budget::Tolerated, may_fill: false, canary: false };
    let outcome = run::run(&plan, &operations, false);
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
}

/// P-152: a directory was used that had come back without the one it is in, and rules changed: the work of names stopped with an error.
#[test]
fn the_use_of_a_directory_that_came_back_alone_is_noted() {
    let pool = PoolConfig::of(&[3_145_736_192, 100_818_944])
        .dirty(1 << 20, 4)
        .encrypts(Encrypts::Some)
        .takes_part_in(Area::Cold);
    let operations = [
        Operation::AddVolume { is_slow: false },
        Operation::Cold(ColdStep::Begin),
        Operation::Cold(ColdStep::ProveGone),
        Operation::Seek { target: Target::Slot(3), offset: 262_144 },
        Operation::LoadRules { number: 3 },
        Operation::Step { count: 6, idle: true },
    ];
    let plan = Plan { seed: 901_848, pool, budget: Budget::Tolerated, may_fill: false, canary: false };
    let outcome = run::run(&plan, &operations, false);
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
}

/// P-114: saved bytes went below a soft limit while newer ones waited, so the grace period began anew; the oracle knew only their sum.
#[test]
fn a_grace_period_begins_anew_where_saved_bytes_were_less() {
    let pool = PoolConfig::of(&[3_145_879_552, 3_145_965_568, 67_203_072, 3_145_814_016])
        .blocks(&[512, 512, 512, 512])
        .memory(16 << 20)
        .dirty(64 << 20, 5)
        .cleaner(CleanerPolicy::Greedy);
    let write = |target, offset, length| Operation::Write { target, offset, length, seed: 7 };
    let file = |name| Path { directory: 0, name };
    let operations = [
        write(Target::Slot(0), 0, 74),
        Operation::Create { path: file(1), slot: 1 },
        write(Target::Slot(1), 0, 87_257),
        Operation::Limit { holder: 1, manner: 2, room: 1, days: 1 },
        write(Target::Path(file(0)), 0, 48_997),
        Operation::PassDays { days: 1 },
        write(Target::Slot(4), 133_125, 3_388),
        Operation::Truncate { target: Target::Slot(1), size: 14_472 },
        Operation::Fsync { target: Target::Slot(4) },
        Operation::Crash { manner: CrashManner::Nothing, again: Some(8) },
    ];
    let plan = Plan { seed: 760_002_082, pool, budget: Budget::Tolerated, may_fill: false, canary: false };
    let outcome = run::run(&plan, &operations, false);
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
}

/// P-6: the cleaner moved what lay in part on a device that was given up. That freed slots which nobody gets, and took the last ones of the
/// small device, so that what had been accepted found no room.
#[test]
fn what_was_accepted_has_room_when_a_device_was_given_up_in_a_full_pool() {
    let pool = PoolConfig::of(&[75_595_776, 69_234_688]).blocks(&[512, 4096]).memory(16 << 20).dirty(64 << 20, 5);
    let operations = [
        Operation::AddDevice { mebibytes: 200, spare: true },
        Operation::Lose { device: 0, events: 11 },
        Operation::Fill { bytes: 3_300_000 },
        Operation::Mend,
        Operation::Remount,
        Operation::Lose { device: 1, events: 0 },
        Operation::AddDevice { mebibytes: 80, spare: false },
        Operation::Fill { bytes: 900_000 },
        Operation::Mend,
        Operation::Empty { every: 2 },
        Operation::Fill { bytes: 2_700_000 },
    ];
    for seed in [20_019_209, 1, 2, 3] {
        let plan = Plan { seed, pool: pool.clone(), budget: Budget::Tolerated, may_fill: true, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-20: names that were put away with one device, and that no volume had yet, kept their one copy when a second device came.
#[test]
fn names_that_wait_for_a_volume_get_their_copies_when_there_are_devices() {
    let operations = [
        Operation::AddVolume { is_slow: false },
        Operation::Cold(ColdStep::Begin),
        Operation::Lose { device: 1, events: 0 },
        Operation::Mend,
        Operation::Cold(ColdStep::ProveGone),
        Operation::AddDevice { mebibytes: 200, spare: true },
        Operation::Mend,
    ];
    for seed in [32_036_696, 1, 2, 3] {
        let pool = two_devices().keeps_versions().takes_part_in(Area::Cold);
        let plan = Plan { seed, pool, budget: Budget::Tolerated, may_fill: false, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-62: the same of a file that shares what another one had archived, and never asked for volumes itself.
#[test]
fn what_another_file_archived_gets_its_copies_when_there_are_devices() {
    let (path, copy) = (Path { directory: 0, name: 1 }, Path { directory: 0, name: 2 });
    let (from, to) = (Target::Path(path), Target::Path(copy));
    let operations = [
        Operation::Lose { device: 1, events: 0 },
        Operation::AddVolume { is_slow: false },
        Operation::Mend,
        Operation::HoldUploads { are_held: true },
        Operation::Create { path, slot: 1 },
        Operation::Create { path: copy, slot: 2 },
        Operation::Write { target: from, offset: 0, length: 262_144, seed: 1 },
        Operation::SyncAll,
        Operation::Archive { path, volumes: 1 },
        Operation::Step { count: 4, idle: true },
        Operation::Copy { from, from_offset: 0, to, to_offset: 0, length: 262_144 },
        Operation::Close { slot: 1 },
        Operation::Unlink { path },
        Operation::SyncAll,
        Operation::AddDevice { mebibytes: 3000, spare: true },
        Operation::Mend,
    ];
    for seed in 0..4 {
        let plan = Plan { seed, pool: two_devices(), budget: Budget::Tolerated, may_fill: false, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-110: a file that was pinned and is gone kept what it shared from going to make room: the next writer was refused.
#[test]
fn what_a_pinned_file_shared_makes_room_when_that_file_is_gone() {
    let path = Path { directory: 2, name: 1 };
    let target = Target::Path(path);
    let pool = PoolConfig::of(&[75_673_600]).blocks(&[4096]).chunks(2 << 20).memory(64 << 20).dirty(64 << 20, 1);
    let operations = [
        Operation::Mkdir { path: Path { directory: 0, name: 3 } },
        Operation::Mkdir { path: Path { directory: 0, name: 4 } },
        Operation::Mkdir { path: Path { directory: 1, name: 5 } },
        Operation::AddVolume { is_slow: true },
        Operation::Create { path, slot: 1 },
        Operation::Write { target, offset: 17_195, length: 18_606, seed: 6_252_371_555_907_618_187 },
        Operation::Archive { path, volumes: 5 },
        Operation::Step { count: 3, idle: true },
        Operation::StepVolumes { count: 3, ends: true },
        Operation::Pin { path, is_pinned: true },
        Operation::Unlink { path },
        Operation::Fill { bytes: 1_400_000 },
        Operation::Copy {
            from: Target::Slot(1),
            from_offset: 16_384,
            to: Target::Slot(4),
            to_offset: 0,
            length: 53_064,
        },
        Operation::Create { path: Path { directory: 3, name: 0 }, slot: 1 },
        Operation::Write { target: Target::Slot(1), offset: 0, length: 131_112, seed: 1_732_942_182_564_739_666 },
    ];
    let plan = Plan { seed: 41_005_290, pool, budget: Budget::Beyond, may_fill: true, canary: false };
    let outcome = run::run(&plan, &operations, false);
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
}

/// P-31: a record of the journal that recovery gave to a mirror, and that went astray there, was passed over by a scrub; what was
/// committed behind it was cut with it once the other device was lost.
#[test]
fn a_scrub_looks_at_what_recovery_found() {
    let pool = two_devices();
    let directory = |name| Operation::Mkdir { path: Path { directory: 0, name } };
    let operations = [
        Operation::Faults { device: 1, kind: FaultKind::MisdirectedWrite, per_million: 300_000 },
        directory(1),
        Operation::SyncAll,
        Operation::ArmCrash { events: 4, manner: CrashManner::Mixed },
        directory(2),
        Operation::SyncAll,
        directory(3),
        Operation::Scrub,
    ];
    for seed in 0..64 {
        let plan = Plan { seed, pool: pool.clone(), budget: Budget::Tolerated, may_fill: false, canary: false };
        let outcome = run::run(&plan, &operations, false);
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.expect_err("it failed"));
    }
}

/// P-116: a segment that one medium had and no device any more never got to the other medium that it was meant for (seed 780002856).
#[test]
fn what_devices_lost_goes_from_medium_to_medium() {
    let path = Path { directory: 0, name: 0 };
    let operations = [
        Operation::Lose { device: 1, events: 0 },
        Operation::Mend,
        Operation::Write { target: Target::Slot(0), offset: 0, length: 192_348, seed: 7_465_899_849_253_613_901 },
        Operation::AddVolume { is_slow: false },
        Operation::AddVolume { is_slow: false },
        Operation::Trouble { volume: 1, trouble: VolumeTrouble::OnlyReads },
        Operation::Archive { path, volumes: 255 },
        Operation::Step { count: 4, idle: true },
        Operation::AddDevice { mebibytes: 200, spare: false },
        Operation::Mend,
        Operation::Lose { device: 0, events: 0 },
        Operation::Mend,
    ];
    let pool = PoolConfig::of(&[67_276_800, 67_276_800])
        .blocks(&[4096, 512])
        .chunks(1 << 20)
        .memory(8 << 20)
        .dirty(64 << 20, 5)
        .cleaner(CleanerPolicy::Greedy)
        .keeps_versions()
        .takes_part_in(Area::Volumes);
    let plan = Plan { seed: 780_002_856, pool, budget: Budget::Tolerated, may_fill: false, canary: false };
    let outcome = run::run(&plan, &operations, false);
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
}

/// P-20, P-142: a file with `parity=2+1` in a place of three devices cannot be safe when one of them is lost; the oracle demanded that.
#[test]
fn a_place_with_fewer_devices_than_its_segments_have_chunks_keeps_what_there_is() {
    let operations = [
        Operation::Write { target: Target::Slot(1), offset: 0, length: 4096, seed: 12_781_488_820_392_394_551 },
        Operation::AskPlace { path: None, place: Place::Key(0, 4) },
        Operation::LoadRules { number: 3 },
        Operation::Step { count: 2, idle: false },
        Operation::SyncAll,
        Operation::Lose { device: 3, events: 0 },
        Operation::Mend,
    ];
    let pool = PoolConfig::of(&[209_715_200, 209_866_752, 209_715_200, 209_715_200])
        .blocks(&[512, 512, 512, 512])
        .chunks(1 << 20)
        .memory(8 << 20)
        .dirty(64 << 20, 5)
        .cleaner(CleanerPolicy::Greedy)
        .takes_part_in(Area::Places);
    let plan = Plan { seed: 790_041_700, pool, budget: Budget::Tolerated, may_fill: false, canary: false };
    let outcome = run::run(&plan, &operations, false);
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
}

/// P-114: saved bytes went below a soft limit while newer ones waited, and these were saved before the oracle looked; so the grace
/// period began anew, which it did not know (seed 790044922).
#[test]
fn a_grace_period_begins_anew_where_saved_bytes_were_less_for_a_moment() {
    let file = |directory| Path { directory, name: 0 };
    let directory = |directory, name| Operation::Mkdir { path: Path { directory, name } };
    let write = |target, offset, length| Operation::Write { target, offset, length, seed: 7 };
    let operations = [
        directory(0, 3),
        directory(0, 4),
        directory(1, 5),
        Operation::Create { path: file(3), slot: 0 },
        Operation::ArmCrash { events: 8, manner: CrashManner::Mixed },
        Operation::Limit { holder: 1, manner: 0, room: 7, days: 2 },
        Operation::Limit { holder: 1, manner: 2, room: 1, days: 1 },
        Operation::Create { path: file(2), slot: 1 },
        write(Target::Path(file(2)), 170_114, 4266),
        Operation::PassDays { days: 1 },
        write(Target::Slot(4), 0, 16_384),
        Operation::Release { path: file(2), releasing: Releasing::Checkpoints },
        write(Target::Path(file(2)), 172_221, 700),
        Operation::ReadWithoutRecall { target: Target::Path(file(2)), denies: false },
        Operation::Truncate { target: Target::Path(file(2)), size: 454 },
        Operation::PassDays { days: 1 },
        write(Target::Slot(0), 0, 524_288),
    ];
    let pool = PoolConfig::of(&[209_907_712, 3_145_760_768, 67_358_720])
        .blocks(&[512, 4096, 512])
        .chunks(1 << 20)
        .memory(8 << 20)
        .dirty(64 << 20, 5)
        .encrypts(Encrypts::Some)
        .takes_part_in(Area::Backups);
    let plan = Plan { seed: 790_044_922, pool, budget: Budget::None, may_fill: false, canary: false };
    let outcome = run::run(&plan, &operations, false);
    assert!(outcome.is_ok(), "{}", outcome.expect_err("it failed"));
}
