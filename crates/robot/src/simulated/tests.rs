//! The simulated devices answer as the standard says, and take the time that the model says.

use super::*;
use crate::changer::Changer;
use crate::drive::{Drive, Read, Space, Spaced, Write};

fn loaded(model: Model) -> (SimulatedLibrary, Changer, Drive) {
    let library = SimulatedLibrary::new(Configuration::new(model, 2, 3)).unwrap();
    let Ok(mut changer) = Changer::open(library.changer()) else { panic!("the changer answers") };
    changer.move_medium(SLOTS, DRIVES).unwrap();
    let mut drive = Drive::new(library.drive(0));
    drive.make_ready().unwrap();
    (library, changer, drive)
}

#[test]
fn refusals_are_told_apart() {
    let (library, mut changer, _) = loaded(Model::INSTANT);
    let code = |outcome: Result<(), RobotError>| outcome.unwrap_err().sense().unwrap().code;
    assert_eq!(code(changer.move_medium(SLOTS + 1, DRIVES)), (0x3b, 0x0d));
    assert_eq!(code(changer.move_medium(SLOTS, DRIVES + 1)), (0x3b, 0x0e));
    assert_eq!(code(changer.move_medium(9, DRIVES + 1)), (0x21, 0x01));
    let elements = changer.status().unwrap();
    let full: Vec<_> = elements.iter().filter(|element| element.is_full).map(|element| &element.barcode).collect();
    assert_eq!(full, ["SIM002", "SIM003", "SIM001"]);
    let mut empty = Drive::new(library.drive(1));
    assert!(!empty.has_medium().unwrap());
    assert_eq!(empty.rewind().unwrap_err().key(), Some(SenseKey::NotReady));
    library.unplug(1, true);
    assert!(matches!(empty.rewind(), Err(RobotError::Unreachable { .. })));
}

#[test]
fn a_tape_is_blocks_and_filemarks() {
    let (_, _, mut drive) = loaded(Model::INSTANT);
    let mut buffer = vec![0; 100];
    assert_eq!(drive.read(&mut buffer).unwrap(), Read::EndOfData);
    for file in 0..3u8 {
        for block in 0..4u8 {
            assert_eq!(drive.write(&[file * 16 + block; 50]).unwrap(), Write::Well);
        }
        drive.write_filemark().unwrap();
    }
    assert_eq!(drive.position(), Some((3, 0)));
    for (file, block) in [(1, 2), (0, 3), (2, 0), (2, 3), (0, 0), (1, 0)] {
        assert_eq!(drive.go_to(file, u64::from(block)).unwrap(), Spaced::Done);
        assert_eq!(drive.read(&mut buffer).unwrap(), Read::Block(50));
        assert_eq!(buffer[0], file as u8 * 16 + block, "file {file} block {block}");
    }
    assert_eq!(drive.go_to(1, 5).unwrap(), Spaced::Stopped, "the file has four blocks");
    assert_eq!(drive.go_to_file(4).unwrap(), Spaced::Stopped);
    drive.go_to(2, 3).unwrap();
    assert_eq!(drive.read(&mut buffer).unwrap(), Read::Block(50));
    assert_eq!(drive.read(&mut buffer).unwrap(), Read::Filemark);
    assert_eq!(drive.read(&mut buffer).unwrap(), Read::EndOfData);
    let _ = Space::EndOfData;
}

/// P-132: wherever the drive says that it goes, and wherever it does, the block that was asked for is read.
#[test]
fn places_are_found_on_whatever_drive() {
    let all = [Locates::Truly, Locates::ByBlock, Locates::Never, Locates::Silent];
    for locates in all {
        let (library, _, mut drive) = loaded(Model::HIGHLIGHT);
        library.set_locates(locates);
        let mut buffer = vec![0; 100];
        for file in 0..5u8 {
            for block in 0..4u8 {
                assert_eq!(drive.write(&[file * 16 + block; 50]).unwrap(), Write::Well);
            }
            drive.write_filemark().unwrap();
        }
        let mut took = Vec::new();
        for _ in 0..2 {
            let before = library.elapsed();
            for (file, block) in [(3, 2), (1, 3), (4, 0), (2, 3), (0, 1), (1, 0), (4, 3)] {
                assert_eq!(drive.go_to(file, u64::from(block)).unwrap(), Spaced::Done, "{locates:?}");
                assert_eq!(drive.read(&mut buffer).unwrap(), Read::Block(50), "{locates:?}, file {file} block {block}");
                assert_eq!(buffer[0], file as u8 * 16 + block, "{locates:?}, file {file} block {block}");
            }
            took.push((library.elapsed() - before).as_millis());
        }
        // It begins to go elsewhere, and does not say otherwise.
        library.set_locates(if locates == Locates::Truly { Locates::Astray } else { locates });
        for (file, block) in [(3, 2), (1, 3), (4, 0)] {
            assert_eq!(drive.go_to(file, u64::from(block)).unwrap(), Spaced::Done, "{locates:?}");
            assert_eq!(drive.read(&mut buffer).unwrap(), Read::Block(50), "{locates:?}, file {file} block {block}");
            assert_eq!(buffer[0], file as u8 * 16 + block, "{locates:?}, file {file} block {block}");
        }
        assert_eq!(drive.go_to_file(6).unwrap(), Spaced::Stopped, "{locates:?}");
        // Seven places, 100 ms each: in one movement where the drive can be believed.
        let is_one = took[1] < 950;
        assert_eq!(is_one, matches!(locates, Locates::Truly | Locates::ByBlock), "{locates:?} took {took:?} ms");
    }
}

/// P-132: where something may be written is found by what is on the tape, not by what the drive said before.
#[test]
fn the_end_is_found_after_a_drive_has_lied() {
    let (library, _, mut drive) = loaded(Model::INSTANT);
    for file in 0..5u8 {
        drive.write(&[file; 50]).unwrap();
        drive.write_filemark().unwrap();
    }
    drive.go_to_file(2).unwrap();
    drive.go_to_file(4).unwrap();
    library.set_locates(Locates::Lying);
    // It stands behind the filemark, and says that it does not.
    assert_eq!(drive.go_to(2, 1).unwrap(), Spaced::Done);
    assert_eq!(drive.go_to_file(4).unwrap(), Spaced::Done);
    let mut buffer = [0; 50];
    assert_eq!((drive.read(&mut buffer).unwrap(), buffer[0]), (Read::Block(50), 4));
}

#[test]
fn the_end_is_warned_of_and_then_there() {
    let model = Model { capacity_bytes: 1000, warning_bytes: 300, ..Model::INSTANT };
    let (_, _, mut drive) = loaded(model);
    let outcomes: Vec<Write> = (0..11).map(|_| drive.write(&[7; 100]).unwrap()).collect();
    assert_eq!(outcomes[..7], [Write::Well; 7]);
    assert_eq!(outcomes[7..10], [Write::NearEnd; 3]);
    assert_eq!(outcomes[10], Write::Full);
}

#[test]
fn compression_makes_room_of_unknown_size() {
    let model = Model { capacity_bytes: 10_000, warning_bytes: 0, compression: (300, 900), ..Model::INSTANT };
    let (_, _, mut drive) = loaded(model);
    let count = (0..).take_while(|_| drive.write(&[7; 100]).unwrap() != Write::Full).count();
    assert!((112..=333).contains(&count), "{count} blocks of 100 bytes on a medium of 10000");
}

#[test]
fn time_passes_as_the_model_says() {
    let (library, mut changer, mut drive) = loaded(Model::HIGHLIGHT);
    for _ in 0..4 {
        drive.write(&vec![1; 256 << 10]).unwrap();
    }
    let before = library.elapsed();
    drive.write(&vec![1; 204 << 10]).unwrap();
    assert_eq!((library.elapsed() - before).as_millis(), 1000, "204 KB/s");
    drive.rewind().unwrap();
    let before = library.elapsed();
    drive.read(&mut vec![0; 256 << 10]).unwrap();
    assert_eq!((library.elapsed() - before).as_millis(), 567, "256 KB at 451 KB/s");
    // A media change as the paper measured it: from the eject to the first sector.
    let before = library.elapsed();
    drive.unload().unwrap();
    changer.move_medium(DRIVES, SLOTS).unwrap();
    changer.move_medium(SLOTS + 1, DRIVES).unwrap();
    drive.make_ready().unwrap();
    let took = (library.elapsed() - before).as_secs_f64();
    assert!((took - 13.5).abs() < 0.2, "{took}");
}

#[test]
fn a_directory_keeps_cartridges() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("library"), "model=instant\ndrives=1\ncartridges=2\ncapacity=100000\n").unwrap();
    let write = |text: &str| std::fs::write(folder.path().join("library"), text).unwrap();
    for round in 0..2 {
        let library = SimulatedLibrary::new(Configuration::read(folder.path()).unwrap()).unwrap();
        let Ok(mut changer) = Changer::open(library.changer()) else { panic!("the changer answers") };
        changer.move_medium(SLOTS + 1, DRIVES).unwrap();
        let mut drive = Drive::new(library.drive(0));
        drive.make_ready().unwrap();
        drive.go_to_file(round).unwrap();
        drive.write(&[round as u8; 9]).unwrap();
        drive.write_filemark().unwrap();
        assert_eq!(library.records("SIM002"), 2 * (round as usize + 1));
    }
    write("model=wood\n");
    assert!(Configuration::read(folder.path()).is_err());
    write("cartridges=0\n");
    assert!(Configuration::read(folder.path()).is_err());
}
