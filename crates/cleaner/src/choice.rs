//! The order in which segments are cleaned.
//!
//! Invariant: scores of different policies are never compared; where several hold, the best of each comes first, then the second of
//! each. By age is for devices on which order counts more than copying. Source: Rosenblum and Ousterhout 1991, 3.5. Read
//! next: the engine's `clean.rs`.

use std::cmp::Ordering;

use stere_format::CleanerPolicy;

/// How a segment looks to who chooses.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Live bytes as a part of what it gives.
    pub utilisation: f64,
    /// Rows that were appended to the pool since it was begun, at least 1.
    pub age: f64,
}

/// The greater, the sooner; for comparing under one policy.
pub fn score(policy: CleanerPolicy, look: Look) -> f64 {
    assert!(look.age >= 1.0 && look.utilisation >= 0.0, "{look:?}");
    match policy {
        CleanerPolicy::Greedy => 1.0 - look.utilisation,
        CleanerPolicy::CostBenefit => (1.0 - look.utilisation) * look.age / (1.0 + look.utilisation),
        CleanerPolicy::Age => look.age,
    }
}

/// These in the order in which they are cleaned; each with its policy, score and number.
pub fn in_order<T>(mut all: Vec<T>, of: impl Fn(&T) -> (CleanerPolicy, f64, u64)) -> Vec<T> {
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
    fn no_policy_keeps_others_waiting() {
        let (greedy, age) = (CleanerPolicy::Greedy, CleanerPolicy::Age);
        let all = [(greedy, 0.5, 1.0), (greedy, 0.1, 1.0), (age, 0.5, 10_000.0), (age, 0.5, 50.0), (age, 0.5, 7.0)];
        assert_eq!(order(&all), [1, 2, 0, 3, 4]);
    }
}
