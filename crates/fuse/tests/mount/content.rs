//! Contents: reading and writing in every way, holes, allocation, copies, limits.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::calls::{self, Mapping, errno};
use crate::{on_both, pattern};

fn new_file(path: &Path) -> File {
    OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path).unwrap()
}

/// Reads without the kernel's cache, so that the answer comes from the file system.
fn read_cold(path: &Path) -> Vec<u8> {
    calls::drop_caches();
    fs::read(path).unwrap()
}

#[test]
fn bytes_come_back_whatever_the_size_and_place() {
    on_both("bytes_come_back_whatever_the_size_and_place", |mounted, root| {
        for (number, size) in [0, 1, 511, 4096, 4097, 131_072, 1 << 20, (5 << 20) + 3].into_iter().enumerate() {
            let (path, data) = (root.join(format!("size-{size}")), pattern(size, number as u64));
            fs::write(&path, &data).unwrap();
            assert!(fs::read(&path).unwrap() == data, "size {size}, cached");
            assert!(read_cold(&path) == data, "size {size}, cold");
            assert_eq!(fs::metadata(&path).unwrap().len(), size as u64);
        }
        // Random places, and the same in memory.
        let (path, mut model) = (root.join("random"), vec![0; 3 << 20]);
        let file = new_file(&path);
        file.set_len(model.len() as u64).unwrap();
        for round in 0..300_u64 {
            let random = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let at = (random as usize * 13) % model.len();
            let data = pattern((random as usize % 70_000).min(model.len() - at), round);
            file.write_all_at(&data, at as u64).unwrap();
            model[at..at + data.len()].copy_from_slice(&data);
        }
        assert!(fs::read(&path).unwrap() == model);
        mounted.filesystem.syncfs(&crate::support::caller()).unwrap();
        assert!(read_cold(&path) == model);
        file.set_len(1_000_001).unwrap();
        file.set_len(2_000_000).unwrap();
        model.truncate(1_000_001);
        model.resize(2_000_000, 0);
        assert!(read_cold(&path) == model, "what was cut off does not come back");
    });
}

#[test]
fn appends_and_truncating_opens() {
    on_both("appends_and_truncating_opens", |_, root| {
        let path = root.join("log");
        let mut expected = Vec::new();
        for round in 0..200 {
            let line = format!("line {round}\n");
            let mut file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
            std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
            expected.extend_from_slice(line.as_bytes());
        }
        assert_eq!(read_cold(&path), expected);
        let kept = File::open(&path).unwrap();
        drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
        assert_eq!(kept.metadata().unwrap().len(), 0);
        assert_eq!(fs::read(&path).unwrap(), b"");
    });
}

#[test]
fn shared_mappings_and_other_ways_agree() {
    on_both("shared_mappings_and_other_ways_agree", |_, root| {
        let (path, data) = (root.join("mapped"), pattern(1 << 20, 9));
        let file = new_file(&path);
        file.set_len(1 << 20).unwrap();
        calls::in_child(|| {
            let again = File::options().read(true).write(true).open(&path).unwrap();
            let (mut first, mut second) = (Mapping::new(&file, 1 << 20), Mapping::new(&again, 1 << 20));
            first.bytes().copy_from_slice(&data);
            assert!(second.bytes() == data);
            let mut back = vec![0; 4096];
            file.read_exact_at(&mut back, 8192).unwrap();
            assert_eq!(back, data[8192..12288]);
            file.write_all_at(b"written", 100).unwrap();
            assert_eq!(&first.bytes()[100..107], b"written");
            first.bytes()[200] = 77;
            first.sync();
        });
        drop(file);
        let mut expected = data;
        expected[100..107].copy_from_slice(b"written");
        expected[200] = 77;
        assert!(read_cold(&path) == expected);
    });
}

#[test]
fn direct_io_and_buffered_io_agree() {
    on_both("direct_io_and_buffered_io_agree", |_, root| {
        let path = root.join("direct");
        let (buffer, range) = calls::aligned(&pattern(2 << 20, 11));
        let data = &buffer[range];
        let direct = OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(&path)
            .unwrap();
        direct.write_all_at(data, 0).unwrap();
        assert!(fs::read(&path).unwrap() == data);
        let buffered = OpenOptions::new().write(true).open(&path).unwrap();
        buffered.write_all_at(&[42; 5000], 10_000).unwrap();
        let (mut back, range) = calls::aligned(&vec![0; 2 << 20]);
        direct.read_exact_at(&mut back[range.clone()], 0).unwrap();
        let mut expected = data.to_vec();
        expected[10_000..15_000].fill(42);
        assert!(back[range.clone()] == expected);
        // A direct write is seen by readers with a cache.
        let cached = File::open(&path).unwrap();
        let mut page = vec![0; 4096];
        cached.read_exact_at(&mut page, 0).unwrap();
        back[range.clone()][..4096].fill(7);
        direct.write_all_at(&back[range.start..range.start + 4096], 0).unwrap();
        cached.read_exact_at(&mut page, 0).unwrap();
        assert_eq!(page, vec![7; 4096]);
        // A read across the end is short.
        direct.set_len(6000).unwrap();
        assert_eq!(direct.read_at(&mut back[range.start..range.start + 8192], 4096).unwrap(), 6000 - 4096);
    });
}

#[test]
fn allocation_in_all_its_modes() {
    const BLOCK: usize = 4096;
    on_both("allocation_in_all_its_modes", |_, root| {
        let path = root.join("allocated");
        let file = new_file(&path);
        let mut model = pattern(64 * BLOCK, 3);
        file.write_all_at(&model, 0).unwrap();
        let check = |model: &[u8], what: &str| assert!(read_cold(&path) == model, "after {what}");
        let blocks = |count: usize| (count * BLOCK) as i64;
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        calls::fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE | keep, blocks(3) - 100, blocks(2) + 300).unwrap();
        model[3 * BLOCK - 100..5 * BLOCK + 200].fill(0);
        check(&model, "punching");
        calls::fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, blocks(63), blocks(4)).unwrap();
        model[63 * BLOCK..].fill(0);
        model.resize(67 * BLOCK, 0);
        check(&model, "zeroing");
        // The kernel's FUSE refuses these two by itself; the layers below have them.
        for mode in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
            assert_eq!(errno(calls::fallocate(&file, mode, blocks(10), blocks(4))), libc::EOPNOTSUPP);
        }
        let before = file.metadata().unwrap();
        calls::fallocate(&file, keep, blocks(100), blocks(50)).unwrap();
        let after = file.metadata().unwrap();
        assert_eq!(after.len(), before.len());
        assert!(after.blocks() >= before.blocks() + 50 * 8, "{} of {}", after.blocks(), before.blocks());
        calls::fallocate(&file, 0, 0, blocks(80)).unwrap();
        model.resize(80 * BLOCK, 0);
        check(&model, "extending");
        assert_eq!(errno(calls::fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE, 0, blocks(1))), libc::EOPNOTSUPP);
    });
}

#[test]
fn data_and_holes_are_found() {
    on_both("data_and_holes_are_found", |_, root| {
        let file = new_file(&root.join("sparse"));
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        file.write_all_at(&[2; 8192], 8 << 20).unwrap();
        file.set_len(16 << 20).unwrap();
        let (data, hole) = (libc::SEEK_DATA, libc::SEEK_HOLE);
        assert_eq!(calls::seek(&file, 0, data).unwrap(), 1 << 20);
        assert_eq!(calls::seek(&file, 1 << 20, hole).unwrap(), (1 << 20) + 4096);
        assert_eq!(calls::seek(&file, 2 << 20, data).unwrap(), 8 << 20);
        assert_eq!(calls::seek(&file, 8 << 20, hole).unwrap(), (8 << 20) + 8192);
        assert_eq!(calls::seek(&file, 0, hole).unwrap(), 0);
        assert_eq!(errno(calls::seek(&file, 9 << 20, data)), libc::ENXIO);
        assert_eq!(errno(calls::seek(&file, 16 << 20, hole)), libc::ENXIO);
        assert!(file.metadata().unwrap().blocks() < 100);
    });
}

#[test]
fn copies_within_the_kernel() {
    on_both("copies_within_the_kernel", |_, root| {
        let data = pattern((8 << 20) + 1234, 21);
        fs::write(root.join("from"), &data).unwrap();
        let (from, to) = (File::open(root.join("from")).unwrap(), new_file(&root.join("to")));
        assert_eq!(calls::copy_range(&from, 0, &to, 0, data.len()).unwrap(), data.len());
        assert!(read_cold(&root.join("to")) == data);
        // Unaligned, over what is there, and the source changes afterwards.
        assert_eq!(calls::copy_range(&from, 777, &to, 333_333, 2_000_000).unwrap(), 2_000_000);
        let mut expected = data.clone();
        expected[333_333..2_333_333].copy_from_slice(&data[777..2_000_777]);
        OpenOptions::new().write(true).open(root.join("from")).unwrap().write_all_at(&[9; 100_000], 0).unwrap();
        assert!(read_cold(&root.join("to")) == expected);
        // Within one file, apart; overlapping is refused.
        let both = OpenOptions::new().read(true).write(true).open(root.join("to")).unwrap();
        assert_eq!(calls::copy_range(&both, 0, &both, 4 << 20, 1 << 20).unwrap(), 1 << 20);
        expected.copy_within(0..1 << 20, 4 << 20);
        assert!(read_cold(&root.join("to")) == expected);
        assert_eq!(errno(calls::copy_range(&both, 0, &both, 1000, 4096)), libc::EINVAL);
        // The kernel's FUSE has no clones: `cp --reflink=auto` falls back to the above, which shares blocks.
        assert_eq!(errno(calls::clone_file(&from, &to)), libc::EOPNOTSUPP);
    });
}

#[test]
fn files_of_16_tib() {
    on_both("files_of_16_tib", |_, root| {
        const END: u64 = 16 << 40;
        let file = new_file(&root.join("huge"));
        file.set_len(END).unwrap();
        file.write_all_at(b"the very end", END - 12).unwrap();
        file.write_all_at(b"the middle", END / 2 - 3).unwrap();
        calls::drop_caches();
        assert_eq!(file.metadata().unwrap().size(), END);
        let mut back = [0; 12];
        file.read_exact_at(&mut back, END - 12).unwrap();
        assert_eq!(&back, b"the very end");
        file.read_exact_at(&mut back[..10], END / 2 - 3).unwrap();
        assert_eq!(&back[..10], b"the middle");
        file.read_exact_at(&mut back, END / 3).unwrap();
        assert_eq!(back, [0; 12]);
        assert_eq!(calls::seek(&file, 0, libc::SEEK_DATA).unwrap() as u64, END / 2 - 4096);
        assert_eq!(errno(file.write_all_at(b"x", END)), libc::EFBIG);
        assert_eq!(errno(file.set_len(END + 1)), libc::EFBIG);
    });
}
