//! Asking many devices at once: one that does not answer holds up nobody but itself.
//!
//! Read next: `devices.rs`.

use stere_device::Job;

/// What each of these gives, in their order. Without threads they are asked one after the other.
pub fn at_once<T: Sync, R: Send>(items: &[T], ask: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let mut answers: Vec<Option<R>> = items.iter().map(|_| None).collect();
    match stere_device::reader_threads() {
        Some(threads) => {
            let ask = &ask;
            let jobs = items.iter().zip(&mut answers);
            threads.run(jobs.map(|(item, answer)| Box::new(move || *answer = Some(ask(item))) as Job<'_>).collect());
        }
        None => items.iter().zip(&mut answers).for_each(|(item, answer)| *answer = Some(ask(item))),
    }
    let answers: Vec<R> = answers.into_iter().flatten().collect();
    assert_eq!(answers.len(), items.len(), "each was asked");
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_slow_ones_are_slow_together() {
        let start = Instant::now();
        let answers = at_once(&[1, 2, 3, 4, 5], |number| {
            std::thread::sleep(Duration::from_millis(200));
            number * 2
        });
        assert_eq!(answers, [2, 4, 6, 8, 10]);
        assert!(start.elapsed() < Duration::from_millis(800), "{:?}", start.elapsed());
    }
}
