//! `cargo xtask soak`: suites and simulator in turn, every round with the next seed, until the time is over.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::command::MINUTE;
use crate::error::Result;
use crate::packages;
use crate::simulator;
use crate::steps::Steps;
use crate::suites::{self, Suite, World};

const HISTORIES_PER_ROUND: &str = "500";

pub fn run(root: &Path, minutes: u64, seed: Option<u64>) -> Result<()> {
    let first = seed.unwrap_or_else(seed_from_clock);
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    packages::install_for_tests()?;
    let world = World::new(root)?;
    let mut steps = Steps::new("cargo xtask soak");
    for seed in first.. {
        if Instant::now() >= end {
            break;
        }
        round(root, &world, seed, end, &mut steps);
        if steps.has_failed() {
            println!("stopping: replay with `cargo xtask soak --minutes 1 --seed {seed}`");
            break;
        }
    }
    steps.finish()
}

fn round(root: &Path, world: &World, seed: u64, end: Instant, steps: &mut Steps) {
    steps.step(&format!("seed {seed}: simulator"), || {
        let seed = seed.wrapping_mul(1_000_000).to_string();
        simulator::run_simulator(root, &["--histories", HISTORIES_PER_ROUND, "--seed", &seed], 240 * MINUTE)
    });
    for suite in Suite::ALL {
        if Instant::now() < end {
            steps.step(&format!("seed {seed}: {}", suite.describe()), || {
                packages::require_root_and_fuse()?;
                suites::run_on_stere(world, suite, seed)
            });
        }
    }
}

fn seed_from_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |duration| duration.as_secs() % 1_000_000_000)
}
