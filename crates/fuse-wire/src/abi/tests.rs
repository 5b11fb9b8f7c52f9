//! Sizes of the ABI structures, as the kernel's header gives them on every 64-bit machine.

use super::structs::*;

macro_rules! sizes {
    ($($name:ident = $bytes:expr),+ $(,)?) => {$(
        assert_eq!(size_of::<$name>(), $bytes, stringify!($name));
        assert_eq!($bytes % align_of::<$name>(), 0, stringify!($name));
    )+};
}

#[test]
fn structures_have_the_sizes_of_the_kernel() {
    sizes!(
        FileAttr = 88,
        SxTime = 16,
        Statx = 256,
        Kstatfs = 80,
        FileLock = 24,
        EntryOut = 128,
        ForgetIn = 8,
        ForgetOne = 16,
        BatchForgetIn = 8,
        GetattrIn = 16,
        AttrOut = 104,
        StatxIn = 24,
        StatxOut = 288,
        MknodIn = 16,
        MkdirIn = 8,
        RenameIn = 8,
        Rename2In = 16,
        LinkIn = 8,
        SetattrIn = 88,
        OpenIn = 8,
        CreateIn = 16,
        OpenOut = 16,
        ReleaseIn = 24,
        FlushIn = 24,
        ReadIn = 40,
        WriteIn = 40,
        WriteOut = 8,
        FsyncIn = 16,
        SetxattrInCompat = 8,
        SetxattrIn = 16,
        GetxattrIn = 8,
        GetxattrOut = 8,
        LkIn = 48,
        LkOut = 24,
        AccessIn = 8,
        InitIn = 64,
        InitInCompat = 16,
        InitOut = 64,
        InterruptIn = 8,
        BmapIn = 16,
        BmapOut = 8,
        IoctlIn = 32,
        IoctlOut = 16,
        PollIn = 24,
        PollOut = 8,
        FallocateIn = 32,
        InHeader = 40,
        OutHeader = 16,
        Dirent = 24,
        Direntplus = 152,
        NotifyInvalInodeOut = 24,
        NotifyInvalEntryOut = 16,
        NotifyDeleteOut = 24,
        NotifyPollWakeupOut = 8,
        NotifyRetrieveIn = 40,
        LseekIn = 24,
        LseekOut = 8,
        CopyFileRangeIn = 56,
        CopyFileRangeOut = 8,
        SyncfsIn = 8,
        ExtHeader = 8,
        SuppGroups = 4,
        UringEntInOut = 32,
        UringReqHeader = 288,
        UringCmdReq = 24,
    );
}

#[test]
fn split_needs_enough_bytes() {
    assert!(split::<ForgetIn>(&[1, 0, 0, 0, 0, 0, 0]).is_none());
    let (forget, rest) = split::<ForgetIn>(&[1, 0, 0, 0, 0, 0, 0, 0, 9]).unwrap();
    assert_eq!((forget.nlookup, rest), (1, &[9_u8][..]));
}
