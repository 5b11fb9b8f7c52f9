use super::*;

#[test]
fn every_bug_has_a_counterexample_that_ends_in_its_model() {
    for bug in Bug::ALL {
        let report = check(bug.part(), Some(bug));
        println!("{bug:?}: {report}");
        assert!(report.counterexample.is_some(), "{bug:?} was not found");
    }
}

#[test]
fn the_model_of_acknowledgements_without_bugs_holds() {
    assert_holds(Part::Acknowledgement);
}

#[test]
fn the_model_of_slots_without_bugs_holds() {
    assert_holds(Part::Slots);
}

fn assert_holds(part: Part) {
    let report = check(part, None);
    println!("{report}");
    assert!(report.counterexample.is_none(), "{report}");
    assert!(report.missing.is_empty(), "{report}");
}
