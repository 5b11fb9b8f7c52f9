//! P-266: what is noted is there with what it is noted for, and by its session only.

use super::*;
use crate::orphan::tests::new_files;

fn note_one(store: &Store, session: u8, slot: u16, number: u64, place: u64) {
    let request = RequestId { session: [session; 16], slot, number, made: None };
    let noted = store.update(Io::BLOCKING, |transaction| {
        note(transaction, Some(&request), place);
        note(transaction, None, 1);
        Ok::<_, Error>(())
    });
    noted.unwrap();
}

#[test]
fn the_newest_of_each_slot_is_known() {
    let files = new_files();
    let store = &**files.store();
    note_one(store, 1, 0, 1, 0);
    note_one(store, 1, SLOTS_MAX - 1, 2, 4096);
    note_one(store, 2, 0, 7, 0);
    note_one(store, 1, 0, 3, 0);
    let noted = of_session(store, &[1; 16]).unwrap();
    assert_eq!(noted.len(), 2, "{noted:?}");
    assert_eq!(noted[&2], Noted { slot: SLOTS_MAX - 1, place: 4096 });
    assert_eq!(noted[&3], Noted { slot: 0, place: 0 });
    assert_eq!(sessions(store).unwrap(), [[1; 16], [2; 16]]);
    forget(store, &[1; 16]).unwrap();
    assert!(of_session(store, &[1; 16]).unwrap().is_empty());
    assert_eq!(of_session(store, &[2; 16]).unwrap()[&7], Noted { slot: 0, place: 0 });
    // The last session that there can be has an end too.
    note_one(store, 255, 5, 9, 0);
    assert_eq!(of_session(store, &[255; 16]).unwrap()[&9].slot, 5);
}

#[test]
fn a_session_that_begins_alike_is_another_one() {
    let files = new_files();
    let store = &**files.store();
    note_one(store, 3, 0, 5, 0);
    let mut alike = [3; 16];
    alike[15] = 4;
    assert!(of_session(store, &alike).unwrap().is_empty());
}
