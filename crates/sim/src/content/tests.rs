//! The model's files against plain vectors.

use super::*;
use crate::random::Random;

#[test]
fn agrees_with_a_vector() {
    let mut random = Random::new(7);
    for _ in 0..200 {
        let mut content = Content::default();
        let mut plain: Vec<u8> = Vec::new();
        for step in 0..20 {
            let offset = random.below(20_000);
            let length = random.below(9_000);
            let end = offset + length;
            match random.below(6) {
                0 | 1 => {
                    let bytes = pattern(step, length as usize);
                    content.write(offset, &bytes);
                    if length > 0 {
                        plain.resize(plain.len().max(end as usize), 0);
                        plain[offset as usize..end as usize].copy_from_slice(&bytes);
                    }
                }
                2 => {
                    content.truncate(offset);
                    plain.resize(offset as usize, 0);
                }
                3 => {
                    content.zero(offset, end);
                    let (from, to) = ((offset as usize).min(plain.len()), (end as usize).min(plain.len()));
                    plain[from..to].fill(0);
                }
                4 if end < plain.len() as u64 => {
                    content.collapse(offset, length);
                    drop(plain.drain(offset as usize..end as usize));
                }
                5 if offset < plain.len() as u64 => {
                    content.insert(offset, length);
                    drop(plain.splice(offset as usize..offset as usize, vec![0; length as usize]));
                }
                _ => {}
            }
            assert_eq!(content.size(), plain.len() as u64);
            assert_eq!(content.read(0, u64::MAX), plain);
            assert_eq!(content.difference(&Content::of(&plain)), None);
        }
    }
}

#[test]
fn tells_what_a_file_never_held() {
    let old = Rc::new(Content::of(&[1; 5000]));
    let new = Rc::new(Content::of(&[2; 9000]));
    let held = [old, new];
    let mut mixed = Content::of(&[1; 6000]);
    mixed.zero(5000, 6000);
    mixed.write(4096, &[2; 100]);
    assert_eq!(mixed.may_remain_of(&held), Ok(()));
    mixed.write(10, &[3]);
    assert!(mixed.may_remain_of(&held).is_err());
    assert!(Content::of(&[1; 4999]).may_remain_of(&held).is_err());
    assert!(Content::of(&[2; 9001]).may_remain_of(&held).is_err());
    let mut hole = Content::of(&[2; 9000]);
    hole.zero(100, 101);
    assert!(hole.may_remain_of(&held).is_err());
}
