//! The rules behind advice, one function for each key.
//!
//! Invariants: each answers with an advice or with the reason why there is none, and both name figures; none advises what is so
//! already. Thresholds stand here as constants with their reasons. Read next: `advise.rs`.

use crate::advise::{Advice, AdviceKey, Confidence, DeviceClass, Gain, Opinion, PoolFacts, bytes_text, confidence};
use crate::call::CallKind;
use crate::hurst;
use crate::profile::Profile;
use crate::reuse::MissPoint;

/// Records as they are stored: policy takes larger ones, and they are cut at this (`docs/design/policy.md`).
const RECORD_BYTES_LEAST: u64 = 4 << 10;
const RECORD_BYTES_GREATEST: u64 = 128 << 10;
/// From this share on a load is sequential; below the other one it is random.
const SEQUENTIAL: f64 = 0.9;
const RANDOM: f64 = 0.5;
/// Less is not worth the time of compressing.
const RATIO_WORTH: f64 = 1.15;
/// At this rate of writing zstd takes more than one processor.
const ZSTD_BYTES_PER_SECOND: f64 = 200e6;
/// From this share of small overwrites on copies are better than parity, whose rows they leave half empty.
const SMALL_OVERWRITES: f64 = 0.3;
/// More random requests a second than a disk has seeks.
const DISK_SEEKS_PER_SECOND: f64 = 100.0;
/// A share of data that is idle and worth a rule.
const IDLE_WORTH: f64 = 0.2;
/// What a mount takes at least.
const MEMORY_LEAST: u64 = 64 << 20;
/// Of the hits that any cache could have.
const KNEE_SHARE: f64 = 0.9;
/// Points of the miss ratio that a change of cache must bring.
const MISSES_WORTH: f64 = 0.05;

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Size that three of four requests do not exceed, of the kind that there are more of.
fn usual_bytes(profile: &Profile) -> u64 {
    let reads_prevail = profile.read_share().is_some_and(|share| share >= 0.5);
    let sizes = if reads_prevail { profile.read_bytes() } else { profile.write_bytes() };
    sizes.quantile_size(0.75).unwrap_or(0)
}

fn seconds(profile: &Profile) -> f64 {
    (profile.span_ns() as f64 / 1e9).max(1e-9)
}

/// Random requests move whole records, so records of their size are best; for streams large ones are.
pub(crate) fn record(profile: &Profile, facts: &PoolFacts) -> Opinion {
    let Some(sequential) = profile.sequential_share() else {
        return Err("no file was read or written twice, so order says nothing".into());
    };
    let (usual, now) = (usual_bytes(profile), facts.record_bytes);
    let bytes = if sequential >= SEQUENTIAL {
        RECORD_BYTES_GREATEST
    } else if sequential <= RANDOM {
        usual.next_power_of_two().clamp(RECORD_BYTES_LEAST, RECORD_BYTES_GREATEST)
    } else {
        let share = percent(sequential);
        return Err(format!(
            "{share} of requests are sequential: neither order prevails, and records of {} are a fair middle",
            bytes_text(now)
        ));
    };
    if bytes == now {
        return Err(format!("records of {} fit: {} of requests are sequential", bytes_text(now), percent(sequential)));
    }
    let is_larger = bytes > now;
    let share = 1.0 - bytes.min(now) as f64 / bytes.max(now) as f64;
    let gain = if is_larger { Gain::FewerRecords(share) } else { Gain::LessMoved(share) };
    let because = format!(
        "{} of requests are sequential, three of four have at most {}, and records have {} now",
        percent(sequential),
        bytes_text(usual),
        bytes_text(now)
    );
    assert!((RECORD_BYTES_LEAST..=RECORD_BYTES_GREATEST).contains(&bytes), "policy knows records of {bytes} bytes");
    Ok(Advice { key: AdviceKey::Record, value: bytes_text(bytes), because, confidence: confidence(profile), gain })
}

/// Compression by a sampled ratio; the algorithm by the rate of writing.
pub(crate) fn compress(profile: &Profile, facts: &PoolFacts) -> Opinion {
    let Some(ratio) = facts.sampled_ratio else {
        return Err("no content was sampled, so nothing is known of how it compresses".into());
    };
    let rate = profile.kind(CallKind::Write).bytes as f64 / seconds(profile);
    let is_worth = ratio >= RATIO_WORTH;
    if is_worth == facts.is_compressed {
        let state = if is_worth { "is compressed already" } else { "is not compressed, which is right" };
        return Err(format!("a sample compresses to 1/{ratio:.2}, and content {state}"));
    }
    let because = format!("a sample compresses to 1/{ratio:.2}; {} are written a second", bytes_text(rate as u64));
    let (value, gain) = match is_worth {
        false => ("none", Gain::Faster),
        true if rate > ZSTD_BYTES_PER_SECOND => ("lz4", Gain::LessStored((1.0 - 1.0 / ratio) * 0.7)),
        true => ("zstd", Gain::LessStored(1.0 - 1.0 / ratio)),
    };
    Ok(Advice { key: AdviceKey::Compress, value: value.into(), because, confidence: Confidence::Medium, gain })
}

/// Copies for small overwrites, parity for what is written at once and stays.
pub(crate) fn redundancy(profile: &Profile, facts: &PoolFacts) -> Opinion {
    let writes = profile.kind(CallKind::Write).calls;
    if writes == 0 {
        return Err("nothing was written".into());
    }
    if facts.redundant_chunks == 0 {
        return Err("one copy is kept, by choice; a profile does not say what data is worth".into());
    }
    let small = profile.small_overwrites() as f64 / writes as f64;
    let losses = facts.redundant_chunks;
    let because = format!("{} of {writes} writes overwrite less than 64K", percent(small));
    let of_copies = f64::from(losses) + 1.0;
    let has_copies = facts.data_chunks == 1;
    if small >= SMALL_OVERWRITES && !has_copies {
        let (value, because) = (format!("copies={}", losses + 1), format!("{because}; parity is kept now"));
        return Ok(Advice {
            key: AdviceKey::Redundancy,
            value,
            because,
            confidence: confidence(profile),
            gain: Gain::Faster,
        });
    }
    let data = facts.devices().saturating_sub(losses).min(8);
    if small < 0.01 && has_copies && data >= 2 && usual_bytes(profile) >= 64 << 10 {
        let of_parity = 1.0 + f64::from(losses) / f64::from(data);
        let gain = Gain::LessStored(1.0 - of_parity / of_copies);
        let sizes = bytes_text(usual_bytes(profile));
        let because =
            format!("{because}, three of four requests have up to {sizes}, and there are {} devices", facts.devices());
        let value = format!("parity={data}+{losses}");
        return Ok(Advice { key: AdviceKey::Redundancy, value, because, confidence: confidence(profile), gain });
    }
    let kept = if has_copies { "copies" } else { "parity" };
    Err(format!("{because}; {kept} fit as far as calls show"))
}

/// Random requests faster than disks seek belong on flash; streams are as fast on disks.
pub(crate) fn on(profile: &Profile, facts: &PoolFacts) -> Opinion {
    if facts.ssds == 0 || facts.hdds == 0 {
        return Err(format!("all devices are of one class ({} ssd, {} hdd)", facts.ssds, facts.hdds));
    }
    let Some(sequential) = profile.sequential_share() else {
        return Err("no file was read or written twice, so order says nothing".into());
    };
    let random_rate = (1.0 - sequential) * profile.data_calls() as f64 / seconds(profile);
    let disks = DISK_SEEKS_PER_SECOND * f64::from(facts.hdds);
    let because = format!(
        "{} of requests are sequential and {random_rate:.0} a second are not; {} disks seek some {disks:.0} times",
        percent(sequential),
        facts.hdds
    );
    let value = match facts.device_class {
        DeviceClass::Hdd | DeviceClass::Unknown if random_rate > disks / 2.0 => "ssd",
        DeviceClass::Ssd if sequential >= SEQUENTIAL && random_rate < disks / 10.0 => "hdd",
        _ => return Err(format!("{because}: it lies where it should")),
    };
    let gain = if value == "ssd" { Gain::Faster } else { Gain::Frees(facts.stored_bytes) };
    Ok(Advice { key: AdviceKey::On, value: value.into(), because, confidence: confidence(profile), gain })
}

/// Data that nobody used for long may go to media, unless files are removed before that anyway.
pub(crate) fn rule(profile: &Profile, facts: &PoolFacts) -> Opinion {
    if !facts.has_media {
        return Err("there is no medium to archive to".into());
    }
    if facts.stored_bytes == 0 || facts.idle_days == 0 {
        return Err("too little data: nothing is known of how long data has been idle".into());
    }
    let share = facts.idle_bytes as f64 / facts.stored_bytes as f64;
    let (idle, days) = (bytes_text(facts.idle_bytes), facts.idle_days);
    let because =
        format!("{idle} of {} ({}) were not used for {days} days", bytes_text(facts.stored_bytes), percent(share));
    if share < IDLE_WORTH {
        return Err(format!("{because}; that is too little to be worth it"));
    }
    let lives = profile.lifetimes_ms().quantile(0.9).map(|ms| ms / 86_400_000);
    let because = match lives {
        Some(lived) => format!("{because}; nine of ten files that were removed lived at most {lived} days"),
        None => because,
    };
    let sure = if lives.is_some_and(|lived| lived > u64::from(days)) { Confidence::Low } else { Confidence::Medium };
    let value = format!("age>{days}d: class=archive");
    Ok(Advice { key: AdviceKey::Rule, value, because, confidence: sure, gain: Gain::Frees(facts.idle_bytes) })
}

/// The smallest cache that has most of the hits which any cache could have.
pub fn knee(curve: &[MissPoint]) -> Option<MissPoint> {
    let least = curve.last()?.miss_ratio;
    let wanted = 1.0 - (1.0 - least) * KNEE_SHARE;
    curve.iter().find(|point| point.miss_ratio <= wanted).copied()
}

pub(crate) fn memory(profile: &Profile, facts: &PoolFacts) -> Opinion {
    let reuse = profile.reuse();
    let (Some(knee), Some(now)) = (knee(&reuse.curve()), reuse.miss_ratio(facts.cache_bytes)) else {
        return Err("too little data: no block was sampled".into());
    };
    let size = knee.cache_bytes.next_multiple_of(MEMORY_LEAST).max(MEMORY_LEAST);
    let because = format!(
        "a cache of {} misses {} of references, one of {} misses {}; {} were in use",
        bytes_text(facts.cache_bytes),
        percent(now),
        bytes_text(size),
        percent(knee.miss_ratio),
        bytes_text(reuse.footprint_bytes() as u64)
    );
    let gain = if size > facts.cache_bytes && now - knee.miss_ratio >= MISSES_WORTH {
        Gain::FewerMisses(now - knee.miss_ratio)
    } else if size < facts.cache_bytes / 2 && knee.miss_ratio - now < MISSES_WORTH {
        Gain::Frees(facts.cache_bytes - size)
    } else {
        return Err(format!("{because}: a change would bring little"));
    };
    Ok(Advice { key: AdviceKey::Memory, value: bytes_text(size), because, confidence: confidence(profile), gain })
}

/// Large streams gain from many devices; many small requests at a time disturb each other on all of them.
pub(crate) fn stripe_width(profile: &Profile, facts: &PoolFacts) -> Opinion {
    if facts.data_chunks <= 1 {
        return Err("copies lie whole on their devices and have no width".into());
    }
    let Some(in_flight) = profile.in_flight().quantile(0.5) else {
        return Err("too little data: calls in flight were not counted".into());
    };
    let Some(sequential) = profile.sequential_share() else {
        return Err("no file was read or written twice, so order says nothing".into());
    };
    let (devices, width, parity) = (facts.devices(), facts.data_chunks, facts.redundant_chunks);
    let usual = usual_bytes(profile);
    let dependence = hurst::by_variance_time(profile.dependence());
    let bursts = dependence.map_or_else(|_| String::new(), |hurst| format!(", H of arrivals is {:.2}", hurst.value));
    let because = format!(
        "{} of requests are sequential, three of four have up to {}, {in_flight} are in flight in the median{bursts}; \
         a segment has {width} data chunks of {devices} devices",
        percent(sequential),
        bytes_text(usual)
    );
    let most = devices.saturating_sub(parity).min(16);
    let better = if sequential >= SEQUENTIAL && usual >= 128 << 10 && in_flight <= 2 && width < most {
        most
    } else if sequential <= RANDOM && usual <= 64 << 10 && in_flight >= u64::from(devices) && width > 2 {
        2
    } else {
        return Err(format!("{because}: its width fits"));
    };
    assert!(better != width, "what is so already is not advised");
    let (value, confidence) = (format!("parity={better}+{parity}"), confidence(profile).min(Confidence::Medium));
    Ok(Advice { key: AdviceKey::StripeWidth, value, because, confidence, gain: Gain::Faster })
}
