//! Backups by the programs that people use (P-170), with the real binary: files that are released, released in part, sparse, compressed,
//! encrypted and versioned come out of each archive with every byte. Programs that are not there are skipped loudly.

use crate::support;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use support::tier::{attribute, forget_cache, until};
use support::{World, can_mount};

const FILES: [&str; 12] = [
    "released",
    "partly",
    "sparse",
    "sparse-released",
    "plain",
    "small",
    "compressed",
    "encrypted/file",
    "versioned",
    "original",
    "deduplicated",
    "deduplicated-released",
];

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(length)
    .collect()
}

/// A way to save `tree` and have it again in a directory, as a line of a shell; `program` must be there.
struct Way {
    name: &'static str,
    program: &'static str,
    line: &'static str,
}

/// `$1` is what is saved, `$2` an empty directory to restore to, `$3` one for the archive.
const WAYS: [Way; 10] = [
    Way { name: "tar", program: "tar", line: "tar -C $1 -cf $3/a . && tar -C $2 -xf $3/a" },
    Way { name: "tar -S", program: "tar", line: "tar -C $1 -S -cf $3/a . && tar -C $2 -S -xf $3/a" },
    Way {
        name: "tar -S raw",
        program: "tar",
        line: "tar -C $1 -S --hole-detection=raw -cf $3/a . && tar -C $2 -xf $3/a",
    },
    Way { name: "rsync", program: "rsync", line: "rsync -a $1/ $2/" },
    Way { name: "rsync -S", program: "rsync", line: "rsync -aS $1/ $2/" },
    Way { name: "cp auto", program: "cp", line: "cp -a --sparse=auto $1/. $2/" },
    Way { name: "cp always", program: "cp", line: "cp -a --sparse=always $1/. $2/" },
    Way {
        name: "cpio",
        program: "cpio",
        line: "(cd $1 && find . | cpio -o --quiet -H newc) >$3/a && cd $2 && cpio -i --quiet -d <$3/a",
    },
    Way {
        name: "restic",
        program: "restic",
        line: "export RESTIC_PASSWORD=x HOME=$3; restic -q -r $3/r init && (cd $1 && restic -q -r $3/r backup .) \
               && restic -q -r $3/r restore latest --target $2",
    },
    Way {
        name: "borg",
        program: "borg",
        line: "export HOME=$3; borg init -e none $3/r && (cd $1 && borg create --sparse $3/r::a .) && cd $2 && borg extract $3/r::a",
    },
];

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Files in every state, and what they hold.
fn make(world: &World) -> (PathBuf, Vec<Vec<u8>>) {
    let tree = world.mountpoint().join("tree");
    fs::create_dir_all(tree.join("encrypted")).unwrap();
    world.ok("key create tank family --passphrase-file pass");
    for (path, setting) in [
        ("compressed", "compress=zstd"),
        ("versioned", "versions=5"),
        ("encrypted", "encrypt=yes"),
        ("original", "dedup=yes"),
        ("deduplicated", "dedup=yes"),
        ("deduplicated-released", "dedup=yes"),
    ] {
        if path != "encrypted" {
            fs::write(tree.join(path), b"earlier").unwrap();
        }
        world.ok(&format!("policy set mount/tree/{path} {setting}"));
    }
    let mut contents: Vec<Vec<u8>> = (1..).map(|seed| noise(seed, 300_000)).take(FILES.len()).collect();
    contents[1] = noise(2, 2_000_000);
    contents[2][4096..260_000].fill(0);
    contents[3][..200_000].fill(0);
    contents[5].truncate(100);
    for same in [10, 11] {
        contents[same] = contents[9].clone();
    }
    contents[6] = b"the same again and again ".repeat(20_000);
    for (name, content) in FILES.iter().zip(&contents) {
        let file = fs::File::create(tree.join(name)).unwrap();
        file.set_len(content.len() as u64).unwrap();
        for (at, block) in content.chunks(4096).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                file.write_all_at(block, (at * 4096) as u64).unwrap();
            }
        }
    }
    for name in ["released", "partly", "sparse-released", "deduplicated-released"] {
        world.ok(&format!("tier archive mount/tree/{name} --wait"));
        world.ok(&format!("tier release mount/tree/{name}"));
    }
    // Written again in the middle: that much is on devices.
    let file = fs::File::options().write(true).open(tree.join("partly")).unwrap();
    file.write_all_at(&[9; 8192], 1_000_000).unwrap();
    file.sync_all().unwrap();
    contents[1][1_000_000..1_008_192].fill(9);
    // In memory only, and not saved yet.
    contents[4].splice(..4, *b"anew");
    fs::File::options().write(true).open(tree.join("plain")).unwrap().write_all_at(b"anew", 0).unwrap();
    (tree, contents)
}

fn assert_saved(way: &str, copy: &Path, contents: &[Vec<u8>]) {
    for (name, content) in FILES.iter().zip(contents) {
        let read = fs::read(copy.join(name)).unwrap_or_else(|error| panic!("{way}: {name}: {error}"));
        assert!(read == *content, "{way}: {name} has {} bytes, which are not those of the file", read.len());
    }
}

#[test]
fn every_way_of_backing_up_gets_every_byte() {
    if !can_mount("every_way_of_backing_up_gets_every_byte") {
        return;
    }
    let world = World::new();
    support::tier::mount_pool(&world, "");
    fs::create_dir(world.path("volume")).unwrap();
    world.ok("device add tank dir:volume,name=cold");
    fs::write(world.path("pass"), "open sesame\n").unwrap();
    let (tree, contents) = make(&world);
    world.ok("umount mount");
    world.ok("mount tank mount");
    world.ok("key unlock tank --passphrase-file pass");
    assert_eq!(attribute(&tree.join("released"), "user.stere.residency"), "nearline");
    assert_eq!(fs::metadata(tree.join("released")).unwrap().blocks(), 1, "data anywhere is at least one block");
    assert!(fs::metadata(tree.join("small")).unwrap().blocks() > 0);
    for way in &WAYS {
        if !is_there(way.program) {
            eprintln!("SKIPPED: backing up with {} needs {}, which is not here", way.name, way.program);
            continue;
        }
        let [copy, archive] = ["copy", "archive"].map(|name| world.path(name));
        fs::create_dir(&copy).unwrap();
        fs::create_dir(&archive).unwrap();
        forget_cache();
        let mut shell = Command::new("sh");
        let status = shell.arg("-ec").arg(way.line).arg("sh").args([&tree, &copy, &archive]).status().unwrap();
        assert!(status.success(), "{}", way.name);
        assert_saved(way.name, &copy, &contents);
        fs::remove_dir_all(&copy).unwrap();
        fs::remove_dir_all(&archive).unwrap();
        // So that the next meets it released too.
        for name in ["released", "sparse-released"] {
            until("it is on its volume again", || world.run(&format!("tier release mount/tree/{name}")).code == 0);
        }
    }
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}
