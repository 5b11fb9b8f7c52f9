//! Ranges without keys, as scans find them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use stere_format::Key;

use crate::tests::Rig;
use crate::{Io, Store};
use stere_engine::Error;

const FILE: u64 = 7;
const KEYS: u64 = 400;
/// From so many deletions on a scan learns where no key is.
const DELETIONS_MIN: usize = 8;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn key(position: u64) -> Key {
    Key::extent(FILE, position)
}

fn found(store: &Store, from: u64, to: u64, most: usize) -> Vec<u64> {
    let scanned = store.view(Io::BLOCKING, |view| {
        let mut keys = Vec::new();
        view.scan(key(from), key(to), |key, _| {
            keys.push(key.position);
            if keys.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok::<_, Error>(keys)
    });
    scanned.unwrap()
}

/// Long runs of keys come and go, in transactions some of which fail; scans from anywhere see what a plain map holds.
#[test]
fn scans_see_what_a_plain_map_holds() {
    for seed in 1..=12 {
        let (mut rig, mut store) = Rig::new(2, 64 << 20);
        let mut model: BTreeSet<u64> = BTreeSet::new();
        let mut state = seed;
        for step in 0..300 {
            let (from, length) = (random(&mut state) % KEYS, random(&mut state) % 60);
            let is_put = random(&mut state) % 2 == 0;
            let fails = random(&mut state) % 5 == 0;
            let span = from..(from + length).min(KEYS);
            let outcome = store.update(Io::BLOCKING, |transaction| {
                for position in span.clone() {
                    if is_put {
                        transaction.put(key(position), b"something");
                    } else {
                        transaction.delete(key(position));
                    }
                }
                // Within the transaction its own changes are seen, and learned as nothing.
                let mut count = 0;
                transaction.scan(key(0), key(KEYS), |_, _| {
                    count += 1;
                    ControlFlow::Continue(())
                })?;
                if fails { Err(Error::UnknownBlob { blob: 0 }) } else { Ok(count) }
            });
            if let Ok(count) = outcome {
                for position in span {
                    let _ = if is_put { model.insert(position) } else { model.remove(&position) };
                }
                assert_eq!(count, model.len(), "seed {seed}, step {step}");
            }
            let (from, most) = (random(&mut state) % KEYS, 1 + (random(&mut state) % 300) as usize);
            let expected: Vec<u64> = model.range(from..).copied().take(most).collect();
            assert_eq!(found(&store, from, KEYS, most), expected, "seed {seed}, step {step}");
            match random(&mut state) % 40 {
                0 => store.checkpoint().unwrap(),
                1 => {
                    store.close().unwrap();
                    drop(store);
                    store = rig.reopen().0;
                }
                _ => {}
            }
        }
    }
}

/// What is emptied and written again in order passes each deletion a few times at most, and not at every write.
#[test]
fn writing_again_in_order_passes_few_deletions() {
    let (_rig, store) = Rig::new(1, 64 << 20);
    let all = |is_put: bool| {
        store.update(Io::BLOCKING, |transaction| {
            for position in 0..KEYS {
                if is_put { transaction.put(key(position), b"x") } else { transaction.delete(key(position)) }
            }
            Ok::<_, Error>(())
        })
    };
    all(true).unwrap();
    all(false).unwrap();
    assert_eq!(found(&store, 0, u64::MAX, 1), []);
    for position in 0..KEYS - 2 * DELETIONS_MIN as u64 {
        let put = store.update(Io::BLOCKING, |transaction| {
            transaction.put(key(position), b"y");
            Ok::<_, Error>(())
        });
        put.unwrap();
        assert_eq!(found(&store, position + 1, u64::MAX, 1), []);
        let behind = store.single_steps().void_end_behind(&key(position + 1));
        assert_eq!(behind, Some(key(u64::MAX)), "what lies behind {position} is known to be nothing");
    }
}
