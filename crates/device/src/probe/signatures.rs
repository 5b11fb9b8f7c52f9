//! The signatures of what people keep on disks and in large files: fixed magics in a table, the rest in functions.
//!
//! Order matters where things lie inside others: file systems and volume managers come before partition tables (a boot
//! sector may look like one), and those before archives, whose magics are short.

use super::Samples;

struct Magic {
    name: &'static str,
    offset: u64,
    bytes: &'static [u8],
}

const fn magic(name: &'static str, offset: u64, bytes: &'static [u8]) -> Magic {
    Magic { name, offset, bytes }
}

const VOLUMES: &[Magic] = &[
    magic("XFS file system", 0, b"XFSB"),
    magic("btrfs file system", 0x1_0040, b"_BHRfS_M"),
    magic("bcachefs file system", 0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    magic("bcache device", 0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    magic("F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    magic("NILFS2 file system", 1024 + 6, b"\x34\x34"),
    magic("ReiserFS file system", 0x1_0034, b"ReIsEr"),
    magic("JFS file system", 0x8000, b"JFS1"),
    magic("GFS2 file system", 0x1_0000, b"\x01\x16\x19\x70"),
    magic("OCFS2 file system", 0x2000, b"OCFSV2"),
    magic("EROFS file system", 1024, b"\xe2\xe1\xf5\xe0"),
    magic("SquashFS file system", 0, b"hsqs"),
    magic("ISO 9660 file system", 0x8001, b"CD001"),
    magic("UDF file system", 0x8001, b"BEA01"),
    magic("UFS file system", 8192 + 1372, b"\x54\x19\x01\x00"),
    magic("UFS file system", 65_536 + 1372, b"\x19\x01\x54\x19"),
    magic("HFS+ file system", 1024, b"H+\0\x04"),
    magic("HFSX file system", 1024, b"HX\0\x05"),
    magic("APFS container", 32, b"NXSB"),
    magic("NTFS file system", 3, b"NTFS    "),
    magic("exFAT file system", 3, b"EXFAT   "),
    magic("ReFS file system", 3, b"ReFS\0"),
    magic("BitLocker volume", 3, b"-FVE-FS-"),
    magic("FAT file system", 82, b"FAT32   "),
    magic("FAT file system", 54, b"FAT1"),
    magic("LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    magic("LUKS encrypted volume", 0x4000, b"SKUL\xba\xbe"),
    magic("Ceph BlueStore device", 0, b"bluestore block device"),
    magic("Stratis device", 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    magic("VDO device", 0, b"dmvdo001"),
    magic("minix file system", 1040, b"\x7f\x13"),
    magic("minix file system", 1040, b"\x8f\x13"),
];

const FILES: &[Magic] = &[
    magic("QCOW2 disk image", 0, b"QFI\xfb"),
    magic("VMDK disk image", 0, b"KDMV"),
    magic("VHDX disk image", 0, b"vhdxfile"),
    magic("VHD disk image", 0, b"conectix"),
    magic("VirtualBox disk image", 64, b"\x7f\x10\xda\xbe"),
    magic("SQLite database", 0, b"SQLite format 3\0"),
    magic("tar archive", 257, b"ustar"),
    magic("gzip data", 0, b"\x1f\x8b\x08"),
    magic("xz data", 0, b"\xfd7zXZ\0"),
    magic("zstd data", 0, b"\x28\xb5\x2f\xfd"),
    magic("bzip2 data", 0, b"BZh"),
    magic("lz4 data", 0, b"\x04\x22\x4d\x18"),
    magic("7-Zip archive", 0, b"7z\xbc\xaf\x27\x1c"),
    magic("ZIP archive", 0, b"PK\x03\x04"),
    magic("RAR archive", 0, b"Rar!\x1a\x07"),
    magic("cpio archive", 0, b"0707"),
    magic("Debian package or ar archive", 0, b"!<arch>\n"),
    magic("RPM package", 0, b"\xed\xab\xee\xdb"),
    magic("ELF program", 0, b"\x7fELF"),
    magic("PDF document", 0, b"%PDF-"),
    magic("PNG image", 0, b"\x89PNG\r\n"),
    magic("JPEG image", 0, b"\xff\xd8\xff"),
    magic("MP4 video", 4, b"ftyp"),
    magic("Matroska video", 0, b"\x1a\x45\xdf\xa3"),
    magic("RIFF file", 0, b"RIFF"),
    magic("Ogg file", 0, b"OggS"),
    magic("FLAC audio", 0, b"fLaC"),
    magic("MP3 audio", 0, b"ID3"),
];

/// The name of the first signature that fits.
pub(super) fn recognise(samples: &Samples<'_>) -> Option<String> {
    from_table(samples, VOLUMES)
        .or_else(|| ext(samples))
        .or_else(|| zfs(samples))
        .or_else(|| lvm(samples))
        .or_else(|| md_raid(samples))
        .or_else(|| swap(samples))
        .or_else(|| partition_table(samples))
        .or_else(|| from_table(samples, FILES))
}

fn from_table(samples: &Samples<'_>, table: &[Magic]) -> Option<String> {
    table.iter().find(|magic| samples.has(magic.offset, magic.bytes)).map(|magic| magic.name.to_owned())
}

fn little_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn ext(samples: &Samples<'_>) -> Option<String> {
    let block = samples.at(1024, 1024)?;
    if block[0x38..0x3a] != [0x53, 0xef] {
        return None;
    }
    const COMPAT_HAS_JOURNAL: u32 = 0x4;
    const INCOMPAT_BEFORE_EXT4: u32 = 0x2 | 0x4 | 0x8 | 0x10;
    const READ_ONLY_COMPAT_BEFORE_EXT4: u32 = 0x1 | 0x2 | 0x4;
    let (compat, incompat, read_only) = (little_u32(block, 0x5c), little_u32(block, 0x60), little_u32(block, 0x64));
    let version = if incompat & !INCOMPAT_BEFORE_EXT4 != 0 || read_only & !READ_ONLY_COMPAT_BEFORE_EXT4 != 0 {
        "ext4"
    } else if compat & COMPAT_HAS_JOURNAL != 0 {
        "ext3"
    } else {
        "ext2"
    };
    let label: String = block[0x78..0x88].iter().take_while(|&&byte| byte != 0).map(|&byte| byte as char).collect();
    Some(match label.chars().all(|letter| letter.is_ascii_graphic() || letter == ' ') && !label.is_empty() {
        true => format!("{version} file system \"{label}\""),
        false => format!("{version} file system"),
    })
}

/// Uberblocks lie 128 KiB into each of four 256 KiB labels, two at each end of the device.
fn zfs(samples: &Samples<'_>) -> Option<String> {
    const LABEL_BYTES: u64 = 256 << 10;
    let end = samples.size_bytes / LABEL_BYTES * LABEL_BYTES;
    let labels = [Some(0), Some(LABEL_BYTES), end.checked_sub(2 * LABEL_BYTES), end.checked_sub(LABEL_BYTES)];
    for label in labels.into_iter().flatten() {
        for uberblock in 0..128 {
            let offset = label + (128 << 10) + uberblock * 1024;
            let is_little = samples.has(offset, &0x00ba_b10c_u64.to_le_bytes());
            if is_little || samples.has(offset, &0x00ba_b10c_u64.to_be_bytes()) {
                return Some("ZFS pool member".to_owned());
            }
        }
    }
    None
}

fn lvm(samples: &Samples<'_>) -> Option<String> {
    let is_label = |sector: u64| samples.has(sector * 512, b"LABELONE") && samples.has(sector * 512 + 24, b"LVM2 001");
    (0..4).any(is_label).then(|| "LVM physical volume".to_owned())
}

fn md_raid(samples: &Samples<'_>) -> Option<String> {
    let magic = 0xa92b_4efc_u32.to_le_bytes();
    let size = samples.size_bytes;
    let version_1_0 = (size / 512).checked_sub(16).map(|sector| sector / 8 * 8 * 512);
    let version_0_90 = (size / 65_536 * 65_536).checked_sub(65_536);
    let places = [Some(0), Some(4096), version_1_0, version_0_90];
    places
        .into_iter()
        .flatten()
        .any(|offset| samples.has(offset, &magic))
        .then(|| "Linux software RAID member".to_owned())
}

fn swap(samples: &Samples<'_>) -> Option<String> {
    let pages: [u64; 4] = [4096, 8192, 16_384, 65_536];
    let is_swap = |page: u64| samples.has(page - 10, b"SWAPSPACE2") || samples.has(page - 10, b"SWAP-SPACE");
    let is_hibernation = |page: u64| samples.has(page - 10, b"S1SUSPEND\0") || samples.has(page - 10, b"ULSUSPEND\0");
    if pages.into_iter().any(is_swap) {
        return Some("swap space".to_owned());
    }
    pages.into_iter().any(is_hibernation).then(|| "hibernation image".to_owned())
}

fn partition_table(samples: &Samples<'_>) -> Option<String> {
    let backup_places = [512u64, 4096].map(|sector| samples.size_bytes.checked_sub(sector));
    let places = [Some(512), Some(4096), backup_places[0], backup_places[1]];
    if places.into_iter().flatten().any(|offset| samples.has(offset, b"EFI PART")) {
        return Some("GPT partition table".to_owned());
    }
    if !samples.has(510, b"\x55\xaa") {
        return None;
    }
    let entries = samples.at(446, 64)?;
    let is_entry =
        |entry: &[u8]| matches!(entry[0], 0 | 0x80) && (entry[4] != 0 || entry.iter().all(|&byte| byte == 0));
    let is_table = entries.chunks(16).all(is_entry) && entries.chunks(16).any(|entry| entry[4] != 0);
    Some(if is_table { "MBR partition table" } else { "boot sector" }.to_owned())
}
