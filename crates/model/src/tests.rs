//! A few sequences whose outcome is plain.

use super::*;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0, now: 5 };

#[test]
fn a_life_of_a_file() {
    let mut model = Model::new(1);
    let file = model.create(&CALLER, ROOT, b"a", 0o644).unwrap();
    assert_eq!(model.create(&CALLER, ROOT, b"a", 0o644), Err(errno::EEXIST));
    model.write(&CALLER, file, 5000, b"x").unwrap();
    assert_eq!(model.read(file, 4999, 10).unwrap(), [0, b'x']);
    model.link(&CALLER, file, ROOT, b"b").unwrap();
    model.open(file).unwrap();
    model.unlink(&CALLER, ROOT, b"a").unwrap();
    model.unlink(&CALLER, ROOT, b"b").unwrap();
    assert_eq!(model.inode(file).unwrap().nlink, 0);
    assert_eq!(model.link(&CALLER, file, ROOT, b"c"), Err(errno::ENOENT));
    model.release(file).unwrap();
    assert_eq!(model.inode(file), Err(errno::ESTALE));
}

#[test]
fn directories_move_but_not_into_themselves() {
    let mut model = Model::new(1);
    let a = model.mkdir(&CALLER, ROOT, b"a", 0o755).unwrap();
    let b = model.mkdir(&CALLER, a, b"b", 0o755).unwrap();
    assert_eq!(model.rename(&CALLER, ROOT, b"a", b, b"c", 0), Err(errno::EINVAL));
    model.rename(&CALLER, a, b"b", ROOT, b"b", 0).unwrap();
    assert_eq!((model.inode(a).unwrap().nlink, model.inode(ROOT).unwrap().nlink), (2, 4));
    model.rename(&CALLER, ROOT, b"a", ROOT, b"b", 0).unwrap();
    assert_eq!(model.list(ROOT).unwrap(), [(b"b".to_vec(), a)]);
    assert_eq!(model.inode(ROOT).unwrap().nlink, 3);
}

#[test]
fn collapse_and_insert_are_inverse() {
    let mut model = Model::new(1);
    let file = model.create(&CALLER, ROOT, b"a", 0o644).unwrap();
    let data: Vec<u8> = (0..20_000u32).map(|at| (at % 251) as u8).collect();
    model.write(&CALLER, file, 0, &data).unwrap();
    model.fallocate(&CALLER, file, 4096, 8192, 0x20).unwrap();
    assert_eq!(model.read(file, 4096, 8192).unwrap(), vec![0; 8192]);
    model.fallocate(&CALLER, file, 4096, 8192, 0x08).unwrap();
    assert_eq!(model.read(file, 0, 30_000).unwrap(), data);
}
