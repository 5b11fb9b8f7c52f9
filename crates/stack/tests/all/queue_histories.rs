//! Histories of the list of what is to be followed up, from seeds: files are changed, moved and served, and the power goes off, which
//! leaves of the journal what was made durable and any part of the rest. Whatever was changed after it was last served is on the
//! list (P-130), unless somebody forgot it on purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use stere_stack::{QUEUE_FILE_NAME, Queue};

const HISTORIES: u64 = 40;
const STEPS: usize = 150;
const PATHS: [&[u8]; 6] = [b"a", b"d/b", b"d/\xff\n", b"d/e/c", b"e/b", b""];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What must be on the list, and what is open.
#[derive(Default)]
struct Right {
    due: BTreeSet<Vec<u8>>,
    open: BTreeMap<Vec<u8>, u32>,
    /// Paths whose serving was told but may be forgotten by a crash.
    told: BTreeSet<Vec<u8>>,
    /// Paths that were given up and not changed since.
    given_up: BTreeSet<Vec<u8>>,
}

impl Right {
    fn change(&mut self, path: &[u8]) {
        self.due.insert(path.to_vec());
        self.told.remove(path);
        self.given_up.remove(path);
    }
}

/// A power cut: what was durable stays, and so does some of what followed.
fn cut(journal: &Path, durable: usize, random: &mut Random) {
    let whole = fs::read(journal).unwrap();
    let kept = durable.min(whole.len()) + random.below((whole.len() - durable.min(whole.len())) as u64 + 1) as usize;
    fs::write(journal, &whole[..kept]).unwrap();
}

fn is_given_up(queue: &Queue, path: &[u8]) -> bool {
    queue.list().0.iter().any(|(other, waiting)| other == path && waiting.is_given_up)
}

fn run(source: &Path, seed: u64) -> Result<(), String> {
    let (journal, mut random) = (source.join(QUEUE_FILE_NAME), Random(seed ^ 0x9e37_79b9));
    drop(fs::remove_file(&journal));
    let mut queue = Queue::open(source).map_err(|error| error.to_string())?;
    let length = || fs::metadata(&journal).map_or(0, |found| found.len() as usize);
    let (mut right, mut now, mut durable) = (Right::default(), 10_i64, length());
    for step in 0..STEPS {
        now += random.below(300) as i64;
        let path = PATHS[random.below(PATHS.len() as u64) as usize].to_vec();
        match random.below(14) {
            0..4 => {
                let is_open = random.below(2) == 0;
                let waited = queue.list().0.iter().any(|(other, waiting)| *other == path && !waiting.is_given_up);
                queue.note(&path, now, is_open);
                if is_open {
                    *right.open.entry(path.clone()).or_default() += 1;
                }
                right.change(&path);
                // What waits already is in the journal since it was noted first.
                durable = if waited { durable } else { length() };
            }
            4 | 5 => {
                if let Some(count) = right.open.get_mut(&path) {
                    queue.closed(&path);
                    *count -= 1;
                    if *count == 0 {
                        right.open.remove(&path);
                    }
                }
            }
            6..10 => {
                if let Some((path, given)) = queue.due(b"", now) {
                    if right.open.contains_key(&path) {
                        return Err(format!("step {step}: {path:?} is open and is served"));
                    }
                    // Somebody changes it while it is served.
                    let meanwhile = random.below(4) == 0;
                    if meanwhile {
                        queue.note(&path, now, false);
                    }
                    let outcome = if random.below(5) < 3 { Err("no".to_owned()) } else { Ok(()) };
                    let is_served = outcome.is_ok() && !meanwhile;
                    queue.served(&path, &given, outcome, now);
                    if is_served {
                        right.due.remove(&path);
                        right.told.insert(path);
                    } else if is_given_up(&queue, &path) {
                        right.given_up.insert(path);
                    }
                }
            }
            10 => {
                let to = [&b"moved/"[..], &[b'0' + random.below(9) as u8]].concat();
                let below: Vec<Vec<u8>> = queue.list().0.into_iter().map(|(path, _)| path).collect();
                queue.renamed(b"d", &to, now);
                for path in below.iter().filter_map(|path| path.strip_prefix(b"d/")) {
                    right.change(&[&to, &b"/"[..], path].concat());
                }
                durable = length();
            }
            11 => drop(queue.retry()),
            // It fails until nobody tries any more.
            12 => {
                if let Some((path, _)) = queue.due(b"", now) {
                    while let Some((_, given)) = queue.due(b"", now).filter(|(due, _)| *due == path) {
                        queue.served(&path, &given, Err("no".to_owned()), now);
                        now += 1000;
                    }
                    if is_given_up(&queue, &path) {
                        right.given_up.insert(path);
                    }
                }
            }
            _ => {
                drop(queue);
                cut(&journal, durable, &mut random);
                queue = Queue::open(source).map_err(|error| error.to_string())?;
                right.open.clear();
                durable = length();
            }
        }
        // A journal that was written anew is durable as a whole.
        durable = durable.min(length());
        let listed: BTreeSet<Vec<u8>> = queue.list().0.into_iter().map(|(path, _)| path).collect();
        let is_forgotten =
            |path: &&Vec<u8>| !listed.contains(*path) || is_given_up(&queue, path) && !right.given_up.contains(*path);
        if let Some(path) = right.due.iter().find(is_forgotten) {
            return Err(format!("step {step}: {path:?} was changed, and nobody is to follow it up"));
        }
        if let Some(path) = listed.iter().find(|path| !right.due.contains(*path) && !right.told.contains(*path)) {
            return Err(format!("step {step}: {path:?} is on the list, and nobody changed it"));
        }
    }
    Ok(())
}

/// P-130.
#[test]
fn whatever_was_changed_is_followed_up_across_crashes() {
    let source = std::env::temp_dir().join(format!("stere-queue-histories-{}", std::process::id()));
    drop(fs::remove_dir_all(&source));
    fs::create_dir(&source).unwrap();
    let failed: Vec<String> =
        (0..HISTORIES).filter_map(|seed| Some(format!("seed {seed}: {}", run(&source, seed).err()?))).collect();
    fs::remove_dir_all(&source).unwrap();
    assert!(failed.is_empty(), "{} of {HISTORIES}: {:?}", failed.len(), &failed[..failed.len().min(5)]);
}
