//! Heartbeats come back as they were; torn ones are told from none.

use super::*;

fn sample() -> Heartbeat {
    Heartbeat {
        pool: PoolId([1; 16]),
        device: DeviceId([2; 16]),
        owner: [3; 16],
        sequence: 77,
        is_live: true,
        machine: [4; 16],
        boot: [5; 16],
        process_namespace: 4_026_531_836,
        process: 4711,
        process_start_ticks: 1 << 40,
        interval_ms: 1000,
        host: "shed".into(),
    }
}

#[test]
fn a_heartbeat_comes_back_as_it_was() {
    for is_live in [true, false] {
        let beat = Heartbeat { is_live, ..sample() };
        let bytes = beat.encode();
        assert_eq!(bytes.len(), Heartbeat::SIZE);
        assert_eq!(Heartbeat::decode(&bytes).unwrap(), beat);
    }
}

#[test]
fn a_torn_heartbeat_is_damage_and_not_nothing() {
    let (old, new) = (sample().encode(), Heartbeat { host: "barn".into(), ..sample() }.encode());
    let torn = [&new[..512], &old[512..]].concat();
    assert!(Heartbeat::decode(&torn).is_err());
    assert!(Heartbeat::is_meant(&torn));
    assert!(!Heartbeat::is_meant(&[0; 4096]));
}

#[test]
fn what_no_version_wrote_is_refused() {
    let good = sample().encode();
    for (at, value) in [(8, 2), (9, 2), (10, 1), (125, 1), (4000, 1)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes.truncate(Heartbeat::SIZE - 4);
        seal(&mut bytes, 0, Heartbeat::SIZE);
        assert!(Heartbeat::decode(&bytes).is_err(), "byte {at}");
    }
    assert!(Heartbeat::decode(&good[..4095]).is_err());
}
