//! When a pool counts as nobody's, and when it does not.

use std::sync::atomic::AtomicU64;

use stere_shared_log::MemoryLog;

use super::*;

static NOW_MS: AtomicU64 = AtomicU64::new(50_000);

fn now_ms() -> u64 {
    NOW_MS.load(Ordering::SeqCst)
}

fn pass(milliseconds: u64) {
    NOW_MS.fetch_add(milliseconds, Ordering::SeqCst);
}

fn beat(sequence: u64, is_closed: bool) -> Vec<u8> {
    let beat = OwnerBeat {
        owner: [4; 16],
        sequence,
        is_closed,
        machine: [5; 16],
        process: 7,
        epoch: 3,
        host: "shed".into(),
        address: String::new(),
        secret: [6; 32],
    };
    beat.encode()
}

/// P-244. In one test, because its clock is everybody's.
#[test]
fn an_owner_is_silent_when_nothing_moved_for_as_long_as_it_was_watched() {
    let log = MemoryLog::new();
    log.beat(&beat(1, false)).unwrap();
    let mut silence = Silence::new(now_ms);
    pass(60_000);
    assert_eq!(silence.look(&log).unwrap().1, 0, "what was before the first look is not known");
    pass(4900);
    assert_eq!(silence.look(&log).unwrap().1, 4900);
    // A beat, or a record without one, is a sign of life.
    log.beat(&beat(2, false)).unwrap();
    assert_eq!(silence.look(&log).unwrap().1, 0);
    pass(3000);
    log.put(1, b"a record").unwrap();
    assert_eq!(silence.look(&log).unwrap().1, 0);
    pass(5000);
    let (seen, silent_ms) = silence.look(&log).unwrap();
    assert!(matches!(seen, Seen::Owner(beat) if beat.sequence == 2));
    assert_eq!(silent_ms, 5000);
    // Nobody could beat while the log was away.
    log.set_away(true);
    assert!(silence.look(&log).is_err());
    pass(60_000);
    log.set_away(false);
    assert_eq!(silence.look(&log).unwrap().1, 0);
    log.beat(&beat(3, true)).unwrap();
    assert_eq!(silence.look(&log).unwrap().0, Seen::Nobody);
}

#[test]
fn only_a_living_owner_is_waited_for() {
    let log = MemoryLog::new();
    let look_at = |mode, was_closed, decided| {
        let mut told = Vec::new();
        let mut tell = |host: &str| told.push(host.to_owned());
        let watched = wait_until_free(&log, || 0, (mode, was_closed, decided), &mut tell);
        (watched.map(|_| ()).map_err(|error| error.to_string()), told)
    };
    let look_now = |mode, was_closed| look_at(mode, was_closed, 1);
    assert_eq!(look_now(Multihost::Auto, true), (Ok(()), Vec::new()));
    log.beat(&beat(9, false)).unwrap();
    assert_eq!(look_now(Multihost::Take, true).0, Ok(()));
    let known = Multihost::AfterSilence { owner: [4; 16], sequence: 9, next: 1, silent_ms: 5000 };
    assert_eq!(look_now(known, true).0, Ok(()));
    // Whoever stood by too was faster, and its root is there: it is watched, and here it never moves on a clock that stands still.
    let other = log.another();
    let beating = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(400));
        other.beat(&beat(10, false)).unwrap();
    });
    assert!(look_at(known, true, 2).0.unwrap_err().contains("host shed"), "two that saw the same silence");
    beating.join().unwrap();
    // One that beats meanwhile is told of, and not waited for.
    let other = log.another();
    let beating = std::thread::spawn(move || {
        for sequence in 11..31 {
            other.beat(&beat(sequence, false)).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let (refused, told) =
        look_now(Multihost::AfterSilence { owner: [4; 16], sequence: 8, next: 1, silent_ms: 5000 }, true);
    assert!(refused.unwrap_err().contains("host shed"));
    assert_eq!(told, ["shed"]);
    beating.join().unwrap();
    log.beat(&beat(40, true)).unwrap();
    assert_eq!(look_now(Multihost::Auto, true).0, Ok(()));
}
