//! Simulated volumes do wrong what they are told to, and nothing else.

use super::*;
use crate::random::Random;

fn machine() -> (Arc<Machine>, Arc<dyn Volume>) {
    let machine = Machine::new(Random::new(7));
    let volume = machine.add_volume();
    let handle = machine.volume(volume);
    (machine, handle)
}

fn bytes_of(volume: &dyn Volume, length: usize) -> Result<Vec<u8>, VolumeError> {
    let mut bytes = vec![0; length];
    volume.get("segments/1", 0, &mut bytes, &MediumWait::NONE).map(|()| bytes)
}

#[test]
fn objects_are_what_was_put_and_survive_power_cuts() {
    let (machine, volume) = machine();
    volume.put("segments/1", b"abc").unwrap();
    machine.power_off();
    assert!(bytes_of(&*volume, 3).is_err());
    machine.power_on(&mut |_, _| crate::medium::Survival::Nothing);
    assert_eq!(bytes_of(&*volume, 3).unwrap(), b"abc");
    assert_eq!(volume.list("segments/").unwrap(), [("segments/1".to_owned(), 3)]);
    assert!(matches!(bytes_of(&*volume, 4), Err(VolumeError::Short { .. })));
    volume.delete("segments/1").unwrap();
    assert!(matches!(bytes_of(&*volume, 3), Err(VolumeError::NoObject { .. })));
}

#[test]
fn a_power_cut_in_a_put_leaves_all_of_it_a_part_or_nothing() {
    let mut lengths = BTreeSet::new();
    for seed in 0..64 {
        let machine = Machine::new(Random::new(seed));
        machine.add_volume();
        let volume = machine.volume(0);
        machine.power_off_after(1);
        assert!(volume.put("segments/1", b"abcdef").is_err());
        machine.power_on(&mut |_, _| crate::medium::Survival::Nothing);
        lengths.insert(volume.length("segments/1").unwrap());
    }
    assert!(lengths.contains(&None) && lengths.contains(&Some(6)) && lengths.len() > 3, "{lengths:?}");
}

#[test]
fn harm_is_seen_is_undone_for_who_looks_and_ends_with_the_next_put() {
    for harm in Harm::ALL {
        let (machine, volume) = machine();
        volume.put("segments/1", b"abcdef").unwrap();
        assert!(machine.harm(0, "segments/", 0, harm), "{harm:?}");
        assert!(!machine.has_failed(0, "segments/1"));
        assert_ne!(bytes_of(&*volume, 6).ok().as_deref(), Some(&b"abcdef"[..]), "{harm:?}");
        assert!(machine.has_failed(0, "segments/1") && machine.is_harmed(0, "segments/1"));
        assert_eq!(machine.with_honest_volumes(|| bytes_of(&*volume, 6)).unwrap(), b"abcdef");
        machine.begin_step(1);
        assert!(!machine.has_failed(0, "segments/1"));
        volume.put("segments/1", b"abcdef").unwrap();
        assert!(!machine.is_harmed(0, "segments/1"));
        assert_eq!(bytes_of(&*volume, 6).unwrap(), b"abcdef");
    }
}

#[test]
fn troubles_strike_and_end() {
    for trouble in VolumeTrouble::ALL {
        let (machine, volume) = machine();
        machine.set_trouble(0, Some(trouble));
        let mut wrong = 0;
        for _ in 0..20 {
            let is_right =
                volume.put("segments/1", b"abcdef").is_ok() && bytes_of(&*volume, 6).is_ok_and(|b| b == b"abcdef");
            wrong += usize::from(!is_right);
            // What is there when the volume does right again is taken away.
            machine.set_trouble(0, None);
            volume.delete("segments/1").unwrap();
            machine.set_trouble(0, Some(trouble));
        }
        assert!(wrong > 3, "{trouble:?}: {wrong}");
        machine.set_trouble(0, None);
        volume.put("segments/1", b"abcdef").unwrap();
        assert_eq!(bytes_of(&*volume, 6).unwrap(), b"abcdef", "{trouble:?}");
    }
}
