//! The whole library on simulated devices: what is put is got, across restarts, lost catalogues, ends of media, crashes and faults.
//! Read next: `tests/again.rs`, `tests/year.rs`, `tests/cancelling.rs`, `tests/unreadable.rs`.

mod again;
mod cancelling;
mod unreadable;
mod year;

use std::sync::Arc;

use proptest::prelude::*;
use stere_device::{Cancellation, MediumWait, Take, Volume, VolumeError};

use super::*;
use crate::simulated::{Configuration, Locates, Model, Pace, SimulatedLibrary};

const SMALL: Model = Model { capacity_bytes: 100_000, warning_bytes: 6_000, ..Model::INSTANT };

fn simulated(model: Model, drives: u16, cartridges: u16) -> SimulatedLibrary {
    SimulatedLibrary::new(Configuration::new(model, drives, cartridges)).unwrap()
}

fn options() -> LibraryOptions {
    LibraryOptions { block_bytes: 4096, ..LibraryOptions::new("robot") }
}

fn open_with(simulated: &SimulatedLibrary, options: LibraryOptions) -> Library {
    let drives = (0..simulated.drives()).map(|number| simulated.drive(number)).collect();
    let options = LibraryOptions { clock: Some(simulated.clock()), ..options };
    Library::new(LibraryParts { changer: Some(simulated.changer()), drives }, options).unwrap()
}

fn open(simulated: &SimulatedLibrary) -> Library {
    open_with(simulated, options())
}

fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn whole(library: &Library, name: &str) -> Result<Vec<u8>, VolumeError> {
    whole_unless(library, name, &Cancellation::NONE)
}

fn whole_unless(library: &Library, name: &str, cancellation: &Cancellation) -> Result<Vec<u8>, VolumeError> {
    let length = Volume::length(library, name)?.expect("the object is there");
    let mut bytes = vec![0; length as usize];
    Volume::get(library, name, 0, &mut bytes, &MediumWait::cancelled_by(cancellation))?;
    Ok(bytes)
}

fn standings(library: &Library) -> Vec<(String, String, u64)> {
    library.cartridges().into_iter().map(|one| (one.name, one.kind, one.objects)).collect()
}

/// Reading in pieces that end anywhere takes no longer than reading at once: no block is read twice, and the medium never turns back.
#[test]
fn pieces_are_read_as_fast_as_the_whole() {
    let simulated = simulated(Model::HIGHLIGHT, 1, 1);
    let library = open_with(&simulated, LibraryOptions { block_bytes: 65_536, ..options() });
    let bytes = content(5, 2_000_000);
    library.put("segments/1", &bytes).unwrap();
    let seconds = |read: &dyn Fn()| {
        // From the same place each time.
        Volume::get(&library, "segments/1", 0, &mut [0; 1], &MediumWait::NONE).unwrap();
        let before = simulated.elapsed();
        read();
        (simulated.elapsed() - before).as_secs_f64()
    };
    let at_once = seconds(&|| assert!(whole(&library, "segments/1").unwrap() == bytes));
    let in_pieces = seconds(&|| {
        for (number, piece) in bytes.chunks(99_999).enumerate() {
            let mut found = vec![0; piece.len()];
            Volume::get(&library, "segments/1", number as u64 * 99_999, &mut found, &MediumWait::NONE).unwrap();
            assert!(found == piece, "piece {number}");
        }
    });
    assert!((in_pieces / at_once - 1.0).abs() < 0.01, "{in_pieces} s in pieces, {at_once} s at once");
}

/// The middle of an object is there as soon as the tape stands at its block, where the drive finds blocks by LOCATE; a drive that does not
/// reads from the front, and says so.
#[test]
fn the_middle_of_an_object_is_read_from_its_block() {
    for locates in [Locates::Truly, Locates::Never] {
        let simulated = simulated(Model::HIGHLIGHT, 1, 1);
        simulated.set_locates(locates);
        let library = open_with(&simulated, LibraryOptions { block_bytes: 65_536, ..options() });
        let bytes = content(5, 4_000_000);
        library.put("segments/1", &bytes).unwrap();
        // So that what the drive can is known.
        library.put("segments/2", &bytes).unwrap();
        Volume::get(&library, "segments/1", 0, &mut [0; 1], &MediumWait::NONE).unwrap();
        let begins = Volume::begins_at(&library, "segments/1", 3_000_001);
        assert_eq!(begins.is_some(), locates == Locates::Truly, "{locates:?}");
        let from = begins.unwrap_or(0);
        assert!(from <= 3_000_001 && (begins.is_none() || from + 65_536 > 3_000_001), "{from}");
        let start = simulated.elapsed();
        let arrived = Arc::new(Mutex::new((Vec::new(), None)));
        let take: Take = {
            let (arrived, simulated) = (arrived.clone(), simulated.clone());
            Arc::new(move |piece: &[u8]| {
                let (found, at) = &mut *arrived.lock();
                found.extend_from_slice(piece);
                if at.is_none() && from as usize + found.len() > 3_000_001 {
                    *at = Some((simulated.elapsed() - start).as_secs_f64());
                }
            })
        };
        library.stream_part("segments/1", from, bytes.len() - from as usize, &take, &Cancellation::NONE).unwrap();
        let (found, at) = &*arrived.lock();
        assert!(*found == bytes[from as usize..]);
        let at = at.unwrap();
        match locates {
            Locates::Truly => assert!(at < 1.0, "{at} s"),
            _ => assert!(at > 3.0, "{at} s"),
        }
    }
}

/// P-96: an object is given out block by block while the drive reads on, and nothing of it twice when the drive is reset in the middle.
#[test]
fn an_object_is_given_out_as_its_blocks_arrive() {
    let simulated = simulated(Model::HIGHLIGHT, 2, 1);
    let library = open_with(&simulated, LibraryOptions { block_bytes: 65_536, ..options() });
    let bytes = content(5, 1_000_000);
    library.put("segments/1", &bytes).unwrap();
    Volume::get(&library, "segments/1", 0, &mut [0; 1], &MediumWait::NONE).unwrap();
    for is_failing in [false, true] {
        let arrived = Arc::new(Mutex::new((Vec::new(), Vec::new())));
        let start = simulated.elapsed();
        let take: Take = {
            let (arrived, simulated) = (arrived.clone(), simulated.clone());
            Arc::new(move |piece: &[u8]| {
                let (found, times) = &mut *arrived.lock();
                found.extend_from_slice(piece);
                times.push((simulated.elapsed() - start).as_secs_f64());
                if is_failing && times.len() == 4 {
                    simulated.reset();
                }
            })
        };
        library.stream("segments/1", bytes.len(), &take, &Cancellation::NONE).unwrap();
        let (found, times) = &*arrived.lock();
        assert!(*found == bytes, "{} bytes instead of {}", found.len(), bytes.len());
        assert!(times.len() > 10 && times[0] < 0.3 && times[times.len() - 1] > 2.0, "{times:?}");
    }
}

/// P-100
#[test]
fn what_is_put_is_got_also_without_the_catalogue() {
    let simulated = simulated(Model::INSTANT, 2, 3);
    let library = open(&simulated);
    for number in 0..20u64 {
        library.put(&format!("segments/{number}"), &content(number, number as usize * 1000)).unwrap();
    }
    library.put("segments/3", &content(99, 12)).unwrap();
    library.delete("segments/4").unwrap();
    let check = |library: &Library, is_dead: bool| {
        for number in (0..20u64).filter(|number| *number != 4) {
            let expected = if number == 3 { content(99, 12) } else { content(number, number as usize * 1000) };
            assert_eq!(whole(library, &format!("segments/{number}")).unwrap(), expected, "{number}");
        }
        assert_eq!(Volume::length(library, "segments/4").unwrap().is_none(), is_dead);
        let mut part = vec![0; 777];
        Volume::get(library, "segments/19", 4000, &mut part, &MediumWait::NONE).unwrap();
        assert_eq!(part, content(19, 19_000)[4000..4777]);
        let short = Volume::get(library, "segments/3", 10, &mut part, &MediumWait::NONE);
        assert!(matches!(short, Err(VolumeError::Short { length: 12, .. })), "{short:?}");
        let none = Volume::get(library, "segments/x", 0, &mut part, &MediumWait::NONE);
        assert!(matches!(none, Err(VolumeError::NoObject { .. })), "{none:?}");
    };
    check(&library, true);
    // The power goes: no index was written, so nobody knows any more what was dead.
    check(&open(&simulated), false);
    let library = open(&simulated);
    library.delete("segments/4").unwrap();
    // Its cartridge tells when it is put away the next time.
    whole(&library, "segments/5").unwrap();
    Volume::close(&library);
    check(&open(&simulated), true);
    assert_eq!(library.list("segments/1").unwrap().len(), 11);
}

#[test]
fn the_catalogue_saves_looking() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("catalogue");
    let simulated = simulated(Model::INSTANT, 1, 4);
    let with = || open_with(&simulated, LibraryOptions { catalogue: Some(path.clone()), ..options() });
    with().put("a", b"one").unwrap();
    let moves = simulated.moves();
    assert_eq!(whole(&with(), "a").unwrap(), b"one");
    assert_eq!(simulated.moves(), moves, "the cartridge is in the drive, and it is known which it is");
    // Written to by one who knows nothing of this catalogue.
    open(&simulated).put("b", b"two").unwrap();
    let library = with();
    library.put("c", b"three").unwrap();
    for (name, expected) in [("a", &b"one"[..]), ("b", b"two"), ("c", b"three")] {
        assert_eq!(
            whole(&library, name).unwrap(),
            expected,
            "{name}: what is behind what is known is found, not overwritten"
        );
    }
}

/// P-101
#[test]
fn an_object_that_does_not_fit_goes_to_the_next_cartridge_whole() {
    let simulated = simulated(SMALL, 2, 3);
    let library = open(&simulated);
    let names: Vec<String> = (0..5).map(|number| format!("o{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        library.put(name, &content(number as u64, 40_000)).unwrap();
    }
    let full = library.put("o5", &content(5, 60_000));
    assert!(matches!(full, Ok(()) | Err(RobotError::NoRoom { .. })), "{full:?}");
    assert!(standings(&library).iter().filter(|(_, kind, _)| kind == "full").count() >= 2);
    for library in [library, open(&simulated)] {
        for (number, name) in names.iter().enumerate() {
            assert_eq!(whole(&library, name).unwrap(), content(number as u64, 40_000), "{name}");
        }
    }
    let library = open(&simulated);
    let mut outcome = Ok(());
    for number in 10..20 {
        outcome = Volume::put(&library, &format!("o{number}"), &content(1, 40_000));
        if outcome.is_err() {
            break;
        }
    }
    assert!(matches!(outcome, Err(VolumeError::Full { .. })), "{outcome:?}");
}

/// P-101: what lacks nothing but its end does not get one, also where the medium takes that and nothing else any more.
#[test]
fn an_object_without_its_end_never_counts() {
    let mut count = 0;
    for capacity_bytes in (4000..9000).step_by(64) {
        let simulated = simulated(Model { capacity_bytes, warning_bytes: 0, ..Model::INSTANT }, 1, 2);
        let puts = |name: &str| open(&simulated).put(name, &content(1, 3000)).is_ok();
        if !puts("a") || simulated.records("SIM001") != 4 {
            continue;
        }
        count += 1;
        simulated.cut("SIM001", 3);
        puts("b");
        let names = open(&simulated).list("").unwrap();
        assert!(names.iter().all(|(name, _)| name == "b"), "{capacity_bytes}: {names:?}");
    }
    assert!(count > 20, "{count} capacities");
}

#[test]
fn foreign_cartridges_are_left_alone() {
    let simulated = simulated(Model::INSTANT, 1, 3);
    open_with(&simulated, LibraryOptions { set: "another".into(), barcodes: "SIM001".into(), ..options() })
        .put("theirs", b"x")
        .unwrap();
    let before = simulated.records("SIM001");
    let library = open(&simulated);
    library.put("ours", b"y").unwrap();
    let standings = standings(&library);
    assert_eq!(standings[0], ("SIM001".into(), "foreign".into(), 0));
    assert_eq!(standings[1], ("SIM002".into(), "ours".into(), 1));
    // Its own index came when it was put away.
    assert!(simulated.records("SIM001") <= before + 2);
    assert!(library.list("theirs").unwrap().is_empty());
}

#[test]
fn a_cartridge_that_is_away_is_waited_for() {
    let simulated = simulated(Model::INSTANT, 1, 2);
    let library = open(&simulated);
    library.put("a", b"one").unwrap();
    Volume::close(&library);
    assert!(simulated.take_out("SIM001"));
    let library = open(&simulated);
    assert!(matches!(whole_or_length(&library, "a"), Ok(None)), "nobody remembers it");
    let folder = tempfile::tempdir().unwrap();
    let catalogue = Some(folder.path().join("catalogue"));
    simulated.put_in("SIM001");
    assert_eq!(
        whole(&open_with(&simulated, LibraryOptions { catalogue: catalogue.clone(), ..options() }), "a").unwrap(),
        b"one"
    );
    open(&simulated).put_all_away().unwrap();
    let library = open_with(&simulated, LibraryOptions { catalogue, ..options() });
    library.look_at_all().unwrap();
    library.put_all_away().unwrap();
    assert!(simulated.take_out("SIM001"));
    library.refresh(false).unwrap();
    let away = whole(&library, "a");
    assert!(matches!(&away, Err(VolumeError::Away { why, .. }) if why.contains("SIM001")), "{away:?}");
    library.put("b", b"two").unwrap();
    simulated.put_in("SIM001");
    assert_eq!(whole(&library, "a").unwrap(), b"one");
    assert_eq!(library.estimate("a").unwrap().0, "SIM001");
}

fn whole_or_length(library: &Library, name: &str) -> Result<Option<u64>, VolumeError> {
    Volume::length(library, name)
}

/// P-132: of a drive that goes elsewhere, and may say that it did not, nothing is given out that stands there, and nothing written over.
#[test]
fn a_drive_that_lies_about_its_place_is_not_believed() {
    for locates in [Locates::Lying, Locates::Astray, Locates::Silent, Locates::ByBlock, Locates::Never] {
        let simulated = simulated(Model::INSTANT, 1, 2);
        let names: Vec<String> = (0..6).map(|number| format!("o{number}")).collect();
        let is_right = |library: &Library, order: &[usize]| {
            for number in order.iter().copied() {
                assert_eq!(
                    whole(library, &names[number]).unwrap(),
                    content(number as u64, 20_000),
                    "{locates:?} {number}"
                );
            }
        };
        let library = open(&simulated);
        for (number, name) in names[..5].iter().enumerate() {
            library.put(name, &content(number as u64, 20_000)).unwrap();
        }
        let moves = simulated.moves();
        simulated.set_locates(locates);
        is_right(&library, &[1, 4, 0, 3, 2]);
        assert_eq!(simulated.moves(), moves, "{locates:?}: no cartridge is put away for it");
        // One who knows nothing of the drive yet: where files begin is not known either.
        let library = open(&simulated);
        is_right(&library, &[3, 1]);
        library.put(&names[5], &content(5, 20_000)).unwrap();
        is_right(&library, &[5, 4, 0, 3, 2, 1]);
        assert_eq!(standings(&library)[0], ("SIM001".into(), "ours".into(), 6), "{locates:?}");
    }
}

/// A library of drives that people feed, with a clock that the test moves.
fn fed(simulated: &SimulatedLibrary, seconds: &Arc<Mutex<u64>>, catalogue: Option<PathBuf>) -> Library {
    let drives = (0..simulated.drives()).map(|number| simulated.drive(number)).collect();
    let seconds = seconds.clone();
    let clock: Clock = Arc::new(move || Duration::from_secs(*seconds.lock()));
    let options = LibraryOptions { clock: Some(clock), catalogue, ..options() };
    Library::new(LibraryParts { changer: None, drives }, options).unwrap()
}

fn why(outcome: Result<Vec<u8>, VolumeError>) -> String {
    let Err(VolumeError::Away { why, .. }) = outcome else { panic!("it waits for people: {outcome:?}") };
    why
}

/// P-133: people are asked for what is needed by its name, what they put in is noticed by its label, and the wrong one is refused.
#[test]
fn people_are_asked_for_cartridges() {
    let simulated = simulated(Model::INSTANT, 1, 4);
    let folder = tempfile::tempdir().unwrap();
    let catalogue = Some(folder.path().join("catalogue"));
    open_with(&simulated, LibraryOptions { set: "another".into(), barcodes: "SIM004".into(), ..options() })
        .put("theirs", b"x")
        .unwrap();
    simulated.put_by_hand(0, None);
    let seconds = Arc::new(Mutex::new(100));
    let library = fed(&simulated, &seconds, catalogue.clone());
    let put = |name: &str, seed| Volume::put(&library, name, &content(seed, 30_000)).map(|()| Vec::new());
    assert!(why(put("a", 1)).contains("insert a blank cartridge into drive 1"));
    simulated.put_by_hand(0, Some("SIM004"));
    let said = why(put("a", 1));
    assert!(said.contains("not used: it is SIM004 of the set 'another'"), "{said}");
    let before = simulated.records("SIM004");
    simulated.put_by_hand(0, Some("SIM001"));
    put("a", 1).unwrap();
    assert_eq!(standings(&library), [("stere-0001".into(), "ours".into(), 1)]);
    assert_eq!(whole(&library, "a").unwrap(), content(1, 30_000));
    *seconds.lock() += 60;
    simulated.put_by_hand(0, Some("SIM002"));
    put("b", 2).unwrap();
    assert_eq!(standings(&library)[1], ("stere-0002".into(), "ours".into(), 1));
    // It was used just now: it stays, and people are told what comes next.
    let said = why(whole(&library, "a"));
    assert_eq!(said, "insert stere-0001 into drive 1 (simulated drive 0) (there is stere-0002 in it)");
    assert_eq!(whole(&library, "b").unwrap(), content(2, 30_000));
    *seconds.lock() += 4;
    why(whole(&library, "a"));
    assert_eq!(library.cartridges()[1].place, "away", "it was let go of");
    simulated.put_by_hand(0, Some("SIM003"));
    *seconds.lock() += 1;
    let said = why(whole(&library, "a"));
    assert!(said.contains("insert stere-0001 into drive 1") && said.contains("there is stere-0003 in it"), "{said}");
    simulated.put_by_hand(0, Some("SIM001"));
    assert_eq!(whole(&library, "a").unwrap(), content(1, 30_000));
    Volume::close(&library);
    assert_eq!(simulated.records("SIM004"), before, "what is another set's was not written to");
    // By the next one, which knows from the catalogue where it is.
    simulated.put_by_hand(0, None);
    let library = fed(&simulated, &seconds, catalogue);
    assert!(why(whole(&library, "b")).contains("insert stere-0002 into drive 1"));
    simulated.put_by_hand(0, Some("SIM002"));
    assert_eq!(whole(&library, "b").unwrap(), content(2, 30_000));
}

/// P-103: a blank cartridge says nothing of which it is, so the arm is asked before it gets a label.
#[test]
fn an_arm_that_takes_another_blank_cartridge_gives_it_no_label_of_the_first() {
    // With nothing known, the arm is wrong when the cartridge is looked at; with blank ones known, when it is written to.
    for are_known in [false, true] {
        let simulated = simulated(Model::INSTANT, 1, 4);
        let library = open(&simulated);
        if are_known {
            library.look_at_all().unwrap();
            library.put_all_away().unwrap();
        }
        simulated.take_another_next();
        library.put("a", &content(1, 20_000)).unwrap();
        library.put_all_away().unwrap();
        library.look_again().unwrap();
        assert_eq!(whole(&library, "a").unwrap(), content(1, 20_000), "blank ones known: {are_known}");
        let library = open(&simulated);
        assert_eq!(whole(&library, "a").unwrap(), content(1, 20_000), "mounted anew; blank ones known: {are_known}");
    }
}

/// P-103
#[test]
fn faults_are_told_and_harm_nothing_else() {
    let simulated = simulated(Model::INSTANT, 2, 4);
    let library = open(&simulated);
    library.put("a", &content(1, 20_000)).unwrap();
    library.put("b", &content(2, 20_000)).unwrap();
    library.put_all_away().unwrap();
    // The arm takes another cartridge: it is noticed, and fetched once more.
    simulated.take_another_next();
    assert_eq!(whole(&library, "a").unwrap(), content(1, 20_000));
    // The drives are switched off and on.
    simulated.reset();
    assert_eq!(whole(&library, "b").unwrap(), content(2, 20_000));
    simulated.reset();
    library.put("c", &content(3, 9000)).unwrap();
    // A drive that does not answer: the other one does it.
    library.put_all_away().unwrap();
    simulated.unplug(0, true);
    assert_eq!(whole(&library, "c").unwrap(), content(3, 9000));
    simulated.unplug(1, true);
    assert!(matches!(whole(&library, "c"), Err(VolumeError::Away { .. })));
    simulated.unplug(0, false);
    simulated.unplug(1, false);
    assert_eq!(whole(&library, "c").unwrap(), content(3, 9000));
    // A block that cannot be read: an error for its object alone. Label, filemark, then six blocks of a and its filemark.
    simulated.spoil("SIM001", [3]);
    assert!(matches!(whole(&library, "a"), Err(VolumeError::Damaged { .. })));
    let mut part = vec![0; 3584];
    Volume::get(&library, "a", 0, &mut part, &MediumWait::NONE).unwrap();
    assert_eq!(part, content(1, 20_000)[..3584], "its first block is good");
    assert_eq!(whole(&library, "b").unwrap(), content(2, 20_000));
    // The arm drops it.
    library.put_all_away().unwrap();
    simulated.drop_next();
    let dropped = whole(&library, "b");
    assert!(matches!(&dropped, Err(VolumeError::Away { why, .. }) if why.contains("SIM001")), "{dropped:?}");
    library.put("d", b"goes on").unwrap();
    simulated.put_in("SIM001");
    assert_eq!(whole(&library, "b").unwrap(), content(2, 20_000));
}

#[test]
fn wrong_bar_codes_are_noticed() {
    let simulated = simulated(Model::INSTANT, 1, 3);
    let library = open(&simulated);
    library.put("a", b"one").unwrap();
    library.put_all_away().unwrap();
    simulated.swap_barcodes("SIM001", "SIM002");
    library.look_again().unwrap();
    let outcome = whole(&library, "a");
    assert!(matches!(&outcome, Err(VolumeError::Away { why, .. }) if why.contains("bar code")), "{outcome:?}");
    library.put("b", b"two").unwrap();
    simulated.swap_barcodes("SIM001", "SIM002");
    library.look_again().unwrap();
    assert_eq!(whole(&library, "a").unwrap(), b"one");
    assert_eq!(whole(&library, "b").unwrap(), b"two");
}

#[test]
fn many_at_once_are_served_in_order() {
    // Slow enough for all to be there before the first is done.
    let pace = Pace::Real { times: 200 };
    let simulated =
        SimulatedLibrary::new(Configuration { pace, ..Configuration::new(Model::HIGHLIGHT, 2, 4) }).unwrap();
    let sets: Vec<Library> = (1..=4)
        .map(|number| open_with(&simulated, LibraryOptions { barcodes: format!("SIM00{number}"), ..options() }))
        .collect();
    for (number, library) in sets.iter().enumerate() {
        for object in 0..6 {
            library.put(&format!("{number}-{object}"), &content(object, 9000)).unwrap();
        }
        library.put_all_away().unwrap();
    }
    let library = Arc::new(open(&simulated));
    library.look_at_all().unwrap();
    let before = simulated.moves();
    std::thread::scope(|scope| {
        for reader in 0..24 {
            let library = &library;
            scope.spawn(move || {
                let (number, object) = (reader % 4, reader / 4);
                assert_eq!(whole(library, &format!("{number}-{object}")).unwrap(), content(object as u64, 9000));
            });
        }
    });
    // Each of four cartridges is fetched about once, which is two moves; without order it were up to twenty-four times.
    let moves = simulated.moves() - before;
    assert!(moves <= 14, "{moves} moves");
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, usize),
    Delete(u8),
    Get(u8),
    /// Cartridges are put away, and a new process begins.
    Close,
    /// The power goes in the middle of a put: so many records of what it wrote are left.
    Crash(u8, usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u8..8, 0usize..30_000).prop_map(|(name, length)| Step::Put(name, length)),
        1 => (0u8..8).prop_map(Step::Delete),
        3 => (0u8..8).prop_map(Step::Get),
        1 => Just(Step::Close),
        1 => (0u8..8, 1usize..30_000, 0usize..9).prop_map(|(name, length, left)| Step::Crash(name, length, left)),
    ];
    proptest::collection::vec(step, 1..40)
}

/// What is on each cartridge, in records.
fn lengths(simulated: &SimulatedLibrary) -> Vec<(String, usize)> {
    (1..=9).map(|number| format!("SIM00{number}")).map(|name| (name.clone(), simulated.records(&name))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// P-100, P-101: against a model, on cartridges that hold little and compress as they like, with crashes in the middle of objects.
    #[test]
    fn any_history_keeps_what_was_acknowledged(steps in steps(), seed in 0u64..1000, drives in 1u16..3) {
        let model = Model { compression: (500, 1000), ..SMALL };
        let configuration = Configuration { seed, ..Configuration::new(model, drives, 9) };
        let simulated = SimulatedLibrary::new(configuration).unwrap();
        let mut library = open(&simulated);
        let mut expected = std::collections::BTreeMap::new();
        // Without a catalogue what was dead may be alive again.
        let mut deleted = std::collections::BTreeSet::new();
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(name, length) => {
                    let bytes = content(at as u64, length);
                    if library.put(&name.to_string(), &bytes).is_ok() {
                        expected.insert(name, bytes);
                    }
                }
                Step::Delete(name) => {
                    library.delete(&name.to_string()).unwrap();
                    prop_assert!(library.length(&name.to_string()).unwrap().is_none());
                    expected.remove(&name);
                    deleted.insert(name);
                }
                Step::Get(name) => match expected.get(&name) {
                    Some(bytes) => prop_assert!(&whole(&library, &name.to_string()).unwrap() == bytes, "object {}", name),
                    None => prop_assert!(library.length(&name.to_string()).unwrap().is_none() || deleted.contains(&name)),
                },
                Step::Close => {
                    library.put_all_away().unwrap();
                    library = open(&simulated);
                }
                Step::Crash(name, length, left) => {
                    // Deleted objects would be alive again without an index.
                    library.put_all_away().unwrap();
                    let before = lengths(&simulated);
                    let bytes = content(at as u64, length);
                    let outcome = library.put(&name.to_string(), &bytes);
                    let grown: Vec<_> = lengths(&simulated).into_iter().zip(before).filter(|(now, before)| now.1 > before.1).collect();
                    drop(library);
                    match (outcome, &grown[..]) {
                        // Not the filemark: so the object is not whole.
                        (Ok(()), [((barcode, now), (_, before))]) => simulated.cut(barcode, (before + left).min(now - 1)),
                        // It went on on another cartridge.
                        (Ok(()), _) => drop(expected.insert(name, bytes)),
                        (Err(_), _) => {}
                    }
                    simulated.reset();
                    library = open(&simulated);
                }
            }
        }
        library.put_all_away().unwrap();
        let library = open(&simulated);
        for (name, bytes) in &expected {
            prop_assert!(&whole(&library, &name.to_string()).unwrap() == bytes, "object {}", name);
        }
        for (name, _) in library.list("").unwrap() {
            let name = name.parse().unwrap();
            prop_assert!(expected.contains_key(&name) || deleted.contains(&name), "nobody put {}", name);
        }
    }
}
