//! Tests of sums and their report.

use super::{Count, Summary, TierCounts};

#[test]
fn counts_add_up_and_are_reported_by_name() {
    let tier = TierCounts { segments_released: 2, ..TierCounts::default() };
    let one = Summary { crashes: 3, hangs: [0, 1], tier, ..Summary::default() };
    let mut sum = one;
    sum.add(&one);
    assert_eq!(sum.report(), ["crashes 6, segments released 4, hangs [0, 2]"]);
    assert!(Summary::default().report().is_empty(), "what is 0 is not told");
}

#[test]
fn lines_of_a_report_are_not_too_long() {
    let many = Summary {
        operations: 1_000_000,
        torn_crashes: 2_000_000,
        several_names_proven: 3_000_000,
        plugin_troubles: 4_000_000,
        accounts_compared: 5_000_000,
        ..Summary::default()
    };
    let lines = many.report();
    assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= super::REPORT_COLUMNS), "{lines:?}");
}
