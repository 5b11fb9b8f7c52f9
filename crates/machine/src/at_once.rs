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
mod tests;
