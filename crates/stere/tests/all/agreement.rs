//! Files of this machine that a pool names for its media are used after somebody agreed here (P-210, P-211), with the real binary, a real
//! mount and servers of the test's own. Needs root and /dev/fuse, and says loudly when it skips. Read next: `reach.rs`.

use crate::remote;
use crate::support;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use remote::{Kind, Server};
use support::tier::{assert_right, beside_server, end_clean, fill, forget_cache};
use support::{Said, World};

/// Tells whether files were opened.
struct Watch(File);

impl Watch {
    fn new(files: &[PathBuf]) -> Watch {
        // SAFETY: plain system calls; the descriptor is this one's alone.
        let watch = unsafe {
            let descriptor = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
            assert!(descriptor >= 0);
            for file in files {
                let path = CString::new(file.as_os_str().as_bytes()).unwrap();
                assert!(libc::inotify_add_watch(descriptor, path.as_ptr(), libc::IN_OPEN) >= 0, "{}", file.display());
            }
            File::from_raw_fd(descriptor)
        };
        Watch(watch)
    }

    fn saw_one_opened(&mut self) -> bool {
        let mut events = [0; 4096];
        match self.0.read(&mut events) {
            Ok(bytes) => bytes > 0,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The files that a place names.
fn files_of(place: &str) -> Vec<PathBuf> {
    place.split(',').skip(1).map(|part| PathBuf::from(part.split_once('=').unwrap().1)).collect()
}

/// Another machine with the same devices: what this one remembers of pools is put away.
fn elsewhere(world: &World) {
    fs::rename(world.path("state"), world.path("state.other")).unwrap();
}

fn said(outcome: &Said) -> String {
    format!("{}{}", outcome.out, outcome.err)
}

/// A pool with a medium on the server, which alone has `project`; not mounted. Names of `names` are there too.
fn released(name: &str, kind: Kind) -> Option<(World, Server)> {
    let (world, server) = beside_server(name, "-o recall_timeout=1", |folder| Server::start(name, kind, folder))?;
    world.ok(&format!("device add tank {},name=far", server.place()));
    fs::create_dir(world.path("plain")).unwrap();
    world.ok("device add tank dir:plain,name=near");
    for (directory, option) in [("project", ""), ("names", "--metadata ")] {
        // What is below directories in it is put away.
        fill(&world.mountpoint().join(directory).join("below"), 30);
        world.ok(&format!("tier archive mount/{directory} --to far --wait"));
        world.ok(&format!("tier release {option}mount/{directory}"));
    }
    world.ok("umount mount");
    Some((world, server))
}

fn state_of(world: &World, medium: &str) -> String {
    let volumes = world.json("tier list tank --json")["volumes"].clone();
    let found = volumes.as_array().unwrap().iter().find(|volume| volume["name"] == medium).unwrap().clone();
    found["state"].as_str().unwrap().to_owned()
}

/// Everything that would use the medium, and what is said.
fn assert_withheld(world: &World, server: &Server) {
    let file = files_of(&server.place())[0].display().to_string();
    forget_cache();
    assert!(fs::read(world.mountpoint().join("project/below/20")).is_err());
    assert_eq!(state_of(world, "far"), "away");
    assert_eq!(state_of(world, "near"), "online");
    let status = world.run("status tank");
    let words = said(&status);
    assert_eq!(status.code, 3, "{words}");
    for word in ["nobody here agreed", &file, "`stere device online tank far`"] {
        assert!(words.contains(word), "{words}");
    }
    assert!(said(&world.run("media show tank far")).contains("nobody here agreed"));
    assert_ne!(world.run("media verify tank far").code, 0);
    // Nobody is asked where nobody can answer, and a dry run is none.
    for line in ["device online tank far", "device online tank far --dry-run"] {
        let asked = world.run(line);
        assert_eq!(asked.code, i32::from(!line.ends_with("run")), "{line}: {}", said(&asked));
        assert!(asked.out.contains(&server.place()), "{line}: {}", said(&asked));
        if !line.ends_with("run") {
            assert!(asked.err.contains("--yes") && asked.err.contains(&file), "{}", asked.err);
        }
    }
    assert_eq!(state_of(world, "far"), "away");
}

/// P-210: a pool from elsewhere mounts, and neither the files that it names nor its server are touched before somebody agrees; then they
/// are, and the next mount needs no word.
fn is_asked_for(name: &str, kind: Kind) {
    let Some((world, server)) = released(name, kind) else { return };
    let files = files_of(&server.place());
    elsewhere(&world);
    let mut watch = Watch::new(&files);
    let requests = |server: &Server| if kind == Kind::Apache { server.asked() } else { String::new() };
    let asked = requests(&server);
    // A pool that is not mounted is not asked for either, where names were put away.
    let check = world.run("check a.img b.img");
    assert!(check.err.contains("nobody here agreed"), "{}", said(&check));
    world.ok("mount a.img b.img mount -o recall_timeout=1");
    assert_withheld(&world, &server);
    fill(&world.mountpoint().join("local"), 20);
    world.ok("tier archive mount/local --to near --wait");
    world.ok("umount mount");
    world.ok("pool import a.img b.img");
    world.ok("mount tank mount -o ro,recall_timeout=1");
    assert_withheld(&world, &server);
    assert!(!watch.saw_one_opened(), "a file that the pool names was opened");
    assert_eq!(requests(&server), asked, "the server that the pool names was asked");
    // For reading only it can be agreed to as well.
    world.ok("device online tank far --yes");
    forget_cache();
    assert_right(&world.mountpoint().join("project/below"), 30);
    assert!(watch.saw_one_opened());
    world.ok("umount mount");
    for _ in 0..2 {
        world.ok("mount tank mount -o recall_timeout=1");
        assert_eq!(world.run("status tank").code, 0);
        forget_cache();
        assert_right(&world.mountpoint().join("project/below"), 30);
        assert_right(&world.mountpoint().join("names/below"), 30);
        world.ok("umount mount");
    }
    assert!(world.ok("check tank").contains("clean"));
    // Who forgets the pool forgets that too.
    world.ok("pool export tank");
    world.ok("pool import a.img b.img");
    world.ok("mount tank mount -o recall_timeout=1");
    assert_withheld(&world, &server);
    world.ok("umount mount");
}

#[test]
fn webdav_of_a_foreign_pool_is_asked_for() {
    is_asked_for("webdav_of_a_foreign_pool_is_asked_for", Kind::Apache);
}

#[test]
fn ssh_of_a_foreign_pool_is_asked_for() {
    is_asked_for("ssh_of_a_foreign_pool_is_asked_for", Kind::RcloneSftp);
}

/// P-211: what was agreed to is this place: when the pool comes back from elsewhere with another one, it is asked again.
#[test]
fn another_place_is_asked_for_again() {
    const NAME: &str = "another_place_is_asked_for_again";
    let Some((world, server)) = released(NAME, Kind::Apache) else { return };
    let own = files_of(&server.place())[0].clone();
    let other = world.path("secrets");
    fs::copy(&own, &other).unwrap();
    elsewhere(&world);
    let place = server.place().replace(&*own.to_string_lossy(), &other.to_string_lossy());
    world.ok("mount a.img b.img mount -o recall_timeout=1");
    // Who names the place has agreed by that.
    world.ok(&format!("device online tank far {place}"));
    forget_cache();
    assert_right(&world.mountpoint().join("project/below"), 30);
    world.ok("umount mount");
    // The first machine agreed to the first place.
    fs::remove_dir_all(world.path("state")).unwrap();
    fs::rename(world.path("state.other"), world.path("state")).unwrap();
    let mut watch = Watch::new(&[other, own]);
    world.ok("mount tank mount -o recall_timeout=1");
    assert!(fs::read(world.mountpoint().join("project/below/20")).is_err());
    assert_eq!(state_of(&world, "far"), "away");
    assert!(!watch.saw_one_opened());
    world.ok("device online tank far --yes");
    assert_right(&world.mountpoint().join("project/below"), 30);
    end_clean(&world);
}

fn record(world: &World) -> (PathBuf, serde_json::Value) {
    let path: PathBuf = Path::new(&world.path("state")).join("pools/tank.json");
    let value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    (path, value)
}

/// P-211: pools that are remembered from before anybody was asked go on, and are asked for what is new from then on.
#[test]
fn a_pool_remembered_from_before_goes_on() {
    const NAME: &str = "a_pool_remembered_from_before_goes_on";
    let Some((world, server)) = released(NAME, Kind::Apache) else { return };
    let (path, mut value) = record(&world);
    assert!(value.as_object_mut().unwrap().remove("agreed").is_some());
    fs::write(&path, value.to_string()).unwrap();
    for _ in 0..2 {
        world.ok("mount tank mount -o recall_timeout=1");
        forget_cache();
        assert_right(&world.mountpoint().join("project/below"), 30);
        world.ok("umount mount");
        let (_, value) = record(&world);
        assert_eq!(value["agreed"].as_array().unwrap().len(), 1, "{value}");
        assert_eq!(value["agreed"][0]["place"], server.place());
    }
}
