//! Pictures of profiles as SVG, after the figures of the ATTEST thesis: times between arrivals (3.1 to 3.5), sizes of requests,
//! the variance-time plot (3.6), and the miss-ratio curve.
//!
//! Invariant: the same profiles give the same text. Read next: `chart.rs`, `table.rs`.

use crate::advise::bytes_text;
use crate::chart::{Axis, Chart, Scale, Series, Stroke};
use crate::dependence::{BIN_NS, Dependence};
use crate::histogram::{Histogram, Step};
use crate::hurst::{TooLittleData, by_variance_time, variance_points};
use crate::profile::Profile;
use crate::reuse::{CACHE_BLOCK_BYTES, MissPoint};

/// Times as people write them.
pub fn time_text(ns: f64) -> String {
    match ns {
        1e9.. => format!("{} s", trimmed(ns / 1e9)),
        1e6.. => format!("{} ms", trimmed(ns / 1e6)),
        1e3.. => format!("{} µs", trimmed(ns / 1e3)),
        _ => format!("{} ns", trimmed(ns)),
    }
}

fn trimmed(value: f64) -> String {
    if value >= 10.0 || (value - value.round()).abs() < 0.005 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn share_axis(label: &'static str) -> Axis {
    Axis { label, scale: Scale::Even { low: 0.0, high: 1.0 }, text: |share| format!("{:.0} %", share * 100.0) }
}

/// An axis by powers of ten or two around all these values, which are above zero.
fn powers(values: impl Iterator<Item = f64>, base: f64) -> Scale {
    let (low, high) = values
        .filter(|value| *value > 0.0 && value.is_finite())
        .fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    if high == 0.0 {
        return Scale::Powers { low: 1.0, high: base, base };
    }
    let (first, last) = (low.log(base).floor(), high.log(base).ceil());
    // A single value lies in the middle.
    let first = if last - first < 2.0 { first - 1.0 } else { first };
    Scale::Powers { low: base.powf(first), high: base.powf(last.max(first + 2.0)), base }
}

/// The cumulative distribution of a histogram by one edge of its buckets; zero counts as one, so that it has a place.
fn distribution(name: &str, histogram: &Histogram, edge: fn(&Step) -> u64) -> Series {
    let steps = histogram.cumulative();
    let mut points: Vec<(f64, f64)> = steps.iter().map(|step| (edge(step).max(1) as f64, step.share)).collect();
    if let Some((first, _)) = points.first().copied() {
        points.insert(0, (first, 0.0));
    }
    Series { name: name.to_owned(), points, stroke: Stroke::Steps }
}

fn distributions(title: &str, label: &'static str, series: Vec<Series>, base: f64, text: fn(f64) -> String) -> String {
    let scale = powers(series.iter().flat_map(|series| series.points.iter().map(|(x, _)| *x)), base);
    let (x, y) = (Axis { label, scale, text }, share_axis("share of requests"));
    Chart { title: title.to_owned(), x, y, series }.svg()
}

/// Times between reads and writes, one line for each profile.
pub fn arrivals_svg(profiles: &[(&str, &Profile)]) -> String {
    let series = profiles
        .iter()
        .map(|(name, profile)| distribution(name, profile.data_arrivals_ns(), |step| step.end))
        .collect();
    distributions("Time between reads and writes", "time since the last one", series, 10.0, time_text)
}

/// Times between calls for metadata.
pub fn metadata_arrivals_svg(profiles: &[(&str, &Profile)]) -> String {
    let series = profiles
        .iter()
        .map(|(name, profile)| distribution(name, profile.metadata_arrivals_ns(), |step| step.end))
        .collect();
    distributions("Time between calls for metadata", "time since the last one", series, 10.0, time_text)
}

/// Sizes of reads and writes.
pub fn sizes_svg(profile: &Profile) -> String {
    let both = [("reads", profile.read_bytes()), ("writes", profile.write_bytes())];
    let series = both
        .iter()
        .filter(|(_, sizes)| !sizes.is_empty())
        .map(|(name, sizes)| distribution(name, sizes, |step| step.start));
    distributions("Sizes of requests", "bytes", series.collect(), 2.0, |bytes| bytes_text(bytes as u64))
}

/// The variance-time plot: points, the line that was fitted, and the reference of slope -1 for independent arrivals.
pub fn variance_time_svg(name: &str, dependence: &Dependence) -> Result<String, TooLittleData> {
    let hurst = by_variance_time(dependence)?;
    let points = variance_points(dependence, hurst.value);
    let dots: Vec<(f64, f64)> = points.iter().map(|point| (point.bins as f64, point.corrected)).collect();
    let used = hurst.first_level..hurst.first_level + hurst.levels;
    let fitted = used.map(|level| {
        let level = level as f64;
        (level.exp2(), (hurst.intercept + hurst.slope * level).exp2())
    });
    let fitted: Vec<(f64, f64)> = fitted.collect();
    let start = fitted.first().copied().unwrap_or((1.0, 1.0));
    let reference: Vec<(f64, f64)> =
        dots.iter().filter(|(bins, _)| *bins >= start.0).map(|(bins, _)| (*bins, start.1 * start.0 / bins)).collect();
    assert!(fitted.len() == hurst.levels && !reference.is_empty(), "a line through {} levels", hurst.levels);
    let values = dots.iter().chain(&fitted).chain(&reference).map(|(_, variance)| *variance);
    let y =
        Axis { label: "variance of the mean count", scale: powers(values, 10.0), text: |value| format!("{value:.0e}") };
    let x = Axis {
        label: "length of a bin",
        scale: powers(dots.iter().map(|(bins, _)| *bins), 2.0),
        text: |bins| time_text(bins * BIN_NS as f64),
    };
    let line = |name: String, points, stroke| Series { name, points, stroke };
    let series = vec![
        line("measured".into(), dots, Stroke::Dots),
        line(format!("H = {:.3} ± {:.3}", hurst.value, hurst.standard_error), fitted, Stroke::Line),
        line("independent".into(), reference, Stroke::Dashes),
    ];
    Ok(Chart { title: format!("Variance and time: {name}"), x, y, series }.svg())
}

/// The miss-ratio curve; a line marks the cache there is.
pub fn miss_ratio_svg(name: &str, curve: &[MissPoint], cache_bytes: u64) -> String {
    let points: Vec<(f64, f64)> =
        curve.iter().map(|point| (point.cache_bytes.max(CACHE_BLOCK_BYTES) as f64, point.miss_ratio)).collect();
    let cache = cache_bytes.max(CACHE_BLOCK_BYTES) as f64;
    let values = points.iter().map(|(bytes, _)| *bytes).chain([cache]);
    let x = Axis { label: "size of the cache", scale: powers(values, 2.0), text: |bytes| bytes_text(bytes as u64) };
    let series = vec![
        Series { name: "misses".into(), points, stroke: Stroke::Steps },
        Series {
            name: format!("now {}", bytes_text(cache_bytes)),
            points: vec![(cache, 0.0), (cache, 1.0)],
            stroke: Stroke::Dashes,
        },
    ];
    Chart { title: format!("Misses by size of cache: {name}"), x, y: share_axis("share of references"), series }.svg()
}

/// All pictures of one profile, each with the name of its file; without enough data some are left out. `cache_bytes`: the cache that there
/// is, 0 where nobody knows.
pub fn all(name: &str, profile: &Profile, cache_bytes: u64) -> Vec<(String, String)> {
    let mut pictures = vec![
        ("arrivals.svg".to_owned(), arrivals_svg(&[(name, profile)])),
        ("metadata-arrivals.svg".to_owned(), metadata_arrivals_svg(&[(name, profile)])),
        ("sizes.svg".to_owned(), sizes_svg(profile)),
    ];
    let dependence = variance_time_svg(name, profile.dependence());
    pictures.extend(dependence.ok().map(|svg| ("variance-time.svg".to_owned(), svg)));
    let curve = profile.reuse().curve();
    if !curve.is_empty() {
        pictures.push(("misses.svg".to_owned(), miss_ratio_svg(name, &curve, cache_bytes)));
    }
    pictures
}

#[cfg(test)]
mod tests;
