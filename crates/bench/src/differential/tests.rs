use std::fs;
use std::path::PathBuf;

use super::*;

/// Two directories of the same file system, removed at the end.
struct Pair(PathBuf);

impl Pair {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("stere-differential-{name}-{}", std::process::id()));
        for side in ["left", "right"] {
            fs::create_dir_all(folder.join(side)).expect("the temporary folder must be writable");
        }
        Pair(folder)
    }

    fn run(&self, planted_at: Option<u64>) -> Result<(), BenchError> {
        let plan = Plan { seed: 11, operations: 3000, check_every: 500, show_from: None, planted_at };
        run(&self.0.join("left"), &self.0.join("right"), plan)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One test for both, because the mask for new files belongs to the whole process.
#[test]
fn nothing_is_found_in_the_same_file_system_twice_but_for_a_planted_difference() {
    Pair::new("same").run(None).expect("two directories of one file system must behave alike");
    let error = Pair::new("planted").run(Some(1234)).expect_err("the planted difference must be found");
    assert!(matches!(error, BenchError::Difference { seed: 11, step: 1235..=1500, .. }), "{error}");
}
