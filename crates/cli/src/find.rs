//! `stere find`: files by what is known of them, told by the daemon of the mount without walking over it.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, json};

use crate::arguments::find::FindArguments;
use crate::terminal::plain;
use stere_control::find::{Asked, Form, FoundLine};
use stere_control::public::{self, PublicAnswer, Question};
use stere_machine::error::{At, DONE, Error, Result, refused};

pub fn run(arguments: &FindArguments) -> Result<u8> {
    let form = match (arguments.json, arguments.count) {
        (true, _) => Form::Facts,
        (_, true) => Form::Count,
        _ => Form::Paths,
    };
    let full = std::fs::canonicalize(&arguments.path).at("look at", &arguments.path)?;
    let name = full.file_name().unwrap_or_default().as_bytes().to_vec();
    let question =
        Question::Find(Asked { expression: arguments.expression.clone(), form, name, no_index: arguments.no_index });
    let mut answers = public::ask(&arguments.path, &question)?;
    let is_terminal = std::io::stdout().is_terminal();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    loop {
        match answers.next_answer()? {
            PublicAnswer::Found { files } => {
                for found in files {
                    print(&mut out, arguments, found, is_terminal)?;
                }
                // Whoever reads along sees what is found when it is found.
                out.flush().map_err(ended)?;
            }
            PublicAnswer::Counted { files } => {
                if arguments.count {
                    writeln!(out, "{files}").map_err(ended)?;
                }
                out.flush().map_err(ended)?;
                return Ok(DONE);
            }
            _ => return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
        }
    }
}

fn print(out: &mut dyn Write, arguments: &FindArguments, found: FoundLine, is_terminal: bool) -> Result<()> {
    let below = found.bytes.as_deref().unwrap_or(found.path.as_bytes());
    let mut path = arguments.path.as_os_str().as_bytes().to_vec();
    if !below.is_empty() {
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(below);
    }
    if arguments.json {
        let mut line = Map::new();
        line.insert("path".into(), json!(OsStr::from_bytes(&path).to_string_lossy()));
        if found.bytes.is_some() {
            line.insert("path_bytes".into(), json!(path));
        }
        line.extend(found.facts);
        let text = serde_json::to_string(&line).map_err(|error| Error::System(error.into()))?;
        return writeln!(out, "{text}").map_err(ended);
    }
    if is_terminal && !arguments.print0 {
        return writeln!(out, "{}", plain(&String::from_utf8_lossy(&path))).map_err(ended);
    }
    path.push(if arguments.print0 { 0 } else { b'\n' });
    out.write_all(&path).map_err(ended)
}

/// Whoever read what is printed has gone: nothing is left to be done for it.
fn ended(error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        const KILLED_BY_SIGPIPE: i32 = 128 + 13;
        std::process::exit(KILLED_BY_SIGPIPE);
    }
    Error::System(error)
}
