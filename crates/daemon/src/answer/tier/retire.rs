//! A medium taken out of use: another one is found to take over what is on it.

use stere_format::VolumeEntry;
use stere_store::VolumeStatus;

use stere_control::tier::report::{RetireReport, Told};
use stere_machine::error::{Result, refused};
use stere_online::running::Running;

/// Begins it, for the daemon.
pub fn begin(running: &Running, volume: &str, to: Option<&str>, dry_run: bool) -> Result<Told> {
    let store = &running.store;
    let find = |name: &str| match running.find_volume(name) {
        Some(entry) => Ok(entry),
        None => refused(format!("the pool '{0}' has no medium '{name}'; see `stere media list {0}`", running.pool)),
    };
    let old = find(volume)?;
    let heir = match (to, old.succession.heir()) {
        (Some(name), _) => find(name)?.number,
        (None, Some(heir)) => heir,
        (None, None) => heir_for(running, &old)?,
    };
    let (segments_left, bytes_left) = match dry_run {
        true => store.tier.media.check_retirement(old.number, heir)?,
        false => {
            store.tier.media.retire_volume(old.number, heir)?;
            running.tertiary.push();
            store.tier.media.left_to_retire(old.number)
        }
    };
    let heir = store.tier.media.tier_names(1 << heir);
    let (volume, is_done, waits_for) = (old.name, false, None);
    Ok(Told::Retire(RetireReport { volume, heir, segments_left, bytes_left, is_done, waits_for }))
}

/// The volume that takes over if nobody says which: the only one that can, is there, and costs nothing. A choice is the owner's.
fn heir_for(running: &Running, old: &VolumeEntry) -> Result<u8> {
    let store = &running.store;
    running.look_for_volumes();
    let others: Vec<_> =
        store.tier.media.volume_statuses().into_iter().filter(|status| status.entry.number != old.number).collect();
    let is_free = |status: &&VolumeStatus| {
        let prices = store.tier.media.volume_prices(status.entry.number).ok();
        prices == Some(stere_store::VolumePrices::default()) && !status.entry.place.starts_with("s3:")
    };
    let can = |status: &&VolumeStatus| store.tier.media.check_retirement(old.number, status.entry.number).is_ok();
    let able: Vec<&VolumeStatus> = others.iter().filter(can).collect();
    let suits: Vec<&VolumeStatus> = able
        .iter()
        .copied()
        .filter(|status| status.is_attached && status.complaint.is_none())
        .filter(is_free)
        .collect();
    let names = |statuses: &[&VolumeStatus]| {
        statuses.iter().map(|status| status.entry.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    match (suits.as_slice(), able.as_slice()) {
        ([one], _) => Ok(one.entry.number),
        // Says why not.
        ([], []) => Ok(store.tier.media.heir_for(old.number)?),
        ([], able) => refused(format!(
            "nothing takes over from {} by itself: {} cannot be reached now, or may cost money; say which with --to NAME",
            old.name,
            names(able)
        )),
        (several, _) => {
            refused(format!("{} could take over from {}; say which with --to NAME", names(several), old.name))
        }
    }
}
