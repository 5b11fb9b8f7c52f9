use super::*;
use std::process::Command;

const SIZE_BYTES: u64 = 96 * MIB;

/// A sparse file of `size` bytes with some bytes set.
fn file_with(size: u64, parts: &[(u64, &[u8])]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(size).unwrap();
    for (offset, bytes) in parts {
        file.as_file().write_all_at(bytes, *offset).unwrap();
    }
    file
}

fn name_of(parts: &[(u64, &[u8])]) -> String {
    probe(file_with(SIZE_BYTES, parts).path()).unwrap().to_string()
}

#[test]
fn zeros_are_empty_at_every_size() {
    for size in [0, 1, 511, 4096, MIB, MIB + 1, 2 * MIB, SIZE_BYTES] {
        let finding = probe(file_with(size, &[]).path()).unwrap();
        assert!(finding.is_empty(), "{size}");
        assert_eq!((finding.size_bytes, finding.is_block_device), (size, false));
    }
}

#[test]
fn stray_bytes_are_unknown_data_wherever_they_are_sampled() {
    for offset in [0, 77, MIB - 1, 4 * MIB + 5, 64 * MIB, SIZE_BYTES / 2 + 100, SIZE_BYTES - 1] {
        let finding = probe(file_with(SIZE_BYTES, &[(offset, b"x")]).path()).unwrap();
        assert_eq!(finding.content, Content::Unknown { offset });
    }
}

#[test]
fn fixed_magics_are_named() {
    assert_eq!(name_of(&[(0, b"XFSB")]), "XFS file system");
    assert_eq!(name_of(&[(0x1_0040, b"_BHRfS_M")]), "btrfs file system");
    assert_eq!(name_of(&[(0, b"LUKS\xba\xbe\0\x02")]), "LUKS encrypted volume");
    assert_eq!(name_of(&[(3, b"NTFS    "), (510, b"\x55\xaa")]), "NTFS file system");
    assert_eq!(name_of(&[(0, b"\x1f\x8b\x08\0")]), "gzip data");
    assert_eq!(name_of(&[(257, b"ustar")]), "tar archive");
}

#[test]
fn structures_with_rules_are_named() {
    assert_eq!(name_of(&[(512, b"LABELONE"), (536, b"LVM2 001")]), "LVM physical volume");
    assert_eq!(name_of(&[(4096, &0xa92b_4efc_u32.to_le_bytes())]), "Linux software RAID member");
    assert_eq!(name_of(&[(SIZE_BYTES - 65_536, &0xa92b_4efc_u32.to_le_bytes())]), "Linux software RAID member");
    assert_eq!(name_of(&[(4086, b"SWAPSPACE2")]), "swap space");
    assert_eq!(name_of(&[((128 << 10) + 5 * 1024, &0x00ba_b10c_u64.to_le_bytes())]), "ZFS pool member");
    assert_eq!(name_of(&[(SIZE_BYTES - (128 << 10), &0x00ba_b10c_u64.to_be_bytes())]), "ZFS pool member");
    assert_eq!(name_of(&[(512, b"EFI PART")]), "GPT partition table");
    assert_eq!(name_of(&[(SIZE_BYTES - 512, b"EFI PART")]), "GPT partition table");
    let entry = [0x80, 1, 1, 0, 0x83, 1, 1, 1, 0, 8, 0, 0, 0, 0, 1, 0];
    assert_eq!(name_of(&[(446, &entry), (510, b"\x55\xaa")]), "MBR partition table");
    assert_eq!(name_of(&[(0, b"\xeb\x63"), (510, b"\x55\xaa")]), "boot sector");
}

#[test]
fn real_file_systems_are_named_where_their_tools_are_installed() {
    let cases: [(&str, &[&str], &str); 7] = [
        ("mke2fs", &["-q", "-t", "ext2"], "ext2 file system"),
        ("mke2fs", &["-q", "-t", "ext3"], "ext3 file system"),
        ("mke2fs", &["-q", "-t", "ext4", "-L", "photos"], "ext4 file system \"photos\""),
        ("mkfs.xfs", &["-q", "-f"], "XFS file system"),
        ("mkfs.btrfs", &["-q"], "btrfs file system"),
        ("mkswap", &["-q"], "swap space"),
        ("mkfs.vfat", &[], "FAT file system"),
    ];
    for (program, arguments, expected) in cases {
        let file = file_with(320 * MIB, &[]);
        let Ok(output) = Command::new(program).args(arguments).arg(file.path()).output() else {
            continue;
        };
        if output.status.success() {
            assert_eq!(probe(file.path()).unwrap().to_string(), expected, "{program}");
        }
    }
}

#[test]
fn a_folder_is_no_device() {
    assert!(matches!(probe(Path::new("/")), Err(DeviceError::UnsuitableKind { .. })));
    assert!(probe(Path::new("/nonexistent/device")).is_err());
}
