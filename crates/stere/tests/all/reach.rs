//! Volumes on other machines with the real binary and a real mount: WebDAV and SFTP, with servers that go away, lie and refuse, and one behind a
//! cable that is pulled. Needs root and /dev/fuse, and says loudly when it skips. Read next: `tier.rs`, `support/remote.rs`.

use crate::elsewhere::Elsewhere;
use crate::remote;
use crate::support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use remote::{Kind, Server};
use support::tier::{assert_right, beside_server, end_clean, fill, forget_cache, until};
use support::{World, can_mount};

/// A mounted pool, and a server.
fn world_with(name: &str, kind: Kind) -> Option<(World, Server)> {
    beside_server(name, "-o recall_timeout=2", |folder| Server::start(name, kind, folder))
}

fn segments(server: &Server) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(server.data().join("segments")).unwrap();
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_none()).collect()
}

/// What a segment costs on a WebDAV server, as `docs/design/tiering.md` says: six requests to copy it out, one to bring it back.
fn assert_cheap(server: &Server) {
    let asked = server.asked();
    let count = |method: &str, folder: &str| {
        let line = format!("{method} /pool/{folder}/");
        asked.lines().filter(|asked| asked.starts_with(&line)).count()
    };
    let segments = fs::read_dir(server.data().join("segments")).unwrap().count();
    let counts = ["HEAD", "PUT", "MOVE", "GET", "PUT", "MOVE"].iter().zip([
        "segments",
        "segments",
        "segments",
        "segments",
        "catalogue",
        "catalogue",
    ]);
    let counts: Vec<usize> = counts.map(|(method, folder)| count(method, folder)).collect();
    assert!(
        segments > 0 && counts.iter().sum::<usize>() <= 6 * segments,
        "{counts:?} for {segments} segments: {asked}"
    );
}

/// P-150: files go down and come back, the server goes away and comes back, an object is cut in half, and in the end there is the volume only.
fn go_down_and_come_back(name: &str, kind: Kind) {
    let Some((world, mut server)) = world_with(name, kind) else { return };
    world.refused(
        &format!("device add tank {},name=far", server.place_of_a_stranger()),
        1,
        &[if server.place().starts_with("dav") { "refuses the user and the password" } else { "Permission denied" }],
    );
    world.ok(&format!("device add tank {},name=far", server.place()));
    let directory = world.mountpoint().join("project");
    fill(&directory, 100);
    world.ok("tier archive mount/project --wait");
    if kind == Kind::Apache {
        assert_cheap(&server);
    }
    world.ok("tier release mount/project");
    forget_cache();
    assert_right(&directory, 100);
    world.ok("tier stage mount/project --wait");
    world.ok("tier release mount/project");
    forget_cache();
    let before = segments(&server);
    server.stop();
    let outcome = fs::read(directory.join("90")).map(|bytes| bytes.len());
    assert_eq!(outcome.map_err(|error| error.raw_os_error()), Err(Some(libc::EIO)));
    let other = world.mountpoint().join("other");
    fill(&other, 40);
    assert_eq!(world.run("tier archive mount/other --wait").code, 3);
    assert_right(&other, 40);
    server.start_again();
    until("the server is back", || fs::read(directory.join("90")).is_ok());
    assert_right(&directory, 100);
    world.ok("tier archive mount/other --wait");
    // Half of an object is found, and put right from devices.
    let object = segments(&server).difference(&before).next().unwrap().clone();
    let whole = fs::read(&object).unwrap();
    fs::write(&object, &whole[..whole.len() / 2]).unwrap();
    if matches!(kind, Kind::RcloneDav | Kind::RcloneSftp) {
        // It remembers for a while how long a file was.
        server.stop();
        server.start_again();
    }
    until("the half is not found", || world.run("media verify tank far").out.contains("damaged"));
    until("it is not put right", || fs::read(&object).is_ok_and(|found| found == whole));
    world.ok("media verify tank far");
    world.ok("tier release mount/other");
    forget_cache();
    assert_right(&other, 40);
    world.ok("umount mount");
    world.ok(&format!("rescue {} --to out", server.place()));
    assert_right(&world.path("out").join("project"), 100);
    assert_right(&world.path("out").join("other"), 40);
}

#[test]
fn files_go_down_to_webdav_of_apache_and_come_back() {
    go_down_and_come_back("files_go_down_to_webdav_of_apache_and_come_back", Kind::Apache);
}

#[test]
fn files_go_down_to_webdav_of_rclone_and_come_back() {
    go_down_and_come_back("files_go_down_to_webdav_of_rclone_and_come_back", Kind::RcloneDav);
}

#[test]
fn files_go_down_over_ssh_and_come_back() {
    go_down_and_come_back("files_go_down_over_ssh_and_come_back", Kind::OpenSsh);
}

#[test]
fn files_go_down_over_ssh_to_rclone_and_come_back() {
    go_down_and_come_back("files_go_down_over_ssh_to_rclone_and_come_back", Kind::RcloneSftp);
}

/// P-149: what cannot be a place is refused with words, and leaves the pool as it was.
#[test]
fn what_is_no_place_is_refused() {
    const NAME: &str = "what_is_no_place_is_refused";
    let Some((world, server)) = world_with(NAME, Kind::OpenSsh) else { return };
    let long = "x".repeat(200);
    for (place, words) in [
        ("dav://,name=z", "names no host"),
        ("dav://nas/cold?x,name=z", "%3F"),
        ("dav://me:secret@nas/cold,name=z", "put them into a file"),
        ("dav://nas/cold,credentials=/nowhere,name=z", "/nowhere"),
        ("sftp://shed,name=z", "names no path"),
        ("sftp://-oProxyCommand=id/x,name=z", "its host"),
        ("sftp://me:secret@shed/x,name=z", "password"),
        ("sftp://shed/x,identity=key,name=z", "whole path"),
        (&format!("sftp://shed/{long},identity=/{long},name=z"), "at most 255 bytes"),
        (&format!("{},name=z", server.place_of_another_machine()), "Host key verification failed"),
    ] {
        world.refused(&format!("device add tank {place}"), 1, &[words]);
    }
    for place in
        ["dav://nas/cold,ca=/c", "dav://nas/cold,colour=red", "sftp://shed/x,config=/tmp/x", "davs://nas/x,identity=/k"]
    {
        assert_ne!(world.run(&format!("device add tank {place}")).code, 0, "{place}");
    }
    assert_eq!(world.json("tier list tank --json")["volumes"].as_array().unwrap().len(), 0);
    assert_eq!(fs::read_dir(server.data()).unwrap().count(), 0);
    end_clean(&world);
}

/// P-150: a server on another machine, whose cable is pulled and put in again: nothing local waits, and all goes on by itself.
fn goes_on_when_the_cable_is_back(name: &str, kind: Kind) {
    if !can_mount(name) {
        return;
    }
    let Some(elsewhere) = Elsewhere::new(name) else { return };
    let start = |folder: &Path| Server::start_at(name, kind, folder, &elsewhere.address, Some(&elsewhere.name));
    let Some((world, server)) = beside_server(name, "-o recall_timeout=1", start) else { return };
    world.ok(&format!("device add tank {},name=far", server.place()));
    let directory = world.mountpoint().join("project");
    fill(&directory, 60);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    forget_cache();
    elsewhere.pull_the_cable(true);
    // Who reads what is only there waits inside a request, and may be killed.
    let mut reader =
        Command::new("cat").arg(directory.join("50")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let near = world.mountpoint().join("near");
    fill(&near, 40);
    fs::File::open(&near).unwrap().sync_all().unwrap();
    assert_right(&near, 40);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    drop(reader.kill());
    drop(reader.wait());
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    elsewhere.pull_the_cable(false);
    until("the other machine is back", || fs::read(directory.join("50")).is_ok());
    assert_right(&directory, 60);
    world.ok("tier archive mount/near --wait");
    world.ok("tier release mount/near");
    forget_cache();
    assert_right(&near, 40);
    end_clean(&world);
}

#[test]
fn ssh_goes_on_when_the_cable_is_back() {
    goes_on_when_the_cable_is_back("ssh_goes_on_when_the_cable_is_back", Kind::RcloneSftp);
}

#[test]
fn webdav_goes_on_when_the_cable_is_back() {
    goes_on_when_the_cable_is_back("webdav_goes_on_when_the_cable_is_back", Kind::RcloneDav);
}
