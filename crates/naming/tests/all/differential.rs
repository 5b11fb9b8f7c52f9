//! Random sequences of calls on the file system and on the reference model: the same errors, the same attributes, the
//! same names and bytes after every step; and after the pool was closed or lost power behind a sync.
//!
//! Every call is first made as one that must not wait, so that a `WouldBlock` with side effects would be found.

use crate::support;

use proptest::prelude::*;
use support::calls::call;
use support::pair::Pair;

fn cases() -> u32 {
    std::env::var("STERE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    /// P-15: results and errors are those of the model.
    #[test]
    fn the_file_system_and_the_model_agree(calls in prop::collection::vec(call(), 1..150)) {
        let mut pair = Pair::new();
        for call in &calls {
            pair.run(call);
            pair.check_attributes();
        }
        pair.check_everything();
    }
}
