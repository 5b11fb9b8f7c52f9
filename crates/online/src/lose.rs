//! Which files lose which bytes without some devices: those that are asked about, or those that are away.

use std::ops::ControlFlow;

use stere_policy::Class;
use stere_store::Store;

use stere_control::lose::{ClassLine, LossReport, LostLine};
use stere_machine::error::Result;

/// Files sent at a time.
const BATCH: usize = 256;

/// Tells what is lost with these devices (by id): the files to `send`, a batch at a time, and what it comes to. It breaks off when
/// nobody listens any more.
pub fn gather(
    store: &Store,
    pool: &str,
    ids: &[String],
    send: &mut dyn FnMut(Vec<LostLine>) -> ControlFlow<()>,
) -> Result<LossReport> {
    let entries = store.device_entries();
    let is_asked = |entry: &stere_format::DeviceEntry| ids.contains(&entry.id.to_string());
    let gone: Vec<u16> = entries.iter().filter(|entry| is_asked(entry)).map(|entry| entry.index).collect();
    let present: Vec<u16> = store.device_statistics().iter().map(|(index, _)| *index).collect();
    let names = |is_meant: &dyn Fn(&stere_format::DeviceEntry) -> bool| -> Vec<String> {
        entries.iter().filter(|entry| is_meant(entry)).map(|entry| entry.name.clone()).collect()
    };
    let volumes: Vec<_> =
        store.tier.media.volumes().into_iter().filter(|entry| ids.contains(&entry.id.to_string())).collect();
    let loss = store
        .losses
        .loss_without(&|index| gone.contains(&index), volumes.iter().fold(0, |set, entry| set | entry.bit()));
    let classes = crate::classes::classes(store);
    let class = |of: &stere_store::ClassLoss| ClassLine {
        class: Class::from_code(of.class).map_or_else(|| format!("class {}", of.class), |class| classes.name(class)),
        survives: of.touched_bytes == 0,
        live_bytes: of.live_bytes,
        touched_bytes: of.touched_bytes,
    };
    let mut report = LossReport {
        pool: pool.into(),
        devices: names(&is_asked).into_iter().chain(volumes.into_iter().map(|entry| entry.name)).collect(),
        hosts: Vec::new(),
        absent: names(&|entry| !present.contains(&entry.index)),
        files: 0,
        lost_bytes: 0,
        names_survive: !loss.is_metadata_lost,
        classes: loss.classes.iter().map(class).collect(),
    };
    let mut batch: Vec<LostLine> = Vec::new();
    stere_naming::lost_files(store, &loss, &mut |file| {
        if !file.is_repeated {
            report.files += 1;
            report.lost_bytes += file.lost_bytes;
        }
        batch.push(file.into());
        if batch.len() < BATCH { ControlFlow::Continue(()) } else { send(std::mem::take(&mut batch)) }
    })?;
    if !batch.is_empty() {
        // Whether anybody listened to the last one is seen by who sends the report.
        let _last = send(batch);
    }
    Ok(report)
}

/// So many files are named by `status`.
const LOST_FILES_MAX: usize = 20;

/// The first files that lose content without the devices that are away, and whether there are more.
pub fn lost_files(store: &Store) -> (Vec<LostLine>, bool) {
    let mut found: Vec<LostLine> = Vec::new();
    let mut has_more = false;
    let walked = stere_naming::lost_files(store, &store.losses.loss(&|_| false), &mut |file| {
        if found.len() == LOST_FILES_MAX {
            has_more = true;
            return ControlFlow::Break(());
        }
        if !file.is_repeated {
            found.push(file.into());
        }
        ControlFlow::Continue(())
    });
    if let Err(error) = walked {
        tracing::warn!(%error, "files that cannot be read could not all be named");
        has_more = true;
    }
    (found, has_more)
}
