//! Mutations of traces, tables and texts of other tools.

use super::*;
use crate::distinct::mixed;
use crate::trace::tests::sample;

/// Changes some bytes, at places that the number says.
fn changed(mut bytes: Vec<u8>, seed: u64) -> Vec<u8> {
    for change in 0..1 + seed % 4 {
        let number = mixed(seed << 8 | change);
        let place = number as usize % bytes.len();
        match number >> 60 {
            0..8 => bytes[place] = (number >> 40) as u8,
            8..12 => bytes[place] = b"0123456789-\t\n#.X"[(number >> 40) as usize % 16],
            _ => drop(bytes.remove(place)),
        }
    }
    bytes
}

#[test]
fn mutations_are_survived() {
    let mut trace = sample();
    trace.calls.drain(40..trace.calls.len() - 1);
    let texts =
        [trace.encode(NameRule::Plain), table_file::export(&trace).into_bytes(), dxt::export(&trace).into_bytes()];
    for text in texts {
        any_bytes(&text);
        (0..1500).for_each(|seed| any_bytes(&changed(text.clone(), seed)));
    }
    any_bytes(&[]);
}

/// Numbers at the ends of their ranges, which no checksum lets through by chance.
#[test]
fn extreme_calls_are_survived() {
    let ends = [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    let mut trace = Trace::default();
    for step in 0..2000u64 {
        let number = mixed(step);
        let end = |shift: u32| ends[(number >> shift) as usize % ends.len()];
        let kind = crate::CallKind::ALL[(number >> 50) as usize % crate::call::KINDS];
        let call = crate::Call::new(end(0), kind, end(7));
        let (offset, length, latency_ns, age_ms) = (end(14), end(21), end(28), end(35));
        let (in_flight, result) = (end(42) as u32, (number >> 60) as u16 / 8);
        trace.calls.push(crate::Call { offset, length, latency_ns, age_ms, in_flight, result, ..call });
    }
    trace.names.insert((stere_format::IoTraceNamed::File, 1), "a\tb\n X_POSIX 0 read 0 0 1 0 0\r\n\\".into());
    look_at(&trace);
    let mut profile = analyse::profile_of(&trace);
    let other = profile.clone();
    profile.merge(&other);
    table::advice(&advise(&profile, &facts()));
    let named = [("extreme", &*profile)];
    println!("{}{}{}", table::basic(&named), table::sizes(&named), table::latencies(&profile));
    assert!(!picture::arrivals_svg(&named).contains("NaN") && !picture::sizes_svg(&profile).contains("NaN"));
}
