//! P-13: which epochs make a history of its own, and which do not.

use super::*;
use crate::settled_superblock;

fn open_with(devices: &[&Arc<MemoryDevice>], epoch_nonce: u32) -> crate::Opened {
    let options = OpenOptions { epoch_nonce, ..open_options() };
    assemble(devices).unwrap().open(&options, &nowhere).unwrap()
}

/// A crash while the first of two devices already had the new epoch and the second had not; then the second goes on alone. What
/// the first did in that epoch tells whether it is a half of its own.
fn crash_in_the_middle_of_an_epoch(then: impl Fn(&Store)) -> Vec<Arc<MemoryDevice>> {
    let devices = make(&[64 * MIB, 64 * MIB], 1);
    let before = copy_of(&devices[1], 64 * MIB);
    let opened = open_with(&[&devices[0], &devices[1]], 500);
    then(&opened.store);
    drop(opened);
    let opened = open_with(&[&before], 900);
    change(&opened.store);
    opened.store.close().unwrap();
    vec![devices[0].clone(), before]
}

#[test]
fn an_epoch_in_which_nothing_happened_makes_no_half() {
    let devices = crash_in_the_middle_of_an_epoch(|_| {});
    assert!(superblock_of(&devices[0]).epochs.last() != superblock_of(&devices[1]).epochs.last());
    let assembly = assemble(&[&devices[0], &devices[1]]).unwrap();
    assert_eq!((assembly.members.len(), assembly.returning().count()), (2, 1));
    assert_eq!(assembly.newest.epochs, superblock_of(&devices[1]).epochs);
    let opened = assembly.open(&open_options(), &nowhere).unwrap();
    assert!(opened.store.checker.check(true).unwrap().findings.is_empty());
    opened.store.close().unwrap();
    mount_and_change(&[&devices[0], &devices[1]], 2);
    // The same while the pool is open.
    let devices = crash_in_the_middle_of_an_epoch(|_| {});
    let Holds::Member(identity) = identify(&*devices[0]) else { panic!("a member") };
    let entries = assemble(&[&devices[1]]).unwrap().entries;
    let newest = superblock_of(&devices[1]);
    assert_eq!(judge_return(&newest, &entries[0], &identity.superblock), Return::OtherHistory);
    let settled = settled_superblock(&identity, &*devices[0], &|_| true);
    assert_eq!(judge_return(&newest, &entries[0], &settled), Return::Welcome);
    let settled = settled_superblock(&identity, &*devices[0], &|_| false);
    assert_eq!(judge_return(&newest, &entries[0], &settled), Return::OtherHistory, "a mirror that may know more");
}

#[test]
fn an_epoch_in_which_something_happened_makes_a_half() {
    let acts: [&dyn Fn(&Store); 2] = [&change, &|store| store.close().unwrap()];
    for (at, act) in acts.into_iter().enumerate() {
        let devices = crash_in_the_middle_of_an_epoch(act);
        let text = refusal(&[&devices[0], &devices[1]]);
        assert!(text.contains("different histories"), "{at}: {text}");
    }
}

/// The mount was begun by two devices, of which one is not there: it may know of more, or not. Who holds nothing of it is left out until
/// then, and the others go on.
#[test]
fn an_epoch_of_which_nobody_can_tell_yet_keeps_nobody_out() {
    for happened in [false, true] {
        let devices = make(&[64 * MIB; 3], 1);
        let all: Vec<&Arc<MemoryDevice>> = devices.iter().collect();
        let third = copy_of(&devices[2], 64 * MIB);
        let opened = open_with(&all, 500);
        let first = copy_of(&devices[0], 64 * MIB);
        if happened {
            change(&opened.store);
        }
        drop(opened);
        let opened = open_with(&[&third], 900);
        assert!(!opened.read_only);
        change(&opened.store);
        opened.store.close().unwrap();
        let before = contents(&first);
        let assembly = assemble(&[&first, &third]).unwrap();
        let left_out: Vec<_> = assembly.left_out.iter().map(|one| (one.member.path.as_str(), one.why)).collect();
        assert_eq!(left_out, [("/images/0", WhyLeftOut::Undecided)]);
        assert_eq!(assembly.newest.epochs, superblock_of(&third).epochs);
        let opened = assembly.open(&open_options(), &nowhere).unwrap();
        assert!(!opened.read_only);
        change(&opened.store);
        opened.store.close().unwrap();
        assert!(contents(&first) == before, "nothing is written to what is left out");
        match happened {
            true => assert!(refusal(&[&first, &devices[1], &third]).contains("different histories")),
            false => {
                let assembly = assemble(&[&first, &devices[1], &third]).unwrap();
                assert_eq!((assembly.members.len(), assembly.returning().count()), (3, 2));
            }
        }
    }
}

/// Mounts that crash one after the other, while the journal still needs the epoch of the first: whoever went away at any of them is
/// known again, or away too long, but never a half.
#[test]
fn crashes_in_a_row_make_no_halves() {
    let devices = make(&[64 * MIB, 64 * MIB], 1);
    let opened = open_with(&[&devices[0], &devices[1]], 3);
    change(&opened.store);
    drop(opened);
    let mut away = Vec::new();
    for nonce in 0..3 {
        drop(open_with(&[&devices[0], &devices[1]], 10 + nonce));
        away.push(copy_of(&devices[1], 64 * MIB));
    }
    for nonce in 0..18 {
        drop(open_with(&[&devices[0]], 100 + nonce));
        for old in &away {
            let assembly = assemble(&[&devices[0], old]).unwrap();
            let left_out: Vec<_> = assembly.left_out.iter().map(|one| one.why).collect();
            let is_member = assembly.members.len() == 2;
            assert!(is_member || (nonce > 10 && left_out == [WhyLeftOut::AwayTooLong]), "{nonce}: {left_out:?}");
        }
    }
}

/// Epochs are known by their numbers: from where on one covers the journal may change after a device went away.
#[test]
fn an_epoch_that_begins_elsewhere_now_is_the_same_epoch() {
    let devices = make(&[64 * MIB, 64 * MIB], 1);
    let opened = open_with(&[&devices[0], &devices[1]], 3);
    change(&opened.store);
    drop(opened);
    drop(open_with(&[&devices[0], &devices[1]], 10));
    // The second device lost what it had said it kept, so that the next epoch begins before this one did.
    let own = superblock_of(&devices[1]);
    for at in (0..own.journal_bytes).step_by(MIB as usize) {
        devices[1].write_bytes(own.layout.journal_offset + at, &vec![0; MIB as usize]).unwrap();
    }
    drop(open_with(&[&devices[1]], 20));
    let (was, is) = (superblock_of(&devices[0]), superblock_of(&devices[1]));
    let number = was.epochs.last().unwrap().epoch;
    let now = is.epochs.iter().find(|epoch| epoch.epoch == number).unwrap();
    assert!(now.first_sequence < was.epochs.last().unwrap().first_sequence, "it was moved");
    let assembly = assemble(&[&devices[0], &devices[1]]).unwrap();
    assert_eq!(assembly.members.len(), 2);
    assert_eq!(assembly.newest.epochs, is.epochs);
}

/// Two devices, each of which was mounted and written to without the other, as often as said.
fn halves(times: [usize; 2]) -> Vec<Arc<MemoryDevice>> {
    let devices = make(&[64 * MIB, 64 * MIB], 1);
    for (index, times) in times.into_iter().enumerate() {
        for round in 0..times {
            let options = OpenOptions { epoch_nonce: (1000 * index + round + 7) as u32, ..open_options() };
            let opened = assemble(&[&devices[index]]).unwrap().open(&options, &nowhere).unwrap();
            assert!(!opened.read_only);
            change(&opened.store);
            opened.store.close().unwrap();
        }
    }
    devices
}

#[test]
fn halves_with_histories_of_their_own_are_refused_until_one_is_chosen() {
    for times in [[1, 1], [1, 3], [4, 2], [15, 14]] {
        let devices = halves(times);
        let text = refusal(&[&devices[0], &devices[1]]);
        assert!(text.contains("different histories") && text.contains("prefer=/images/1"), "{times:?}: {text}");
        for chosen in 0..2 {
            let id = superblock_of(&devices[chosen]).device.to_string();
            for prefer in [format!("/images/{chosen}"), id] {
                let options = AssembleOptions { prefer: Some(&prefer), ..AssembleOptions::default() };
                let assembly = Assembly::with(candidates(&[&devices[0], &devices[1]]), &options).unwrap();
                assert_eq!(assembly.members.len(), 1);
                assert_eq!(usize::from(assembly.members[0].superblock.device_index), chosen);
                assert_eq!(assembly.left_out[0].why, WhyLeftOut::OtherHistory);
            }
        }
    }
    let devices = halves([1, 1]);
    let options = AssembleOptions { prefer: Some("/images/7"), ..AssembleOptions::default() };
    let refused = Assembly::with(candidates(&[&devices[0], &devices[1]]), &options);
    assert!(matches!(refused, Err(Error::ChosenNotThere { .. })));
}

/// Halves that both went on are told apart however often each was mounted, and whoever only waited is not one of them.
#[test]
fn only_who_went_on_alone_has_a_history_of_its_own() {
    for times in [[0, 1], [3, 0]] {
        let devices = halves(times);
        let assembly = assemble(&[&devices[0], &devices[1]]).unwrap();
        assert_eq!((assembly.members.len(), assembly.returning().count()), (2, 1), "{times:?}");
        let newest = if times[0] > 0 { &devices[0] } else { &devices[1] };
        assert_eq!(assembly.newest.epochs, superblock_of(newest).epochs);
    }
}

/// While the pool is open the same is asked of a device that comes back.
#[test]
fn who_comes_back_is_welcome_only_if_it_was_only_away() {
    let away = make(&[64 * MIB, 64 * MIB], 1);
    let old = superblock_of(&away[1]);
    mount_and_change(&[&away[0]], 2);
    let newest = superblock_of(&away[0]);
    let entries = assemble(&[&away[0]]).unwrap().entries;
    assert_eq!(judge_return(&newest, &entries[1], &old), Return::Welcome);
    assert_eq!(judge_return(&newest, &entries[0], &old), Return::Stranger);
    let split = halves([1, 1]);
    let (one, other) = (superblock_of(&split[0]), superblock_of(&split[1]));
    let entries = assemble(&[&split[0]]).unwrap().entries;
    assert_eq!(judge_return(&one, &entries[1], &other), Return::OtherHistory);
}
