//! Plain tables of profiles, after the tables of the ATTEST thesis: basic figures (3.1), sizes of requests (3.2), Hurst parameters
//! (3.3); and advice.
//!
//! Invariants: columns are aligned by characters, numbers to the right; what is not known is a dash. Read next: `picture.rs`.

use crate::advise::{Answer, bytes_text};
use crate::call::CallKind;
use crate::histogram::Histogram;
use crate::hurst::{Hurst, TooLittleData, by_haar, by_variance_time};
use crate::picture::time_text;
use crate::profile::Profile;

/// Profiles with their names.
pub type Named<'a> = [(&'a str, &'a Profile)];

/// Rows of cells; the first row has the names of columns, the first column is a text.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    assert!(rows.iter().all(|row| row.len() == columns), "every row has {columns} cells");
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A number in groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    assert_eq!(out.len(), digits.len() + (digits.len() - 1) / 3, "a comma for each three digits");
    out
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// Table 3.1: files, accesses to data, share of reads, accesses to metadata, time.
pub fn basic(profiles: &Named<'_>) -> String {
    let mut rows =
        vec![header(&["subject", "files", "data", "read %", "sequential %", "metadata", "errors", "seconds"])];
    for (name, profile) in profiles {
        let errors = CallKind::ALL.iter().map(|kind| profile.kind(*kind).errors).sum();
        rows.push(vec![
            (*name).to_owned(),
            grouped(profile.files().round() as u64),
            grouped(profile.data_calls()),
            or_dash(profile.read_share().map(percent)),
            or_dash(profile.sequential_share().map(percent)),
            grouped(profile.metadata_calls()),
            grouped(errors),
            format!("{:.0}", profile.span_ns() as f64 / 1e9),
        ]);
    }
    aligned(&rows)
}

fn quantiles(histogram: &Histogram, text: impl Fn(u64) -> String) -> [String; 4] {
    [0.5, 0.9, 0.99, 1.0].map(|share| or_dash(histogram.quantile(share).map(&text)))
}

/// Table 3.2: sizes of reads and writes.
pub fn sizes(profiles: &Named<'_>) -> String {
    let mut rows = vec![header(&["subject", "kind", "requests", "mean", "median", "90 %", "99 %", "greatest"])];
    for (name, profile) in profiles {
        for (kind, sizes) in [("read", profile.read_bytes()), ("write", profile.write_bytes())] {
            if sizes.is_empty() {
                continue;
            }
            let mean = or_dash(sizes.mean().map(|mean| bytes_text(mean.round() as u64)));
            let mut row = vec![(*name).to_owned(), kind.to_owned(), grouped(sizes.count()), mean];
            let quantiles = [0.5, 0.9, 0.99].map(|share| sizes.quantile_size(share));
            row.extend(quantiles.into_iter().chain([sizes.greatest()]).map(|size| or_dash(size.map(bytes_text))));
            rows.push(row);
        }
    }
    aligned(&rows)
}

/// Latencies by kind of call.
pub fn latencies(profile: &Profile) -> String {
    let mut rows = vec![header(&["call", "calls", "errors", "bytes", "median", "90 %", "99 %", "greatest"])];
    for kind in CallKind::ALL {
        let figures = profile.kind(kind);
        if figures.calls > 0 {
            let (calls, errors) = (grouped(figures.calls), grouped(figures.errors));
            let mut row = vec![kind.word().to_owned(), calls, errors, bytes_text(figures.bytes)];
            row.extend(quantiles(&figures.latencies_ns, |ns| time_text(ns as f64)));
            rows.push(row);
        }
    }
    aligned(&rows)
}

fn estimate(told: &Result<Hurst, TooLittleData>) -> String {
    match told {
        Ok(hurst) => {
            let (low, high) = hurst.interval();
            format!("{:.3} ({low:.2} to {high:.2}, {} levels)", hurst.value, hurst.levels)
        }
        Err(little) => little.to_string(),
    }
}

/// Table 3.3: the Hurst parameter by both estimators.
pub fn dependence(profiles: &Named<'_>) -> String {
    let mut rows = vec![header(&["subject", "H by variance and time", "H by Haar wavelets"])];
    for (name, profile) in profiles {
        let dependence = profile.dependence();
        rows.push(vec![(*name).to_owned(), estimate(&by_variance_time(dependence)), estimate(&by_haar(dependence))]);
    }
    aligned(&rows)
}

/// All tables of some profiles; latencies are those of the first.
pub fn all(profiles: &Named<'_>) -> String {
    let mut tables = vec![basic(profiles), sizes(profiles)];
    tables.extend(profiles.first().map(|(_, profile)| latencies(profile)));
    tables.push(dependence(profiles));
    tables.join("\n")
}

/// Advice with its reasons, then what there is no advice for.
pub fn advice(answer: &Answer) -> String {
    let mut out = String::new();
    for advice in &answer.advice {
        out.push_str(&format!(
            "{} ({} confidence, {})\n    {}\n",
            advice.setting(),
            advice.confidence.word(),
            advice.gain,
            advice.because
        ));
    }
    if answer.advice.is_empty() {
        out.push_str("no advice\n");
    }
    for none in &answer.none {
        out.push_str(&format!("{}: none\n    {}\n", none.key.word(), none.because));
    }
    assert!(out.ends_with('\n'), "an answer has lines");
    out
}

#[cfg(test)]
mod tests;
