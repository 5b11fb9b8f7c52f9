use stere_format::Key;

use super::Voids;

fn key(position: u64) -> Key {
    Key::extent(7, position)
}

#[test]
fn voids_that_touch_are_one_and_what_is_put_leaves_what_lies_behind() {
    let mut voids = Voids::default();
    voids.learn(key(10), key(20));
    voids.learn(key(30), key(40));
    assert_eq!(voids.end_behind(&key(9)), None);
    assert_eq!(voids.end_behind(&key(10)), Some(key(20)));
    assert_eq!(voids.end_behind(&key(20)), None, "the end is not in it");
    voids.learn(key(20), key(30));
    assert_eq!(voids.end_behind(&key(15)), Some(key(40)));
    voids.fill(&key(25));
    assert_eq!(voids.end_behind(&key(24)), None);
    assert_eq!(voids.end_behind(&key(25)), None);
    assert_eq!(voids.end_behind(&key(26)), Some(key(40)));
    voids.fill(&key(39));
    assert_eq!(voids.end_behind(&key(39)), None, "nothing is left behind the last key");
    voids.learn(key(5), key(5));
    assert_eq!(voids.end_behind(&key(5)), None, "an empty range is none");
}
