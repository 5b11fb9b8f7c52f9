//! `cargo xtask test`: everything CI runs, in order, on a fresh clone.
//!
//! The sources, the tests of all crates, the simulator, then the suites on a real mount, which need root and /dev/fuse and
//! are skipped loudly without. One profile (release) is built once for all of it; assertions are on in it.

mod programs;

use std::path::Path;

use crate::command::{self, MINUTE};
use crate::error::{Result, XtaskError};
use crate::house;
use crate::packages;
use crate::reference;
use crate::simulator;
use crate::steps::{Steps, Waiting};
use crate::subject::{build_for_tests, cargo};
use crate::suites::{self, Suite, World};
use crate::tidy;

const SEED: u64 = 1;
/// The soak runs many more, from fresh seeds.
const HISTORIES: &str = "3000";

/// Skipped where the toolchain came without these two components.
fn check_style(root: &Path) -> Result<()> {
    for component in ["fmt", "clippy"] {
        if !command::output(&mut cargo(root, &[component, "--version"]), MINUTE)?.status.success() {
            return Err(XtaskError::skipped(format!("`cargo {component}` is not installed")));
        }
    }
    command::run(&mut cargo(root, &["fmt", "--all", "--check"]), 5 * MINUTE)?;
    let words = ["clippy", "--workspace", "--all-targets", "--release", "--quiet", "--", "--deny", "warnings"];
    command::run(&mut cargo(root, &words), 40 * MINUTE)
}

pub fn run(root: &Path, only: Option<String>) -> Result<()> {
    build_for_tests();
    let mut steps = Steps::new("cargo xtask test").only(only);
    steps.step("tidy: the sources", || tidy::run(root, false));
    steps.step("house: the structure", || house::run(root, false, false));
    steps.step("formatting and clippy", || check_style(root));
    steps.step("packages for the suites", packages::install_for_tests);
    steps.step("S3 servers for tests", || packages::install_s3_servers(root));
    steps.step("servers of SSH and etcd for tests", || packages::unpack_servers(root));
    steps.step("PostgreSQL for tests", packages::install_postgresql);
    steps.step("pjdfstest and fsx for tests", || packages::build_crate_programs(root));
    // First of what is built: all that follows finds its programs there.
    steps.step("tests of all crates", || programs::run(root));
    steps.step("manual: the command reference", || reference::run(root, true));
    let simulate = || simulator::run_simulator(root, &["--histories", HISTORIES, "--seed", "1"], 60 * MINUTE);
    steps.step("simulator: 3000 histories", simulate);
    steps.step("simulator: bugs planted in the layers are found", || simulator::find_planted_bugs(root));
    let world = std::sync::LazyLock::new(|| World::new(root));
    let suites = Suite::CI.map(|suite| -> Waiting<'_> {
        let world = &world;
        let work = move || {
            packages::require_root_and_fuse()?;
            let world = world.as_ref().map_err(|error| XtaskError::found(error.to_string()))?;
            suites::run_on_stere(world, suite, SEED)
        };
        (format!("on a mount: {}", suite.describe()), Box::new(work))
    });
    steps.two_at_a_time(suites.into());
    steps.finish()
}
