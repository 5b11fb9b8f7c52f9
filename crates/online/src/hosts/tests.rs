use super::*;

fn hosts(names: &[(DeviceIndex, &str)], present: &[DeviceIndex]) -> Hosts {
    let names = names.iter().map(|(index, host)| (*index, (*host).to_owned())).collect();
    Hosts { names, present: present.iter().copied().collect() }
}

#[test]
fn devices_of_one_host_are_lost_together() {
    let apart = hosts(&[(0, "a"), (1, "b"), (2, "c")], &[0, 1, 2]);
    assert_eq!(apart.survived_by(&[0, 1], 1), 1);
    assert_eq!(apart.survived_by(&[0, 1, 2], 1), 1);
    let together = hosts(&[(0, "a"), (1, "a"), (2, "c")], &[0, 1, 2]);
    assert_eq!(together.survived_by(&[0, 1], 1), 0, "both copies are on one host");
    assert_eq!(together.survived_by(&[0, 2], 1), 1);
    assert_eq!(together.survived_by(&[0, 1, 2], 2), 1, "the host with two, and none beside it");
    assert!(together.have_several() && !apart.have_several());
}

#[test]
fn a_device_without_a_host_is_one_of_its_own() {
    let some = hosts(&[(0, "a"), (1, "a")], &[0, 1, 2, 3]);
    assert_eq!(some.survived_by(&[2, 3], 1), 1);
    assert_eq!(some.survived_by(&[2, 3, 0], 2), 2);
    assert_eq!(some.name(2), None);
}

#[test]
fn what_is_away_is_lost_already() {
    let two_left = hosts(&[(0, "a"), (1, "b"), (2, "c")], &[0, 1]);
    assert_eq!(two_left.survived_by(&[0, 1, 2], 1), 1);
    assert_eq!(two_left.survived_by(&[0, 1, 2], 0), 0);
}
