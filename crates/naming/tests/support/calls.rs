//! Random calls on a file system.

use proptest::prelude::*;

/// One call. Small numbers pick among what exists.
#[derive(Debug, Clone)]
pub enum Call {
    Create {
        directory: u8,
        name: u8,
        mode: u16,
    },
    Mkdir {
        directory: u8,
        name: u8,
        mode: u16,
    },
    Symlink {
        directory: u8,
        name: u8,
    },
    Mknod {
        directory: u8,
        name: u8,
    },
    Tmpfile {
        directory: u8,
    },
    Link {
        inode: u8,
        directory: u8,
        name: u8,
    },
    Unlink {
        directory: u8,
        name: u8,
    },
    Rmdir {
        directory: u8,
        name: u8,
    },
    Rename {
        directory: u8,
        name: u8,
        new_directory: u8,
        new_name: u8,
        flags: u8,
    },
    Open {
        inode: u8,
    },
    Release {
        inode: u8,
    },
    Write {
        inode: u8,
        offset: u64,
        length: usize,
        seed: u8,
    },
    Read {
        inode: u8,
        offset: u64,
        length: usize,
    },
    Truncate {
        inode: u8,
        size: u64,
    },
    Fallocate {
        inode: u8,
        offset: u64,
        length: u64,
        mode: u8,
    },
    Copy {
        source: u8,
        from: u64,
        target: u8,
        to: u64,
        length: u64,
    },
    Seek {
        inode: u8,
        offset: u64,
    },
    Chmod {
        inode: u8,
        mode: u16,
    },
    Chown {
        inode: u8,
        uid: u8,
        gid: u8,
    },
    SetMtime {
        inode: u8,
        time: u8,
    },
    SetXattr {
        inode: u8,
        name: u8,
        length: usize,
        mode: u8,
    },
    RemoveXattr {
        inode: u8,
        name: u8,
    },
    Fsync {
        inode: u8,
    },
    Step,
    Sync,
    /// What was handed to the store becomes durable, as when somebody else syncs.
    Commit,
    Remount {
        power_loss: bool,
    },
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0u64..40).prop_map(|block| block * 4096),
        3 => 0u64..400_000,
        2 => (0u64..4).prop_map(|record| record * 131_072),
        1 => Just((16 << 40) - 5000),
        1 => Just(1 << 33),
    ]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..9000,
        3 => (1usize..12).prop_map(|block| block * 4096),
        2 => (1usize..4).prop_map(|record| record * 131_072),
        1 => 0usize..600_000,
    ]
}

pub fn call() -> impl Strategy<Value = Call> {
    let pick = any::<u8>;
    prop_oneof![
        6 => (pick(), pick(), any::<u16>()).prop_map(|(directory, name, mode)| Call::Create { directory, name, mode }),
        3 => (pick(), pick(), any::<u16>()).prop_map(|(directory, name, mode)| Call::Mkdir { directory, name, mode }),
        1 => (pick(), pick()).prop_map(|(directory, name)| Call::Symlink { directory, name }),
        1 => (pick(), pick()).prop_map(|(directory, name)| Call::Mknod { directory, name }),
        1 => pick().prop_map(|directory| Call::Tmpfile { directory }),
        2 => (pick(), pick(), pick()).prop_map(|(inode, directory, name)| Call::Link { inode, directory, name }),
        3 => (pick(), pick()).prop_map(|(directory, name)| Call::Unlink { directory, name }),
        2 => (pick(), pick()).prop_map(|(directory, name)| Call::Rmdir { directory, name }),
        4 => (pick(), pick(), pick(), pick(), 0u8..5).prop_map(|(directory, name, new_directory, new_name, flags)| {
            Call::Rename { directory, name, new_directory, new_name, flags }
        }),
        2 => pick().prop_map(|inode| Call::Open { inode }),
        2 => pick().prop_map(|inode| Call::Release { inode }),
        12 => (pick(), offset(), length(), pick())
            .prop_map(|(inode, offset, length, seed)| Call::Write { inode, offset, length, seed }),
        4 => (pick(), offset(), length()).prop_map(|(inode, offset, length)| Call::Read { inode, offset, length }),
        4 => (pick(), offset()).prop_map(|(inode, size)| Call::Truncate { inode, size }),
        6 => (pick(), offset(), length(), pick()).prop_map(|(inode, offset, length, mode)| {
            Call::Fallocate { inode, offset, length: length as u64, mode }
        }),
        5 => (pick(), offset(), pick(), offset(), length()).prop_map(|(source, from, target, to, length)| {
            Call::Copy { source, from, target, to, length: length as u64 }
        }),
        2 => (pick(), offset()).prop_map(|(inode, offset)| Call::Seek { inode, offset }),
        2 => (pick(), any::<u16>()).prop_map(|(inode, mode)| Call::Chmod { inode, mode }),
        1 => (pick(), pick(), pick()).prop_map(|(inode, uid, gid)| Call::Chown { inode, uid, gid }),
        1 => (pick(), pick()).prop_map(|(inode, time)| Call::SetMtime { inode, time }),
        2 => (pick(), pick(), prop_oneof![0usize..100, Just(65_536)], pick())
            .prop_map(|(inode, name, length, mode)| Call::SetXattr { inode, name, length, mode }),
        1 => (pick(), pick()).prop_map(|(inode, name)| Call::RemoveXattr { inode, name }),
        2 => pick().prop_map(|inode| Call::Fsync { inode }),
        1 => Just(Call::Step),
        1 => Just(Call::Sync),
        3 => Just(Call::Commit),
        1 => any::<bool>().prop_map(|power_loss| Call::Remount { power_loss }),
    ]
}
