//! Compressors and their like between two records: they cost more to make than a small record takes to encode.
//!
//! Invariant: there are never more of them than were at work at the same time, whichever threads those were. What was put back last is
//! taken first, for its tables are still in the processor's cache; with one for each thread they would be read from memory again for each.

use std::sync::{Mutex, PoisonError};

/// More than that many are not kept: as many requests may be at work, though no machine gains from it.
const KEPT_MAX: usize = 16;

/// Those that nobody works with.
pub(crate) struct Idle<T>(Mutex<Vec<T>>);

impl<T> Idle<T> {
    pub const fn new() -> Idle<T> {
        Idle(Mutex::new(Vec::new()))
    }

    /// Works with one of them, made if all are in use. What failed is not used again.
    pub fn with<R, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
        work: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<R, E> {
        let kept = self.locked(Vec::pop);
        let mut one = kept.map_or_else(make, Ok)?;
        let outcome = work(&mut one)?;
        self.locked(|kept| {
            if kept.len() < KEPT_MAX {
                kept.push(one);
            }
        });
        Ok(outcome)
    }

    /// Nothing that could panic happens while it is locked.
    fn locked<R>(&self, work: impl FnOnce(&mut Vec<T>) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_back_last_comes_first_and_what_failed_never() {
        let idle = Idle::new();
        let with = |made: u32| idle.with(|| Ok::<_, ()>(made), |one: &mut u32| Ok(*one));
        assert_eq!(with(1), Ok(1));
        // While the first is in use a second is made, and put back before it.
        let nested = idle.with(|| Ok(9), |one: &mut u32| Ok::<_, ()>((*one, with(2))));
        assert_eq!(nested, Ok((1, Ok(2))));
        assert_eq!((with(3), idle.locked(|kept| kept.clone())), (Ok(1), vec![2, 1]));
        assert_eq!(idle.with(|| Ok(9), |_| Err::<(), ()>(())), Err(()));
        assert_eq!((with(4), idle.locked(|kept| kept.clone())), (Ok(2), vec![2]));
        assert_eq!(idle.with(|| Err::<u32, ()>(()), |_: &mut u32| idle.with(|| Err(()), |_| Ok(()))), Err(()));
    }

    #[test]
    fn only_so_many_are_kept() {
        fn at_once(idle: &Idle<u32>, count: usize) {
            let more = |_: &mut u32| {
                if count > 1 {
                    at_once(idle, count - 1);
                }
                Ok::<_, ()>(())
            };
            assert_eq!(idle.with(|| Ok(0), more), Ok(()));
        }
        let idle = Idle::new();
        at_once(&idle, KEPT_MAX + 3);
        assert_eq!(idle.locked(|kept| kept.len()), KEPT_MAX);
    }
}
