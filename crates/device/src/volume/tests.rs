use super::*;

/// What every volume does.
fn behaves(volume: &dyn Volume) {
    let bytes: Vec<u8> = (0..10_000u32).map(|at| at as u8).collect();
    volume.put("segments/a", &bytes).unwrap();
    volume.put("label", b"who").unwrap();
    let mut part = [0; 100];
    volume.get("segments/a", 9_900, &mut part, &MediumWait::NONE).unwrap();
    assert_eq!(part, bytes[9_900..]);
    let short = volume.get("segments/a", 9_901, &mut part, &MediumWait::NONE);
    assert!(matches!(short, Err(VolumeError::Short { length: 10_000, needed: 10_001, .. })), "{short:?}");
    let missing = volume.get("segments/b", 0, &mut part, &MediumWait::NONE);
    assert!(matches!(missing, Err(VolumeError::NoObject { .. })), "{missing:?}");
    assert_eq!(volume.length("segments/a"), Ok(Some(10_000)));
    assert_eq!(volume.length("segments/b"), Ok(None));
    assert_eq!(volume.list("segments/"), Ok(vec![("segments/a".into(), 10_000)]));
    assert_eq!(volume.list("").unwrap().len(), 2);
    volume.put("label", b"other").unwrap();
    assert_eq!(volume.length("label"), Ok(Some(5)));
    volume.delete("segments/a").unwrap();
    volume.delete("segments/a").unwrap();
    assert_eq!(volume.length("segments/a"), Ok(None));
}

#[test]
fn volumes_in_memory_behave() {
    behaves(&MemoryVolume::new("memory"));
}

#[test]
fn directories_behave() {
    let directory = tempfile::tempdir().unwrap();
    behaves(&DirectoryVolume::new(directory.path()));
}

#[test]
fn a_directory_that_is_not_there_is_away_and_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("medium");
    let volume = DirectoryVolume::new(&root);
    let mut byte = [0];
    let outcomes = [
        volume.put("segments/a", b"x").err(),
        volume.get("segments/a", 0, &mut byte, &MediumWait::NONE).err(),
        volume.length("segments/a").err(),
        volume.delete("segments/a").err(),
        volume.list("").err(),
    ];
    for outcome in outcomes {
        assert!(matches!(outcome, Some(VolumeError::Away { .. })), "{outcome:?}");
    }
    assert!(!root.exists());
}

#[test]
fn what_was_cut_off_while_it_was_written_is_no_object() {
    let directory = tempfile::tempdir().unwrap();
    let volume = DirectoryVolume::new(directory.path());
    volume.put("segments/a", b"x").unwrap();
    std::fs::write(directory.path().join("segments/b.7.partial"), b"half").unwrap();
    assert_eq!(volume.list("segments/"), Ok(vec![("segments/a".into(), 1)]));
}
