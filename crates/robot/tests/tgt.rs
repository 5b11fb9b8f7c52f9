//! The commands and the library over iSCSI against the tape library that Debian's `tgt` emulates. `cargo xtask test` brings it; without it
//! these tests say that they are skipped.

mod support;

use stere_device::{MediumWait, Volume};
use stere_robot::*;

fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8 ^ seed as u8).collect()
}

fn open(library: &support::TgtLibrary, set: &str) -> Library {
    let text = format!("robot:{},drive=1,drive=2,set={set}", library.device(3));
    let place: Place = text.parse().unwrap();
    place.open(&text, None, false).unwrap()
}

#[test]
fn commands_are_answered_as_the_standard_says() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = support::start("commands_are_answered_as_the_standard_says", folder.path(), 16) else { return };
    let Ok(mut changer) = Changer::open(Box::new(IscsiTransport::new(&library.device(3)).unwrap())) else {
        panic!("the changer answers")
    };
    assert_eq!((changer.elements.slots, changer.elements.drives), ((1024, 8), (256, 2)));
    let full: Vec<_> = changer.status().unwrap().into_iter().filter(|element| element.is_full).collect();
    assert_eq!(full.len(), 6);
    assert!(full.iter().any(|element| element.barcode == "TAP006L5" && element.address == 1029), "{full:?}");
    let mut drive = Drive::new(Box::new(IscsiTransport::new(&library.device(1)).unwrap()));
    assert!(!drive.has_medium().unwrap());
    changer.move_medium(1024, 256).unwrap();
    let code = |outcome: Result<(), RobotError>| outcome.unwrap_err().sense().unwrap().code;
    assert_eq!(code(changer.move_medium(1025, 256)), (0x3b, 0x0d));
    assert_eq!(code(changer.move_medium(1024, 257)), (0x3b, 0x0e));
    drive.make_ready().unwrap();
    assert!(drive.block_bytes_max().unwrap() >= 256 << 10);
    let mut buffer = vec![0; 300 << 10];
    assert_eq!(drive.read(&mut buffer).unwrap(), Read::EndOfData);
    for file in 0..3usize {
        for block in 0..3usize {
            drive.write(&content(file * 16 + block, 100_000 + block)).unwrap();
        }
        drive.write_filemark().unwrap();
    }
    for (file, block) in [(1usize, 2usize), (0, 1), (2, 0), (2, 2), (0, 0)] {
        assert_eq!(drive.go_to(file as u32, block as u64).unwrap(), Spaced::Done, "{file} {block}");
        assert_eq!(drive.read(&mut buffer).unwrap(), Read::Block(100_000 + block));
        assert!(buffer[..100_000 + block] == content(file * 16 + block, 100_000 + block), "{file} {block}");
    }
    drive.unload().unwrap();
    changer.move_medium(256, 1024).unwrap();
}

/// P-100, P-101
#[test]
fn objects_are_put_and_got_across_ends_of_media() {
    let folder = tempfile::tempdir().unwrap();
    let Some(tgt) = support::start("objects_are_put_and_got_across_ends_of_media", folder.path(), 12) else { return };
    let library = open(&tgt, "tank");
    let names: Vec<String> = (0..9).map(|number| format!("segments/{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        library.put(name, &content(number, 4 << 20)).unwrap();
    }
    library.delete(&names[2]).unwrap();
    let check = |library: &Library| {
        for (number, name) in names.iter().enumerate().filter(|(number, _)| *number != 2) {
            let mut bytes = vec![0; 4 << 20];
            Volume::get(library, name, 0, &mut bytes, &MediumWait::NONE).unwrap();
            assert!(bytes == content(number, 4 << 20), "{name}");
        }
        assert_eq!(library.length(&names[2]).unwrap(), None);
    };
    check(&library);
    let full = library.cartridges().into_iter().filter(|cartridge| cartridge.kind == "full").count();
    assert!(full >= 3, "nine objects of 4 MiB on cartridges of 12 MiB: {:?}", library.cartridges());
    library.put_all_away().unwrap();
    drop(library);
    // From the cartridges alone.
    let library = open(&tgt, "tank");
    check(&library);
    assert_eq!(library.list("segments/").unwrap().len(), 8);
    library.put_all_away().unwrap();
    // Another set leaves them alone.
    let other = open(&tgt, "other");
    other.put("theirs", b"x").unwrap();
    assert_eq!(other.list("").unwrap().len(), 1);
    assert!(other.cartridges().iter().filter(|cartridge| cartridge.kind == "foreign").count() >= 3);
}
