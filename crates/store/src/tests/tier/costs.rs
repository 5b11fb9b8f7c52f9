//! P-140: what is told before is what is asked then, also where volumes are away, segments are on devices or dead, and several have a copy.

use super::*;

fn segments(store: &Store, files: &Files) -> BTreeSet<u64> {
    segments_of(store, files).into_iter().collect()
}

/// Each segment that is on volumes only is counted once, at the first volume that can be asked.
#[test]
fn staging_is_counted_where_it_will_be_asked() {
    let (_rig, store, first, files) = archived();
    let second = Arc::new(MemoryVolume::new("second"));
    assert_eq!(add(&store, "second", &second), 1);
    archive(&store, &files, 3).unwrap();
    settle(&store);
    let all = segments(&store, &files);
    assert!(store.tier.media.costs_of_staging(&all).is_empty(), "it is on devices");
    store.tier.stager.release(&all.iter().copied().collect::<Vec<_>>()).unwrap();
    store.commit(Io::BLOCKING).unwrap();
    let told = store.tier.media.costs_of_staging(&all);
    let numbers = |told: &std::collections::BTreeMap<u8, crate::Costs>| told.keys().copied().collect::<Vec<u8>>();
    assert_eq!((numbers(&told), told[&0].segments, told[&0].requests), (vec![0], all.len() as u64, all.len() as u64));
    assert!(told[&0].bytes_from > 2_700_000 && told[&0].bytes_to == 0, "{told:?}");
    // Away, as it was asked last: the other one is asked, and costs.
    first.set_fault(Some(VolumeFault::Away));
    store.tier.media.take_volume_away(0).unwrap();
    let elsewhere = store.tier.media.costs_of_staging(&all);
    assert_eq!(numbers(&elsewhere), [1]);
    let (before, fetched) = (second.requests(), store.tier.recalls.tertiary_counts().bytes_fetched);
    store.tier.recalls.want_back(&all.iter().copied().collect::<Vec<_>>());
    settle(&store);
    assert_eq!(second.requests() - before, elsewhere[&1].requests, "what was told is what is asked");
    assert_eq!(store.tier.recalls.tertiary_counts().bytes_fetched - fetched, elsewhere[&1].bytes_from);
    // All are away: it is told what the first of them would be asked.
    store.tier.stager.release(&all.iter().copied().collect::<Vec<_>>()).unwrap();
    store.tier.media.take_volume_away(1).unwrap();
    assert_eq!(numbers(&store.tier.media.costs_of_staging(&all)), [0]);
    // What nobody needs any more is not brought back.
    files.iter().for_each(|(inode, _, _)| crate::tests::remove_file(&store, *inode));
    assert!(store.tier.media.costs_of_staging(&all).is_empty());
}

/// Four requests for each segment that is begun, and nothing for nothing.
#[test]
fn archiving_is_counted_by_segments() {
    let (_rig, store, _volume) = with_volume();
    let one = store.tier.media.costs_of_archiving(1, 1);
    assert_eq!((one.segments, one.requests), (1, 4));
    assert_eq!(one.bytes_to, one.bytes_from, "all of it is read back");
    let chunk = (1u64..)
        .map(|power| 1 << power)
        .find(|bytes| store.tier.media.costs_of_archiving(*bytes, 1).segments > 1)
        .unwrap();
    let room =
        (chunk / 2..=chunk).rev().find(|bytes| store.tier.media.costs_of_archiving(*bytes, 1).segments == 1).unwrap();
    let full = store.tier.media.costs_of_archiving(room, 1);
    assert_eq!(full.bytes_to.next_power_of_two(), full.bytes_to, "a whole chunk goes to the volume, header and all");
    assert_eq!(store.tier.media.costs_of_archiving(room + 1, 1).requests, 8);
    assert_eq!(store.tier.media.costs_of_archiving(3 * room, 1).segments, 3);
    assert_eq!(store.tier.media.costs_of_archiving(0, 1), crate::Costs::default());
    let wide = store.tier.media.costs_of_archiving(3 * room, 3);
    assert_eq!((wide.segments, wide.requests), (1, 4), "an object holds what lies in all data chunks");
}

/// What a file lacks on a volume: all of it where the volume has nothing, else what is on no volume.
#[test]
fn what_is_there_is_not_copied_again() {
    let file = crate::TierFile {
        local_bytes: 700,
        released_bytes: 300,
        tertiary_bytes: 800,
        volumes: 0b10,
        ..Default::default()
    };
    assert_eq!((file.bytes_not_on(1), file.bytes_not_on(0)), (200, 1000));
}

/// Prices are kept with the pool, each volume's own, and those of nothing take nothing.
#[test]
fn prices_are_kept() {
    let (rig, store, _volume) = with_volume();
    let prices = crate::VolumePrices { thousand_requests: 5_000_000, gigabyte_out: 90_000, gigabyte_month: 1 };
    store.tier.media.set_volume_prices(0, prices).unwrap();
    drop(store);
    rig.lose_power(|_| false);
    let store = rig.open(&[0, 1]);
    assert_eq!(
        (store.tier.media.volume_prices(0).unwrap(), store.tier.media.volume_prices(1).unwrap()),
        (prices, Default::default())
    );
    store.tier.media.set_volume_prices(0, crate::VolumePrices::default()).unwrap();
    let kept = store.view(Io::BLOCKING, |view| view.get(&Key::volume_prices(0))).unwrap();
    assert_eq!((store.tier.media.volume_prices(0).unwrap(), kept.is_none()), (crate::VolumePrices::default(), true));
}
