//! Machines with other numbers for the same people, with the real binary (P-258, P-259). Needs root and /dev/fuse. Read next: `support/site.rs`,
//! `crates/client/src/identities.rs`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::site::Site;
use crate::support::{NOBODY, World};

/// On the client 3001 and 3002; in the pool they are 4001 and 3001. Group 3001 is 4001.
const MAPPED: &str = "mount lab mount -o users=3001:4001+3002:3001 -o groups=3001:4001";

/// Who owns a file, as a machine shows it.
fn owner_of(world: &World, name: &str) -> (u32, u32) {
    let facts = fs::symlink_metadata(world.mountpoint().join(name)).unwrap();
    (facts.uid(), facts.gid())
}

/// Runs a line of a shell in the mount as a user, whose group has the same number; what it prints, or its error.
fn as_user(world: &World, user: u32, line: &str) -> Result<String, String> {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(world.mountpoint()).env("LC_ALL", "C").uid(user).gid(user);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn refused_as(world: &World, user: u32, line: &str, why: &str) {
    let error = as_user(world, user, line).expect_err(line);
    assert!(error.contains(why), "{line} as {user}: {error}");
}

/// An ACL that lets one user read, and one group.
fn acl(user: u32, group: u32) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1_u16, 6_u16, u32::MAX), (2, 4, user), (4, 0, u32::MAX), (8, 4, group), (16, 4, u32::MAX), (32, 0, u32::MAX)]
    {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

const ACL: &str = "system.posix_acl_access";

fn acl_of(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    let length = getxattr(path, ACL, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// Two machines, of which the second mounts through the first; everybody may go into their folders, and into `all`.
fn site(test: &str, mount: &str) -> Option<Site> {
    let site = Site::new(test, 2, 2)?;
    for (machine, line) in site.machines.iter().zip(["mount lab mount", mount]) {
        machine.ok(line);
        fs::set_permissions(&machine.folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let all = site.machines[0].mountpoint().join("all");
    fs::create_dir(&all).unwrap();
    fs::set_permissions(&all, fs::Permissions::from_mode(0o777)).unwrap();
    Some(site)
}

fn end(site: &Site) {
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    client.ok("umount mount");
    owner.ok("umount mount");
    owner.ok("check lab");
}

#[test]
fn each_machine_shows_a_file_with_its_own_numbers() {
    let Some(site) = site("each_machine_shows_a_file_with_its_own_numbers", MAPPED) else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    as_user(client, 3001, "mkdir -m 700 all/own && echo text > all/own/file && ln -s file all/own/link").unwrap();
    for name in ["all/own", "all/own/file", "all/own/link"] {
        assert_eq!((owner_of(client, name), owner_of(owner, name)), ((3001, 3001), (4001, 4001)), "{name}");
    }
    // Listed, which brings attributes along; also as the kernel of a mount has them that saw none before.
    let listed = as_user(client, 3001, "ls -ln all/own").unwrap();
    assert_eq!(listed.matches(" 3001 3001 ").count(), 2, "{listed}");
    assert_eq!(as_user(client, 3001, "chmod 640 all/own/file && cat all/own/file").unwrap(), "text\n");
    assert_eq!(as_user(owner, 4001, "cat all/own/file").unwrap(), "text\n");
    refused_as(client, 4001, "cat all/own/file", "Permission denied");
    refused_as(owner, 3001, "cat all/own/file", "Permission denied");
    // Owners that are set, on either side.
    fs::write(owner.mountpoint().join("given"), b"x").unwrap();
    chown(owner.mountpoint().join("given"), Some(3001), Some(7)).unwrap();
    assert_eq!(owner_of(client, "given"), (3002, 7));
    chown(client.mountpoint().join("given"), Some(3001), Some(3001)).unwrap();
    assert_eq!((owner_of(client, "given"), owner_of(owner, "given")), ((3001, 3001), (4001, 4001)));
    // What may be asked by those who only use the mount goes by the same numbers.
    let stere = fs::copy(env!("CARGO_BIN_EXE_stere"), client.path("stere")).map(|_| client.path("stere")).unwrap();
    let find = |user: u32| as_user(client, user, &format!("{} find 'name=file' . 2>&1", stere.display())).unwrap();
    assert_eq!((find(3001), find(4001)), ("./all/own/file\n".into(), String::new()));
    end(&site);
}

#[test]
fn who_has_no_counterpart_is_nobody_and_owns_nothing() {
    let Some(site) = site("who_has_no_counterpart_is_nobody_and_owns_nothing", MAPPED) else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    fs::write(owner.mountpoint().join("theirs"), b"x").unwrap();
    chown(owner.mountpoint().join("theirs"), Some(3002), Some(3001)).unwrap();
    // 3002 of the pool is nobody's here, and neither is its group 3001.
    assert_eq!(owner_of(client, "theirs"), (NOBODY, NOBODY));
    let path = client.mountpoint().join("theirs");
    for (uid, gid) in [(Some(4001), None), (None, Some(4001)), (Some(NOBODY), None), (None, Some(NOBODY))] {
        let error = chown(&path, uid, gid).expect_err("nobody of the pool");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{uid:?} {gid:?}");
    }
    assert_eq!(owner_of(owner, "theirs"), (3002, 3001), "it is as it was");
    for line in ["touch all/made", "mkdir all/made", "ln -s a all/made", "mkfifo all/made"] {
        refused_as(client, 4001, line, "Value too large");
    }
    assert_eq!(fs::read_dir(owner.mountpoint().join("all")).unwrap().count(), 0);
    // Others are the same, and root is root.
    as_user(client, 3500, "touch all/others").unwrap();
    fs::write(client.mountpoint().join("all/roots"), b"x").unwrap();
    assert_eq!((owner_of(owner, "all/others"), owner_of(owner, "all/roots")), ((3500, 3500), (0, 0)));
    end(&site);
}

#[test]
fn acls_name_the_same_users_on_both_machines() {
    let Some(site) = site("acls_name_the_same_users_on_both_machines", MAPPED) else { return };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    let paths = [owner, client].map(|world| world.mountpoint().join("listed"));
    fs::write(&paths[0], b"text").unwrap();
    fs::set_permissions(&paths[0], fs::Permissions::from_mode(0o600)).unwrap();
    setxattr(&paths[1], ACL, &acl(3001, 3001), XattrFlags::empty()).unwrap();
    assert!(acl_of(&paths[1]) == acl(3001, 3001) && acl_of(&paths[0]) == acl(4001, 4001));
    assert_eq!(as_user(client, 3001, "cat listed").unwrap(), "text");
    assert_eq!(as_user(owner, 4001, "cat listed").unwrap(), "text");
    refused_as(client, 4001, "cat listed", "Permission denied");
    refused_as(owner, 3001, "cat listed", "Permission denied");
    for foreign in [acl(4001, 3001), acl(3001, 4001), acl(NOBODY, 3001)] {
        let error = setxattr(&paths[1], ACL, &foreign, XattrFlags::empty()).expect_err("nobody of the pool");
        assert_eq!(error, rustix::io::Errno::INVAL);
    }
    assert!(acl_of(&paths[0]) == acl(4001, 4001), "it is as it was");
    end(&site);
}

#[test]
fn by_names_those_are_the_same_whom_both_machines_know() {
    let Some(site) = site("by_names_those_are_the_same_whom_both_machines_know", "mount lab mount -o users=names")
    else {
        return;
    };
    let [owner, client] = &site.machines[..] else { panic!("two machines") };
    // Both have one user database here: its names are the same, and a number without a name is nobody's.
    let name = |user: u32| Command::new("id").args(["-nu", &user.to_string()]).output().unwrap().status.success();
    assert!(name(1) && !name(3001), "user 1 has a name, and 3001 has none");
    as_user(client, 1, "touch all/named").unwrap();
    assert_eq!((owner_of(owner, "all/named"), owner_of(client, "all/named")), ((1, 1), (1, 1)));
    refused_as(client, 3001, "touch all/made", "Value too large");
    chown(owner.mountpoint().join("all/named"), Some(3001), Some(3001)).unwrap();
    assert_eq!(owner_of(client, "all/named"), (NOBODY, NOBODY));
    end(&site);
}

#[test]
fn a_machine_that_owns_the_pool_maps_nobody() {
    let Some(site) = Site::new("a_machine_that_owns_the_pool_maps_nobody", 2, 1) else { return };
    site.machines[0].refused(MAPPED, 1, &["mounts through the pool's owner", "--standby"]);
    site.machines[0].refused("mount lab mount -o users=0:5", 2, &["root is root of the pool"]);
    site.machines[0].ok(&format!("{MAPPED} --standby"));
    let point = site.machines[0].mountpoint();
    fs::write(point.join("file"), b"x").unwrap();
    chown(point.join("file"), Some(3001), Some(3001)).unwrap();
    let facts = fs::metadata(point.join("file")).unwrap();
    assert_eq!((facts.uid(), facts.gid()), (3001, 3001));
    assert_eq!(chown(point.join("file"), Some(4001), None).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    site.machines[0].ok("umount mount");
    site.machines[0].ok("mount lab mount");
    let facts = fs::metadata(point.join("file")).unwrap();
    assert_eq!((facts.uid(), facts.gid()), (4001, 4001), "that is what the pool has");
    site.machines[0].ok("umount mount");
}
