//! Bursts begin and end, on a file that stands in for the device.

use super::{Awake, BURST_REQUESTS, LATENCY_US_ANY, LATENCY_US_NONE};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

struct Stand(PathBuf);

impl Stand {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fuse-wire-awake-{name}-{}", std::process::id()));
        std::fs::write(&path, LATENCY_US_ANY.to_ne_bytes()).unwrap();
        Self(path)
    }

    fn asked(&self) -> i32 {
        i32::from_ne_bytes(std::fs::read(&self.0).unwrap().try_into().unwrap())
    }

    fn eventually(&self, latency_us: i32) -> bool {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.asked() != latency_us {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn a_burst_keeps_cpus_awake_until_it_ends() {
    let stand = Stand::new("burst");
    let awake = Awake::with_device(&stand.0);
    for round in 0..3 {
        // A machine that stops for a tenth of a second in here makes it no burst: then another try makes it one.
        let deadline = Instant::now() + Duration::from_secs(30);
        while stand.asked() != LATENCY_US_NONE {
            assert!(Instant::now() < deadline, "round {round}: no burst");
            (0..2 * BURST_REQUESTS).for_each(|_| awake.count());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(stand.eventually(LATENCY_US_ANY), "round {round}: the burst did not end");
    }
}

#[test]
fn a_few_requests_are_no_burst() {
    let stand = Stand::new("few");
    let awake = Awake::with_device(&stand.0);
    (0..BURST_REQUESTS - 1).for_each(|_| awake.count());
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(stand.asked(), LATENCY_US_ANY);
}

#[test]
fn the_end_of_the_session_ends_a_burst() {
    let stand = Stand::new("end");
    let awake = Awake::with_device(&stand.0);
    (0..4 * BURST_REQUESTS).for_each(|_| awake.count());
    drop(awake);
    assert!(stand.eventually(LATENCY_US_ANY));
}

#[test]
fn without_the_device_nothing_happens() {
    let awake = Awake::with_device(Path::new("/nonexistent/latency"));
    (0..4 * BURST_REQUESTS).for_each(|_| awake.count());
    assert!(awake.watch.is_none());
}
