//! The bars: how fast stere must be beside a peer. They are ratios of medians of the same run, and they are goals for us, not promises.

use super::compare::Results;
use crate::subject::Kind;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    pub metric: &'static str,
    pub stere: Kind,
    pub peer: Kind,
    pub ratio_min: f64,
}

/// One device and one copy beside ext4, which works in the kernel.
const BESIDE_EXT4: &[(&str, f64)] = &[
    ("seqwrite", 0.9),
    ("seqread_cold", 0.95),
    ("randread4k_qd16", 0.7),
    ("randwrite4k_fs32", 1.2),
    ("sm_create", 0.8),
    ("sm_create_fsync", 1.5),
    ("sm_read_cold", 2.0),
    ("sm_delete", 0.6),
    ("tree_untar", 0.5),
    ("tree_find", 0.5),
    ("tree_grep_cold", 1.5),
    ("tree_rm", 0.5),
];

/// Redundant over several devices beside btrfs: ahead everywhere, by far where small changes are synced.
const BESIDE_BTRFS: &[(&str, f64)] = &[
    ("seqwrite", 1.3),
    ("seqread_cold", 1.0),
    ("randread4k_qd16", 1.0),
    ("randwrite4k_fs32", 3.0),
    ("sm_create", 1.0),
    ("sm_create_fsync", 1.0),
    ("sm_read_cold", 1.0),
    ("sm_delete", 1.0),
    ("postmark_small", 3.0),
    ("postmark_large", 3.0),
];

/// Other file systems in user space: ahead everywhere, three times in creates and small random writes.
const BESIDE_PEERS: &[(&str, f64)] = &[
    ("seqwrite", 1.0),
    ("seqread_cold", 1.0),
    ("randread4k_qd16", 1.0),
    ("randread4k_qd1", 1.0),
    ("randwrite4k_fs32", 3.0),
    ("randwrite4k", 3.0),
    ("sm_create", 3.0),
    ("sm_create_fsync", 3.0),
    ("sm_stat_cold", 1.0),
    ("sm_read_cold", 1.0),
    ("sm_delete", 1.0),
    ("postmark_small", 1.0),
    ("postmark_large", 1.0),
    ("tree_untar", 1.0),
    ("tree_find", 1.0),
    ("tree_rm", 1.0),
];

/// The front end beside one with nothing behind it.
const BESIDE_NOTHING: &[(&str, f64)] = &[
    ("fe_mkdir", 0.8),
    ("fe_rmdir", 0.8),
    ("fe_create", 0.8),
    ("fe_stat", 0.8),
    ("fe_chmod", 0.8),
    ("fe_open_close", 0.8),
    ("fe_read", 0.8),
    ("fe_list", 0.8),
    ("fe_rename", 0.8),
    ("fe_unlink", 0.8),
];

const PEERS: [Kind; 5] = [Kind::Gocryptfs, Kind::Bindfs, Kind::Fuse2fs, Kind::Ntfs3g, Kind::ZfsFuse];

/// All there are.
pub fn bars() -> Vec<Bar> {
    let mut pairs = vec![
        (Kind::Stere, Kind::Ext4, BESIDE_EXT4),
        (Kind::StereMirror, Kind::BtrfsRaid1, BESIDE_BTRFS),
        (Kind::StereParity, Kind::BtrfsRaid5, BESIDE_BTRFS),
        (Kind::SterePool, Kind::Mergerfs, BESIDE_PEERS),
        (Kind::Stere, Kind::Null, BESIDE_NOTHING),
    ];
    pairs.extend(PEERS.map(|peer| (Kind::Stere, peer, BESIDE_PEERS)));
    let of_pair = |(stere, peer, rows): (Kind, Kind, &'static [(&'static str, f64)])| {
        rows.iter().map(move |(metric, ratio_min)| Bar { metric, stere, peer, ratio_min: *ratio_min })
    };
    pairs.into_iter().flat_map(of_pair).collect()
}

/// How a bar came out: the ratio that was measured, if both sides were.
pub struct Verdict {
    pub bar: Bar,
    pub ratio: f64,
}

impl Verdict {
    pub fn is_met(&self) -> bool {
        self.ratio >= self.bar.ratio_min
    }
}

pub fn judge(results: &Results) -> Vec<Verdict> {
    let ratio = |bar: Bar| {
        let stere = results.summary(bar.metric, bar.stere)?.median;
        let peer = results.summary(bar.metric, bar.peer)?.median;
        Some(Verdict { bar, ratio: stere / peer })
    };
    bars().into_iter().filter_map(ratio).collect()
}
