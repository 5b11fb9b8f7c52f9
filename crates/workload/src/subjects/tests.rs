//! The table stays bounded, loses no call, and keeps who calls often.

use super::*;
use crate::call::CallKind;

fn class(id: u64) -> Subject {
    Subject { kind: SubjectKind::Class, id }
}

fn note(subjects: &mut Subjects, id: u64, at_ns: u64) {
    subjects.note(class(id), &Call::new(at_ns, CallKind::Getattr, id));
}

#[test]
fn a_million_names_are_harmless() {
    let mut subjects = Subjects::default();
    for id in 0..1_000_000 {
        note(&mut subjects, id, id);
    }
    println!("{} profiles, {} bytes", subjects.count(), subjects.memory_bytes());
    assert!(subjects.count() <= PROFILES_MAX);
    assert!(subjects.memory_bytes() <= 16 << 20, "{}", subjects.memory_bytes());
    assert_eq!(subjects.all_of_kind(SubjectKind::Class).unwrap().calls(), 1_000_000);
}

#[test]
fn the_busy_ones_are_found_among_noise() {
    let mut subjects = Subjects::new(32);
    // Noise fills the table first; then ten busy ones come, each among nine calls of noise.
    (0..1000).for_each(|id| note(&mut subjects, id, id));
    for step in 0..20_000u64 {
        note(&mut subjects, if step % 10 < 3 { (1 << 40) + step % 10 } else { 10_000 + step }, 1000 + step);
    }
    for id in 0..3 {
        let profile = subjects.get(class((1 << 40) + id)).expect("a busy one is in the table");
        assert!(profile.calls() > 1900, "{}", profile.calls());
    }
    assert!(subjects.count() <= 32);
    assert_eq!(subjects.all_of_kind(SubjectKind::Class).unwrap().calls(), 21_000);
    let busiest: Vec<u64> = subjects.of_kind(SubjectKind::Class).iter().take(3).map(|(one, _)| one.id >> 40).collect();
    assert_eq!(busiest, [1, 1, 1]);
}

#[test]
fn who_was_busy_once_gives_way() {
    let mut subjects = Subjects::new(KINDS + 1);
    (0..10_000).for_each(|at| note(&mut subjects, 1, at));
    (0..4 * HALVED_EACH).for_each(|at| note(&mut subjects, 2, at));
    assert!(subjects.get(class(1)).is_none() && subjects.get(class(2)).is_some());
    assert_eq!(subjects.all_of_kind(SubjectKind::Class).unwrap().calls(), 10_000 + 4 * HALVED_EACH);
}

#[test]
fn tables_of_threads_add_up() {
    let (mut one, mut other) = (Subjects::new(16), Subjects::new(16));
    for step in 0..3000 {
        note(&mut one, step % 20, step);
        note(&mut other, step % 25, step);
        other.note(Subject { kind: SubjectKind::Device, id: 1 }, &Call::new(step, CallKind::Fsync, 0));
    }
    one.merge(&other);
    assert!(one.count() <= 16);
    assert_eq!(one.all_of_kind(SubjectKind::Class).unwrap().calls(), 6000);
    assert_eq!(one.all_of_kind(SubjectKind::Device).unwrap().calls(), 3000);
    assert!(one.all_of_kind(SubjectKind::Medium).is_none());
}
