//! How segments are chosen for cleaning: what somebody said of the pool and of classes of devices, and the order that follows from it.
//!
//! Invariant: scores of different policies are never compared; where several hold, the best of each comes first, then the second of
//! each. By age is for devices on which order counts more than copying. Source: Rosenblum and Ousterhout 1991, 3.5. Read next:
//! `../clean.rs`.

use std::cmp::Ordering;

use stere_format::{CleanerChoice, CleanerPolicy, Key};
use stere_log::Io;

use crate::engine::Engine;
use crate::error::Error;

/// How a segment looks to who chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Live bytes as a part of what it gives.
    pub utilisation: f64,
    /// Rows that were appended to the pool since it was begun, at least 1.
    pub age: f64,
}

/// The greater, the sooner; for comparing under one policy.
pub(crate) fn score(policy: CleanerPolicy, look: Look) -> f64 {
    assert!(look.age >= 1.0 && look.utilisation >= 0.0, "{look:?}");
    match policy {
        CleanerPolicy::Greedy => 1.0 - look.utilisation,
        CleanerPolicy::CostBenefit => (1.0 - look.utilisation) * look.age / (1.0 + look.utilisation),
        CleanerPolicy::Age => look.age,
    }
}

/// These in the order in which they are cleaned; each with its policy, score and number.
pub(crate) fn in_order<T>(mut all: Vec<T>, of: impl Fn(&T) -> (CleanerPolicy, f64, u64)) -> Vec<T> {
    let by_score = |one: &T, other: &T| {
        let ((_, mine, my_id), (_, theirs, their_id)) = (of(one), of(other));
        theirs.total_cmp(&mine).then(my_id.cmp(&their_id))
    };
    let is_one_policy = all.windows(2).all(|two| of(&two[0]).0 == of(&two[1]).0);
    all.sort_by(by_score);
    if is_one_policy {
        return all;
    }
    let mut counts = [0_usize; CleanerPolicy::ALL.len()];
    let ranked = all.into_iter().map(|one| {
        let policy = of(&one).0;
        let count = &mut counts[usize::from(policy.code()) - 1];
        *count += 1;
        (*count, policy, one)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by(|one, other| match one.0.cmp(&other.0) {
        Ordering::Equal => one.1.cmp(&other.1),
        order => order,
    });
    ranked.into_iter().map(|(_, _, one)| one).collect()
}

/// What is kept of it in the pool.
#[derive(Clone, Copy)]
pub struct CleanerSettings<'a> {
    engine: &'a Engine,
}

impl Engine {
    pub fn cleaner_settings(&self) -> CleanerSettings<'_> {
        CleanerSettings { engine: self }
    }
}

impl CleanerSettings<'_> {
    /// Takes over what the pool holds.
    pub(crate) fn load(&self) -> Result<(), Error> {
        let value = self.engine.view(Io::BLOCKING, |view| view.get(&Key::cleaner()))?;
        let Some(bytes) = value else { return Ok(()) };
        match CleanerChoice::decode(&bytes) {
            Ok(choice) => *self.engine.cleaner_choice.lock() = choice,
            Err(error) => {
                tracing::error!(%error, "how segments are chosen for cleaning is damaged; it is as if nobody said so")
            }
        }
        Ok(())
    }

    pub fn choice(&self) -> CleanerChoice {
        *self.engine.cleaner_choice.lock()
    }

    /// The policy for segments on devices of this class.
    pub fn policy_of(&self, class: u8) -> CleanerPolicy {
        self.choice().of(class).unwrap_or(self.engine.options.cleaner)
    }

    /// Says it from now on. Durable when it returns.
    pub fn set(&self, choice: CleanerChoice) -> Result<(), Error> {
        self.engine.update(Io::BLOCKING, |transaction| {
            match choice.is_said() {
                true => transaction.put(Key::cleaner(), &choice.encode()),
                false => transaction.delete(Key::cleaner()),
            }
            Ok::<_, Error>(())
        })?;
        *self.engine.cleaner_choice.lock() = choice;
        self.engine.commit(Io::BLOCKING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(all: &[(CleanerPolicy, f64, f64)]) -> Vec<usize> {
        let scored = |(id, (policy, utilisation, age)): (usize, &(CleanerPolicy, f64, f64))| {
            (*policy, score(*policy, Look { utilisation: *utilisation, age: *age }), id as u64)
        };
        let all: Vec<_> = all.iter().enumerate().map(scored).collect();
        in_order(all, |one| *one).into_iter().map(|(_, _, id)| id as usize).collect()
    }

    /// An old segment that is rather full, and a new one that is nearly empty: each policy has its own first.
    #[test]
    fn policies_differ() {
        let of = |policy| order(&[(policy, 0.7, 1000.0), (policy, 0.1, 10.0), (policy, 0.3, 500.0)]);
        assert_eq!(of(CleanerPolicy::Greedy), [1, 2, 0]);
        assert_eq!(of(CleanerPolicy::CostBenefit), [2, 0, 1]);
        assert_eq!(of(CleanerPolicy::Age), [0, 2, 1]);
    }

    /// Of several policies each has its turn, whatever the scores are.
    #[test]
    fn policies_take_turns() {
        let (greedy, age) = (CleanerPolicy::Greedy, CleanerPolicy::Age);
        let all = [(greedy, 0.5, 1.0), (greedy, 0.1, 1.0), (age, 0.5, 10_000.0), (age, 0.5, 50.0), (age, 0.5, 7.0)];
        assert_eq!(order(&all), [1, 2, 0, 3, 4]);
    }
}
