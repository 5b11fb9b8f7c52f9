//! A trace as a plain table: columns separated by tabs, named by the first line.
//!
//! Everything of a trace is kept but names of files and clients that made no call. On import columns may come in any order;
//! unknown ones are passed over, missing numbers are 0, and only time, kind and file are required. Tab, line feed and backslash
//! in a name stand as `\t`, `\n` and `\\`. Lines that begin with `#` are passed over, but for `# started_unix_ns N`.
//! Read next: `trace.rs`.

use std::fmt::Write;

use stere_format::{IoTraceNamed, IoTraceRecord};

use crate::call::{Call, CallKind};
use crate::error::WorkloadError;
use crate::trace::Trace;

const COLUMNS: [&str; 12] = [
    "time_ns",
    "kind",
    "client",
    "file",
    "offset",
    "length",
    "latency_ns",
    "in_flight",
    "age_ms",
    "result",
    "client_name",
    "file_name",
];
const STARTED: &str = "# started_unix_ns ";

/// The table.
pub fn export(trace: &Trace) -> String {
    let mut out = format!("{STARTED}{}\n{}\n", trace.started_unix_ns, COLUMNS.join("\t"));
    for call in &trace.calls {
        let Call { at_ns, stream, file, offset, length, latency_ns, in_flight, age_ms, result, .. } = call;
        let (kind, client) = (call.kind.word(), escaped(trace.client_name(*stream).unwrap_or_default()));
        let name = escaped(trace.file_name(*file).unwrap_or_default());
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{at_ns}\t{kind}\t{stream}\t{file}\t{offset}\t{length}\t{latency_ns}\t{in_flight}\t{age_ms}\t{result}\t{client}\t{name}"
        );
    }
    out
}

fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n")
}

fn unescaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut characters = name.chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => match characters.next() {
                Some('t') => out.push('\t'),
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            (other, false) => out.push(other),
        }
    }
    out
}

/// Which column of the table is which of ours.
struct Columns {
    places: [Option<usize>; COLUMNS.len()],
    count: usize,
}

impl Columns {
    fn new(line: &str) -> Result<Self, WorkloadError> {
        let names: Vec<&str> = line.split('\t').map(str::trim).collect();
        let places = COLUMNS.map(|column| names.iter().position(|name| *name == column));
        for required in ["time_ns", "kind", "file"] {
            if !names.contains(&required) {
                return Err(WorkloadError::NoColumn { column: required });
            }
        }
        assert!(places.iter().flatten().all(|place| *place < names.len()), "columns that are used are there");
        Ok(Columns { places, count: names.len() })
    }
}

/// One line of the table.
struct Fields<'a> {
    columns: &'a Columns,
    fields: Vec<&'a str>,
    line: usize,
}

impl Fields<'_> {
    fn text(&self, column: usize) -> &str {
        self.columns.places[column].map_or("", |place| self.fields[place])
    }

    fn number(&self, column: usize, greatest: u64) -> Result<u64, WorkloadError> {
        let text = self.text(column).trim();
        if text.is_empty() {
            return Ok(0);
        }
        let bad = || WorkloadError::BadField {
            line: self.line,
            column: COLUMNS[column],
            found: text.chars().take(40).collect(),
            expected: "a number in its range",
        };
        text.parse().ok().filter(|number| *number <= greatest).ok_or_else(bad)
    }

    fn call(&self) -> Result<Call, WorkloadError> {
        let word = self.text(1).trim();
        let kind = CallKind::from_word(word).ok_or_else(|| WorkloadError::BadField {
            line: self.line,
            column: COLUMNS[1],
            found: word.chars().take(40).collect(),
            expected: "a kind of call, such as read, write or lookup",
        })?;
        Ok(Call {
            at_ns: self.number(0, u64::MAX)?,
            kind,
            stream: self.number(2, u64::MAX)?,
            file: self.number(3, u64::MAX)?,
            offset: self.number(4, u64::MAX)?,
            length: self.number(5, u64::MAX)?,
            latency_ns: self.number(6, u64::MAX)?,
            in_flight: self.number(7, u64::from(u32::MAX))? as u32,
            age_ms: self.number(8, u64::MAX)?,
            result: self.number(9, u64::from(IoTraceRecord::RESULT_MAX))? as u16,
        })
    }
}

/// Reads a table.
pub fn import(text: &str) -> Result<Trace, WorkloadError> {
    let mut trace = Trace::default();
    let mut columns = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(started) = line.strip_prefix(STARTED) {
            trace.started_unix_ns = started.trim().parse().unwrap_or(0);
        }
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let Some(columns) = &columns else {
            columns = Some(Columns::new(line)?);
            continue;
        };
        add_line(&mut trace, columns, line, index + 1)?;
    }
    if columns.is_none() {
        return Err(WorkloadError::NoColumn { column: COLUMNS[0] });
    }
    Ok(trace)
}

fn add_line(trace: &mut Trace, columns: &Columns, text: &str, line: usize) -> Result<(), WorkloadError> {
    let fields = Fields { columns, fields: text.split('\t').collect(), line };
    if fields.fields.len() < columns.count {
        return Err(WorkloadError::ShortLine { line });
    }
    let call = fields.call()?;
    for (of, id, column) in [(IoTraceNamed::Client, call.stream, 10), (IoTraceNamed::File, call.file, 11)] {
        let name = fields.text(column);
        if !name.is_empty() {
            trace.names.entry((of, id)).or_insert_with(|| unescaped(name));
        }
    }
    trace.calls.push(call);
    Ok(())
}

#[cfg(test)]
mod tests;
