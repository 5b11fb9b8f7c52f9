//! What noting one call costs: `cargo run --release -p stere-workload --example note_cost`.

use std::hint::black_box;
use std::time::Instant;

use stere_workload::{Call, CallKind, Profile, Subject, SubjectKind, Subjects, mixed};

const CALLS: u64 = 1 << 22;

/// One call of a load by its number.
type Load = fn(u64) -> Call;

fn sequential(step: u64) -> Call {
    let call = Call::of_data(step * 10_000, CallKind::Write, step >> 12, (step & 4095) * 4096, 4096);
    Call { latency_ns: 4000 + mixed(step) % 5000, in_flight: (step % 7) as u32 + 1, stream: step >> 12, ..call }
}

fn random(step: u64) -> Call {
    let number = mixed(step);
    let kind = if number & 3 == 0 { CallKind::Write } else { CallKind::Read };
    let call =
        Call::of_data(step * 10_000 + number % 9000, kind, number % 5000, (number >> 20) % (1 << 18) * 4096, 4096);
    Call { latency_ns: 4000 + number % 100_000, in_flight: (number % 32) as u32 + 1, stream: number % 64, ..call }
}

fn streams(step: u64) -> Call {
    let call = Call::of_data(step * 100_000, CallKind::Read, step % 8, (step >> 3) << 20, 1 << 20);
    Call { latency_ns: 400_000 + mixed(step) % 50_000, in_flight: 8, stream: step % 8, ..call }
}

fn metadata(step: u64) -> Call {
    let number = mixed(step);
    let kind = [CallKind::Lookup, CallKind::Getattr, CallKind::Open, CallKind::Create][number as usize & 3];
    Call { latency_ns: 2000 + number % 5000, in_flight: 2, ..Call::new(step * 5000, kind, number % 100_000) }
}

fn nanoseconds(calls: &[Call], mut note: impl FnMut(&Call)) -> f64 {
    let rounds = (CALLS as usize / calls.len()) as u32;
    let started = Instant::now();
    for _ in 0..rounds {
        calls.iter().for_each(|call| note(black_box(call)));
    }
    started.elapsed().as_nanos() as f64 / (f64::from(rounds) * calls.len() as f64)
}

fn main() {
    let loads: [(&str, Load); 4] = [
        ("sequential writes of 4 KiB", sequential),
        ("random reads and writes of 4 KiB", random),
        ("eight streams of 1 MiB", streams),
        ("metadata", metadata),
    ];
    println!("a profile has {} bytes", size_of::<Profile>());
    for (name, load) in loads {
        let calls: Vec<Call> = (0..CALLS).map(load).collect();
        let mut profile = Box::new(Profile::default());
        let alone = nanoseconds(&calls, |call| profile.note(call));
        let mut subjects = Subjects::default();
        let by_file = nanoseconds(&calls, |call| {
            subjects.note(Subject { kind: SubjectKind::Client, id: call.stream }, call);
        });
        println!("{name}: {alone:.1} ns a call, {by_file:.1} ns in a table of subjects by stream");
    }
}
