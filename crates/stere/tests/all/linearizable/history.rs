//! A history of calls by several threads, each with the moments at which it was called and returned, and whether it is linearizable: by
//! stateright's tester, which searches an order of the calls that the specification allows and in which none comes before one that had
//! returned when it was called. Read next: `model.rs`.

use std::fmt::Write;
use std::time::Instant;

use stateright::semantics::{ConsistencyTester, LinearizabilityTester};

use super::model::{Op, Ret, Tree};

#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub thread: usize,
    pub op: Op,
    pub ret: Ret,
    /// Both by CLOCK_MONOTONIC.
    pub called: Instant,
    pub returned: Instant,
}

/// How a history was found to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Strict,
    /// Only with what the kernel puts together itself.
    Lenient,
}

fn order(start: &Tree, calls: &[Call]) -> Option<Vec<(Op, Ret)>> {
    // At the same moment calls come before returns: then they overlap, which allows more.
    let called = calls.iter().map(|call| (call.called, false, call));
    let mut events: Vec<_> = called.chain(calls.iter().map(|call| (call.returned, true, call))).collect();
    events.sort_by_key(|(moment, is_return, _)| (*moment, *is_return));
    let mut tester = LinearizabilityTester::new(start.clone());
    for (_, is_return, call) in events {
        let told = match is_return {
            false => tester.on_invoke(call.thread, call.op),
            true => tester.on_return(call.thread, call.ret),
        };
        told.unwrap_or_else(|error| panic!("a thread does one call at a time: {error}"));
    }
    tester.serialized_history()
}

/// The state after the calls, and how they were found right; an account of them if no order explains them.
pub fn check(start: &Tree, calls: &[Call]) -> Result<(Tree, Verdict), String> {
    let mut start = start.clone();
    for verdict in [Verdict::Strict, Verdict::Lenient] {
        start.is_lenient = verdict == Verdict::Lenient;
        if let Some(ordered) = order(&start, calls) {
            let mut tree = start.clone();
            assert!(ordered.iter().all(|(op, ret)| tree.step(*op, *ret)), "the order is one that the model allows");
            tree.is_lenient = false;
            return Ok((tree, verdict));
        }
    }
    Err(account(&start, calls))
}

/// The calls in the order in which they began, for people.
fn account(start: &Tree, calls: &[Call]) -> String {
    let mut sorted = calls.to_vec();
    sorted.sort_by_key(|call| call.called);
    let mut text = format!("no order of these calls explains their answers; the state before: {start:?}\n");
    for call in &sorted {
        let since = |moment: Instant| moment.duration_since(sorted[0].called).as_micros();
        let (from, to) = (since(call.called), since(call.returned));
        // Writing to a string cannot fail.
        let _written =
            writeln!(text, "{from:>9} to {to:>9} µs, thread {}: {:?} -> {:?}", call.thread, call.op, call.ret);
    }
    text
}

#[cfg(test)]
mod tests {
    //! The checker on histories whose answer is known (P-274).

    use std::time::Duration;

    use super::*;

    /// Calls by thread, with when each is called and returns, in milliseconds.
    fn history(calls: &[(usize, u64, u64, Op, Ret)]) -> Vec<Call> {
        let zero = Instant::now();
        let at = |milliseconds: u64| zero + Duration::from_millis(milliseconds);
        let call = |&(thread, from, to, op, ret): &(usize, u64, u64, Op, Ret)| Call {
            thread,
            op,
            ret,
            called: at(from),
            returned: at(to),
        };
        calls.iter().map(call).collect()
    }

    fn verdict(calls: &[(usize, u64, u64, Op, Ret)]) -> Option<Verdict> {
        check(&Tree::new([1, 2]), &history(calls)).ok().map(|(_, verdict)| verdict)
    }

    const LOCK: Op = Op::Lock { lock: 0, holder: 0, is_shared: false };
    const OTHERS_LOCK: Op = Op::Lock { lock: 0, holder: 1, is_shared: false };
    const NONE: Ret = Ret::Refused(libc::ENOENT);
    const EXISTS: Ret = Ret::Refused(libc::EEXIST);

    #[test]
    fn calls_at_the_same_time_may_come_in_either_order() {
        let either = [(0, 0, 10, Op::Create(0), Ret::Created(7)), (1, 0, 10, Op::Unlink(0), NONE)];
        assert_eq!(verdict(&either), Some(Verdict::Strict));
        let other = [(0, 0, 10, Op::Create(0), Ret::Created(7)), (1, 0, 10, Op::Unlink(0), Ret::Done)];
        assert_eq!(verdict(&other), Some(Verdict::Strict));
    }

    #[test]
    fn a_file_that_was_made_is_there_for_all() {
        let stale = [(0, 0, 1, Op::Create(0), Ret::Created(7)), (1, 2, 3, Op::Stat(0), NONE)];
        assert_eq!(verdict(&stale), None);
        let twice = [(0, 0, 9, Op::Create(0), Ret::Created(7)), (1, 0, 9, Op::Create(0), Ret::Created(8))];
        assert_eq!(verdict(&twice), None);
        let again = [(0, 0, 9, Op::Create(0), EXISTS), (1, 20, 30, Op::Stat(0), Ret::Found(7))];
        assert_eq!(verdict(&again), None, "a request that was done twice says that the file exists");
    }

    #[test]
    fn a_link_counts_and_a_rename_replaces() {
        let link = (0, 0, 1, Op::Link { anchor: 0, file: 1 }, Ret::Done);
        let found = |links| (1, 4, 5, Op::Links(1), Ret::Links { inode: 1, links });
        assert_eq!(verdict(&[link, found(2)]), Some(Verdict::Strict));
        assert_eq!(verdict(&[link, found(1)]), None);
        let both = [link, (0, 2, 3, Op::Create(0), Ret::Created(7)), (1, 4, 5, Op::Rename(0, 1), Ret::Done)];
        let after = |name, ret| [&both[..], &[(2, 6, 7, Op::Stat(name), ret)]].concat();
        assert_eq!(verdict(&after(1, Ret::Found(7))), Some(Verdict::Strict));
        assert_eq!(verdict(&after(0, NONE)), Some(Verdict::Strict));
        assert_eq!(verdict(&after(1, Ret::Found(1))), None, "the older file came back");
    }

    /// Two machines that rename the same file at the same time: one may find its file under the other name already, and do nothing.
    #[test]
    fn only_what_the_kernel_puts_together_is_allowed_beyond() {
        let made = (0, 0, 1, Op::Create(0), Ret::Created(7));
        let rename = |thread, from, to| (thread, from, to, Op::Rename(0, 1), Ret::Done);
        assert_eq!(verdict(&[made, rename(1, 2, 9), rename(2, 2, 9)]), Some(Verdict::Lenient));
        let unlinked = (1, 2, 3, Op::Unlink(0), Ret::Done);
        assert_eq!(verdict(&[made, unlinked, rename(2, 4, 5)]), None);
    }

    #[test]
    fn directories_may_be_answered_from_a_second_before_and_not_from_nowhere() {
        let made = (0, 0, 1, Op::MakeFolder(0), Ret::Done);
        let removed = (1, 2, 3, Op::RemoveFolder(0), Ret::Done);
        let found = (0, 4, 5, Op::StatFolder(0), Ret::Done);
        assert_eq!(verdict(&[made, removed, found]), Some(Verdict::Lenient));
        assert_eq!(verdict(&[made, removed, (0, 4, 5, Op::MakeFolder(0), EXISTS)]), Some(Verdict::Lenient));
        assert_eq!(verdict(&[found]), None);
        assert_eq!(verdict(&[made, (1, 4, 5, Op::StatFolder(0), NONE)]), None, "a name that exists is never denied");
        let (mut tree, _) = check(&Tree::new([1, 2]), &history(&[made, removed])).unwrap();
        assert!(check(&tree, &history(&[found])).is_ok());
        tree.forget_earlier();
        assert!(check(&tree, &history(&[found])).is_err(), "later than that second");
    }

    #[test]
    fn a_lock_has_one_holder() {
        let unlock = |from, to| (0, from, to, Op::Unlock { lock: 0, holder: 0 }, Ret::Done);
        let held = (0, 0, 1, LOCK, Ret::Done);
        assert_eq!(verdict(&[held, (1, 2, 3, OTHERS_LOCK, Ret::Done)]), None);
        assert_eq!(verdict(&[held, (1, 2, 3, OTHERS_LOCK, Ret::Refused(libc::EAGAIN))]), Some(Verdict::Strict));
        assert_eq!(verdict(&[held, unlock(2, 3), (1, 4, 5, OTHERS_LOCK, Ret::Refused(libc::EAGAIN))]), None);
        let shared =
            |holder: usize, from| (holder, from, from + 1, Op::Lock { lock: 1, holder, is_shared: true }, Ret::Done);
        assert_eq!(verdict(&[shared(0, 0), shared(1, 2)]), Some(Verdict::Strict));
    }
}
