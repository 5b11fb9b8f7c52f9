//! `stere find`: files by what is known of them, told by the daemon of the mount without walking over it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stere_format::FileKind;
use stere_naming::{Caller, FileSystem, Found, Io, Timestamp};
use stere_policy::{Setting, show_moment};

use crate::cli::FindArguments;
use crate::error::{At, DONE, Error, Result, refused};
use crate::public::{self, Peer, PublicAnswer, Question};
use crate::{clock, people};

/// What is told of each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    Paths,
    Facts,
    Count,
}

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub expression: String,
    pub form: Form,
    /// What is searched is called so.
    pub name: Vec<u8>,
    /// All inodes are looked at, although an index would do.
    #[serde(default)]
    pub no_index: bool,
}

/// A file that was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundLine {
    /// From what was searched; empty if it is that.
    pub path: String,
    /// The same where it is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Vec<u8>>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub facts: Map<String, Value>,
}

/// Whoever waits is told at least so often that the search goes on, and is missed when nobody listens any more.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// Files told at a time.
const LINES_MAX: usize = 1024;

/// What policy says of a file and how it is stored, as its attributes do; those that are numbers.
const ATTRIBUTES: [(&str, &str, bool); 9] = [
    ("class", "user.stere.effective.class", false),
    ("compress", "user.stere.effective.compress", false),
    ("encrypt", "user.stere.effective.encrypt", false),
    ("tier", "user.stere.effective.tier", false),
    ("state", "user.stere.state", false),
    ("survives", "user.stere.survives", true),
    ("stored_bytes", "user.stere.stored", true),
    ("residency", "user.stere.residency", false),
    ("where", "user.stere.where", false),
];

/// Answers for the daemon, until all is told or nobody listens.
pub fn serve(
    filesystem: &FileSystem,
    peer: &Peer,
    inode: u64,
    Asked { expression, form, name, no_index }: &Asked,
    send: &mut dyn FnMut(PublicAnswer) -> bool,
) -> Result<PublicAnswer> {
    let search = match filesystem.search().parse_search(expression) {
        Ok(search) => search,
        Err(error) => {
            let message = format!("the search is not understood: {error}");
            return Ok(PublicAnswer::Refused { message, is_usage: true });
        }
    };
    let Peer { uid, gid, groups, .. } = peer;
    let caller = Caller { uid: *uid, gid: *gid, groups, umask: 0, now: clock::now(), io: Io::BLOCKING, process: 0 };
    let mut find = match no_index {
        true => filesystem.search().find_without_index(&caller, inode, name, search)?,
        false => filesystem.search().find(&caller, inode, name, search)?,
    };
    let form = *form;
    let (mut files, mut lines, mut told) = (0, Vec::new(), Instant::now());
    let mut names = Names::default();
    while let Some(found) = find.step(&caller)? {
        files += found.len() as u64;
        if form != Form::Count {
            lines.extend(found.into_iter().map(|one| line(filesystem, &one, form, &mut names)));
        }
        if lines.len() >= LINES_MAX || told.elapsed() >= SIGN_OF_LIFE {
            if !send(PublicAnswer::Found { files: std::mem::take(&mut lines) }) {
                break;
            }
            told = Instant::now();
        }
    }
    send(PublicAnswer::Found { files: lines });
    Ok(PublicAnswer::Counted { files })
}

fn line(filesystem: &FileSystem, found: &Found, form: Form, names: &mut Names) -> FoundLine {
    let text = String::from_utf8(found.path.clone());
    let (path, bytes) = match text {
        Ok(path) => (path, None),
        Err(error) => (String::from_utf8_lossy(&found.path).into_owned(), Some(error.into_bytes())),
    };
    let facts = if form == Form::Facts { facts(filesystem, found, names) } else { Map::new() };
    FoundLine { path, bytes, facts }
}

/// Names of users and groups that were looked up.
#[derive(Default)]
struct Names {
    known: HashMap<(bool, u32), String>,
}

impl Names {
    fn of(&mut self, is_group: bool, number: u32) -> String {
        self.known.entry((is_group, number)).or_insert_with(|| people::name(is_group, number)).clone()
    }
}

fn facts(filesystem: &FileSystem, found: &Found, names: &mut Names) -> Map<String, Value> {
    let file = &found.attributes;
    let moment = |time: Timestamp| json!(format!("{}Z", show_moment(time.seconds).replace(' ', "T")));
    let mut facts = Map::new();
    let mut put = |key: &str, value: Value| drop(facts.insert(key.to_owned(), value));
    put("inode", json!(file.inode));
    put("type", json!(file.kind().map_or("unknown", FileKind::word)));
    put("size_bytes", json!(file.size));
    put("allocated_bytes", json!(file.blocks_512 * 512));
    put("mode", json!(format!("{:04o}", file.mode & 0o7777)));
    put("uid", json!(file.uid));
    put("gid", json!(file.gid));
    put("owner", json!(names.of(false, file.uid)));
    put("group", json!(names.of(true, file.gid)));
    put("links", json!(file.nlink));
    put("modified", moment(file.mtime));
    put("changed", moment(file.ctime));
    if !found.is_readable {
        return facts;
    }
    let caller = clock::own_caller(Io::BLOCKING);
    for (key, attribute, is_number) in ATTRIBUTES {
        let Ok(value) = filesystem.getxattr(&caller, file.inode, attribute.as_bytes()) else { continue };
        let text = String::from_utf8_lossy(&value).into_owned();
        let value = match key {
            "where" => json!(text.split(' ').filter(|name| !name.is_empty()).collect::<Vec<_>>()),
            _ if is_number => text.parse::<u64>().map_or(Value::Null, |number| json!(number)),
            _ => json!(text),
        };
        put(key, value);
    }
    for setting in [Setting::Copies, Setting::Parity] {
        let attribute = format!("user.stere.effective.{}", setting.word());
        if let Ok(value) = filesystem.getxattr(&caller, file.inode, attribute.as_bytes()) {
            put(setting.word(), json!(String::from_utf8_lossy(&value)));
        }
    }
    facts
}

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
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    loop {
        match answers.next()? {
            PublicAnswer::Found { files } => {
                for found in files {
                    print(&mut out, arguments, found)?;
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

fn print(out: &mut dyn Write, arguments: &FindArguments, found: FoundLine) -> Result<()> {
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
