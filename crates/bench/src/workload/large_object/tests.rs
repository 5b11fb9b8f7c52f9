use super::*;

#[test]
fn four_of_five_frames_follow_the_one_before_and_all_are_in_the_object() {
    let frames = mostly_next(&mut Random::new(1), 10_000);
    let following = frames.windows(2).filter(|pair| pair[1] == (pair[0] + 1) % FRAMES).count();
    assert!((7_800..8_200).contains(&following), "{following} of 9,999");
    assert!(frames.iter().all(|frame| *frame < FRAMES));
    assert!(FRAMES * BLOCK_SIZE as u64 <= FILE_BYTES);
}
