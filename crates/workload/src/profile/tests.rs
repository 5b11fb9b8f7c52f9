//! What a profile says of calls that are known, its size, and merging.

use super::*;

fn read(at_ns: u64, file: u64, offset: u64, length: u64) -> Call {
    Call { latency_ns: 1000, stream: file, ..Call::of_data(at_ns, CallKind::Read, file, offset, length) }
}

#[test]
fn a_profile_is_of_fixed_size() {
    println!("a profile has {} bytes", size_of::<Profile>());
    assert!(size_of::<Profile>() < 32 << 10);
}

#[test]
fn sequential_and_random_reads_are_told_apart() {
    let (mut sequential, mut random) = (Profile::default(), Profile::default());
    for step in 0..1000u64 {
        sequential.note(&read(step * 1_000_000, step % 3, step / 3 * 4096, 4096));
        random.note(&read(step * 1_000_000, 1, mixed(step) % (1 << 20) * 4096, 4096));
    }
    assert_eq!(sequential.read_order().sequential_share(), Some(1.0));
    assert_eq!(sequential.read_order().first, 3);
    assert!(random.read_order().sequential_share().unwrap() < 0.01);
    assert!(random.forward_bytes().quantile(0.5).unwrap() > 1 << 28);
    assert_eq!(random.read_share(), Some(1.0));
    assert_eq!(random.kind(CallKind::Read).bytes, 4_096_000);
    assert!((sequential.files() - 3.0).abs() < 0.1);
    assert_eq!(sequential.data_arrivals_ns().count(), 999);
    assert_eq!(sequential.data_arrivals_ns().quantile(0.5), Some(1_000_000));
    assert_eq!(sequential.span_ns(), 999_000_000);
}

#[test]
fn many_writers_of_one_file_may_each_be_sequential() {
    let mut profile = Profile::default();
    for step in 0..1600u64 {
        let (writer, place) = (step % 16, step / 16);
        let call = Call::of_data(step, CallKind::Write, 1, (writer << 30) + place * 4096, 4096);
        profile.note(&Call { stream: writer, ..call });
    }
    assert_eq!(profile.write_order().sequential, 0);
    assert_eq!((profile.handle_order().sequential, profile.sequential_share()), (1584, Some(1.0)));
}

#[test]
fn failures_move_nothing_and_removals_tell_ages() {
    let mut profile = Profile::default();
    profile.note(&Call { result: 5, ..read(0, 1, 0, 4096) });
    profile.note(&Call { age_ms: 60_000, in_flight: 4, ..Call::new(1, CallKind::Unlink, 1) });
    profile.note(&Call::new(2, CallKind::Lookup, 1));
    assert_eq!((profile.kind(CallKind::Read).errors, profile.kind(CallKind::Read).bytes), (1, 0));
    assert!(profile.read_bytes().is_empty());
    assert_eq!(profile.lifetimes_ms().greatest(), Some(60_000));
    assert_eq!(profile.in_flight().greatest(), Some(4));
    assert_eq!((profile.data_calls(), profile.metadata_calls()), (1, 2));
    assert_eq!(profile.metadata_arrivals_ns().count(), 1);
}

#[test]
fn small_overwrites_are_counted() {
    let mut profile = Profile::default();
    for step in 0..100u64 {
        profile.note(&Call::of_data(step, CallKind::Write, 1, (step % 10) * 4096, 4096));
    }
    assert_eq!(profile.small_overwrites(), 9);
}

#[test]
fn a_clock_that_is_put_back_is_counted_and_survived() {
    let mut profile = Profile::default();
    profile.note(&read(u64::MAX, 1, 0, 1));
    profile.note(&read(5, 1, 1, 1));
    profile.note(&read(0, 1, 2, 1));
    profile.note(&read(u64::MAX, 1, 3, u64::MAX));
    assert_eq!(profile.clock_steps(), 1);
    assert_eq!(profile.data_arrivals_ns().least(), Some(0));
    assert_eq!(profile.calls(), 4);
}

#[test]
fn merging_adds_what_can_be_added() {
    let (mut one, mut other) = (Profile::default(), Profile::default());
    for step in 0..2000u64 {
        one.note(&read(step << 22, 1, step * 4096, 4096));
        other.note(&Call::of_data(step << 21, CallKind::Write, 2 + step % 50, 0, 100));
    }
    let mut merged = one.clone();
    merged.merge(&other);
    assert_eq!(merged.calls(), 4000);
    assert_eq!(merged.read_share(), Some(0.5));
    assert!((merged.files() - 51.0).abs() < 6.0, "{}", merged.files());
    assert_eq!(merged.dependence().calls(), 4000);
    let mut from_nothing = Profile::default();
    from_nothing.merge(&one);
    assert_eq!((from_nothing.calls(), from_nothing.span_ns()), (2000, one.span_ns()));
}
