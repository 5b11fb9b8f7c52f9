//! Histories that once failed.

use stere_sim::fault::FaultKind;
use stere_sim::history::{Budget, Plan};
use stere_sim::operation::{CrashManner, Operation};
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
