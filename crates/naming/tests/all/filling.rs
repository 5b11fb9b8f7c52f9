//! Pools of many shapes filled with all kinds of things until nothing more fits, from seeds: whatever was accepted is saved,
//! deleting works, nothing stops the pool, and the space comes back.

use crate::support;

use stere_naming::{Error, FileSystem, OpenFlags, ROOT, SetAttributes, SetMode};
use support::random::Random;
use support::{Rig, caller};

const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
const MIB: u64 = 1 << 20;

/// Sizes of devices and the policies that directories get.
const SHAPES: [(&[u64], &[&str]); 8] = [
    (&[64 * MIB], &[]),
    (&[200 * MIB], &[]),
    (&[64 * MIB, 64 * MIB], &["copies=1", "copies=2"]),
    (&[64 * MIB, 200 * MIB], &["copies=1", "copies=2"]),
    (&[64 * MIB, 100 * MIB, 160 * MIB], &["copies=1", "copies=2", "copies=3"]),
    (&[64 * MIB, 64 * MIB, 64 * MIB], &["parity=2+1"]),
    (&[64 * MIB, 80 * MIB, 130 * MIB], &["parity=2+1", "copies=1"]),
    (&[64 * MIB, 64 * MIB, 200 * MIB, 200 * MIB], &["copies=2", "copies=1", "parity=2+1"]),
];

/// What a round fills the pool with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filling {
    Names,
    Tiny,
    Small,
    SmallSynced,
    Large,
    Scattered,
    Mixed,
}

const FILLINGS: [Filling; 7] = [
    Filling::Names,
    Filling::Tiny,
    Filling::Small,
    Filling::SmallSynced,
    Filling::Large,
    Filling::Scattered,
    Filling::Mixed,
];

struct Filler<'a> {
    fs: &'a FileSystem,
    random: Random,
    directories: Vec<u64>,
    /// Directory, name, inode.
    files: Vec<(u64, String, u64)>,
    next: u64,
    data: Vec<u8>,
}

impl Filler<'_> {
    /// A file with something of this kind.
    fn add(&mut self, filling: Filling) -> Result<(), Error> {
        let filling = match filling {
            Filling::Mixed => FILLINGS[self.random.below(6) as usize],
            filling => filling,
        };
        let directory = self.directories[self.random.below(self.directories.len() as u64) as usize];
        let name = format!("{:0width$}", self.next, width = 8 + self.random.below(60) as usize);
        self.next += 1;
        let (made, handle) = self.fs.create(&caller(3), directory, name.as_bytes(), 0o644, FLAGS)?;
        self.files.push((directory, name, made.inode));
        let outcome = self.fill_file(filling, made.inode);
        self.fs.release(&caller(3), made.inode, handle).expect("what was accepted is saved");
        outcome
    }

    fn fill_file(&mut self, filling: Filling, inode: u64) -> Result<(), Error> {
        let (pieces, size) = match filling {
            Filling::Names => {
                let value = vec![1; self.random.below(200) as usize];
                return self.fs.setxattr(&caller(3), inode, b"user.a", &value, SetMode::Any, false);
            }
            Filling::Tiny => (1, 1 + self.random.below(3000)),
            Filling::Small => (1, 1 + self.random.below(40_000)),
            Filling::SmallSynced => (1 + self.random.below(3), 1 + self.random.below(9000)),
            _ => (1 + self.random.below(4), 1 + self.random.below(400_000)),
        };
        for piece in 0..pieces {
            let data = &self.data[self.random.below(1000) as usize..][..size as usize];
            self.fs.write(&caller(4), inode, piece * size, data, false)?;
            if filling == Filling::SmallSynced {
                self.fs.fsync(&caller(4), inode, false).expect("what was accepted is saved");
            }
        }
        if filling == Filling::Scattered {
            for _ in 0..30 {
                let at = self.random.below(pieces * size);
                self.fs.write(&caller(4), inode, at, &self.data[..100], false)?;
            }
        }
        Ok(())
    }

    fn fill(&mut self) {
        let filling = FILLINGS[self.random.below(FILLINGS.len() as u64) as usize];
        let mut refused = 0;
        while refused < 12 {
            match self.add(filling) {
                Ok(()) => {}
                Err(Error::NoSpace) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            self.work();
        }
    }

    fn work(&mut self) {
        if self.random.below(4) == 0 {
            self.fs.step(&caller(5), 10).expect("a step");
            self.fs.store().step(false).expect("a step of the store");
        }
    }

    fn remove(&mut self, at: usize) {
        let (directory, name, _) = self.files.swap_remove(at);
        self.fs.unlink(&caller(6), directory, name.as_bytes()).expect("removing works in a full pool");
    }

    fn change_while_full(&mut self) {
        for _ in 0..10 {
            let at = self.random.below(self.files.len() as u64) as usize;
            let inode = self.files[at].2;
            let size = self.fs.getattr(&caller(6), inode).expect("attributes").size;
            match self.random.below(4) {
                0 => self.remove(at),
                1 => {
                    let cut = SetAttributes { size: Some(size / 2), ..SetAttributes::default() };
                    self.fs.setattr(&caller(6), inode, &cut).expect("truncating works in a full pool");
                }
                _ => {
                    let at = self.random.below(size.max(1));
                    match self.fs.write(&caller(6), inode, at, &self.data[..5000], false) {
                        Ok(_) | Err(Error::NoSpace) => {}
                        Err(error) => panic!("{error}"),
                    }
                    self.fs.fsync(&caller(6), inode, false).expect("what was accepted is saved");
                }
            }
        }
    }
}

fn settle(fs: &FileSystem) {
    fs.syncfs(&caller(9)).expect("sync");
    while fs.step(&caller(9), 100).expect("a step") {}
    for _ in 0..1000 {
        if !fs.store().step(true).expect("a step of the store") {
            break;
        }
    }
}

fn check(fs: &FileSystem) {
    assert_eq!(fs.store().failure(), None);
    assert_eq!(fs.store().checker.check(true).expect("the check runs").findings, []);
    assert_eq!(stere_naming::check(fs.store()).expect("the check runs"), []);
}

fn run(seed: u64) {
    println!("seed {seed}");
    let mut random = Random(seed);
    let (sizes, policies) = SHAPES[random.below(SHAPES.len() as u64) as usize];
    let (rig, mut fs) = Rig::unlike(sizes);
    let mut directories = vec![ROOT];
    for policy in policies {
        let made = fs.mkdir(&caller(2), ROOT, format!("with {policy}").as_bytes(), 0o755).expect("a directory").inode;
        let (name, value) = policy.split_once('=').expect("a policy");
        let name = format!("user.stere.{name}");
        fs.setxattr(&caller(2), made, name.as_bytes(), value.as_bytes(), SetMode::Any, false).expect("a policy");
        directories.push(made);
    }
    settle(&fs);
    let free_before = fs.statfs().blocks_free;
    for round in 0..3 {
        let data = vec![7; 500_000];
        let mut filler = Filler {
            fs: &fs,
            random: Random(random.below(u64::MAX)),
            directories: directories.clone(),
            files: Vec::new(),
            next: 0,
            data,
        };
        filler.fill();
        fs.syncfs(&caller(9)).expect("what was accepted is saved");
        filler.change_while_full();
        filler.fill();
        fs.syncfs(&caller(9)).expect("what was accepted is saved");
        let Filler { files, random: mut dice, .. } = filler;
        match dice.below(3) {
            0 => fs = rig.crash(fs, |_| dice.below(2) == 0),
            1 => fs = rig.reopen(fs, true),
            _ => {}
        }
        check(&fs);
        let mut filler = Filler {
            fs: &fs,
            random: dice,
            directories: directories.clone(),
            files,
            next: 1_000_000,
            data: vec![8; 500_000],
        };
        for at in (0..filler.files.len() / 2).rev() {
            filler.remove(at * 2);
        }
        filler.fill();
        filler.change_while_full();
        while !filler.files.is_empty() {
            filler.remove(0);
        }
        settle(&fs);
        let free_after = fs.statfs().blocks_free;
        assert!(free_after * 100 > free_before * 85, "round {round}: {free_before} blocks were free, now {free_after}");
        check(&fs);
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// P-6: full never means stuck; `STERE_FILLING_SEED` and `STERE_FILLING_COUNT` tell which seeds and how many.
#[test]
fn pools_of_all_shapes_are_filled_and_emptied() {
    let first = number("STERE_FILLING_SEED", 1);
    let seeds = first..first + number("STERE_FILLING_COUNT", 5);
    let failed: Vec<u64> = seeds.filter(|seed| std::panic::catch_unwind(|| run(*seed)).is_err()).collect();
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}
