//! What volumes are tried with in some histories: a tape library among them, and faults that are rare.
//!
//! Credentials are revoked, or good for reading only; a server errs for an hour; lists come late; another medium lies at a volume's
//! place, or one with another's label; a place in an object cannot be read; a library's cartridges fall down, are taken out, have each
//! other's bar codes or bad blocks. The rules are those of all volumes: within the copies that are right nothing is lost, no read
//! gives other bytes, nothing else fails. And more: after an hour of errors all goes on with nobody doing anything (P-62), and what
//! cannot be read because volumes are away is said of one of them (`must_be_told`). Read next: `volume.rs`, `library.rs`, `tertiary.rs`.

use std::sync::atomic::Ordering;

use crate::area::{Area, further};
use crate::history::{History, Stop};
use crate::library::LibraryTrouble;
use crate::observe::Trouble;
use crate::operation::{CrashManner, Operation, Path, Releasing, Target};
use crate::pool::caller;
use crate::random::Random;
use crate::tertiary::{self, VOLUMES_MAX};
use crate::volume::{Harm, VolumeTrouble};

/// A little more than volumes err for.
const AN_HOUR_NS: u64 = 3_601 * 1_000_000_000;
/// Rounds in which all that waited must have gone on.
const ROUNDS_MAX: usize = 400;

/// Something rare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeStep {
    /// A tape library joins the pool as a volume.
    AddLibrary,
    /// Something goes wrong with a volume that is a library.
    Wrong { volume: u8, trouble: LibraryTrouble, pick: u16 },
    /// An hour goes by, after which servers that erred do so no more, and the work goes on.
    Outlast,
}

/// Puts rounds of archiving and reading back with rare faults into a history.
pub fn strew(operations: &mut Vec<Operation>, random: &mut Random) {
    let mut at = operations.len().min(9);
    let count = random.between(2, VOLUMES_MAX as u64);
    let library = random.below(count + 1);
    for number in 0..count {
        let operation = match number == library {
            true => Operation::Volumes(VolumeStep::AddLibrary),
            false => Operation::AddVolume { is_slow: random.chance(1, 4) },
        };
        operations.insert(at, operation);
        at += 1;
    }
    let begin = at;
    for _ in 0..random.between(2, 4) {
        let path = Path { directory: random.below(2) as u8, name: random.below(3) as u8 };
        for operation in round(path, count, random) {
            operations.insert(at, operation);
            at = (at + 1).min(operations.len());
        }
        at = further(at, 6, operations, random);
    }
    // Where nothing is harmed yet, so that it is seen how it ends. Drawn last, so that the rest stays what it was.
    if random.chance(2, 3) {
        let volumes = (0..count).filter(|volume| *volume != library).map(|volume| volume as u8).collect::<Vec<_>>();
        operations.splice(begin..begin, hour(&volumes, random));
    }
}

/// Servers err for an hour while something is on its way to them and back, and it ends.
fn hour(volumes: &[u8], random: &mut Random) -> Vec<Operation> {
    let path = Path { directory: 0, name: random.below(3) as u8 };
    let target = Target::Path(path);
    let (length, seed) = (random.between(20_000, 900_000) as u32, random.next_u64());
    let steps = |random: &mut Random| Operation::StepVolumes { count: random.between(1, 6) as u8, ends: true };
    let mut hour = vec![
        Operation::Create { path, slot: 1 },
        Operation::Write { target, offset: 0, length, seed },
        Operation::SyncAll,
        Operation::Archive { path, volumes: u8::MAX },
        Operation::Step { count: 4, idle: true },
    ];
    if random.chance(1, 2) {
        hour.extend([steps(random), Operation::Release { path, releasing: Releasing::Commit }]);
    }
    for volume in volumes {
        if *volume == volumes[0] || random.chance(1, 2) {
            hour.push(Operation::Trouble { volume: *volume, trouble: VolumeTrouble::ErrorsForAnHour });
        }
    }
    hour.push(steps(random));
    if random.chance(1, 2) {
        hour.push(Operation::Read { target, offset: random.below(20_000), length: random.between(1, 90_000) as u32 });
    }
    if random.chance(1, 2) {
        hour.push(Operation::Write { target, offset: 1_000, length: random.between(1, 90_000) as u32, seed: seed ^ 1 });
        hour.push(Operation::SyncAll);
    }
    if random.chance(1, 4) {
        hour.push(Operation::Stage { path });
    }
    hour.extend([steps(random), Operation::Volumes(VolumeStep::Outlast)]);
    hour
}

fn trouble(count: u64, random: &mut Random) -> Operation {
    let volume = random.below(count) as u8;
    match random.below(5) {
        0 => Operation::Trouble { volume, trouble: *random.pick(&VolumeTrouble::ALL) },
        1 | 2 => Operation::Trouble { volume, trouble: *random.pick(&VolumeTrouble::RARE) },
        _ => {
            let (trouble, pick) = (*random.pick(&LibraryTrouble::ALL), random.below(1 << 16) as u16);
            // The library has any number: a step that means another volume does nothing.
            Operation::Volumes(VolumeStep::Wrong { volume, trouble, pick })
        }
    }
}

fn round(path: Path, count: u64, random: &mut Random) -> Vec<Operation> {
    let target = Target::Path(path);
    let write = |random: &mut Random| Operation::Write {
        target,
        offset: random.below(4) * 100_000,
        length: random.between(20_000, 900_000) as u32,
        seed: random.next_u64(),
    };
    let steps = |random: &mut Random| Operation::StepVolumes { count: random.between(1, 12) as u8, ends: true };
    let manner =
        |random: &mut Random| *random.pick(&[CrashManner::Nothing, CrashManner::Everything, CrashManner::Mixed]);
    let mut round = vec![Operation::Create { path, slot: 1 }, write(random), Operation::SyncAll];
    let volumes = if random.chance(2, 3) { u8::MAX } else { random.between(1, (1 << count) - 1) as u8 };
    round.push(Operation::Archive { path, volumes });
    round.push(Operation::Step { count: 4, idle: true });
    if random.chance(1, 2) {
        round.push(trouble(count, random));
    }
    if random.chance(1, 4) {
        round.push(Operation::ArmCrash { events: random.between(1, 16) as u32, manner: manner(random) });
    }
    round.push(steps(random));
    if random.chance(1, 3) {
        round.push(Operation::CopyMetadata { steps: random.between(1, 12) as u8 });
    }
    match random.below(3) {
        0 => round.push(Operation::EndTroubles),
        1 => round.push(Operation::Volumes(VolumeStep::Outlast)),
        _ => {}
    }
    round.push(steps(random));
    round.push(Operation::Release { path, releasing: Releasing::Checkpoints });
    for _ in 0..random.between(1, 3) {
        round.push(match random.chance(1, 3) {
            true => {
                let (volume, pick) = (random.below(count) as u8, random.below(16) as u8);
                Operation::Harm { volume, pick, harm: *random.pick(&Harm::ANY) }
            }
            false => trouble(count, random),
        });
        let volume = random.below(count) as u8;
        round.push(match random.below(8) {
            0..3 => Operation::Read { target, offset: random.below(400_000), length: random.between(1, 90_000) as u32 },
            3 => Operation::VerifyAll,
            4 => Operation::Stage { path },
            5 => Operation::VerifyVolume { volume, reads: random.chance(1, 2) },
            6 => Operation::Repack { percent: 90, steps: 2 },
            _ => write(random),
        });
        round.push(steps(random));
    }
    if random.chance(1, 3) {
        round.push(Operation::Crash { manner: manner(random), again: None });
    }
    if random.chance(1, 2) {
        round.push(Operation::EndTroubles);
        round.push(Operation::VerifyVolume { volume: random.below(count) as u8, reads: true });
    }
    if random.chance(1, 3) {
        round.push(Operation::SettleVolumes);
    }
    round
}

/// Before the first step: such histories read labels as a mount does.
pub(crate) fn begin_trials(history: &History) {
    history.machine.are_labels_read.store(history.plan.pool.areas.has(Area::Volumes), Ordering::Relaxed);
}

pub(crate) fn execute_volumes(history: &mut History, step: VolumeStep) -> Result<(), Stop> {
    match step {
        VolumeStep::AddLibrary => tertiary::add_volume_of(history, true, true),
        VolumeStep::Wrong { volume, trouble, pick } => {
            let is_wrong = history.machine.make_library_wrong(usize::from(volume), trouble, u64::from(pick));
            history.summary.tier.troubles += u64::from(is_wrong);
            Ok(())
        }
        VolumeStep::Outlast => outlast_errors(history),
    }
}

/// P-62: servers that erred for an hour do right again, and nobody does anything for it.
fn outlast_errors(history: &mut History) -> Result<(), Stop> {
    let troubles: Vec<_> = (0..history.machine.volume_count()).filter_map(|one| history.machine.trouble(one)).collect();
    let is_all = troubles.iter().all(|trouble| *trouble == VolumeTrouble::ErrorsForAnHour);
    if troubles.is_empty() || !is_all {
        return Ok(());
    }
    history.machine.pass(AN_HOUR_NS);
    for _ in 0..ROUNDS_MAX {
        let more = history.mounted().files.reconciler().reconcile_step(&caller(&history.machine), 8 << 20);
        let more = history.must_but_for_volumes("storing files as their policy says", more)?;
        if more != Some(true) && !tertiary::step_of_volumes(history, true)?.is_busy {
            break;
        }
    }
    let store = &history.mounted().store;
    let is_local = history.pool.is_calm()
        && history.pool.away().is_none()
        && !history.pool.has_lost_member()
        && !history.plan.may_fill;
    let is_stuck = !store.tier.stager.stuck_uploads().is_empty()
        || store.tier.uploader.are_uploads_held()
        || history.pool.may_lack_content();
    if !is_local || is_stuck || store.tier.media.volumes().iter().any(|entry| entry.is_offline) {
        return Ok(());
    }
    let waiting = history.pool.waiting_segments();
    if !waiting.is_empty() {
        let text = format!("segments {waiting:?} do not go down although the servers err no more");
        return Err(Stop::Failure(text));
    }
    history.summary.tier.outlasted += 1;
    Ok(())
}

/// Something could not be read: where that is because volumes are away, one of them says so.
pub(crate) fn must_be_told(history: &History) -> Result<(), Trouble> {
    if !history.plan.pool.areas.has(Area::Volumes) || history.machine.is_any_harmed() {
        return Ok(());
    }
    use VolumeTrouble::{ErrorsForAnHour, Exchanged, Mislabelled, Outage, Revoked};
    let lasts = |trouble| matches!(trouble, Outage | Revoked | ErrorsForAnHour | Exchanged | Mislabelled);
    let mut volumes = 0..history.machine.volume_count();
    let is_plain = volumes
        .all(|volume| history.machine.cabinet(volume).is_none() && history.machine.trouble(volume).is_none_or(lasts));
    let statuses = history.mounted().store.tier.media.volume_statuses();
    let is_told = statuses.iter().any(|status| status.complaint.is_some() || status.entry.is_offline);
    match is_plain && !is_told {
        true => {
            Err(Trouble::Contradiction("a volume that is away keeps a file from being read, and none says so".into()))
        }
        false => Ok(()),
    }
}
