use super::Homes;

fn counts(homes: &mut Homes, weights: &[(u16, u32)], rounds: usize) -> Vec<usize> {
    let mut counts = vec![0; 8];
    for _ in 0..rounds {
        counts[usize::from(homes.next(weights).unwrap())] += 1;
    }
    counts
}

#[test]
fn equal_devices_take_turns() {
    let mut homes = Homes::default();
    let weights = [(0, 60), (1, 60), (2, 60)];
    let order: Vec<u16> = (0..6).map(|_| homes.next(&weights).unwrap()).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn twice_the_room_is_chosen_twice_as_often() {
    let mut homes = Homes::default();
    assert_eq!(counts(&mut homes, &[(0, 50), (1, 100), (2, 50)], 400), [100, 200, 100, 0, 0, 0, 0, 0]);
}

#[test]
fn a_full_device_is_left_out_until_all_are_full() {
    let mut homes = Homes::default();
    assert_eq!(counts(&mut homes, &[(0, 10), (1, 0), (2, 10)], 10), [5, 0, 5, 0, 0, 0, 0, 0]);
    let all_full = counts(&mut Homes::default(), &[(0, 0), (1, 0)], 4);
    assert_eq!(all_full.iter().sum::<usize>(), 4, "somebody has to be chosen");
}

#[test]
fn devices_come_and_go() {
    let mut homes = Homes::default();
    assert_eq!(homes.next(&[]), None);
    counts(&mut homes, &[(0, 10), (1, 10)], 7);
    assert_eq!(counts(&mut homes, &[(3, 10)], 3)[3], 3);
    assert_eq!(counts(&mut homes, &[(0, 10), (3, 10)], 10)[0], 5);
}
