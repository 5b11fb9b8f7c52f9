//! Names that were put away: their bundles are read like any content, and their keys laid over the tree.
//!
//! A fold holds all keys of its ranges, so what its bundle says is what the pool's state says of them. What cannot be read is told by
//! directory. Memory: the keys that were put away. Read next: `keys.rs`, `docs/design/folding.md`.

use std::sync::Arc;

use stere_format::{BlobValue, Bundle, FoldValue, Key, key};

use crate::content::Places;
use crate::keys::Keys;
use crate::media::Run;

/// Longer than any bundle that is written.
const BUNDLE_BYTES_MAX: u32 = 16 << 20;

/// Brings all of them back; gives what could not be.
pub(crate) fn bring_back(keys: &mut Keys) -> Vec<String> {
    let (mut folds, mut lost) = (Vec::new(), Vec::new());
    let mut next = Some(Key::new(key::tree::SYSTEM, 0, 0, 0));
    while let Some(from) = next {
        let batch = keys.scan(from, Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
        let of_folds = batch.entries.iter().filter(|(at, _, _)| at.kind == key::kind::FOLD);
        folds.extend(of_folds.map(|(_, bytes, _)| FoldValue::decode(bytes)));
        next = batch.next;
    }
    let mut places = Places::default();
    for fold in folds {
        match fold.map(|fold| (bundle_of(keys, &mut places, &fold), fold)) {
            Ok((Some(bundle), _)) => {
                let entries = bundle.entries.into_iter();
                keys.overlay.extend(entries.map(|(at, value)| (at, Some(Arc::from(value)))));
            }
            Ok((None, fold)) => lost.push(format!(
                "names below inode {} were offloaded and are on nothing that was given (blob {}): give the medium that has them",
                fold.directory, fold.blob
            )),
            Err(error) => lost.push(format!("some names were offloaded, and where is not known: {error}")),
        }
    }
    lost
}

fn bundle_of(keys: &mut Keys, places: &mut Places, fold: &FoldValue) -> Option<Bundle> {
    let value = BlobValue::decode(&keys.get(&Key::blob(fold.blob)).0?).ok()?;
    if value.logical_bytes > BUNDLE_BYTES_MAX {
        return None;
    }
    let place = places.get(keys, value.address.segment)?;
    let mut stored = vec![0; value.address.length as usize];
    let (address, range) = (value.address, 0..value.address.length);
    let mut run = Run { place: &place, address, range, checksums: &value.checksums, out: &mut stored };
    let is_right = keys.media.blocks(&mut run).iter().all(|is_right| *is_right);
    let mut plain = vec![0; value.logical_bytes as usize];
    stere_plugin::decode(value.encoding, &stored, &mut plain).ok().filter(|()| is_right)?;
    let bundle = Bundle::decode(&plain).ok()?;
    bundle.entries.iter().all(|(at, _)| fold.covers(at)).then_some(bundle)
}
