//! What the daemon tells of the load on its mount, draws of it, and advises; and traces.
//!
//! Invariant: nothing here changes policy. Read next: the crate fuse's `io_profiles.rs`, the crate workload.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::sync::Arc;
use std::time::Duration;

use stere_control::io::{AdviceLine, HurstLine, IoReport, KindLine, Names, Order, RecordingReport, SubjectLine};
use stere_control::message::Answer;
use stere_fuse::{IoProfiles, SUBTREES_MAX};
use stere_machine::error::{Result, refused};
use stere_naming::{FileSystem, Holder, Io};
use stere_workload::advise::{DeviceClass, PoolFacts, advise};
use stere_workload::hurst::{Hurst, TooLittleData, by_haar, by_variance_time};
use stere_workload::trace::NameRule;
use stere_workload::{CallKind, Profile, Subject, SubjectKind, Subjects, picture, table};

use crate::daemon::Daemon;

/// How often what was answered is counted, and while there is much.
const COUNT_EACH: Duration = Duration::from_millis(200);
const COUNT_EACH_BUSY: Duration = Duration::from_millis(40);
/// Calls between two times that are much.
const MUCH: usize = 256;
/// Subjects told of at most, of each kind those with most calls.
const TOLD_MAX: usize = 20;

/// Counts until the mount ends.
pub fn count_until_the_end(daemon: &Daemon) {
    let mut rest = COUNT_EACH;
    while !daemon.stop.load(std::sync::atomic::Ordering::Acquire) {
        std::thread::sleep(rest);
        let counted = daemon.io_profiles.count(&daemon.filesystem);
        rest = if counted >= MUCH { COUNT_EACH_BUSY } else { COUNT_EACH };
    }
    daemon.io_profiles.stop_recording();
}

/// Answers for the daemon.
pub fn serve(daemon: &Daemon, order: Order) -> Result<Answer> {
    let (profiles, filesystem) = (&daemon.io_profiles, &daemon.filesystem);
    profiles.count(filesystem);
    match order {
        Order::Tell { below } => {
            let place = place_of(profiles, below)?;
            Ok(Answer::Io(Box::new(report(profiles, filesystem, &daemon.about.pool, place))))
        }
        Order::Draw { below } => {
            let place = place_of(profiles, below)?;
            let name = name_of(filesystem, &daemon.about.pool, below);
            let pictures = profiles.look(|whole, subjects| {
                let profile = of_place(whole, subjects, place);
                profile.map(|profile| picture::all(&name, profile, daemon.memory_bytes))
            });
            let pictures = pictures.unwrap_or_default();
            Ok(Answer::IoPictures { pictures })
        }
        Order::Advise { below } => {
            let place = place_of(profiles, below)?;
            let facts = facts(daemon, below);
            Ok(Answer::IoAdvice {
                lines: profiles.look(|whole, subjects| advice(of_place(whole, subjects, place), &facts)),
            })
        }
        Order::Record { file, seconds, bytes_max, names } => record(profiles, &file, seconds, bytes_max, names),
        Order::Recording => Ok(recording(profiles)),
        Order::Stop => {
            profiles.stop_recording();
            Ok(recording(profiles))
        }
    }
}

/// Where in the table what is below a directory is counted; none for the whole.
fn place_of(profiles: &Arc<IoProfiles>, below: Option<u64>) -> Result<Option<u64>> {
    let Some(inode) = below.filter(|inode| *inode != stere_naming::ROOT) else { return Ok(None) };
    if !profiles.count_subtree(inode) {
        return refused(format!(
            "{SUBTREES_MAX} directories are counted for themselves already, until the next mount; ask for one of them"
        ));
    }
    let place = profiles.subtrees().iter().position(|known| *known == inode);
    Ok(place.map(|place| place as u64))
}

fn of_place<'a>(whole: &'a Profile, subjects: &'a Subjects, place: Option<u64>) -> Option<&'a Profile> {
    match place {
        None => Some(whole),
        Some(id) => subjects.get(Subject { kind: SubjectKind::Subtree, id }),
    }
}

fn name_of(filesystem: &FileSystem, pool: &str, below: Option<u64>) -> String {
    below.and_then(|inode| filesystem.membership.path_if_known(Io::BLOCKING, inode)).unwrap_or_else(|| pool.to_owned())
}

fn report(profiles: &IoProfiles, filesystem: &FileSystem, pool: &str, place: Option<u64>) -> IoReport {
    // Names first: looking one up may take long, and nothing is counted while somebody looks at profiles.
    let volumes = volume_names(filesystem);
    let path = |inode: u64| filesystem.membership.path_if_known(Io::BLOCKING, inode);
    let subtrees: Vec<Option<String>> = profiles.subtrees().into_iter().map(path).collect();
    let (subjects, text, seconds) = profiles.look(|whole, subjects| {
        let mut told: Vec<(String, String, &Profile)> = Vec::new();
        match place {
            Some(_) => {
                let name = place.and_then(|place| subtrees.get(place as usize)?.clone()).unwrap_or_default();
                told.extend(of_place(whole, subjects, place).map(|profile| ("directory".to_owned(), name, profile)));
            }
            None => {
                told.push(("pool".into(), pool.to_owned(), whole));
                for kind in SubjectKind::ALL {
                    let mut of_kind = subjects.of_kind(kind);
                    of_kind.sort_by_key(|(_, profile)| std::cmp::Reverse(profile.calls()));
                    for (subject, profile) in of_kind.into_iter().take(TOLD_MAX) {
                        let (of, name) = subject_name(filesystem, subject, &volumes, &subtrees);
                        told.push((of, name, profile));
                    }
                    told.extend(subjects.others(kind).map(|profile| ("other".into(), kind.word().to_owned(), profile)));
                }
            }
        }
        let named: Vec<(String, &Profile)> =
            told.iter().map(|(of, name, profile)| (format!("{of} {name}"), *profile)).collect();
        let named: Vec<(&str, &Profile)> = named.iter().map(|(name, profile)| (name.as_str(), *profile)).collect();
        let lines = told.iter().map(|(of, name, profile)| line(of, name, profile)).collect::<Vec<_>>();
        (lines, table::all(&named), whole.span_ns() as f64 / 1e9)
    });
    IoReport { seconds, missed_calls: profiles.missed(), subjects, text }
}

fn volume_names(filesystem: &FileSystem) -> BTreeMap<u64, String> {
    let listed = filesystem.quotas().accounts(Io::BLOCKING, Holder::Volume).unwrap_or_default();
    let named = listed.into_iter().filter_map(|info| Some((u64::from(info.account.number), info.path?)));
    named.map(|(number, path)| (number, String::from_utf8_lossy(&path).into_owned())).collect()
}

fn subject_name(
    filesystem: &FileSystem,
    subject: Subject,
    volumes: &BTreeMap<u64, String>,
    subtrees: &[Option<String>],
) -> (String, String) {
    let Subject { kind, id } = subject;
    let number = || format!("#{id}");
    match kind {
        SubjectKind::Volume => ("volume".into(), volumes.get(&id).cloned().unwrap_or_else(number)),
        SubjectKind::Class => {
            let name = u8::try_from(id).ok().and_then(|code| filesystem.membership.class_name(code));
            ("class".into(), name.unwrap_or_else(number))
        }
        SubjectKind::Subtree => {
            let path = subtrees.get(id as usize).cloned().flatten();
            ("directory".into(), path.unwrap_or_else(number))
        }
        SubjectKind::Client => ("machine".into(), number()),
        SubjectKind::Device | SubjectKind::Medium => (kind.word().into(), number()),
    }
}

fn line(of: &str, name: &str, profile: &Profile) -> SubjectLine {
    let kinds = CallKind::ALL.into_iter().filter(|kind| profile.kind(*kind).calls > 0);
    let kinds = kinds.map(|kind| {
        let figures = profile.kind(kind);
        KindLine {
            kind: kind.word().to_owned(),
            calls: figures.calls,
            errors: figures.errors,
            bytes: figures.bytes,
            latency_median_ns: figures.latencies_ns.quantile(0.5).unwrap_or(0),
            latency_p99_ns: figures.latencies_ns.quantile(0.99).unwrap_or(0),
        }
    });
    let dependence = profile.dependence();
    SubjectLine {
        of: of.to_owned(),
        name: name.to_owned(),
        calls: profile.calls(),
        data_calls: profile.data_calls(),
        calls_per_second: profile.calls_per_second(),
        read_share: profile.read_share(),
        sequential_share: profile.sequential_share(),
        files: profile.files().round() as u64,
        read_median_bytes: profile.read_bytes().quantile_size(0.5),
        write_median_bytes: profile.write_bytes().quantile_size(0.5),
        arrival_median_ns: profile.data_arrivals_ns().quantile(0.5),
        in_flight_mean: profile.in_flight().mean(),
        kinds: kinds.collect(),
        hurst: vec![
            hurst("variance and time", by_variance_time(dependence)),
            hurst("Haar wavelets", by_haar(dependence)),
        ],
        misses: profile.reuse().curve().into_iter().map(|point| (point.cache_bytes, point.miss_ratio)).collect(),
    }
}

fn hurst(estimator: &str, found: std::result::Result<Hurst, TooLittleData>) -> HurstLine {
    let estimator = estimator.to_owned();
    match found {
        Ok(hurst) => {
            let (low, high) = hurst.interval();
            HurstLine { estimator, value: Some(hurst.value), low: Some(low), high: Some(high), why_none: None }
        }
        Err(why) => HurstLine { estimator, value: None, low: None, high: None, why_none: Some(why.to_string()) },
    }
}

/// What is known of the pool, and what policy says of the directory that is asked for.
fn facts(daemon: &Daemon, below: Option<u64>) -> PoolFacts {
    let store = &daemon.running.store;
    let settings = daemon.filesystem.membership.stored_as(Io::BLOCKING, below.unwrap_or(stere_naming::ROOT));
    let of_class = |class: stere_pool::DeviceClass| {
        let all = store.device_entries();
        all.iter().filter(|entry| entry.class == class.code()).count() as u32
    };
    let (ssds, hdds) = (of_class(stere_pool::DeviceClass::Ssd), of_class(stere_pool::DeviceClass::Hdd));
    let device_class = match (ssds, hdds) {
        (_, 0) if ssds > 0 => DeviceClass::Ssd,
        (0, _) if hdds > 0 => DeviceClass::Hdd,
        _ => DeviceClass::Unknown,
    };
    PoolFacts {
        record_bytes: settings.map_or(0, |settings| settings.record_bytes),
        is_compressed: settings.is_some_and(|settings| settings.is_compressed),
        sampled_ratio: None,
        data_chunks: settings.map_or(1, |settings| u32::from(settings.data)),
        redundant_chunks: settings.map_or(0, |settings| u32::from(settings.parity)),
        ssds,
        hdds,
        device_class,
        cache_bytes: daemon.memory_bytes,
        has_media: store.tier.media.has_volumes(),
        stored_bytes: 0,
        idle_bytes: 0,
        idle_days: 0,
    }
}

fn advice(profile: Option<&Profile>, facts: &PoolFacts) -> Vec<AdviceLine> {
    let empty = Profile::default();
    let answer = advise(profile.unwrap_or(&empty), facts);
    let given = answer.advice.iter().map(|advice| AdviceLine {
        key: advice.key.word().to_owned(),
        setting: Some(advice.setting()),
        because: advice.because.clone(),
        confidence: Some(advice.confidence.word().to_owned()),
        gain: Some(advice.gain.to_string()),
    });
    let none = answer.none.iter().map(|none| AdviceLine {
        key: none.key.word().to_owned(),
        setting: None,
        because: none.because.clone(),
        confidence: None,
        gain: None,
    });
    given.chain(none).collect()
}

fn record(profiles: &IoProfiles, path: &std::path::Path, seconds: u64, bytes_max: u64, names: Names) -> Result<Answer> {
    let file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => file,
        Err(error) => return refused(format!("{} cannot be made: {error}; name a new file", path.display())),
    };
    let rule = match names {
        Names::Plain => NameRule::Plain,
        Names::Hashed => NameRule::Hashed(stere_machine::random::random()),
        Names::None => NameRule::None,
    };
    let length_ns = seconds.saturating_mul(1_000_000_000);
    if !profiles.record(file, rule, length_ns, bytes_max) {
        drop(std::fs::remove_file(path));
        return refused("a trace is being recorded already; end it with `stere io record POOL --stop`");
    }
    Ok(recording(profiles))
}

fn recording(profiles: &IoProfiles) -> Answer {
    let state = profiles.recording();
    let (is_going_on, calls, failure) = (state.is_going_on, state.calls, state.failure);
    Answer::IoRecording(RecordingReport { is_going_on, calls, failure })
}
