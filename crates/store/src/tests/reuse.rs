//! Slots of what was emptied get something else before the next checkpoint: recovery finds everything all the same.

use super::*;

fn slots_free(store: &Store) -> u64 {
    store.log().stripe.slots.capacity(SINGLE.scheme).segments_free
}

/// A file that the tree names, removed; how many slots are free then.
fn emptied(store: &Store) -> u64 {
    write_file(store, SINGLE, 100, &content(1, 6 << 20));
    store.checkpoint().unwrap();
    remove_file(store, 100);
    slots_free(store)
}

/// P-1, P-6: the tree still names the old file when others lie in its slots and the power goes.
#[test]
fn proven_ends_give_slots_back_without_a_checkpoint() {
    let (mut rig, store) = Rig::new(1, 64 << 20);
    write_file(&store, SINGLE, 99, &content(0, 3 << 20));
    let before = emptied(&store);
    let generation = store.space().statistics(SINGLE.scheme).generation;
    assert!(store.release_by_proof().unwrap(), "the journal has room");
    let after = slots_free(&store);
    assert!(after >= before + 5, "{before} slots were free before and {after} after");
    let mut inodes = Vec::new();
    while slots_free(&store) > before - 2 {
        inodes.push(200 + inodes.len() as u64);
        write_file(&store, SINGLE, 200 + inodes.len() as u64 - 1, &content(200 + inodes.len() as u64, 1 << 20));
    }
    store.commit(Io::BLOCKING).unwrap();
    assert_eq!(store.space().statistics(SINGLE.scheme).generation, generation, "no checkpoint came between");
    let (store, report) = rig.crash(store, |_| false);
    assert!(report.changes_replayed > 0 && report.groups_cut == 0, "{report:?}");
    assert_eq!(read_file(&store, 99, 3 << 20).unwrap(), content(0, 3 << 20));
    for inode in inodes {
        assert_eq!(read_file(&store, inode, 1 << 20).unwrap(), content(inode + 1, 1 << 20));
    }
    assert_clean(&store);
}

/// P-6: what was given back before a crash is given back after it, because the next checkpoint counts on the room.
#[test]
fn a_crash_takes_nothing_back() {
    let (mut rig, store) = Rig::new(1, 64 << 20);
    emptied(&store);
    assert!(store.release_by_proof().unwrap());
    let before = slots_free(&store);
    let (store, _) = rig.crash(store, |_| false);
    assert!(slots_free(&store) + 1 >= before, "{} slots are free, {before} were", slots_free(&store));
    assert_clean(&store);
}

/// P-1: nodes of a checkpoint that still names a segment never lie in its slots: nothing would tell recovery of them before it
/// meets both.
#[test]
fn a_checkpoint_under_way_keeps_what_it_names() {
    let (mut rig, store) = Rig::new(1, 64 << 20);
    write_file(&store, SINGLE, 100, &content(1, 6 << 20));
    store.commit(Io::BLOCKING).unwrap();
    let frozen = store.single_steps().begin_checkpoint().unwrap().unwrap();
    remove_file(&store, 100);
    let before = slots_free(&store);
    assert!(store.release_by_proof().unwrap());
    assert_eq!(slots_free(&store), before, "the checkpoint that is being written names the file");
    store.single_steps().finish_checkpoint(&frozen).unwrap();
    assert!(store.release_by_proof().unwrap());
    assert!(slots_free(&store) >= before + 5);
    write_file(&store, SINGLE, 101, &content(2, 6 << 20));
    store.commit(Io::BLOCKING).unwrap();
    let (store, _) = rig.crash(store, |_| false);
    assert_eq!(read_file(&store, 101, 6 << 20).unwrap(), content(2, 6 << 20));
    assert_clean(&store);
}
