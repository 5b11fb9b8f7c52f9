//! How many copies metadata has.

use stere_format::SegmentKind;

use crate::tests::{Rig, options};
use crate::{MetadataWish, Store, StoreOptions};

fn copies(store: &Store) -> Vec<usize> {
    let mut segments = store.segments().all();
    segments.retain(|segment| segment.kind == SegmentKind::Meta && segment.live_bytes() > 0);
    segments.iter().map(|segment| segment.scheme.width()).collect()
}

fn mend(store: &Store) {
    while !store.rebuilder.mend_step(64 << 20).unwrap().is_done {}
}

/// The wish outlives the mount, whatever the next one is told, and what is stored follows it.
#[test]
fn metadata_lies_on_as_many_devices_as_somebody_asked_for() {
    let (mut rig, store) = Rig::new(5, 64 << 20);
    assert_eq!(store.places().metadata_wish(), None);
    assert!(copies(&store).iter().all(|copies| *copies == 3));
    for (wish, wanted) in [(MetadataWish::Copies(4), 4), (MetadataWish::All, 5), (MetadataWish::Copies(2), 2)] {
        store.places().set_metadata_wish(wish).unwrap();
        mend(&store);
        assert!(copies(&store).iter().all(|copies| *copies == wanted), "{wish:?}: {:?}", copies(&store));
    }
    assert!(store.places().set_metadata_wish(MetadataWish::Copies(0)).is_err());
    store.places().set_metadata_wish(MetadataWish::All).unwrap();
    mend(&store);
    store.close().unwrap();
    drop(store);
    rig.read_superblocks();
    assert_eq!(rig.superblocks[0].journal_devices.len(), 5);
    let told = StoreOptions { meta_scheme: stere_format::Scheme { data: 1, parity: 1 }, ..options() };
    let (store, _) = Store::open(rig.devices_in(), told).unwrap();
    assert_eq!(store.places().metadata_wish(), Some(MetadataWish::All));
    store.checkpoint().unwrap();
    assert!(copies(&store).iter().all(|copies| *copies == 5), "{:?}", copies(&store));
}
