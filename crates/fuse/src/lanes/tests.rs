//! Workers: nothing lost, nothing starved, no more threads than allowed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::{Lane, Lanes, Work};

type Job = Box<dyn FnOnce() + Send>;

fn started(threads: usize) -> Lanes<Job> {
    let lanes = Lanes::new(threads, threads, threads, threads, threads);
    let work: Work<Job> = Arc::new(|job: Job| job());
    lanes.start(&work).unwrap();
    lanes
}

#[test]
fn every_job_runs_once_even_when_stopped_at_once() {
    let lanes = started(4);
    let ran = Arc::new(AtomicUsize::new(0));
    for number in 0..1000 {
        let ran = Arc::clone(&ran);
        let lane = [Lane::Reading, Lane::Changing, Lane::Syncing][number % 3];
        lanes.submit(lane, Box::new(move || _ = ran.fetch_add(1, Ordering::SeqCst)));
    }
    lanes.stop();
    assert_eq!(ran.load(Ordering::SeqCst), 1000);
}

#[test]
fn blocked_syncs_do_not_hold_up_reads_and_changes() {
    let lanes = started(4);
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(parking_lot::Mutex::new(gate));
    for _ in 0..100 {
        let gate = Arc::clone(&gate);
        lanes.submit(Lane::Syncing, Box::new(move || _ = gate.lock().recv()));
    }
    let (done, answers) = mpsc::channel();
    for lane in [Lane::Reading, Lane::Changing] {
        let done = done.clone();
        lanes.submit(lane, Box::new(move || done.send(()).unwrap()));
    }
    for _ in 0..2 {
        answers.recv_timeout(Duration::from_secs(100)).expect("a read waits behind a sync");
    }
    drop(release);
    lanes.stop();
}

#[test]
fn waiting_jobs_overlap_up_to_the_limit() {
    const THREADS: usize = 8;
    let lanes = started(THREADS);
    let barrier = Arc::new(std::sync::Barrier::new(THREADS));
    let (now, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..THREADS * 4 {
        let (barrier, now, peak) = (Arc::clone(&barrier), Arc::clone(&now), Arc::clone(&peak));
        let job = move || {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Passes only when as many jobs as there may be threads run at once.
            barrier.wait();
            now.fetch_sub(1, Ordering::SeqCst);
        };
        lanes.submit(Lane::Reading, Box::new(job));
    }
    lanes.stop();
    assert_eq!(peak.load(Ordering::SeqCst), THREADS);
}
