//! Advice for loads for which everybody would advise the same, and none for none.

use super::*;
use crate::call::{Call, CallKind};
use crate::distinct::mixed;

fn facts() -> PoolFacts {
    PoolFacts {
        record_bytes: 128 << 10,
        is_compressed: false,
        sampled_ratio: None,
        data_chunks: 1,
        redundant_chunks: 1,
        ssds: 2,
        hdds: 6,
        device_class: DeviceClass::Hdd,
        cache_bytes: 1 << 30,
        has_media: true,
        stored_bytes: 0,
        idle_bytes: 0,
        idle_days: 0,
    }
}

/// A database: random reads and overwrites of 8 KiB in one file, 2000 a second for ten minutes.
fn database() -> Box<Profile> {
    let mut profile = Box::<Profile>::default();
    for step in 0..1_200_000u64 {
        let number = mixed(step);
        let kind = if number % 3 == 0 { CallKind::Write } else { CallKind::Read };
        let place = ((number >> 20) % (3 << 17)) << 13;
        profile.note(&Call { in_flight: 16, ..Call::of_data(step * 500_000, kind, 1, place, 8192) });
    }
    profile
}

/// Films, written once by one writer in pieces of 1 MiB.
fn films() -> Box<Profile> {
    let mut profile = Box::<Profile>::default();
    for step in 0..20_000u64 {
        let call = Call::of_data(step * 100_000_000, CallKind::Write, step / 2000, (step % 2000) << 20, 1 << 20);
        profile.note(&Call { in_flight: 1, ..call });
    }
    profile
}

fn value(answer: &Answer, key: AdviceKey) -> Option<&str> {
    answer.advice.iter().find(|advice| advice.key == key).map(|advice| advice.value.as_str())
}

#[test]
fn nothing_is_advised_on_nothing() {
    let answer = advise(&Profile::default(), &facts());
    assert!(answer.advice.is_empty());
    assert_eq!(answer.none.len(), AdviceKey::ALL.len());
    assert!(answer.none.iter().all(|none| none.because.contains("too little data")), "{:?}", answer.none);
    let mut short = Profile::default();
    (0..5000u64).for_each(|step| short.note(&Call::of_data(step, CallKind::Read, 1, step * 4096, 4096)));
    assert!(advise(&short, &facts()).advice.is_empty());
}

#[test]
fn a_database_gets_small_records_copies_flash_and_memory() {
    let facts = PoolFacts { data_chunks: 4, redundant_chunks: 2, ..facts() };
    let answer = advise(&database(), &facts);
    println!("{answer:#?}");
    assert_eq!(value(&answer, AdviceKey::Record), Some("8K"));
    assert_eq!(value(&answer, AdviceKey::Redundancy), Some("copies=3"));
    assert_eq!(value(&answer, AdviceKey::On), Some("ssd"));
    assert_eq!(value(&answer, AdviceKey::StripeWidth), Some("parity=2+2"));
    let settings: Vec<String> = answer.advice.iter().map(Advice::setting).collect();
    assert_eq!(settings[..3], ["record=8K", "copies=3", "on=ssd"]);
    let memory = answer.advice.iter().find(|advice| advice.key == AdviceKey::Memory).unwrap();
    assert!(matches!(memory.gain, Gain::FewerMisses(share) if share > 0.4), "{memory:?}");
    assert!(answer.advice.iter().all(|advice| advice.because.chars().any(|letter| letter.is_ascii_digit())));
}

#[test]
fn films_get_large_records_parity_and_disks() {
    let facts =
        PoolFacts { record_bytes: 16 << 10, device_class: DeviceClass::Ssd, sampled_ratio: Some(1.01), ..facts() };
    let answer = advise(&films(), &facts);
    println!("{answer:#?}");
    assert_eq!(value(&answer, AdviceKey::Record), Some("128K"));
    assert_eq!(value(&answer, AdviceKey::Redundancy), Some("parity=7+1"));
    assert_eq!(value(&answer, AdviceKey::On), Some("hdd"));
    assert_eq!(value(&answer, AdviceKey::StripeWidth), None);
    // Nothing is read again, so the least will do.
    assert_eq!(value(&answer, AdviceKey::Memory), Some("64M"));
    assert_eq!(value(&answer, AdviceKey::Compress), None);
    let narrow = PoolFacts { data_chunks: 3, ..facts.clone() };
    assert_eq!(value(&advise(&films(), &narrow), AdviceKey::StripeWidth), Some("parity=7+1"));
    // Once it is so, it is not advised again.
    let facts = PoolFacts { record_bytes: 128 << 10, data_chunks: 7, device_class: DeviceClass::Hdd, ..facts };
    let answer = advise(&films(), &facts);
    for key in [AdviceKey::Record, AdviceKey::Redundancy, AdviceKey::On, AdviceKey::StripeWidth] {
        assert_eq!(value(&answer, key), None, "{answer:?}");
    }
}

#[test]
fn a_sample_decides_on_compression() {
    let told = |is_compressed, ratio| {
        let facts = PoolFacts { is_compressed, sampled_ratio: Some(ratio), ..facts() };
        value(&advise(&films(), &facts), AdviceKey::Compress).map(str::to_owned)
    };
    assert_eq!(told(false, 2.0).as_deref(), Some("zstd"));
    assert_eq!(told(true, 1.02).as_deref(), Some("none"));
    assert_eq!((told(true, 2.0), told(false, 1.0)), (None, None));
}

#[test]
fn idle_data_gets_a_rule_if_there_are_media() {
    let idle = PoolFacts { stored_bytes: 10 << 40, idle_bytes: 6 << 40, idle_days: 90, ..facts() };
    let answer = advise(&Profile::default(), &idle);
    assert_eq!(value(&answer, AdviceKey::Rule), Some("age>90d: class=archive"));
    assert_eq!(answer.advice[0].gain, Gain::Frees(6 << 40));
    assert!(advise(&Profile::default(), &PoolFacts { has_media: false, ..idle.clone() }).advice.is_empty());
    assert!(advise(&Profile::default(), &PoolFacts { idle_bytes: 1 << 40, ..idle }).advice.is_empty());
}

#[test]
fn bytes_are_written_as_usual() {
    let told = [0, 1023, 1024, 1536, 128 << 10, 1 << 20, (5 << 30) + (1 << 29), u64::MAX].map(bytes_text);
    assert_eq!(told, ["0", "1023", "1K", "1.5K", "128K", "1M", "5.5G", "16E"]);
}
