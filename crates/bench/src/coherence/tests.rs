//! The checker on one directory of this machine, which is coherent (P-272), and on what is not.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::coherence::{HELD_MAX, Plan, Plant, run};

fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("stere-coherence-{test}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn plan(plant: Option<Plant>) -> Plan {
    let time = Duration::from_secs(if plant.is_some() { 20 } else { 1 });
    Plan { seed: 1, time, reads_max: u64::MAX, plant, grows_in_parts: true, held_max: HELD_MAX }
}

/// What it says of one directory under two names.
fn checked(test: &str, plant: Option<Plant>) -> Result<Value, String> {
    let folder = folder(test);
    let said = run(&[folder.clone(), folder.clone()], plan(plant));
    fs::remove_dir_all(&folder).unwrap();
    said
}

#[test]
fn a_local_directory_is_coherent() {
    let said = checked("local", None).unwrap();
    assert!(said["reads"].as_u64().unwrap() > 100 && said["writes"].as_u64().unwrap() > 100, "{said}");
}

#[test]
fn wrong_changes_are_found() {
    for plant in [Plant::Lost, Plant::Torn, Plant::Misplaced, Plant::Doubled, Plant::Unrenamed] {
        let why = checked(&format!("{plant:?}"), Some(plant)).expect_err("a planted change");
        assert!(why.starts_with("machine "), "{plant:?}: {why}");
    }
}

#[test]
fn two_directories_are_not_one() {
    let folders = [folder("one"), folder("other")];
    let why = run(&folders, plan(None)).expect_err("nothing of the first is in the second");
    assert!(why.contains("No such file"), "{why}");
    folders.iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
}
