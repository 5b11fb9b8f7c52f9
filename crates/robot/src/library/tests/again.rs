//! Cartridges that are used again: only when nothing on them is alive, by need, and whatever a crash leaves of it.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

type Living = BTreeMap<String, Vec<u8>>;

/// Puts objects until the library says full; what is on the first cartridge, and everything.
fn filled(library: &Library) -> (Vec<String>, Living) {
    let mut living = Living::new();
    for number in 0.. {
        let (name, bytes) = (format!("o{number:02}"), content(number, 20_000));
        match library.put(&name, &bytes) {
            Ok(()) => drop(living.insert(name, bytes)),
            Err(RobotError::NoRoom { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let is_first = |name: &&String| library.estimate(name).unwrap().0 == "SIM001";
    let on_first: Vec<String> = living.keys().filter(is_first).cloned().collect();
    assert!(on_first.len() > 2 && on_first.len() * 2 < living.len(), "{} objects on the first", on_first.len());
    (on_first, living)
}

/// The same, and then deletes all that is on the first; what lives.
fn filled_but_first(library: &Library) -> Living {
    let (on_first, mut living) = filled(library);
    for name in &on_first {
        library.delete(name).unwrap();
        living.remove(name);
    }
    living
}

fn names(library: &Library) -> BTreeSet<String> {
    library.list("").unwrap().into_iter().map(|(name, _)| name).collect()
}

fn is_right(library: &Library, living: &Living) {
    assert_eq!(names(library), living.keys().cloned().collect(), "what lives is listed, and nothing else");
    for (name, bytes) in living {
        assert!(whole(library, name).unwrap() == *bytes, "{name}");
    }
}

fn kind(library: &Library, barcode: &str) -> String {
    let of_it = standings(library).into_iter().find(|(name, ..)| name == barcode);
    of_it.map(|(_, kind, _)| kind).unwrap_or_default()
}

/// P-307
#[test]
fn a_cartridge_of_which_nothing_is_alive_is_written_again_by_need() {
    for drives in [1, 2] {
        let simulated = simulated(SMALL, drives, 3);
        let library = open(&simulated);
        let (on_first, mut living) = filled(&library);
        let records = simulated.records("SIM001");
        for name in &on_first {
            assert!(matches!(library.put("x", &content(1, 20_000)), Err(RobotError::NoRoom { .. })), "{name} lives");
            library.delete(name).unwrap();
            living.remove(name);
        }
        assert_eq!(kind(&library, "SIM001"), "reusable");
        // Nothing is erased before it is needed.
        library.put_all_away().unwrap();
        assert!(simulated.records("SIM001") >= records);
        for round in 0..3u64 {
            let name = format!("n{round}");
            library.put(&name, &content(round, 20_000)).unwrap();
            living.insert(name, content(round, 20_000));
            is_right(&library, &living);
        }
        assert!(simulated.records("SIM001") < records, "it was begun anew");
        library.put_all_away().unwrap();
        is_right(&open(&simulated), &living);
    }
}

/// P-307: what a power cut lets show behind the new end of data counts for nothing, and is written over.
#[test]
fn what_remains_behind_the_new_end_is_never_alive() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = Some(folder.path().join("catalogue"));
    let simulated = simulated(SMALL, 1, 3);
    let with = || open_with(&simulated, LibraryOptions { catalogue: catalogue.clone(), ..options() });
    let library = with();
    let mut living = filled_but_first(&library);
    library.work_on("SIM001");
    library.put_all_away().unwrap();
    for round in 0..2u64 {
        let name = format!("n{round}");
        with().put(&name, &content(round, 1000)).unwrap();
        living.insert(name, content(round, 1000));
        // No index: the process ends here.
        assert!(simulated.remains_show("SIM001") > 10, "round {round}: the old objects can be read again");
        simulated.reset();
        is_right(&open(&simulated), &living);
    }
    let library = with();
    library.put("last", &content(9, 1000)).unwrap();
    living.insert("last".into(), content(9, 1000));
    library.put_all_away().unwrap();
    assert!(simulated.remains_show("SIM001") > 10, "behind the index too");
    is_right(&open(&simulated), &living);
}

/// P-307: one who remembers an earlier use of a cartridge, with as many files, neither ends what lives on it nor leaves it out.
#[test]
fn an_old_catalogue_harms_nothing_on_a_cartridge_that_was_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let simulated = simulated(SMALL, 1, 2);
    let path = folder.path().join("catalogue");
    let with = || open_with(&simulated, LibraryOptions { catalogue: Some(path.clone()), ..options() });
    let library = with();
    let (mut last, mut count) = (String::new(), 0);
    while library.put(&format!("o{count}"), &content(count, 20_000)).is_ok() {
        last = format!("o{count}");
        count += 1;
    }
    let on_first: Vec<String> = (0..count)
        .map(|number| format!("o{number}"))
        .filter(|name| library.estimate(name).unwrap().0 == "SIM001")
        .collect();
    on_first.iter().for_each(|name| library.delete(name).unwrap());
    library.work_on("SIM001");
    library.put_all_away().unwrap();
    // Another one uses it again, with as many files, index and all.
    let other = open(&simulated);
    for (number, _) in on_first.iter().enumerate() {
        other.put(&format!("n{number}"), &content(number as u64, 20_000)).unwrap();
    }
    let full = other.put("n-too-many", &content(1, 20_000));
    assert!(matches!(full, Err(RobotError::NoRoom { .. })), "{full:?}");
    other.put_all_away().unwrap();
    let library = with();
    assert_eq!(kind(&library, "SIM001"), "reusable", "as it is remembered");
    let full = library.put("mine", &content(1, 20_000));
    assert!(matches!(full, Err(RobotError::NoRoom { .. })), "{full:?}");
    for (number, _) in on_first.iter().enumerate() {
        assert_eq!(whole(&library, &format!("n{number}")).unwrap(), content(number as u64, 20_000), "n{number}");
    }
    assert_eq!(whole(&library, &last).unwrap(), content(count - 1, 20_000));
}

/// P-307: what somebody else put behind what is remembered is found before the beginning is written over.
#[test]
fn what_another_one_put_behind_the_end_is_seen_before_a_cartridge_is_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = Some(folder.path().join("catalogue"));
    let simulated = simulated(SMALL, 1, 3);
    let with = || open_with(&simulated, LibraryOptions { catalogue: catalogue.clone(), ..options() });
    let library = with();
    let mut living = filled_but_first(&library);
    library.work_on("SIM001");
    library.put_all_away().unwrap();
    drop(library);
    let other = open_with(&simulated, LibraryOptions { barcodes: "SIM001".into(), ..options() });
    other.put("tiny", b"living").unwrap();
    living.insert("tiny".into(), b"living".to_vec());
    drop(other);
    let library = with();
    assert_eq!(kind(&library, "SIM001"), "reusable", "as it is remembered");
    let full = library.put("x", &content(1, 20_000));
    assert!(matches!(full, Err(RobotError::NoRoom { .. })), "{full:?}");
    is_right(&library, &living);
    is_right(&open(&simulated), &living);
}

/// P-307
#[test]
fn a_medium_that_is_written_once_is_not_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = Some(folder.path().join("catalogue"));
    let simulated = simulated(SMALL, 1, 3);
    simulated.make_written_once("SIM001");
    let with = || open_with(&simulated, LibraryOptions { catalogue: catalogue.clone(), ..options() });
    let library = with();
    let living = filled_but_first(&library);
    let records = simulated.records("SIM001");
    for library in [library, with()] {
        let full = library.put("x", &content(1, 20_000));
        assert!(matches!(full, Err(RobotError::NoRoom { .. })), "{full:?}");
        assert_eq!(kind(&library, "SIM001"), "full");
        is_right(&library, &living);
    }
    assert!(simulated.records("SIM001") >= records, "all of it is there");
}

/// P-307: who asks for it gets it at once, but for what lives.
#[test]
fn a_cartridge_is_used_again_when_somebody_asks() {
    let simulated = simulated(SMALL, 1, 2);
    let library = open(&simulated);
    library.put("a", &content(1, 20_000)).unwrap();
    library.put("b", &content(2, 20_000)).unwrap();
    library.delete("a").unwrap();
    let refused = library.use_again("SIM001");
    assert!(matches!(refused, Err(RobotError::InUse { objects: 1, .. })), "{refused:?}");
    assert_eq!(library.empty("SIM001").unwrap(), 20_000);
    library.use_again("SIM001").unwrap();
    assert_eq!(simulated.records("SIM001"), 2, "a label and a filemark");
    is_right(&library, &[("b".to_owned(), content(2, 20_000))].into());
    library.put_all_away().unwrap();
    is_right(&open(&simulated), &[("b".to_owned(), content(2, 20_000))].into());
}

/// A library of which the first cartridge holds nothing that lives, and the text of its catalogue.
fn before_reuse(path: &std::path::Path) -> (SimulatedLibrary, Library, Living) {
    let simulated = simulated(SMALL, 1, 3);
    let library = open_with(&simulated, LibraryOptions { catalogue: Some(path.to_owned()), ..options() });
    let living = filled_but_first(&library);
    // The index of the first tells what is dead.
    library.work_on("SIM001");
    library.put_all_away().unwrap();
    assert!(library.state.lock().catalogue.known("SIM001").is_indexed);
    (simulated, library, living)
}

impl Library {
    /// Has a cartridge in a drive.
    fn work_on(&self, barcode: &str) {
        let files = self.state.lock().catalogue.known(barcode).files;
        let outcome = self.ask(
            barcode,
            files,
            Act::Get {
                name: "nothing".into(),
                offset: 0,
                length: 0,
                sink: Sink::new(&(Arc::new(|_: &[u8]| {}) as Take), &Cancellation::NONE),
            },
        );
        assert!(matches!(outcome, Err(RobotError::Stale { .. })), "{outcome:?}");
    }
}

/// What is on the cartridge after the power went, behind what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    /// What was there before.
    Remains,
    /// The label was being written: not even that.
    Blank,
}

/// What is left of the catalogue: all of it, none, or without so many of the lines that the reuse wrote.
#[derive(Debug, Clone, Copy)]
enum Remembered {
    All,
    None,
    Without(usize),
}

/// One crash; whether the put was done before it, and how many lines it had written to the catalogue.
fn crash(writes: u64, left: Left, remembered: Remembered) -> (bool, usize) {
    let what = format!("{writes} writes, {left:?}, catalogue {remembered:?}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("catalogue");
    let (simulated, library, mut living) = before_reuse(&path);
    let lines = || std::fs::read_to_string(&path).unwrap().lines().map(|line| format!("{line}\n")).collect::<Vec<_>>();
    let start = lines().len();
    simulated.power_goes_after(writes);
    let outcome = library.put("new", &content(77, 9000));
    drop(library);
    let is_over = !simulated.power_comes();
    simulated.reset();
    assert!(!is_over || outcome.is_ok(), "{what}: {outcome:?}");
    match left {
        Left::Nothing => {}
        Left::Remains => drop(simulated.remains_show("SIM001")),
        Left::Blank => simulated.cut("SIM001", 0),
    }
    let written = lines().len() - start;
    let catalogue = match remembered {
        Remembered::All => Some(path.clone()),
        Remembered::None => None,
        Remembered::Without(count) => {
            std::fs::write(&path, lines()[..start + written - count.min(written)].concat()).unwrap();
            Some(path.clone())
        }
    };
    let library = open_with(&simulated, LibraryOptions { catalogue, ..options() });
    // What was not acknowledged, or is forgotten, may be there or not; if it is, it is right.
    let expect_new = |library: &Library, living: &mut Living| {
        if names(library).contains("new") {
            living.insert("new".into(), content(77, 9000));
        }
    };
    expect_new(&library, &mut living);
    let must_be = outcome.is_ok() && !matches!(remembered, Remembered::Without(_));
    assert!(!must_be || living.contains_key("new"), "{what}: what was acknowledged is there");
    is_right(&library, &living);
    library.put("later", &content(78, 9000)).unwrap_or_else(|error| panic!("{what}: {error}"));
    living.insert("later".into(), content(78, 9000));
    expect_new(&library, &mut living);
    is_right(&library, &living);
    library.put_all_away().unwrap();
    is_right(&open(&simulated), &living);
    (is_over, written)
}

/// P-307: the process or the power ends at every block that is written, and the catalogue is what it was then, older by some lines, or
/// lost: what lives is listed and right, what is dead is not, and the library goes on.
#[test]
fn a_crash_at_any_step_of_the_reuse_harms_nothing() {
    let mut cases = 0;
    for remembered in [Remembered::All, Remembered::None] {
        crash(0, Left::Blank, remembered);
    }
    for writes in 0.. {
        let mut is_done = false;
        for left in [Left::Nothing, Left::Remains] {
            let (is_over, written) = crash(writes, left, Remembered::All);
            crash(writes, left, Remembered::None);
            for count in 1..=written {
                crash(writes, left, Remembered::Without(count));
            }
            is_done = is_over;
            cases += 2 + written;
        }
        if is_done {
            break;
        }
    }
    assert!(cases > 60, "{cases} cases");
}

/// A cartridge that makes room for another one in the only drive says before what is dead on it.
#[test]
fn a_cartridge_gets_its_index_when_another_one_takes_its_drive() {
    let simulated = simulated(SMALL, 1, 3);
    let library = open(&simulated);
    let (on_first, mut living) = filled(&library);
    library.delete(&on_first[0]).unwrap();
    living.remove(&on_first[0]);
    for name in [&on_first[1], living.keys().next_back().unwrap()] {
        whole(&library, name).unwrap();
    }
    simulated.reset();
    is_right(&open(&simulated), &living);
}
