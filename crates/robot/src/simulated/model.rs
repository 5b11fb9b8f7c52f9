//! How long things take, and how much fits.

use std::time::Duration;

/// Whether time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It is only added up.
    Virtual,
    /// So many times faster than the model says.
    Real { times: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    pub capacity_bytes: u64,
    /// So much before the end the drive warns.
    pub warning_bytes: u64,
    /// One medium from one element to another.
    pub move_time: Duration,
    pub load_time: Duration,
    pub unload_time: Duration,
    /// To begin and end any positioning.
    pub settle_time: Duration,
    /// From one end to the other.
    pub length_time: Duration,
    pub filemark_time: Duration,
    /// Of the medium, not of what the host sends.
    pub read_bytes_per_second: u64,
    pub write_bytes_per_second: u64,
    /// What a block takes on the medium, in thousandths: anything between these.
    pub compression: (u64, u64),
}

const fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

impl Model {
    /// Takes no time.
    pub const INSTANT: Model = Model {
        capacity_bytes: 64 << 20,
        warning_bytes: 1 << 20,
        move_time: Duration::ZERO,
        load_time: Duration::ZERO,
        unload_time: Duration::ZERO,
        settle_time: Duration::ZERO,
        length_time: Duration::ZERO,
        filemark_time: Duration::ZERO,
        read_bytes_per_second: 0,
        write_bytes_per_second: 0,
        compression: (1000, 1000),
    };

    /// HighLight's magneto-optical changer, HP 6300: the raw rates and the 13.5 s of a media change of the paper's table 4; a seek of
    /// 0.1 s as its makers say, and one side of a disk.
    pub const HIGHLIGHT: Model = Model {
        capacity_bytes: 297 << 20,
        warning_bytes: 1 << 20,
        move_time: milliseconds(4000),
        load_time: milliseconds(3000),
        unload_time: milliseconds(2400),
        settle_time: milliseconds(100),
        length_time: Duration::ZERO,
        filemark_time: milliseconds(17),
        read_bytes_per_second: 451 << 10,
        write_bytes_per_second: 204 << 10,
        compression: (1000, 1000),
    };

    /// A linear tape of 2017 in a small library: 12 TB at 360 MB/s, compressed by the drive.
    pub const LTO: Model = Model {
        capacity_bytes: 12_000_000_000_000,
        warning_bytes: 2_000_000_000,
        move_time: milliseconds(15_000),
        load_time: milliseconds(15_000),
        unload_time: milliseconds(24_000),
        settle_time: milliseconds(2000),
        length_time: milliseconds(112_000),
        filemark_time: milliseconds(1000),
        read_bytes_per_second: 360_000_000,
        write_bytes_per_second: 360_000_000,
        compression: (400, 1000),
    };

    pub fn by_name(name: &str) -> Option<Model> {
        match name {
            "instant" => Some(Model::INSTANT),
            "highlight" => Some(Model::HIGHLIGHT),
            "lto" => Some(Model::LTO),
            _ => None,
        }
    }

    fn transfer(bytes: u64, per_second: u64) -> Duration {
        match per_second {
            0 => Duration::ZERO,
            rate => Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64),
        }
    }

    pub fn reading(&self, stored_bytes: u64) -> Duration {
        Model::transfer(stored_bytes, self.read_bytes_per_second)
    }

    pub fn writing(&self, stored_bytes: u64) -> Duration {
        Model::transfer(stored_bytes, self.write_bytes_per_second)
    }

    /// From one place of the medium to another, in bytes of the medium.
    pub fn positioning(&self, from: u64, to: u64) -> Duration {
        if from == to {
            return Duration::ZERO;
        }
        let part = u128::from(from.abs_diff(to)) * self.length_time.as_nanos() / u128::from(self.capacity_bytes.max(1));
        self.settle_time + Duration::from_nanos(part as u64)
    }

    /// What a block takes on the medium.
    pub fn stored(&self, bytes: u64, chance: u64) -> u64 {
        let (least, most) = self.compression;
        assert!(least <= most && most <= 1000, "blocks take {least} to {most} thousandths");
        let thousandths = least + chance % (most - least + 1);
        bytes * thousandths / 1000
    }
}
