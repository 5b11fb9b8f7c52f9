//! One flush for all who ask at the same time, and none after one has failed.
//!
//! A caller needs a flush that *starts* after its call. While one runs, all newcomers wait for the next, which one of
//! them runs. Invariant: once a flush fails, every later one fails with the same reason, because the kernel reports
//! lost writes once and then forgets them.

use crate::error::{DeviceError, Operation};
use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    /// Number of the last flush that started; 0 before the first.
    started: u64,
    /// Number of the last flush that ended well.
    completed: u64,
    failure: Option<DeviceError>,
}

#[derive(Debug, Default)]
pub(super) struct FlushGate {
    state: Mutex<State>,
    ended: Condvar,
}

impl FlushGate {
    /// Runs `flush`, or waits for one that another caller started after this call.
    pub(super) fn run(&self, device: &str, flush: impl FnOnce() -> std::io::Result<()>) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        let wanted = state.started + 1;
        loop {
            if let Some(failure) = &state.failure {
                return Err(FlushGate::refusal(device, failure));
            }
            if state.completed >= wanted {
                return Ok(());
            }
            if !state.is_running {
                break;
            }
            self.ended.wait(&mut state);
        }
        state.is_running = true;
        state.started += 1;
        let number = state.started;
        assert!(number >= wanted, "a flush that starts now covers this caller");
        drop(state);
        let outcome = flush();
        let mut state = self.state.lock();
        assert!(state.is_running && state.started == number, "flushes run one after the other");
        assert!(state.completed < number, "flush {number} ends after {}", state.completed);
        state.is_running = false;
        let result = match outcome {
            Ok(()) => {
                state.completed = number;
                Ok(())
            }
            Err(source) => {
                let error = DeviceError::io(device, Operation::Flush, 0, source);
                state.failure = Some(error.clone());
                Err(error)
            }
        };
        drop(state);
        self.ended.notify_all();
        result
    }

    pub(super) fn refuse_after_failure(&self, device: &str) -> Result<(), DeviceError> {
        match &self.state.lock().failure {
            None => Ok(()),
            Some(failure) => Err(FlushGate::refusal(device, failure)),
        }
    }

    fn refusal(device: &str, failure: &DeviceError) -> DeviceError {
        DeviceError::FlushFailed { device: device.to_owned(), reason: failure.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    #[test]
    fn concurrent_callers_share_flushes() {
        let gate = FlushGate::default();
        let runs = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    gate.run("d", || {
                        std::thread::sleep(Duration::from_millis(30));
                        runs.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    })
                    .unwrap();
                });
            }
        });
        let runs = runs.load(Ordering::SeqCst);
        assert!((1..16).contains(&runs), "16 callers took {runs} flushes");
    }

    #[test]
    fn a_lone_caller_flushes_every_time() {
        let gate = FlushGate::default();
        let runs = AtomicU32::new(0);
        for _ in 0..3 {
            let count = || {
                runs.fetch_add(1, Ordering::SeqCst);
                Ok(())
            };
            gate.run("d", count).unwrap();
        }
        assert_eq!(runs.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn failure_sticks() {
        let gate = FlushGate::default();
        gate.refuse_after_failure("d").unwrap();
        let failed = gate.run("d", || Err(std::io::Error::from_raw_os_error(libc::EIO)));
        assert_eq!(failed.unwrap_err().os_error(), Some(libc::EIO));
        let again = gate.run("d", || panic!("must not be tried again"));
        assert!(matches!(again, Err(DeviceError::FlushFailed { .. })));
        assert!(matches!(gate.refuse_after_failure("d"), Err(DeviceError::FlushFailed { .. })));
    }
}
