//! Traces as the text that `darshan-dxt-parser` prints, in and out.
//!
//! The text has a section for each file and rank, with lines of module, rank, `write` or `read`, number, offset, length, start
//! and end in seconds. Kept on import: reads and writes of the POSIX module with their ranges, time to a tenth of a
//! millisecond, latency, file id, rank as client, names of files and hosts. Lines of other modules (MPI-IO) are counted and left
//! out, since the POSIX module saw the same bytes; so are Lustre's numbers of targets. Lost on export: every other kind of
//! call, failed calls, calls in flight, ages; times are rounded to a microsecond, which readers of this text accept. Files and
//! clients keep their ids where the text can say them: a client is a rank, numbered in order of ids. Read next: `trace.rs`.

use std::collections::BTreeMap;
use std::fmt::Write;

use stere_format::IoTraceNamed;

use crate::call::{Call, CallKind};
use crate::error::WorkloadError;
use crate::trace::Trace;

const NS: f64 = 1e9;
/// In place of a name that is not known.
const UNNAMED: &str = "-";

/// What an import left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Lines of modules above POSIX.
    pub other_modules: usize,
    /// Lines that are no comment and no segment.
    pub unknown_lines: usize,
}

/// The section that lines belong to.
#[derive(Default)]
struct Section {
    file: Option<u64>,
    is_posix: bool,
}

/// Reads the text. Calls are put in order of time, since the text is in order of files.
pub fn import(text: &str) -> Result<(Trace, LeftOut), WorkloadError> {
    let (mut trace, mut left_out) = (Trace::default(), LeftOut::default());
    let mut section = Section::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            read_comment(comment.trim(), &mut section, &mut trace);
        } else if !line.is_empty() {
            match read_segment(line, index + 1, &mut section)? {
                Some(call) => trace.calls.push(call),
                None if section.is_posix => left_out.unknown_lines += 1,
                None => left_out.other_modules += 1,
            }
        }
    }
    trace.calls.sort_by_key(|call| call.at_ns);
    assert!(trace.calls.iter().all(|call| call.kind.is_data()), "the text has reads and writes only");
    Ok((trace, left_out))
}

/// Lines such as `# DXT, file_id: 1, file_name: /a, b` and `# DXT, rank: 0, hostname: shed`.
fn read_comment(comment: &str, section: &mut Section, trace: &mut Trace) {
    if let Some(seconds) = comment.strip_prefix("start_time:").and_then(|value| value.trim().parse::<u64>().ok()) {
        trace.started_unix_ns = seconds.saturating_mul(1_000_000_000);
    }
    let Some(pairs) = comment.strip_prefix("DXT,") else { return };
    let Some((key, value)) = pairs.trim().split_once(':') else { return };
    let (number, rest) = value.split_once(',').unwrap_or((value, ""));
    let name = rest.split_once(':').map_or("", |(_, name)| name.trim());
    let name = if name == UNNAMED { "" } else { name };
    match key {
        "file_id" => {
            section.file = number.trim().parse().ok();
            if let Some(file) = section.file.filter(|_| !name.is_empty()) {
                trace.names.insert((IoTraceNamed::File, file), name.to_owned());
            }
        }
        "rank" => {
            if let Some(rank) = number.trim().parse::<i64>().ok().filter(|_| !name.is_empty()) {
                trace.names.insert((IoTraceNamed::Client, rank as u64), name.to_owned());
            }
        }
        _ => {}
    }
}

/// A segment; none where the line is of another module, or is no segment of a known range.
fn read_segment(text: &str, line: usize, section: &mut Section) -> Result<Option<Call>, WorkloadError> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    section.is_posix = fields[0] == "X_POSIX";
    let (true, Some(fields)) = (section.is_posix, fields.first_chunk::<8>()) else { return Ok(None) };
    let Some(file) = section.file else { return Err(WorkloadError::NoFile { line }) };
    let [_, rank, kind, _, offset, length, start, end] = *fields;
    let kind = match kind {
        "read" => CallKind::Read,
        "write" => CallKind::Write,
        // Later versions may print more.
        _ => return Ok(None),
    };
    let (offset, length) = (whole(line, "offset", offset)?, whole(line, "length", length)?);
    let (start, end) = (nanoseconds(line, "start", start)?, nanoseconds(line, "end", end)?);
    // Ranks may be -1: a record of all of them.
    let stream = whole(line, "rank", rank)? as u64;
    let latency_ns = end.saturating_sub(start);
    let bytes = |number: i128| number.clamp(0, i128::from(u64::MAX)) as u64;
    let call = Call::of_data(start, kind, file, bytes(offset), bytes(length));
    Ok(Some(Call { stream, latency_ns, ..call }))
}

fn whole(line: usize, column: &'static str, text: &str) -> Result<i128, WorkloadError> {
    let bad = |_| WorkloadError::BadField { line, column, found: text.to_owned(), expected: "a whole number" };
    text.parse().map_err(bad)
}

fn nanoseconds(line: usize, column: &'static str, text: &str) -> Result<u64, WorkloadError> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
    let bad = || WorkloadError::BadField { line, column, found: text.to_owned(), expected: "seconds" };
    Ok((seconds.ok_or_else(bad)?.max(0.0) * NS).round() as u64)
}

/// The text of all reads and writes that succeeded.
pub fn export(trace: &Trace) -> String {
    let mut sections: BTreeMap<(u64, u64), Vec<&Call>> = BTreeMap::new();
    for call in trace.calls.iter().filter(|call| call.kind.is_data() && call.result == 0) {
        sections.entry((call.file, call.stream)).or_default().push(call);
    }
    let mut ranks: BTreeMap<u64, usize> = sections.keys().map(|(_, client)| (*client, 0)).collect();
    ranks.values_mut().enumerate().for_each(|(number, rank)| *rank = number);
    let ends = sections.values().flatten().map(|call| call.at_ns.saturating_add(call.latency_ns));
    let end = ends.max().unwrap_or(0);
    let (count, started, seconds) = (ranks.len(), trace.started_unix_ns / 1_000_000_000, end as f64 / NS);
    let mut out = format!("# nprocs: {count}\n# start_time: {started}\n# run time: {seconds:.4}\n");
    for ((file, client), calls) in &sections {
        let host = trace.client_name(*client).unwrap_or(UNNAMED);
        put_section(&mut out, (*file, trace.file_name(*file).unwrap_or(UNNAMED)), (ranks[client], host), calls);
    }
    out
}

fn put_section(out: &mut String, (file, name): (u64, &str), (rank, host): (usize, &str), calls: &[&Call]) {
    // A name is one line.
    let (name, host) = (name.replace(char::is_control, "?"), host.replace(char::is_control, "?"));
    let is_write = |call: &&&Call| call.kind == CallKind::Write;
    let writes = calls.iter().filter(is_write).count();
    let reads = calls.len() - writes;
    assert_eq!(
        calls.iter().filter(|call| call.kind == CallKind::Read).count(),
        reads,
        "a section has reads and writes"
    );
    let _ = write!(
        out,
        "\n# DXT, file_id: {file}, file_name: {name}\n# DXT, rank: {rank}, hostname: {host}\n\
         # DXT, write_count: {writes}, read_count: {reads}\n# DXT, mnt_pt: /, fs_type: stere\n\
         # Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)\n"
    );
    // Writes first, each kind with numbers of its own.
    for kind in [CallKind::Write, CallKind::Read] {
        for (number, call) in calls.iter().filter(|call| call.kind == kind).enumerate() {
            let (start, end) = (call.at_ns as f64 / NS, call.at_ns.saturating_add(call.latency_ns) as f64 / NS);
            let (word, offset, length) = (kind.word(), call.offset, call.length);
            let _ = writeln!(
                out,
                " X_POSIX {rank:>7}  {word:>5} {number:>8} {offset:>15} {length:>12} {start:>11.6} {end:>11.6}"
            );
        }
    }
}

#[cfg(test)]
mod tests;
