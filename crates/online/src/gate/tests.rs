//! What stands before a volume in a mount passes on what it is asked.

use stere_format::{PoolId, VolumeId, VolumeLabel};

use super::*;

/// Else what a volume can do is not done in a mount, however well the store does it with the volume itself.
#[test]
fn everything_is_passed_on() {
    let lost = stere_device::calls_that_are_lost(|inner| {
        let (volume, name) = (VolumeId([3; 16]), "archive".to_owned());
        let label = VolumeLabel { pool: PoolId([7; 16]), pool_name: "tank".into(), volume, name: name.clone() };
        inner.put(VolumeLabel::OBJECT, &label.encode()).unwrap();
        let inner = LabelledVolume::new(inner, volume, &name);
        Box::new(Labelled::new(inner, name, Arc::default()))
    });
    assert_eq!(lost, [""; 0]);
}
