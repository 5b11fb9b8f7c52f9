//! Tables of known loads.

use super::*;
use crate::loads::Load;

fn profile(load: Load) -> Box<Profile> {
    let mut profile = Box::<Profile>::default();
    load.calls(1).iter().for_each(|call| profile.note(call));
    profile
}

#[test]
fn the_tables_of_the_thesis() {
    let all =
        [Load::BlockCyclicCheckpoint, Load::OneWriter, Load::PeriodicDumps].map(|load| (load.name(), profile(load)));
    let named: Vec<(&str, &Profile)> = all.iter().map(|(name, profile)| (*name, &**profile)).collect();
    for table in [basic(&named), sizes(&named), dependence(&named), latencies(named[1].1)] {
        println!("{table}");
        assert!(table.lines().count() >= 3, "{table}");
    }
    let basic = basic(&named);
    let checkpoint: Vec<&str> = basic.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(checkpoint[..4], ["NPB-BMI", "1", "30,720", "50.0"]);
    let ends: Vec<usize> = basic.lines().map(|line| line.chars().count()).collect();
    assert!(ends.iter().all(|end| *end == ends[0]), "{basic}");
}

#[test]
fn nothing_is_a_table_too() {
    let nothing = Profile::default();
    assert_eq!(sizes(&[("none", &nothing)]).lines().count(), 1);
    assert!(basic(&[("none", &nothing)]).contains('-'));
    assert!(dependence(&[("none", &nothing)]).contains("too little data"));
}

#[test]
fn digits_are_grouped() {
    assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
}
