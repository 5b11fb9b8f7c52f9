//! A year of daily use: a library that is four fifths full, each day as much is deleted as is put, and it never says full.

use super::*;
use std::collections::BTreeMap;

const CARTRIDGES: u16 = 24;
const CAPACITY_BYTES: u64 = 1 << 20;
const DAYS: u64 = 365;
/// Of what the library holds, this many thousandths are exchanged each day.
const DAILY_PERMILLE: u64 = 10;

struct Use {
    library: Library,
    /// What lives, with the seed and the length of its bytes.
    living: BTreeMap<String, (u64, usize)>,
    live_bytes: u64,
    put_bytes: u64,
    count: u64,
    chance: u64,
}

impl Use {
    fn random(&mut self, below: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % below
    }

    fn put_one(&mut self) {
        let (seed, length) = (self.count, 20_000 + self.random(40_000) as usize);
        self.count += 1;
        let name = format!("segments/{seed:08}");
        let outcome = Volume::put(&self.library, &name, &content(seed, length));
        assert_eq!(outcome, Ok(()), "object {seed}, with {} bytes alive", self.live_bytes);
        self.living.insert(name, (seed, length));
        self.live_bytes += length as u64;
        self.put_bytes += length as u64;
    }

    fn delete_one(&mut self) {
        let at = self.random(self.living.len() as u64) as usize;
        let (name, (_, length)) = self.living.iter().nth(at).map(|(name, one)| (name.clone(), *one)).unwrap();
        Volume::delete(&self.library, &name).unwrap();
        self.living.remove(&name);
        self.live_bytes -= length as u64;
    }

    fn is_right(&self, names: impl Iterator<Item = String>) {
        for name in names {
            let (seed, length) = self.living[&name];
            assert!(whole(&self.library, &name).unwrap() == content(seed, length), "{name}");
        }
    }

    fn day(&mut self, day: u64) {
        let daily = self.live_bytes * DAILY_PERMILLE / 1000;
        let (before, target) = (self.put_bytes, self.live_bytes);
        while self.live_bytes > target - daily {
            self.delete_one();
        }
        while self.put_bytes < before + daily {
            self.put_one();
        }
        let oldest_and_newest = self.living.keys().next().into_iter().chain(self.living.keys().next_back());
        self.is_right(oldest_and_newest.cloned().collect::<Vec<_>>().into_iter());
        let listed = self.library.list("").unwrap().len();
        assert_eq!(listed, self.living.len(), "day {day}: what lives is listed, and nothing else");
    }
}

/// P-307: with one drive and with two, mounted anew in between with its catalogue and without.
#[test]
fn a_year_at_four_fifths_never_says_full() {
    for drives in [1, 2] {
        let model = Model { capacity_bytes: CAPACITY_BYTES, warning_bytes: 16 << 10, ..Model::INSTANT };
        let simulated = simulated(model, drives, CARTRIDGES);
        // Each line is made durable; a disk would make that a year indeed.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let catalogue = Some(folder.path().join("catalogue"));
        let with = LibraryOptions { block_bytes: 16 << 10, copied_at_once_bytes: 300_000, catalogue, ..options() };
        let library = open_with(&simulated, with.clone());
        let start = (BTreeMap::new(), 0, 0, 0, 7);
        let (living, live_bytes, put_bytes, count, chance) = start;
        let mut used = Use { library, living, live_bytes, put_bytes, count, chance };
        while used.live_bytes < u64::from(CARTRIDGES) * CAPACITY_BYTES * 8 / 10 {
            used.put_one();
        }
        let (filled_bytes, mut copied, mut moves) = (used.put_bytes, 0, 0);
        for day in 0..DAYS {
            let before = simulated.moves();
            used.day(day);
            moves = moves.max(simulated.moves() - before);
            if day % 100 == 50 {
                copied += used.library.copied_bytes();
                used.library = open_with(&simulated, with.clone());
            }
        }
        copied += used.library.copied_bytes();
        let written = used.put_bytes - filled_bytes;
        assert!(written > 2 * u64::from(CARTRIDGES) * CAPACITY_BYTES, "{written} bytes go round every cartridge");
        let ratio = copied as f64 / written as f64;
        println!(
            "{drives} drives: {written} bytes put in a year at 80 %, {copied} copied, {ratio:.2} for each; most moves a day: {moves}"
        );
        assert!(copied > 0 && ratio < 6.0, "{ratio} bytes copied for each that is put");
        used.is_right(used.living.keys().cloned());
        // Nobody remembers: the tapes tell the same.
        used.library.put_all_away().unwrap();
        used.library = open_with(&simulated, LibraryOptions { catalogue: None, ..with });
        used.is_right(used.living.keys().cloned());
    }
}
