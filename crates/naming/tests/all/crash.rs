//! Power loss at any moment, with any part of what was not flushed lost: what is found then is a file system whose every
//! count is right, whose files hold no byte they never held, and where nothing synced is missing.

use crate::support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use stere_model::{Content, Kind};
use stere_naming::{Error, Io};
use support::calls::{Call, call};
use support::pair::Pair;

const BLOCK: u64 = 4096;

/// What one file held, after each call that changed it.
#[derive(Default)]
struct History {
    versions: Vec<Content>,
    /// The first version that may be found: the one that was synced last.
    synced: usize,
}

/// What all files held.
#[derive(Default)]
struct Histories {
    files: BTreeMap<u64, History>,
    /// Inodes that had a name when something was synced last.
    durable: Vec<u64>,
    /// Sizes were set: that may be found without writes that came before, as if those had never been.
    cuts: bool,
}

/// Whether every byte was held there at some time.
fn held_by_byte(versions: &[Content], start: u64, found: &[u8]) -> bool {
    let held: Vec<Vec<u8>> = versions.iter().map(|version| version.read(start, found.len())).collect();
    found.iter().enumerate().all(|(at, byte)| held.iter().any(|version| version.get(at) == Some(byte)))
}

impl Histories {
    fn note(&mut self, pair: &Pair, call: &Call) {
        for (inode, found) in pair.model.inodes() {
            let Kind::File(content) = &found.kind else { continue };
            let history = self.files.entry(pair.number(inode)).or_default();
            if history.versions.last() != Some(content) {
                history.versions.push(content.clone());
            }
        }
        self.cuts |= matches!(call, Call::Truncate { .. });
        match call {
            // Any commit makes every name durable, but only the content of the file that was synced.
            Call::Fsync { inode } => {
                let all: Vec<u64> = pair.model.inodes().map(|(number, _)| number).collect();
                self.synced(pair.number(all[usize::from(*inode) % all.len()]));
                self.note_names(pair);
            }
            Call::Sync => {
                let all: Vec<u64> = self.files.keys().copied().collect();
                all.into_iter().for_each(|number| self.synced(number));
                self.note_names(pair);
            }
            Call::Commit => self.note_names(pair),
            _ => {}
        }
    }

    fn synced(&mut self, number: u64) {
        if let Some(history) = self.files.get_mut(&number) {
            history.synced = history.versions.len() - 1;
        }
    }

    fn note_names(&mut self, pair: &Pair) {
        let named = pair.model.inodes().filter(|(_, inode)| inode.nlink > 0);
        self.durable = named.map(|(number, _)| pair.number(number)).collect();
    }

    fn check(&self, pair: &Pair) {
        let fs = pair.fs();
        let caller = pair.caller(Io::BLOCKING);
        for (inode, found) in pair.model.inodes() {
            let number = pair.number(inode);
            if found.nlink > 0 && self.durable.contains(&number) {
                fs.getattr(&caller, number).expect("an inode whose name was synced is there");
            }
        }
        for (number, history) in &self.files {
            let size = match fs.getattr(&caller, *number) {
                Ok(attributes) => attributes.size,
                Err(Error::Stale) => continue,
                Err(error) => panic!("inode {number}: {error}"),
            };
            let versions = &history.versions[history.synced..];
            assert!(versions.iter().any(|version| version.size() >= size), "inode {number} is too large: {size}");
            let end = size.min(1 << 20);
            for start in (0..end).step_by(BLOCK as usize) {
                let mut out = vec![0xee; BLOCK.min(size - start) as usize];
                fs.read(&caller, *number, start, &mut out).expect("a read");
                let held = versions.iter().any(|version| version.read(start, out.len()) == out)
                    || (self.cuts && held_by_byte(versions, start, &out));
                assert!(held, "inode {number} never held its block at {start} of {size} ({} versions)", versions.len());
            }
        }
    }
}

fn cases() -> u32 {
    std::env::var("STERE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(), max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// P-2, P-1: prefixes of the history, whole changes, nothing a file never held.
    #[test]
    fn what_a_power_loss_leaves_is_right(calls in prop::collection::vec(call(), 1..80), kept in any::<u64>()) {
        let mut pair = Pair::new();
        let mut histories = Histories::default();
        histories.note(&pair, &Call::Step);
        for call in calls.iter().filter(|call| !matches!(call, Call::Remount { .. })) {
            pair.run(call);
            histories.note(&pair, call);
        }
        pair.lose_power(kept);
        pair.check_media();
        histories.check(&pair);
        while pair.ask(|fs, c| fs.step(c, 100)).expect("a step") {}
        pair.check_media();
    }
}
