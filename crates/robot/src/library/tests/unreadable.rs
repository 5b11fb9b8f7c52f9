//! What cannot be read for a while, when nobody knows yet what is on a cartridge.

use super::*;

/// P-214: a label that cannot be read makes nothing foreign: nothing is written there, and once it can be read everything is there, by
/// the same library or the next one that remembers.
#[test]
fn a_label_that_cannot_be_read_for_a_while_loses_nothing() {
    for is_next in [false, true] {
        let simulated = simulated(Model::INSTANT, 1, 2);
        open(&simulated).put("a", &content(1, 20_000)).unwrap();
        simulated.spoil("SIM001", [0]);
        simulated.reset();
        // The catalogue was lost, and one that is new takes note of what is found.
        let folder = tempfile::tempdir().unwrap();
        let catalogue = Some(folder.path().join("catalogue"));
        let mut library = open_with(&simulated, LibraryOptions { catalogue: catalogue.clone(), ..options() });
        assert_eq!(library.length("a").unwrap(), None, "the cartridge is left out");
        let complaint = library.cartridges()[0].complaint.clone().unwrap_or_default();
        assert!(complaint.contains("SIM001 cannot be read at its beginning"), "{complaint}");
        let before = simulated.records("SIM001");
        library.put("b", &content(2, 20_000)).unwrap();
        assert_eq!(simulated.records("SIM001"), before, "nothing is written to what is not known");
        simulated.put_right();
        if is_next {
            simulated.reset();
            library = open_with(&simulated, LibraryOptions { catalogue, ..options() });
        } else {
            library.look_again().unwrap();
        }
        assert_eq!(whole(&library, "a").unwrap(), content(1, 20_000), "next {is_next}");
        assert_eq!(whole(&library, "b").unwrap(), content(2, 20_000), "next {is_next}");
        assert_eq!(library.cartridges()[0].complaint, None);
    }
}

/// P-214: neither does the beginning of an object, where a cartridge without an index is looked at.
#[test]
fn a_beginning_that_cannot_be_read_for_a_while_loses_nothing() {
    for is_next in [false, true] {
        let simulated = simulated(Model::INSTANT, 1, 2);
        let first = open(&simulated);
        first.put("a", &content(1, 3000)).unwrap();
        first.put("b", &content(2, 3000)).unwrap();
        // Label, filemark, then the only block of a.
        simulated.spoil("SIM001", [2]);
        simulated.reset();
        let folder = tempfile::tempdir().unwrap();
        let catalogue = Some(folder.path().join("catalogue"));
        let mut library = open_with(&simulated, LibraryOptions { catalogue: catalogue.clone(), ..options() });
        assert_eq!(whole(&library, "b").unwrap(), content(2, 3000), "what is known is had");
        assert_eq!(library.length("a").unwrap(), None);
        let complaint = library.cartridges()[0].complaint.clone().unwrap_or_default();
        assert!(complaint.contains("beginnings of 1 of its files"), "{complaint}");
        let before = simulated.records("SIM001");
        library.put("c", &content(3, 3000)).unwrap();
        assert_eq!(simulated.records("SIM001"), before, "nothing is put behind what is not known");
        simulated.put_right();
        if is_next {
            simulated.reset();
            library = open_with(&simulated, LibraryOptions { catalogue, ..options() });
        } else {
            library.look_again().unwrap();
        }
        for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
            assert_eq!(whole(&library, name).unwrap(), content(number as u64 + 1, 3000), "{name}, next {is_next}");
        }
        assert_eq!(library.cartridges()[0].complaint, None);
    }
}

/// P-214: nor is anything put there when that is found out while something is to be put.
#[test]
fn nothing_is_put_behind_what_is_found_not_to_be_known() {
    let simulated = simulated(Model::INSTANT, 1, 2);
    let library = open(&simulated);
    library.put("a", &content(1, 3000)).unwrap();
    simulated.reset();
    // Another machine had the library for a while.
    open(&simulated).put("b", &content(2, 3000)).unwrap();
    simulated.reset();
    simulated.spoil("SIM001", [2]);
    let before = simulated.records("SIM001");
    library.put("c", &content(3, 3000)).unwrap();
    assert_eq!(simulated.records("SIM001"), before, "nothing is put behind what is not known");
    assert_eq!(whole(&library, "c").unwrap(), content(3, 3000));
    let complaint = library.cartridges()[0].complaint.clone().unwrap_or_default();
    assert!(complaint.contains("beginnings of 1 of its files"), "{complaint}");
}

/// P-228: a block that cannot be read, behind a drive that was switched off and on, is an error after a bounded number of tries.
#[test]
fn an_unreadable_block_behind_a_reset_ends_as_an_error() {
    let simulated = simulated(Model::INSTANT, 2, 2);
    let library = Arc::new(open(&simulated));
    library.put("a", &content(1, 20_000)).unwrap();
    // Label, filemark, the first block of a, its second.
    simulated.spoil("SIM001", [3]);
    simulated.reset();
    let (sender, receiver) = std::sync::mpsc::channel();
    let reader = library.clone();
    std::thread::spawn(move || sender.send(whole(&reader, "a")));
    let outcome = receiver.recv_timeout(Duration::from_secs(30)).expect("a read ends");
    let error = outcome.expect_err("the block cannot be read").to_string();
    assert!(error.contains("SIM001"), "{error}");
    simulated.put_right();
    assert_eq!(whole(&library, "a").unwrap(), content(1, 20_000));
}

/// P-228: nothing is put into a library that is opened to be read only, and that is said at once.
#[test]
fn a_library_that_is_only_read_takes_nothing() {
    let simulated = simulated(Model::INSTANT, 1, 2);
    open(&simulated).put("a", &content(1, 3000)).unwrap();
    let library = Arc::new(open_with(&simulated, LibraryOptions { is_read_only: true, ..options() }));
    let (sender, receiver) = std::sync::mpsc::channel();
    let writes = library.clone();
    std::thread::spawn(move || sender.send(writes.put("b", &content(2, 3000))));
    let outcome = receiver.recv_timeout(Duration::from_secs(30)).expect("a put ends");
    assert!(matches!(outcome, Err(RobotError::NoRoom { .. })), "{outcome:?}");
    assert_eq!(whole(&library, "a").unwrap(), content(1, 3000));
}
