//! `stere check`: an offline proof of the whole format, reading only; with `--repair` what can be mended is mended first
//! (`check/repair.rs`), and the proof comes after.

pub mod repair;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::Serialize;
use stere_device::Access;
use stere_pool::{Assembly, Degraded, OpenOptions, Opened};
use stere_rescue::{Options, Source};
use stere_store::{CheckReport, Finding, Store};

use crate::arguments::CheckArguments;
use crate::json::to_json;
use crate::rescue::Listing;
use crate::terminal::plain;
use stere_control::connection;
use stere_machine::devices::Target;
use stere_machine::error::{DATA_LOST, DONE, ERROR, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;
use stere_online::paths::paths_of;

const MEMORY_BYTES: usize = 256 << 20;

/// One thing that is not as it must be.
#[derive(Debug, Serialize)]
struct Line {
    data_lost: bool,
    path: Option<String>,
    inode: Option<u64>,
    text: String,
}

/// One thing that was mended.
#[derive(Debug, Serialize)]
struct MendedLine {
    data_lost: bool,
    path: Option<String>,
    inode: Option<u64>,
    text: String,
}

#[derive(Debug, Serialize)]
struct Report {
    pool: String,
    nodes: u64,
    keys: u64,
    blobs: u64,
    blob_bytes: u64,
    segments: u64,
    unread_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mended: Option<Vec<MendedLine>>,
    findings: Vec<Line>,
}

pub fn run(registry: &Registry, arguments: &CheckArguments) -> Result<u8> {
    if let [name] = arguments.words.as_slice()
        && let Some(about) = connection::about(registry, name)
    {
        return refused(format!(
            "the pool '{name}' is mounted on {0} and changes while it is read; unmount it with `stere umount {0}`, then check it",
            about.mountpoint.display()
        ));
    }
    let mended = arguments.repair.then(|| repair::run(registry, &arguments.words)).transpose()?;
    let assembly = Target::parse(registry, &arguments.words)?.assemble(Access::ReadOnly, Duration::ZERO, None)?;
    let of_mended: Vec<u64> = mended.iter().flatten().filter_map(|mended| mended.inode).collect();
    let opened = open(registry, &assembly)?;
    let warnings = opened.as_ref().map_or_else(|_| assembly.warnings(), |opened| opened.warnings.clone());
    let mut lines: Vec<Line> =
        warnings.into_iter().map(|text| Line { data_lost: false, path: None, inode: None, text }).collect();
    if let Ok(opened) = &opened {
        stere_online::media::open_for_names(&opened.store, registry, &assembly);
    }
    let proof = match &opened {
        Ok(opened) => prove(&opened.store, arguments.metadata_only, &of_mended).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let (checked, paths) = match proof {
        Ok((checked, findings, paths)) => {
            lines.extend(findings.into_iter().map(|finding| Line {
                data_lost: finding.data_lost,
                path: finding.inode.and_then(|inode| paths.get(&inode).cloned()),
                inode: finding.inode,
                text: finding.text,
            }));
            (checked, paths)
        }
        Err(error) => {
            let text = format!("it cannot be gone through: {error}; `stere rescue` copies out all that can be read");
            lines.push(Line { data_lost: true, path: None, inode: None, text });
            lines.extend(lost_by_path(&assembly, arguments.metadata_only)?);
            (CheckReport::default(), HashMap::new())
        }
    };
    let mended = mended.map(|mended| {
        let line = |it: stere_rescue::Mended| MendedLine {
            data_lost: it.data_lost,
            path: it.inode.and_then(|inode| paths.get(&inode).cloned()),
            inode: it.inode,
            text: it.text,
        };
        mended.into_iter().map(line).collect()
    });
    let report = report(&assembly.newest.pool_name, &checked, mended, lines);
    match arguments.json {
        true => println!("{}", to_json(&report)?),
        false => print(&report, arguments.metadata_only),
    }
    let lost_mending = report.mended.iter().flatten().any(|line| line.data_lost);
    Ok(match report.findings.iter().map(|line| line.data_lost).max() {
        Some(true) => DATA_LOST,
        _ if lost_mending => DATA_LOST,
        None => DONE,
        Some(false) => ERROR,
    })
}

/// Opens the pool to be read. What the store finds damaged is not an error here but what is to be told.
fn open(registry: &Registry, assembly: &Assembly) -> Result<std::result::Result<Opened, stere_store::Error>> {
    let path_of =
        |entry: &stere_format::DeviceEntry| registry.path_of(&assembly.newest.pool_name, &entry.id.to_string());
    let options =
        OpenOptions { memory_bytes: MEMORY_BYTES, read_only: true, degraded: Degraded::Auto, ..OpenOptions::default() };
    match assembly.open(&options, &path_of) {
        Ok(opened) => Ok(Ok(opened)),
        Err(stere_pool::Error::Store(error)) => Ok(Err(error)),
        Err(error) => Err(error.into()),
    }
}

type Proof = (CheckReport, Vec<Finding>, HashMap<u64, String>);

/// Both checks, and the paths of what they found and of these inodes.
fn prove(store: &Store, metadata_only: bool, others: &[u64]) -> Result<Proof> {
    let checked = store.checker.check(!metadata_only)?;
    let mut findings = checked.findings.clone();
    findings.extend(stere_naming::check(store)?);
    let inodes: HashSet<u64> =
        findings.iter().filter_map(|finding| finding.inode).chain(others.iter().copied()).collect();
    let paths = if inodes.is_empty() { HashMap::new() } else { paths_of(store, &inodes)? };
    Ok((checked, findings, paths))
}

/// What is lost of a pool whose tree cannot be gone through: what a rescue would say.
fn lost_by_path(assembly: &Assembly, metadata_only: bool) -> Result<Vec<Line>> {
    let source = |member: &stere_pool::Member| Source { path: member.path.clone(), device: member.device.clone() };
    let sources = assembly.members.iter().map(source).collect();
    let found = stere_rescue::rescue(
        sources,
        Options { names_only: metadata_only, ..Options::default() },
        &mut Listing::silent(),
    )?;
    let older = found.older.into_iter().map(|path| Line {
        data_lost: false,
        path: Some(path),
        inode: None,
        text: "its newest state cannot be read; what an older one tells can".into(),
    });
    let damage = found.damage.into_iter().map(|damage| {
        let bytes: u64 = damage.ranges.iter().map(|range| range.length).sum();
        let text = if bytes > 0 { format!("{bytes} bytes: {}", damage.what) } else { damage.what };
        Line { data_lost: true, path: Some(damage.path), inode: Some(damage.inode), text }
    });
    Ok(damage.chain(older).collect())
}

fn report(pool: &str, checked: &CheckReport, mended: Option<Vec<MendedLine>>, findings: Vec<Line>) -> Report {
    Report {
        pool: pool.to_owned(),
        nodes: checked.nodes,
        keys: checked.keys,
        blobs: checked.blobs,
        blob_bytes: checked.blob_bytes,
        segments: checked.segments,
        unread_bytes: checked.unread_bytes,
        mended,
        findings,
    }
}

/// Where something is, for the beginning of a line.
fn place_of(path: Option<&String>, inode: Option<u64>) -> String {
    match (path, inode) {
        (Some(path), _) => format!("{}: ", plain(path)),
        (None, Some(inode)) => format!("inode {inode}: "),
        (None, None) => String::new(),
    }
}

fn print(report: &Report, metadata_only: bool) {
    for line in report.mended.iter().flatten() {
        let lost = if line.data_lost { " (data is lost: restore it from a backup)" } else { "" };
        println!("mended: {}{}{lost}", place_of(line.path.as_ref(), line.inode), line.text);
    }
    let contents = match (metadata_only, report.unread_bytes) {
        (true, _) => "contents not read".to_owned(),
        (false, 0) => "every byte of content read and verified".to_owned(),
        (false, unread) => format!(
            "every byte of content on devices read and verified; {} are on media only and were not (`stere media verify` does that)",
            size::show(unread)
        ),
    };
    println!(
        "checked pool {}: {} nodes, {} keys, {} blobs of {}, {} segments; {contents}",
        report.pool,
        report.nodes,
        report.keys,
        report.blobs,
        size::show(report.blob_bytes),
        report.segments
    );
    for line in &report.findings {
        let place = place_of(line.path.as_ref(), line.inode);
        let lost = if line.data_lost { " (data is lost: restore it from a backup)" } else { "" };
        println!("found: {place}{}{lost}", line.text);
    }
    match report.findings.len() {
        0 => println!("clean"),
        count => println!("{count} findings"),
    }
}
