//! Histories that once failed.

use stere_sim::fault::FaultKind;
use stere_sim::history::{Budget, Plan};
use stere_sim::operation::{CrashManner, Operation, Path};
use stere_sim::pool::PoolConfig;
use stere_sim::run;

/// P-1, P-3: in a nearly full pool a crash left data with one copy, for whose rewriting recovery found no room.
#[test]
fn recovery_of_a_full_pool_gives_data_its_copies_again() {
    let pool = PoolConfig {
        device_bytes: vec![69_226_496, 75_661_312],
        block_bytes: vec![512, 4096],
        chunk_bytes: 2 << 20,
        memory_bytes: 64 << 20,
        dirty_bytes_max: 1 << 20,
        dirty_steps_max: 5,
        greedy: true,
    };
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
    let mut failed = Vec::new();
    for seed in 0..2_000 {
        let plan = Plan { seed, pool: one_device(), budget: Budget::Beyond, may_fill: false, canary: false };
        if let Err(failure) = run::run(&plan, &operations, false) {
            failed.push((seed, failure));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

fn one_device() -> PoolConfig {
    PoolConfig {
        device_bytes: vec![64 << 20],
        block_bytes: vec![512],
        chunk_bytes: 1 << 20,
        memory_bytes: 8 << 20,
        dirty_bytes_max: 1 << 20,
        dirty_steps_max: 3,
        greedy: true,
    }
}
