//! `stere tier` and `stere media`: files go down to tertiary volumes, come back, and are looked at there.
//!
//! That files belong on a volume is policy (`user.stere.tier`): it is set on the path, and the rest follows in the background. What is
//! on devices beside a volume's copy is a cache, which is given up and filled by these commands, by reading, and by the mount's own
//! policy. The daemon does the work; this asks it.

mod costs;
mod media;
mod names;
mod policy;
mod retire;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{XattrFlags, removexattr, setxattr};
use serde::{Deserialize, Serialize};
use stere_naming::{FileSystem, Wait};
use stere_pool::DeviceClass;

use crate::cli::TierCommand;
use crate::control::{Answer, Connection, Request};
use crate::error::{At, DEGRADED, DONE, Result, refused};
use crate::registry::Registry;
use crate::running::Running;
use crate::status::to_json;
use crate::{clock, locate, reconcile, size};

pub use costs::{Change as PriceChange, CostsReport, of_archiving, print as print_costs};
pub use media::media;

const POLL: Duration = Duration::from_millis(200);
/// How long after the last look at the earliest, and how many times as long as that took.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const LOOK_PART: u32 = 2;
/// So long something is in the way before it is told.
const STANDSTILL: Duration = Duration::from_secs(3);
const PUSH_EVERY: Duration = Duration::from_secs(1);
const ATTRIBUTE: &str = "user.stere.tier";

/// What is asked of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Tell,
    /// End segments that are not full, so that everything gets to its volumes.
    Push,
    /// Where the content below this inode is.
    Survey(u64),
    /// Give up what is on devices beside the volumes' copies.
    Release(u64),
    /// Put the names away of what was released.
    PutAway(u64),
    /// Bring back.
    Stage(u64),
    /// Bring back no more, and copy out no more if that is asked for.
    Cancel(u64, bool),
    /// Keep on devices, or no longer.
    Pin(u64, bool),
    /// When and in which order files are released by themselves, from now on.
    Policy(policy::Change),
    /// What bringing back what is below this inode would cost; or sending it down to these volumes.
    Costs(u64, Option<String>),
    /// What a volume costs, from now on if anything is given.
    Price(String, costs::Change),
    /// Compare a volume with the pool; `reads` every object.
    Verify {
        volume: String,
        reads: bool,
    },
    /// Copy all that is on a volume to another one, and let the volume go.
    Retire {
        volume: String,
        to: Option<String>,
        dry_run: bool,
    },
    /// Empty some objects of a volume, or of all, of which at most so many percent are alive.
    Repack {
        volume: Option<String>,
        below: u8,
    },
}

/// A volume as people see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeReport {
    pub name: String,
    pub class: String,
    pub place: String,
    pub id: String,
    /// `online`, `offline` (taken away on purpose) or `away`.
    pub state: String,
    pub segments: u64,
    pub live_bytes: u64,
    /// What its objects take.
    pub stored_bytes: u64,
    /// What is nowhere else.
    pub only_here_bytes: u64,
    /// What is to be copied to it.
    pub waiting_bytes: u64,
    pub waiting_segments: u64,
    /// The checkpoint whose metadata is there; none that this mount knows of.
    pub metadata_generation: Option<u64>,
    /// What it said last, where that was bad.
    pub complaint: Option<String>,
    /// The volume that takes over from it, if it is being retired, and what that one lacks still.
    #[serde(default)]
    pub heir: Option<String>,
    #[serde(default)]
    pub left_segments: u64,
    #[serde(default)]
    pub left_bytes: u64,
    /// Its cartridges, where it is a library.
    #[serde(default)]
    pub media: Vec<media::CartridgeReport>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TierReport {
    pub volumes: Vec<VolumeReport>,
    /// Segments that readers or people want back.
    pub staging_segments: u64,
    /// Reads that are under way at volumes, and those that wait for their turn (`recall_user=`, `recall_tier=`).
    #[serde(default)]
    pub reads_under_way: usize,
    #[serde(default)]
    pub reads_waiting: usize,
    pub segments_uploaded: u64,
    pub bytes_uploaded: u64,
    pub fetches: u64,
    pub bytes_fetched: u64,
    pub bad_objects: u64,
    /// Requests to volumes, of every kind, since the mount.
    pub requests: u64,
    /// Why the work stands still.
    pub waits_for: Option<String>,
    /// Segments that cannot be copied out, and why.
    pub stuck: Vec<String>,
    /// Paths that are kept on devices.
    pub pinned: Vec<String>,
    /// Percent of devices in use from which archived files are released by themselves, and down to which.
    pub high: u8,
    pub low: u8,
    pub used_percent: u8,
    /// Which segments go first: `stp`, `lru`, `once` or `size`; the power of the age for `stp`.
    #[serde(default)]
    pub order: String,
    #[serde(default)]
    pub exponent: f64,
    /// What came back to devices may take so much there, if that was said, and takes so much.
    #[serde(default)]
    pub cache_bytes: Option<u64>,
    #[serde(default)]
    pub back_bytes: u64,
    /// Keys of names that were put away, and in how many bundles.
    #[serde(default)]
    pub keys_put_away: u64,
    #[serde(default)]
    pub bundles: u64,
}

/// Stored bytes of what a path stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurveyReport {
    pub files: u64,
    pub local_bytes: u64,
    pub waiting_bytes: u64,
    pub tertiary_bytes: u64,
    pub released_bytes: u64,
    pub unreachable_bytes: u64,
    pub segments: u64,
    pub volumes: String,
    /// What was done, in words.
    pub said: String,
    /// Part of it could not be done now.
    pub is_partial: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyReport {
    pub volume: String,
    pub objects: u64,
    pub bytes: u64,
    pub deleted: u64,
    pub lacking: Vec<u64>,
    pub damaged: Vec<u64>,
}

/// What repacking did, in one step or in all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepackReport {
    pub segments_emptied: u64,
    pub bytes_emptied: u64,
    pub segments_made: u64,
    pub bytes_made: u64,
    pub segments_left: u64,
    pub waits_for: Option<String>,
}

/// What the daemon answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    Tier(TierReport),
    Survey(SurveyReport),
    Verify(VerifyReport),
    Repack(RepackReport),
    Retire(retire::RetireReport),
    Costs(Vec<costs::CostsReport>),
    Price(costs::PriceReport),
}

/// Volumes for reports.
pub fn volume_reports(running: &Running) -> Vec<VolumeReport> {
    let statuses = running.store.volume_statuses().into_iter();
    let report = |status: stere_store::VolumeStatus| VolumeReport {
        heir: status.entry.succession.heir().map(|heir| running.store.tier_names(1 << heir)),
        left_segments: running.store.left_to_retire(status.entry.number).0,
        left_bytes: running.store.left_to_retire(status.entry.number).1,
        state: match (status.entry.is_offline, status.is_attached && status.complaint.is_none()) {
            (true, _) => "offline",
            (false, true) => "online",
            (false, false) => "away",
        }
        .to_owned(),
        media: running.gate.media(status.entry.number).into_iter().map(Into::into).collect(),
        // Of those who wait now, rather than of who was the first.
        complaint: status.complaint.map(|text| running.gate.complaint(status.entry.number).unwrap_or(text)),
        name: status.entry.name,
        class: DeviceClass::from_code(status.entry.class).word().to_owned(),
        place: status.entry.place,
        id: status.entry.id.to_string(),
        segments: status.segments,
        live_bytes: status.live_bytes,
        stored_bytes: status.stored_bytes,
        only_here_bytes: status.only_here_bytes,
        waiting_bytes: status.waiting_bytes,
        waiting_segments: status.waiting_segments,
        metadata_generation: status.metadata_generation,
    };
    statuses.map(report).collect()
}

fn report(filesystem: &FileSystem, running: &Running) -> TierReport {
    // What has an encrypted name is told by number; what cannot be read now is left out.
    let path = |inode: u64| match filesystem.named_inode(Wait::Allowed, inode) {
        Ok(Some((path, _))) => String::from_utf8_lossy(&path).into_owned(),
        _ => format!("inode {inode}"),
    };
    let pinned = filesystem.pinned_roots(Wait::Allowed).unwrap_or_default().into_iter().map(path).collect();
    let counts = running.store.tertiary_counts();
    // What cannot be read now is as it is usually.
    let marks = running.store.tier_marks(Wait::Allowed).unwrap_or_default();
    let policy = running.store.tier_policy(Wait::Allowed).unwrap_or_default();
    let folds = running.store.folds(Wait::Allowed).unwrap_or_default();
    TierReport {
        volumes: volume_reports(running),
        staging_segments: running.store.wanted_back(),
        reads_under_way: running.tertiary.turns().0,
        reads_waiting: running.tertiary.turns().1,
        segments_uploaded: counts.segments_uploaded,
        bytes_uploaded: counts.bytes_uploaded,
        fetches: counts.fetches,
        bytes_fetched: counts.bytes_fetched,
        bad_objects: counts.bad_objects,
        requests: running.gate.requests(),
        waits_for: running.tertiary.waits_for(),
        stuck: running.store.stuck_uploads(),
        pinned,
        high: marks.high,
        low: marks.low,
        used_percent: running.store.used_percent(),
        order: policy.order.word().to_owned(),
        exponent: f64::from(policy.exponent_hundredths) / 100.0,
        cache_bytes: Some(policy.cache_bytes).filter(|bytes| *bytes > 0),
        back_bytes: running.store.bytes_back(),
        keys_put_away: folds.iter().map(|fold| u64::from(fold.keys)).sum(),
        bundles: folds.len() as u64,
    }
}

/// What lies below an inode, with its segments and files.
fn survey(filesystem: &FileSystem, running: &Running, root: u64) -> Result<(SurveyReport, BTreeSet<u64>, Vec<u64>)> {
    let (mut report, mut segments, mut inodes) = (SurveyReport::default(), BTreeSet::new(), Vec::new());
    let mut volumes = 0;
    filesystem.tier_walk(&clock::own_caller(Wait::Allowed), root, &mut |met| {
        report.files += 1;
        report.local_bytes += met.file.local_bytes;
        report.waiting_bytes += met.file.waiting_bytes;
        report.tertiary_bytes += met.file.tertiary_bytes;
        report.released_bytes += met.file.released_bytes;
        report.unreachable_bytes += met.file.unreachable_bytes;
        volumes |= met.file.volumes;
        if !met.segments.is_empty() {
            inodes.push(met.inode);
        }
        segments.extend(met.segments);
        ControlFlow::Continue(())
    })?;
    report.segments = segments.len() as u64;
    report.volumes = running.store.tier_names(volumes);
    Ok((report, segments, inodes))
}

/// Gives up what is on devices beside the volumes' copies of all below an inode, but for what is pinned.
fn release_below(filesystem: &FileSystem, running: &Running, root: u64) -> Result<SurveyReport> {
    let (_, mut segments, inodes) = survey(filesystem, running, root)?;
    let pinned = filesystem.pinned_segments(&clock::own_caller(Wait::Allowed))?;
    let found = segments.len();
    segments.retain(|segment| !pinned.contains(segment));
    let kept = found - segments.len();
    let segments: Vec<u64> = segments.into_iter().collect();
    let released = filesystem.release_segments(&clock::own_caller(Wait::Allowed), &segments)?;
    running.store.commit(Wait::Allowed)?;
    running.tertiary.forget_attributes(&inodes);
    let (mut report, _, _) = survey(filesystem, running, root)?;
    report.is_partial = released.waiting > 0;
    report.said = format!(
        "released {} segments, {} of devices become free{}{}",
        released.segments,
        size::show(released.bytes),
        match released.waiting {
            0 => String::new(),
            waiting => format!("; {waiting} segments are not on all their volumes yet and stay"),
        },
        match kept {
            0 => String::new(),
            kept => format!("; {kept} segments hold something that is pinned and stay"),
        }
    );
    Ok(report)
}

/// Stops what is under way below an inode: what is to come back, and what is to go down if it was told to itself.
fn cancel_below(filesystem: &FileSystem, running: &Running, root: u64, goes_down: bool) -> Result<Told> {
    let (mut report, segments, _) = survey(filesystem, running, root)?;
    let segments: Vec<u64> = segments.into_iter().collect();
    filesystem.forget_coming_units();
    let (staging, uploads) = match goes_down {
        true => (running.store.want_back_no_more(&segments), running.store.upload_no_more(&segments)?),
        false => (running.store.want_back_no_more(&segments), 0),
    };
    let words = [(staging, "to come back"), (uploads, "to be copied out")].into_iter().filter(|(count, _)| *count > 0);
    let words = words.map(|(count, what)| format!("segments that were {what} and stay where they are: {count}"));
    report.said = words.collect::<Vec<_>>().join("; ");
    Ok(Told::Survey(report))
}

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, running: &Running, order: &Order) -> Result<Told> {
    match order {
        Order::Tell => Ok(Told::Tier(report(filesystem, running))),
        Order::Push => {
            running.tertiary.push();
            Ok(Told::Tier(report(filesystem, running)))
        }
        Order::Survey(root) => Ok(Told::Survey(survey(filesystem, running, *root)?.0)),
        Order::Policy(change) => {
            policy::apply(running, change)?;
            Ok(Told::Tier(report(filesystem, running)))
        }
        Order::Release(root) => Ok(Told::Survey(release_below(filesystem, running, *root)?)),
        Order::PutAway(root) => Ok(Told::Survey(names::put_away_below(filesystem, running, *root)?)),
        Order::Pin(root, is_pinned) => {
            filesystem.set_pinned(Wait::Allowed, *root, *is_pinned)?;
            running.store.commit(Wait::Allowed)?;
            match is_pinned {
                true => serve(filesystem, running, &Order::Stage(*root)),
                false => Ok(Told::Survey(survey(filesystem, running, *root)?.0)),
            }
        }
        Order::Stage(root) => {
            // Names first: what they lead to is known then.
            filesystem.unfold_below(&clock::own_caller(Wait::Allowed), *root)?;
            let (mut report, segments, inodes) = survey(filesystem, running, *root)?;
            running.store.want_back(&segments.into_iter().collect::<Vec<_>>());
            running.tertiary.wake();
            running.tertiary.forget_attributes(&inodes);
            report.said = format!("bringing {} back", size::show(report.released_bytes));
            Ok(Told::Survey(report))
        }
        Order::Cancel(root, goes_down) => cancel_below(filesystem, running, *root, *goes_down),
        Order::Costs(root, to) => costs::forecast(filesystem, running, *root, to.as_deref()),
        Order::Price(volume, change) => costs::price(running, volume, change),
        Order::Retire { volume, to, dry_run } => retire::begin(running, volume, to.as_deref(), *dry_run),
        Order::Repack { volume, below } => media::repack_some(filesystem, running, volume.as_deref(), *below),
        Order::Verify { volume, reads } => {
            let Some(entry) = running.find_volume(volume) else {
                return refused(format!("the pool '{}' has no volume '{volume}'", running.pool));
            };
            let swept = running.store.sweep_volume(entry.number, *reads)?;
            running.store.commit(Wait::Allowed)?;
            Ok(Told::Verify(VerifyReport {
                volume: entry.name,
                objects: swept.objects,
                bytes: swept.bytes,
                deleted: swept.deleted,
                lacking: swept.lacking,
                damaged: swept.damaged,
            }))
        }
    }
}

fn ask(connection: &mut Connection, order: Order) -> Result<Told> {
    match connection.ask(Request::Tier { order })? {
        Answer::Tier(told) => Ok(told),
        _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
}

fn ask_tier(connection: &mut Connection, order: Order) -> Result<TierReport> {
    match ask(connection, order)? {
        Told::Tier(report) => Ok(report),
        _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
}

fn ask_survey(connection: &mut Connection, order: Order) -> Result<SurveyReport> {
    match ask(connection, order)? {
        Told::Survey(report) => Ok(report),
        _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
}

fn open(registry: &Registry, pool: &str) -> Result<Connection> {
    match Connection::open(registry, pool) {
        Some(mut connection) => {
            connection.be_patient()?;
            Ok(connection)
        }
        None => refused(format!("the pool '{pool}' is not mounted; volumes are used while it is: mount it")),
    }
}

pub fn run(registry: &Registry, command: &TierCommand) -> Result<u8> {
    match command {
        TierCommand::List { pool, json } | TierCommand::Queue { pool, json } => {
            let report = ask_tier(&mut open(registry, pool)?, Order::Tell)?;
            let is_list = matches!(command, TierCommand::List { .. });
            match (json, is_list) {
                (true, _) => println!("{}", to_json(&report)?),
                (false, true) => print_volumes(&report.volumes),
                (false, false) => print_queue(&report),
            }
            Ok(DONE)
        }
        TierCommand::Policy { pool, settings, high, low, json } => {
            let change = policy::Change::parse(settings, high.zip(*low))?;
            let report = ask_tier(&mut open(registry, pool)?, Order::Policy(change))?;
            match json {
                true => println!("{}", to_json(&report)?),
                false => policy::print(&report),
            }
            Ok(DONE)
        }
        TierCommand::Archive { paths, to, dry_run: true, json, .. } => {
            costs::archive(registry, paths, to.as_deref(), *json)
        }
        TierCommand::Stage { paths, dry_run: true, json, .. } => costs::stage(registry, paths, *json),
        TierCommand::Price { pool, volume, settings, json } => costs::show(registry, pool, volume, settings, *json),
        TierCommand::Archive { paths, to, wait, .. } => {
            paths.iter().try_fold(DONE, |code, path| Ok(code.max(archive(registry, path, to.as_deref(), *wait)?)))
        }
        TierCommand::Release { paths, metadata } => {
            paths.iter().try_fold(DONE, |code, path| Ok(code.max(release(registry, path, *metadata)?)))
        }
        TierCommand::Stage { paths, wait, .. } => {
            paths.iter().try_fold(DONE, |code, path| Ok(code.max(stage(registry, path, *wait)?)))
        }
        TierCommand::Pin { paths, wait } => {
            paths.iter().try_fold(DONE, |code, path| Ok(code.max(pin(registry, path, *wait)?)))
        }
        TierCommand::Unpin { paths } => {
            for path in paths {
                let (_, mut connection, inode) = locate::connect(registry, path)?;
                connection.be_patient()?;
                ask_survey(&mut connection, Order::Pin(inode, false))?;
                println!("{} may be released", path.display());
            }
            Ok(DONE)
        }
        TierCommand::Cancel { paths } => {
            paths.iter().try_for_each(|path| cancel(registry, path))?;
            Ok(DONE)
        }
    }
}

/// The same below a list of devices.
pub fn print_volumes_if_any(volumes: &[VolumeReport]) {
    if !volumes.is_empty() {
        println!("\ntertiary volumes:");
        print_volumes(volumes);
    }
}

fn print_volumes(volumes: &[VolumeReport]) {
    if volumes.is_empty() {
        println!("the pool has no tertiary volumes; add one: stere device add POOL dir:/path,name=NAME");
    }
    for volume in volumes {
        println!(
            "{}  {}  {}  {} in {} segments of {}, {} nowhere else, {} to be copied  {}",
            volume.name,
            volume.class,
            volume.state,
            size::show(volume.live_bytes),
            volume.segments,
            size::show(volume.stored_bytes),
            size::show(volume.only_here_bytes),
            size::show(volume.waiting_bytes),
            volume.place
        );
        if let Some(generation) = volume.metadata_generation {
            println!("  with the pool's metadata, as of checkpoint {generation}");
        }
        if let Some(heir) = &volume.heir {
            let (left, segments) = (size::show(volume.left_bytes), volume.left_segments);
            println!("  is being retired to {heir}: {left} in {segments} segments are left");
        }
        if let Some(complaint) = &volume.complaint {
            println!("  {complaint}");
        }
    }
}

fn print_queue(report: &TierReport) {
    for volume in report.volumes.iter().filter(|volume| volume.waiting_segments > 0) {
        println!(
            "to {}: {} in {} segments wait to be copied out",
            volume.name,
            size::show(volume.waiting_bytes),
            volume.waiting_segments
        );
    }
    println!("to come back: {} segments", report.staging_segments);
    if report.reads_under_way + report.reads_waiting > 0 {
        let (under_way, waiting) = (report.reads_under_way, report.reads_waiting);
        println!("reads that wait for volumes: {under_way}; for their turn: {waiting}");
    }
    println!(
        "since the mount: {} in {} segments copied out, {} fetched in {} requests, {} bad objects",
        size::show(report.bytes_uploaded),
        report.segments_uploaded,
        size::show(report.bytes_fetched),
        report.fetches,
        report.bad_objects
    );
    if report.bundles > 0 {
        println!("names put away: {} keys in {} bundles", report.keys_put_away, report.bundles);
    }
    report.stuck.iter().for_each(|text| println!("cannot be copied out: {text}"));
    report.pinned.iter().for_each(|path| println!("stays on devices: {path}"));
    if let Some(why) = &report.waits_for {
        println!("waits: {why}");
    }
}

/// The volumes that a person means, or the first one.
fn volumes_meant(report: &TierReport, to: Option<&str>, pool: &str) -> Result<String> {
    let name = match (to, report.volumes.iter().find(|volume| volume.state != "offline")) {
        (Some(name), _) => name.to_owned(),
        (None, Some(volume)) => volume.name.clone(),
        (None, None) => {
            return refused(format!(
                "the pool '{pool}' has no tertiary volume; add one with `stere device add {pool} dir:/path,name=NAME`"
            ));
        }
    };
    let known = |name: &str| report.volumes.iter().any(|volume| volume.name == name);
    if let Some(unknown) = name.split('+').find(|name| !known(name)) {
        return refused(format!("the pool '{pool}' has no volume '{unknown}'; see `stere tier list {pool}`"));
    }
    Ok(name)
}

/// Sends a path down.
fn archive(registry: &Registry, path: &Path, to: Option<&str>, wait: bool) -> Result<u8> {
    let (about, mut connection, inode) = locate::connect(registry, path)?;
    connection.be_patient()?;
    let report = ask_tier(&mut connection, Order::Tell)?;
    let name = volumes_meant(&report, to, &about.pool)?;
    setxattr(path, ATTRIBUTE, name.as_bytes(), XattrFlags::empty()).at("set the policy of", path)?;
    if !wait {
        println!("{} goes to {name}; `stere tier queue {}` tells how far", path.display(), about.pool);
        return Ok(DONE);
    }
    // What was written last is gathered in memory still.
    connection.ask(Request::Flush { wait: true })?;
    reconcile::wait_for(registry, path)?;
    let (mut stands_since, mut pushed) = (None, None::<Instant>);
    loop {
        let look = Instant::now();
        // Now and then those who wait for a volume are told to look again.
        let is_pushing = pushed.is_none_or(|at| at.elapsed() >= PUSH_EVERY);
        if is_pushing {
            pushed = Some(look);
        }
        let tier = ask_tier(&mut connection, if is_pushing { Order::Push } else { Order::Tell })?;
        let survey = ask_survey(&mut connection, Order::Survey(inode))?;
        let left = (survey.local_bytes + survey.released_bytes).saturating_sub(survey.tertiary_bytes);
        match (survey.waiting_bytes, left) {
            (0, 0) => {
                let (size, files) = (size::show(survey.tertiary_bytes), survey.files);
                println!("{} is on {name}: {size} of {files} files", path.display());
                return Ok(DONE);
            }
            (0, _) => {
                let (left, path) = (size::show(left), path.display());
                println!("{left} of {path} do not go down yet; `stere reconcile status {}` tells why", about.pool);
                return Ok(DEGRADED);
            }
            _ => {}
        }
        let why = tier.waits_for.or_else(|| tier.stuck.first().cloned());
        stands_since = why.as_ref().map(|_| stands_since.unwrap_or(look));
        if let Some(why) = why.filter(|_| stands_since.is_some_and(|since| since.elapsed() >= STANDSTILL)) {
            let (size, path) = (size::show(survey.waiting_bytes), path.display());
            println!("{size} of {path} wait to be copied out; it goes on by itself: {why}");
            return Ok(DEGRADED);
        }
        std::thread::sleep(LOOK_AGAIN.max(look.elapsed() * LOOK_PART));
    }
}

fn release(registry: &Registry, path: &Path, names_too: bool) -> Result<u8> {
    let (_, mut connection, inode) = locate::connect(registry, path)?;
    connection.be_patient()?;
    let report = ask_survey(&mut connection, Order::Release(inode))?;
    println!("{}: {}", path.display(), report.said);
    if report.tertiary_bytes == 0 && report.files > 0 {
        return refused(format!("nothing of {} is on a tertiary volume; archive it first", path.display()));
    }
    let is_partial = match names_too {
        true => !names::release(&mut connection, path, inode)?,
        false => false,
    };
    Ok(if report.is_partial || is_partial { DEGRADED } else { DONE })
}

/// Keeps a path on devices, and brings back what is not there.
fn pin(registry: &Registry, path: &Path, wait: bool) -> Result<u8> {
    let (_, mut connection, inode) = locate::connect(registry, path)?;
    connection.be_patient()?;
    let report = ask_survey(&mut connection, Order::Pin(inode, true))?;
    println!("{}: stays on devices; {}", path.display(), report.said);
    Ok(if wait && !wait_until_staged(&mut connection, inode)? { DEGRADED } else { DONE })
}

fn stage(registry: &Registry, path: &Path, wait: bool) -> Result<u8> {
    let (_, mut connection, inode) = locate::connect(registry, path)?;
    connection.be_patient()?;
    let report = ask_survey(&mut connection, Order::Stage(inode))?;
    println!("{}: {}", path.display(), report.said);
    if wait && !wait_until_staged(&mut connection, inode)? {
        return Ok(DEGRADED);
    }
    // Once more, now that it is here: what the kernel remembers of sizes is old.
    ask_survey(&mut connection, Order::Stage(inode)).map(|_| DONE)
}

/// False where something cannot come back now, which it tells.
fn wait_until_staged(connection: &mut Connection, inode: u64) -> Result<bool> {
    loop {
        if ask_survey(connection, Order::Survey(inode))?.released_bytes == 0 {
            return Ok(true);
        }
        let tier = ask_tier(connection, Order::Tell)?;
        if tier.staging_segments == 0 || tier.waits_for.is_some() {
            let left = ask_survey(connection, Order::Survey(inode))?.released_bytes;
            if left > 0 {
                let why = tier.waits_for.unwrap_or_else(|| "see `stere tier queue` and the log".into());
                println!("{} are still elsewhere: {why}", size::show(left));
                return Ok(false);
            }
        }
        std::thread::sleep(POLL);
    }
}

/// Stops what is under way with a path, in both directions.
fn cancel(registry: &Registry, path: &Path) -> Result<()> {
    let was_to_go_down = match removexattr(path, ATTRIBUTE) {
        Ok(()) => true,
        Err(rustix::io::Errno::NODATA) => false,
        Err(error) => return Err(error).at("unset the policy of", path),
    };
    let (_, mut connection, inode) = locate::connect(registry, path)?;
    connection.be_patient()?;
    let report = ask_survey(&mut connection, Order::Cancel(inode, was_to_go_down))?;
    let path = path.display();
    match (was_to_go_down, report.said.is_empty()) {
        (true, _) => println!("{path} goes down no further; what is on volumes stays there"),
        (false, true) => println!("{path} was not told to go down itself, and nothing of it is to come back"),
        (false, false) => {}
    }
    if !report.said.is_empty() {
        println!("{path}: {}", report.said);
    }
    Ok(())
}
