use super::*;

#[test]
fn filled_blocks_check_and_others_do_not() {
    let pattern = Pattern::new(7);
    let mut data = vec![0; 3 * BLOCK_SIZE];
    pattern.fill(2, 10, 1, &mut data);
    pattern.check_all(2, 10, 1, &data).expect("the same data must check");
    assert!(pattern.check_stamps(2, 11, 1, &data).is_err(), "another place");
    assert!(pattern.check_stamps(2, 10, 2, &data).is_err(), "an older generation");
    assert!(pattern.check_stamps(3, 10, 1, &data).is_err(), "another file");
    assert!(Pattern::new(8).check_stamps(2, 10, 1, &data).is_err(), "another seed");
    data[BLOCK_SIZE + 100] ^= 1;
    assert!(pattern.check_stamps(2, 10, 1, &data).is_ok(), "stamps alone do not see a flipped bit in the body");
    assert!(pattern.check_all(2, 10, 1, &data).is_err());
}

#[test]
fn a_permutation_holds_every_number_once() {
    let mut order = Random::new(3).permutation(1000);
    assert_ne!(order[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    order.sort_unstable();
    assert!(order.iter().enumerate().all(|(index, value)| index as u64 == *value));
}
