//! Commands on a machine that mounts the pool through its owner, with the real binary (P-255 to P-257): they are answered by the owner, and end
//! when it does. Needs root and /dev/fuse. Read next: `support/site.rs`, `clients.rs`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::site::{Site, owns, signal, take_away};
use crate::support::tier::{content, until};
use crate::support::{NOBODY, World};

/// Silence ends a connection after five seconds; a busy machine adds some.
const ANSWER_MAX: Duration = Duration::from_secs(12);

/// A machine that owns the pool, and one that mounts it through that.
fn owner_and_client(site: &Site) -> (&World, &World) {
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    owner.ok("mount lab mount");
    client.ok("mount lab mount -o nostandby");
    (owner, client)
}

#[test]
fn commands_of_a_client_are_answered_by_the_owner() {
    let Some(site) = Site::new("commands_of_a_client_are_answered_by_the_owner", 3, 2) else { return };
    let (owner, client) = owner_and_client(&site);
    fs::create_dir(client.mountpoint().join("films")).unwrap();
    fs::write(client.mountpoint().join("films/new"), content(45)).unwrap();
    client.ok("flush");
    let status = client.json("status lab --json");
    assert_eq!((&status["state"], status["devices"].as_array().unwrap().len()), (&"healthy".into(), 3));
    assert_eq!(status["mountpoint"], client.mountpoint().display().to_string());
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    assert_eq!((&status["through"]["host"], &status["through"]["state"]), (&host.clone().into(), &"connected".into()));
    assert!(client.ok("status lab").contains(&format!("mount through host {host}, which owns the pool")));
    let own = owner.json("status lab --json");
    assert_eq!((&own["through"], &own["id"]), (&serde_json::Value::Null, &status["id"]));
    // What names a path finds it by this machine's.
    assert_eq!(client.json("where mount/films/new --json"), owner.json("where mount/films/new --json"));
    assert!(!client.json("where mount/films/new --json").as_array().unwrap().is_empty());
    client.ok("policy set mount/films copies=3 --wait");
    assert_eq!(owner.json("policy get mount/films/new --json")["effective.copies"], "3");
    assert_eq!(client.json("policy get mount/films/new --json")["effective.copies"], "3");
    assert!(client.ok("policy explain mount/films/new").contains("copies is 3"));
    client.ok("reconcile wait lab");
    assert_eq!(owner.json("where mount/films/new --json")[0]["survives"], 2);
    client.ok("scrub start lab --wait");
    assert_eq!(owner.json("scrub status lab --json")["passes"], 1);
    assert_eq!(client.ok("find size>1K mount"), "mount/films/new\n");
    client.ok("class create lab slow copies=2");
    assert!(owner.ok("class list lab").contains("slow"));
    // What is of one machine is not done on another.
    client.refused("pool take lab", 1, &["nostandby"]);
    fs::File::create(client.path("disk.img")).unwrap().set_len(64 << 20).unwrap();
    client.refused("device add lab disk.img", 1, &["disk.img", "which owns the pool: give this command there"]);
    let backups = client.path("backups");
    fs::create_dir(&backups).unwrap();
    client.refused(&format!("backup add lab away dir:{}", backups.display()), 1, &["which owns the pool"]);
    client.ok("umount mount");
    assert!(fs::metadata(owner.mountpoint().join("films/new")).unwrap().len() > 0, "the owner's mount is there");
    owner.ok("umount mount");
    owner.ok("check lab");
}

#[test]
fn an_ordinary_user_gets_no_more_on_a_client_than_on_the_owner() {
    let Some(site) = Site::new("an_ordinary_user_gets_no_more_on_a_client_than_on_the_owner", 2, 2) else { return };
    let (owner, client) = owner_and_client(&site);
    let top = client.mountpoint();
    for (name, mode) in [("open", 0o755), ("closed", 0o700)] {
        fs::create_dir(top.join(name)).unwrap();
        fs::write(top.join(name).join("file"), content(45)).unwrap();
        fs::set_permissions(top.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    chown(top.join("open/file"), Some(NOBODY), Some(NOBODY)).unwrap();
    assert_eq!(fs::metadata(owner.mountpoint().join("open/file")).unwrap().uid(), NOBODY);
    for world in [owner, client] {
        fs::set_permissions(&world.folder, fs::Permissions::from_mode(0o755)).unwrap();
        let of_nobody = |line: &str| {
            let output = world.command_of_nobody(line).output().unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
        };
        assert_eq!(of_nobody("find size>1K mount"), (Some(0), "mount/open/file\n".into()), "what it may see");
        for line in ["status lab", "scrub start lab", "where mount/open/file", "class list lab", "reconcile pause lab"]
        {
            let (code, out) = of_nobody(line);
            assert!(code != Some(0) && out.is_empty(), "stere {line} as nobody: {code:?} {out}");
        }
    }
    assert_eq!(client.ok("find size>1K mount").lines().count(), 2, "root sees both");
    client.ok("umount mount");
    owner.ok("umount mount");
}

/// A conversation with the daemon of a machine, as commands have it.
struct Asking(BufReader<UnixStream>);

impl Asking {
    fn of(world: &World) -> Asking {
        // The path of a socket is short.
        let directory = fs::File::open(world.path("state/run")).unwrap();
        let path = format!("/proc/self/fd/{}/lab.sock", directory.as_raw_fd());
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
        Asking(BufReader::new(stream))
    }

    fn ask(&mut self, request: &str) -> serde_json::Value {
        self.begin(request);
        self.next()
    }

    fn begin(&mut self, request: &str) {
        self.0.get_mut().write_all(format!("{{\"request\": \"{request}\"}}\n").as_bytes()).unwrap();
    }

    fn next(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer in time");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

/// A command that has to fail, and not to hang.
fn fails_in_time(world: &World, line: &str, words: &[&str]) -> Duration {
    let begun = Instant::now();
    let said = world.run(line);
    let took = begun.elapsed();
    assert_eq!(said.code, 1, "stere {line}: {}{}", said.out, said.err);
    words
        .iter()
        .for_each(|word| assert!(said.err.contains(word), "stere {line} says '{}', without '{word}'", said.err));
    assert!(took < ANSWER_MAX, "stere {line} took {took:?}");
    took
}

#[test]
fn a_command_ends_when_the_owner_is_killed() {
    let Some(site) = Site::new("a_command_ends_when_the_owner_is_killed", 3, 2) else { return };
    let (owner, client) = owner_and_client(&site);
    let mut asking = Asking::of(client);
    assert_eq!(asking.ask("status")["state"], "healthy");
    let begun = Instant::now();
    signal(owner.daemon(), libc::SIGKILL);
    // Nobody asked anything: the conversation ends all the same.
    let told = asking.next();
    assert_eq!(told["answer"], "failed");
    assert!(told["message"].as_str().unwrap().contains("before it had answered"), "{told}");
    eprintln!("told after {:?}", begun.elapsed());
    assert!(begun.elapsed() < ANSWER_MAX);
    take_away(owner);
    let words = ["pool 'lab' is owned by host", "has not been reached for"];
    eprintln!("status took {:?}", fails_in_time(client, "status lab", &words));
    let said = client.run("status --json");
    let known: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &known[0]["state"]), (1, &"unreachable".into()), "{}", said.err);
    fails_in_time(client, "scrub start lab", &["has not been reached for"]);
    owner.ok("mount lab mount");
    until("the client is answered again", || client.run("status lab").code == 0);
    client.ok("umount mount");
    owner.ok("umount mount");
    owner.ok("check lab");
}

#[test]
fn a_command_ends_when_the_owner_stands_still() {
    let Some(site) = Site::new("a_command_ends_when_the_owner_stands_still", 3, 2) else { return };
    let (owner, client) = owner_and_client(&site);
    let mut asking = Asking::of(client);
    assert_eq!(asking.ask("status")["state"], "healthy");
    signal(owner.daemon(), libc::SIGSTOP);
    let begun = Instant::now();
    // A conversation that waits, and not one that is ended before it is asked anything.
    asking.begin("status");
    // The link has not noticed yet; the command has to by itself.
    eprintln!("status took {:?}", fails_in_time(client, "status lab", &["pool 'lab'", "says nothing"]));
    let told = asking.next();
    assert!(told["message"].as_str().unwrap().contains("before it had answered"), "{told}");
    eprintln!("told after {:?}", begun.elapsed());
    std::thread::sleep(Duration::from_secs(2));
    let took = fails_in_time(client, "status lab", &["has not been reached for"]);
    assert!(took < Duration::from_secs(3), "what is known is told at once, not after {took:?}");
    signal(owner.daemon(), libc::SIGCONT);
    until("the client is answered again", || client.run("status lab").code == 0);
    client.ok("umount mount");
    owner.ok("umount mount");
    owner.ok("check lab");
}

#[test]
fn a_machine_that_stands_by_is_answered_by_its_own_owner() {
    let Some(site) = Site::new("a_machine_that_stands_by_is_answered_by_its_own_owner", 2, 2) else { return };
    let [first, second] = &site.machines[..] else { panic!("two machines") };
    first.ok("mount lab mount --standby");
    until("an owner", || owns(first));
    second.ok("mount lab mount -o nostandby");
    let (own, others) = (first.json("status lab --json"), second.json("status lab --json"));
    assert_eq!(own["through"], serde_json::Value::Null, "this machine owns it");
    assert_eq!(own["mountpoint"], first.mountpoint().display().to_string());
    assert_eq!(others["through"]["state"], "connected");
    fs::write(first.mountpoint().join("file"), content(45)).unwrap();
    assert_eq!(first.ok("find size>1K mount"), "mount/file\n");
    second.ok("umount mount");
    first.ok("umount mount");
}
