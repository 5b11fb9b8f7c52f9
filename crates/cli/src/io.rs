//! `stere io`: what the load on a pool is like, as tables and pictures, what follows from it, and traces.
//!
//! Counting is the daemon's. Traces are files, and need no pool once they are written. Read next: the crate workload.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::arguments::io::{IoCommand, TracedNames};
use crate::json::to_json;
use crate::terminal::plain;
use stere_control::connection::Connection;
use stere_control::io::{AdviceLine, Names, Order, RecordingReport};
use stere_control::locate;
use stere_control::message::{Answer, Request};
use stere_machine::error::{At, DONE, Result, refused};
use stere_machine::registry::Registry;
use stere_workload::trace::{NameRule, Trace};
use stere_workload::{analyse, dxt, picture, table, table_file};

const POLL: Duration = Duration::from_millis(200);

fn unexpected<T>() -> Result<T> {
    refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again")
}

/// The daemon of a pool, or of the pool that a directory is in, and that directory's inode.
fn connect(registry: &Registry, subject: &str) -> Result<(Connection, Option<u64>)> {
    if let Some(connection) = Connection::open(registry, subject) {
        return Ok((connection, None));
    }
    let path = Path::new(subject);
    if !path.exists() {
        return refused(format!(
            "there is no mounted pool '{subject}', and no directory; `stere pool list` shows pools"
        ));
    }
    if !path.is_dir() {
        return refused(format!("{subject} is no directory; calls are counted for pools and for directories"));
    }
    let (_, connection, inode) = locate::connect(registry, path)?;
    Ok((connection, Some(inode)))
}

pub fn run(registry: &Registry, command: &IoCommand) -> Result<u8> {
    match command {
        IoCommand::Stat { of, json } => stat(registry, &of.subject, *json),
        IoCommand::Show { of, svg } => show(registry, of, svg.as_deref()),
        IoCommand::Advise { of, json } => advise(registry, &of.subject, *json),
        IoCommand::Record { pool, file, seconds, size, names, stop, wait } => {
            let Some(mut connection) = Connection::open(registry, pool) else {
                return refused(format!("the pool '{pool}' is not mounted; calls are recorded while it is: mount it"));
            };
            let order = match file.as_ref().filter(|_| !stop) {
                Some(file) => Order::Record {
                    file: std::path::absolute(file).at("find", file)?,
                    seconds: *seconds,
                    bytes_max: *size,
                    names: match names {
                        TracedNames::Plain => Names::Plain,
                        TracedNames::Hashed => Names::Hashed,
                        TracedNames::None => Names::None,
                    },
                },
                None => Order::Stop,
            };
            record(&mut connection, order, pool, *wait)
        }
        IoCommand::Convert { from, to } => convert(from, to),
    }
}

fn stat(registry: &Registry, subject: &str, json: bool) -> Result<u8> {
    let (mut connection, below) = connect(registry, subject)?;
    let Answer::Io(report) = connection.ask(Request::Io { order: Order::Tell { below } })? else { return unexpected() };
    if json {
        println!("{}", to_json(&report)?);
        return Ok(DONE);
    }
    if report.subjects.is_empty() {
        println!("calls below {subject} are counted from now on; ask again when some were made");
        return Ok(DONE);
    }
    print!("{}", report.text);
    if report.missed_calls > 0 {
        println!("{} calls came too fast to be counted", report.missed_calls);
    }
    Ok(DONE)
}

fn show(registry: &Registry, of: &str, svg: Option<&Path>) -> Result<u8> {
    let path = Path::new(of);
    let is_trace = Connection::open(registry, of).is_none() && path.is_file();
    if is_trace {
        return show_trace(path, svg);
    }
    let Some(directory) = svg else { return stat(registry, of, false) };
    let (mut connection, below) = connect(registry, of)?;
    let Answer::IoPictures { pictures } = connection.ask(Request::Io { order: Order::Draw { below } })? else {
        return unexpected();
    };
    write_pictures(directory, &pictures)
}

fn write_pictures(directory: &Path, pictures: &[(String, String)]) -> Result<u8> {
    if pictures.is_empty() {
        return refused("nothing was counted yet; ask again when some calls were made");
    }
    fs::create_dir_all(directory).at("make", directory)?;
    for (name, svg) in pictures {
        let path = directory.join(name);
        fs::write(&path, svg).at("write", &path)?;
        println!("{}", path.display());
    }
    Ok(DONE)
}

fn show_trace(path: &Path, svg: Option<&Path>) -> Result<u8> {
    let trace = read_trace(path)?;
    let profile = analyse::profile_of(&trace);
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    if let Some(directory) = svg {
        return write_pictures(directory, &picture::all(&name, &profile, 0));
    }
    print!("{}", table::all(&[(&name, &profile)]));
    Ok(DONE)
}

fn advise(registry: &Registry, subject: &str, json: bool) -> Result<u8> {
    let (mut connection, below) = connect(registry, subject)?;
    let Answer::IoAdvice { lines } = connection.ask(Request::Io { order: Order::Advise { below } })? else {
        return unexpected();
    };
    if json {
        println!("{}", to_json(&lines)?);
        return Ok(DONE);
    }
    let (given, none): (Vec<&AdviceLine>, Vec<&AdviceLine>) = lines.iter().partition(|line| line.setting.is_some());
    for line in given.iter().chain(&none) {
        match &line.setting {
            Some(setting) => {
                let confidence = line.confidence.as_deref().unwrap_or("unknown");
                let gain = line.gain.as_deref().unwrap_or("unknown");
                println!("{} (confidence {confidence}; {gain})\n  {}", plain(setting), plain(&line.because));
            }
            None => println!("no advice on {}\n  {}", line.key, plain(&line.because)),
        }
    }
    Ok(DONE)
}

fn record(connection: &mut Connection, order: Order, pool: &str, wait: bool) -> Result<u8> {
    let is_begun = matches!(order, Order::Record { .. });
    let mut state = recording(connection, order)?;
    while wait && state.is_going_on {
        std::thread::sleep(POLL);
        state = recording(connection, Order::Recording)?;
    }
    if let Some(why) = &state.failure {
        return refused(format!("the trace is not complete: {why}"));
    }
    match state.is_going_on && is_begun {
        true => println!("recording; `stere io record {pool} --stop` ends it before its time"),
        false => println!("recorded {} calls", state.calls),
    }
    Ok(DONE)
}

fn recording(connection: &mut Connection, order: Order) -> Result<RecordingReport> {
    match connection.ask(Request::Io { order })? {
        Answer::IoRecording(report) => Ok(report),
        _ => unexpected(),
    }
}

/// The form of a trace, by how the file's name ends.
fn ends_with(path: &Path, end: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(end))
}

fn read_trace(path: &Path) -> Result<Trace> {
    let bytes = fs::read(path).at("read", path)?;
    let text = || String::from_utf8_lossy(&bytes).into_owned();
    let read = if ends_with(path, "tsv") {
        table_file::import(&text())
    } else if ends_with(path, "dxt") {
        dxt::import(&text()).map(|(trace, left_out)| {
            eprintln!("left out of {}: {left_out:?}", path.display());
            trace
        })
    } else {
        Trace::decode(&bytes).map(|(trace, missing)| {
            if !missing.is_nothing() {
                eprintln!("{} is not whole: {missing:?}", path.display());
            }
            trace
        })
    };
    read.or_else(|error| refused(format!("{} is no trace: {error}", path.display())))
}

fn convert(from: &Path, to: &Path) -> Result<u8> {
    let trace = read_trace(from)?;
    let bytes = if ends_with(to, "tsv") {
        table_file::export(&trace).into_bytes()
    } else if ends_with(to, "dxt") {
        dxt::export(&trace).into_bytes()
    } else {
        trace.encode(NameRule::Plain)
    };
    fs::write(to, bytes).at("write", to)?;
    println!("{} calls in {}", trace.calls.len(), to.display());
    Ok(DONE)
}
