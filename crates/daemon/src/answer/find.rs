//! Searches, answered until all is told or nobody listens.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use stere_format::FileKind;
use stere_naming::{Caller, FileSystem, Found, Io, Timestamp};
use stere_policy::{Setting, show_moment};

use stere_control::find::{Asked, Form, FoundLine};
use stere_control::public::{Peer, PublicAnswer};
use stere_machine::clock;
use stere_machine::error::Result;

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
    let caller = Caller {
        uid: *uid,
        gid: *gid,
        groups,
        umask: 0,
        now: clock::now(),
        io: Io::BLOCKING,
        process: 0,
        request: None,
    };
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
        self.known.entry((is_group, number)).or_insert_with(|| stere_people::name(is_group, number)).clone()
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
