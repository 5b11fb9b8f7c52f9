use super::*;

fn directory() -> (tempfile::TempDir, Directory) {
    let folder = tempfile::tempdir().unwrap();
    let directory = Directory::open(folder.path()).unwrap();
    (folder, directory)
}

fn listed(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// P-246.
#[test]
fn exports_are_made_by_size_and_found_again() {
    let (folder, directory) = directory();
    assert!(matches!(directory.export("disk"), Err(NodeError::NoExport { .. })));
    assert!(matches!(directory.provide("disk", 0), Err(NodeError::NoExport { .. })));
    assert_eq!(directory.provide("disk", 1 << 20).unwrap().size_bytes, 1 << 20);
    // One that is there stays as it is.
    assert_eq!(directory.provide("disk", 2 << 20).unwrap().size_bytes, 1 << 20);
    assert_eq!(directory.names().unwrap(), ["disk"]);
    assert_eq!(fs::metadata(folder.path().join("disk")).unwrap().len(), 1 << 20);
}

/// P-246.
#[test]
fn wrong_names_and_sizes_change_nothing() {
    let (folder, directory) = directory();
    fs::write(folder.path().join("secret"), b"x").unwrap();
    std::os::unix::fs::symlink("secret", folder.path().join("link")).unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    let before = listed(folder.path());
    for name in ["../x", "a/b", ".hidden", "", "a b", ".stere-node", "a\n", &"a".repeat(256)] {
        assert!(matches!(directory.provide(name, 1 << 20), Err(NodeError::Name { .. })), "{name:?}");
    }
    for size_bytes in [1, 4097, 1 << 63, u64::MAX] {
        assert!(matches!(directory.provide("new", size_bytes), Err(NodeError::Size { .. })), "{size_bytes}");
    }
    // More than any file system takes.
    assert!(matches!(directory.provide("new", 1 << 62), Err(NodeError::File { .. })));
    for name in ["link", "folder"] {
        assert!(directory.provide(name, 1 << 20).is_err(), "{name}");
    }
    assert_eq!(listed(folder.path()), before);
    assert_eq!(directory.names().unwrap(), ["secret"]);
}

#[test]
fn a_directory_is_served_once() {
    let (folder, directory) = directory();
    assert!(matches!(Directory::open(folder.path()), Err(NodeError::InUse { .. })));
    assert!(matches!(Directory::open(&folder.path().join("away")), Err(NodeError::NotADirectory { .. })));
    drop(directory);
    Directory::open(folder.path()).unwrap();
}

/// P-245.
#[test]
fn an_older_owner_changes_nothing() {
    let (folder, directory) = directory();
    let export = directory.provide("disk", 1 << 20).unwrap();
    let (mut old, mut new, stranger) = (Standing::default(), Standing::default(), Standing::default());
    // Nobody has said anything.
    export.write(&stranger, 0, &[1; 512]).unwrap();
    export.fence(&mut old, 7).unwrap();
    export.write(&old, 0, &[2; 512]).unwrap();
    assert_eq!(export.write(&stranger, 0, &[9; 512]), Err(EPERM));
    export.fence(&mut new, 9).unwrap();
    let refused = |standing: &Standing| {
        assert_eq!(export.write(standing, 0, &[9; 512]), Err(EPERM));
        assert_eq!(export.trim(standing, 0, 512), Err(EPERM));
        assert_eq!(export.zero(standing, 0, 512, true), Err(EPERM));
        assert_eq!(export.flush(standing), Err(EPERM));
    };
    refused(&old);
    refused(&stranger);
    assert_eq!(export.fence(&mut old, 7), Err(EPERM));
    // Only the owner ends all of it.
    assert_eq!(export.fence(&mut old, 0), Err(EPERM));
    refused(&old);
    export.write(&new, 512, &[3; 512]).unwrap();
    export.flush(&new).unwrap();
    let mut found = [0; 1024];
    export.read(0, &mut found).unwrap();
    assert!(found[..512] == [2; 512] && found[512..] == [3; 512]);
    // A node that is started again knows it.
    drop((export, directory));
    let directory = Directory::open(folder.path()).unwrap();
    let export = directory.export("disk").unwrap();
    assert_eq!(export.epoch(), 9);
    assert_eq!(export.fence(&mut old, 8), Err(EPERM));
    let mut new = Standing::default();
    export.fence(&mut new, 9).unwrap();
    export.fence(&mut new, 0).unwrap();
    assert_eq!(export.epoch(), 0);
    export.write(&stranger, 0, &[4; 512]).unwrap();
    export.fence(&mut old, 1).unwrap();
}

#[test]
fn zeros_are_zeros_with_and_without_holes() {
    let (_folder, directory) = directory();
    let export = directory.provide("disk", 4 << 20).unwrap();
    let standing = Standing::default();
    for may_be_hole in [true, false] {
        export.write(&standing, 0, &vec![7; 4 << 20]).unwrap();
        export.zero(&standing, 512, (3 << 20) - 512, may_be_hole).unwrap();
        let mut found = vec![1; 4 << 20];
        export.read(0, &mut found).unwrap();
        assert!(found[..512] == [7; 512] && found[512..3 << 20].iter().all(|byte| *byte == 0));
        assert!(found[3 << 20..].iter().all(|byte| *byte == 7));
    }
    export.trim(&standing, 0, 0).unwrap();
    // A file that somebody cut has an error for what it lost.
    export.file.set_len(1 << 20).unwrap();
    assert_eq!(export.read((1 << 20) - 1, &mut [0; 2]), Err(EIO));
}
