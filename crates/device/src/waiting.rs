//! Whether anybody still wants what a thread waits for, and whether it may wait for tertiary volumes at all.
//!
//! Who reads what lies on a tertiary volume may wait for minutes, and be killed meanwhile. The front end knows that, and the wait is
//! many layers below: so it is told per thread, and asked wherever a wait may be long. Waits for devices are short and do not ask.

use std::cell::RefCell;

type Check = Box<dyn Fn() -> bool>;

thread_local! {
    static CHECK: RefCell<Option<Check>> = const { RefCell::new(None) };
    static REFUSED: RefCell<Option<Check>> = const { RefCell::new(None) };
}

/// Takes the check out again, also where the work panics.
struct Reset;

impl Drop for Reset {
    fn drop(&mut self) {
        CHECK.with(|current| current.borrow_mut().take());
    }
}

/// Works; `is_given_up` tells meanwhile whether nobody wants it any more.
pub fn unless<T>(is_given_up: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    CHECK.with(|current| *current.borrow_mut() = Some(Box::new(is_given_up)));
    let _reset = Reset;
    work()
}

/// Whether nobody wants any more what this thread waits for.
pub fn is_given_up() -> bool {
    CHECK.with(|current| current.borrow().as_ref().is_some_and(|check| check()))
}

/// Takes the other check out again.
struct ResetRefused;

impl Drop for ResetRefused {
    fn drop(&mut self) {
        REFUSED.with(|current| current.borrow_mut().take());
    }
}

/// Works for somebody who may be refused what is on tertiary volumes only; it is asked when the first such thing is wanted.
pub fn refusing<T>(is_refused: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    REFUSED.with(|current| *current.borrow_mut() = Some(Box::new(is_refused)));
    let _reset = ResetRefused;
    work()
}

/// Whether who this thread works for is refused what is on tertiary volumes only.
pub fn is_refused() -> bool {
    REFUSED.with(|current| current.borrow().as_ref().is_some_and(|check| check()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_asked_only_while_it_works() {
        assert!(!is_given_up());
        assert!(unless(|| true, is_given_up));
        assert!(!is_given_up());
        assert!(std::panic::catch_unwind(|| unless(|| true, || panic!("on purpose"))).is_err());
        assert!(!is_given_up());
        assert!(refusing(|| true, || is_refused() && !is_given_up()) && !is_refused());
        assert!(unless(|| true, || refusing(|| false, || is_given_up() && !is_refused())));
    }
}
