//! What every volume on a server does, whatever the server is.

use std::sync::{Arc, Mutex};

use stere_device::{Cancellation, MediumWait, Take, Volume, VolumeError};

/// On an empty volume; `stere-volume` stays on it.
pub fn assert_behaves(volume: &dyn Volume) {
    let bytes: Vec<u8> = (0..4_000_000u32).map(|at| (at * 7) as u8).collect();
    volume.put("segments/a", &bytes).unwrap();
    volume.put("stere-volume", b"label").unwrap();
    let mut part = vec![0; 5000];
    volume.get("segments/a", 3_000_000, &mut part, &MediumWait::NONE).unwrap();
    assert_eq!(part, bytes[3_000_000..3_005_000]);
    let mut whole = vec![0; bytes.len()];
    volume.get("segments/a", 0, &mut whole, &MediumWait::NONE).unwrap();
    assert!(whole == bytes);
    let pieces = Arc::new(Mutex::new(Vec::new()));
    let into = pieces.clone();
    let take: Take = Arc::new(move |piece| into.lock().unwrap().push(piece.to_vec()));
    volume.stream("segments/a", bytes.len(), &take, &Cancellation::NONE).unwrap();
    let pieces = pieces.lock().unwrap();
    assert!(pieces.len() > 10 && pieces.concat() == bytes, "{} pieces", pieces.len());
    let pieces = Arc::new(Mutex::new(Vec::new()));
    let into = pieces.clone();
    let take: Take = Arc::new(move |piece| into.lock().unwrap().push(piece.to_vec()));
    volume.stream_part("segments/a", 1_000_001, 600_000, &take, &Cancellation::NONE).unwrap();
    let pieces = pieces.lock().unwrap();
    assert!(pieces.len() > 1 && pieces.concat() == bytes[1_000_001..1_600_001], "{} pieces", pieces.len());
    let beyond =
        volume.stream_part("segments/a", 4_000_000, 10, &(Arc::new(|_: &[u8]| ()) as Take), &Cancellation::NONE);
    assert!(matches!(beyond, Err(VolumeError::Short { .. })), "{beyond:?}");
    let cut = volume.stream("segments/a", bytes.len() + 1, &(Arc::new(|_: &[u8]| ()) as Take), &Cancellation::NONE);
    assert!(matches!(cut, Err(VolumeError::Short { .. })), "{cut:?}");
    let missing = volume.stream(
        "segments/b",
        10,
        &(Arc::new(|piece: &[u8]| assert!(piece.is_empty(), "there is nothing")) as Take),
        &Cancellation::NONE,
    );
    assert!(matches!(missing, Err(VolumeError::NoObject { .. })), "{missing:?}");
    let beyond = volume.get("segments/a", 3_999_999, &mut part, &MediumWait::NONE);
    assert!(matches!(beyond, Err(VolumeError::Short { .. })), "{beyond:?}");
    let missing = volume.get("segments/b", 0, &mut part, &MediumWait::NONE);
    assert!(matches!(missing, Err(VolumeError::NoObject { .. })), "{missing:?}");
    assert_eq!(volume.length("segments/a"), Ok(Some(bytes.len() as u64)));
    assert_eq!(volume.length("segments/b"), Ok(None));
    assert_eq!(volume.list("segments/"), Ok(vec![("segments/a".into(), bytes.len() as u64)]));
    assert_eq!(volume.list("").unwrap().len(), 2);
    volume.delete("segments/a").unwrap();
    volume.delete("segments/a").unwrap();
    assert_eq!(volume.length("segments/a"), Ok(None));
    volume.put("segments/a", b"first").unwrap();
    volume.put("segments/a", b"other").unwrap();
    let mut found = [0; 5];
    volume.get("segments/a", 0, &mut found, &MediumWait::NONE).unwrap();
    assert_eq!(&found, b"other", "an object takes the place of one of its name");
    volume.delete("segments/a").unwrap();
}
