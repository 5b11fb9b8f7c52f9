//! The bars: how fast stere must be beside a peer. They are ratios of medians of the same run, and they are goals for us, not promises.

use super::compare::Results;
use crate::subject::Kind;

pub struct Bar {
    pub metric: &'static str,
    pub stere: Kind,
    pub peer: Kind,
    pub ratio_min: f64,
}

const fn bar(metric: &'static str, stere: Kind, peer: Kind, ratio_min: f64) -> Bar {
    Bar { metric, stere, peer, ratio_min }
}

/// One device and one copy beside ext4; three devices and one copy beside mergerfs; the front end beside nothing behind it.
pub const BARS: &[Bar] = &[
    bar("seqwrite", Kind::Stere, Kind::Ext4, 0.7),
    bar("seqread_cold", Kind::Stere, Kind::Ext4, 0.8),
    bar("randread4k_qd16", Kind::Stere, Kind::Ext4, 0.5),
    bar("randwrite4k_fs32", Kind::Stere, Kind::Ext4, 0.7),
    bar("sm_create", Kind::Stere, Kind::Ext4, 0.5),
    bar("sm_read_cold", Kind::Stere, Kind::Ext4, 1.0),
    bar("tree_untar", Kind::Stere, Kind::Ext4, 0.5),
    bar("tree_find", Kind::Stere, Kind::Ext4, 0.5),
    bar("tree_rm", Kind::Stere, Kind::Ext4, 0.5),
    bar("seqwrite", Kind::SterePool, Kind::Mergerfs, 1.0),
    bar("seqread_cold", Kind::SterePool, Kind::Mergerfs, 1.0),
    bar("randread4k_qd16", Kind::SterePool, Kind::Mergerfs, 1.0),
    bar("randwrite4k_fs32", Kind::SterePool, Kind::Mergerfs, 1.0),
    bar("sm_create", Kind::SterePool, Kind::Mergerfs, 2.0),
    bar("sm_read_cold", Kind::SterePool, Kind::Mergerfs, 1.0),
    bar("tree_untar", Kind::SterePool, Kind::Mergerfs, 1.0),
    bar("tree_find", Kind::SterePool, Kind::Mergerfs, 1.0),
    bar("tree_rm", Kind::SterePool, Kind::Mergerfs, 1.0),
    bar("fe_create", Kind::Stere, Kind::Null, 0.6),
    bar("fe_stat", Kind::Stere, Kind::Null, 0.6),
    bar("fe_read", Kind::Stere, Kind::Null, 0.6),
];

/// How a bar came out: the ratio that was measured, if both sides were.
pub struct Verdict {
    pub bar: &'static Bar,
    pub ratio: f64,
}

impl Verdict {
    pub fn is_met(&self) -> bool {
        self.ratio >= self.bar.ratio_min
    }
}

pub fn judge(results: &Results) -> Vec<Verdict> {
    let ratio = |bar: &'static Bar| {
        let stere = results.summary(bar.metric, bar.stere)?.median;
        let peer = results.summary(bar.metric, bar.peer)?.median;
        Some(Verdict { bar, ratio: stere / peer })
    };
    BARS.iter().filter_map(ratio).collect()
}
