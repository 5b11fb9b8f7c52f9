//! Names under which objects are written until they are whole.
//!
//! Of what is cut off there stays at most a file for each put that went on at the same time: the next put of the object writes over it.
//! Invariant: no two puts have the same name at the same time.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// What is not whole yet ends like this.
const ENDING: &str = ".partial";

/// Those that are in use.
#[derive(Debug, Default)]
pub(crate) struct Partials(Mutex<BTreeSet<String>>);

/// A name, as long as somebody has it.
#[derive(Debug)]
pub(crate) struct Partial<'a> {
    all: &'a Partials,
    pub(crate) name: String,
}

impl Partials {
    /// The first free name for an object.
    pub(crate) fn take(&self, object: &str) -> Partial<'_> {
        let mut used = self.0.lock();
        let mut number = 0;
        let name = loop {
            let name = format!("{object}.{number}{ENDING}");
            if !used.contains(&name) {
                break name;
            }
            number += 1;
        };
        used.insert(name.clone());
        Partial { all: self, name }
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        let was_used = self.all.0.lock().remove(&self.name);
        assert!(was_used, "a name is given back once: {}", self.name);
    }
}

/// Whether an object of this name is none yet.
pub(crate) fn is_partial(name: &str) -> bool {
    name.ends_with(ENDING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_used_by_one_at_a_time_and_again_afterwards() {
        let partials = Partials::default();
        let (first, second) = (partials.take("segments/a"), partials.take("segments/a"));
        assert_eq!((first.name.as_str(), second.name.as_str()), ("segments/a.0.partial", "segments/a.1.partial"));
        drop(first);
        assert_eq!(partials.take("segments/a").name, "segments/a.0.partial");
        assert!(is_partial(&second.name) && !is_partial("segments/a"));
    }
}
