//! What a history did, counted, and the sums of many: one table, of which the sums and their report are made.
//!
//! A new count is a line here and one where it is counted; its name is what the report calls it. Read next: `history.rs`, `run.rs`.

use crate::fault::FaultKind;
use crate::single_copies::AILMENTS;
use crate::takeover::MANNERS;

/// What can be summed up over histories, and reported.
pub(crate) trait Count {
    fn add(&mut self, other: &Self);

    /// Appends what this count says under its name, if it says anything.
    fn report(&self, name: &str, report: &mut Vec<String>);
}

impl Count for u64 {
    fn add(&mut self, other: &u64) {
        *self += other;
    }

    fn report(&self, name: &str, report: &mut Vec<String>) {
        if *self > 0 {
            report.push(format!("{} {self}", name.replace('_', " ")));
        }
    }
}

impl<const LENGTH: usize> Count for [u64; LENGTH] {
    fn add(&mut self, other: &[u64; LENGTH]) {
        self.iter_mut().zip(other).for_each(|(sum, count)| *sum += count);
    }

    fn report(&self, name: &str, report: &mut Vec<String>) {
        if self.iter().any(|count| *count > 0) {
            report.push(format!("{} {self:?}", name.replace('_', " ")));
        }
    }
}

/// What reached the devices of a history, in its order; of several histories together, whatever their order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Trace(pub u64);

impl std::fmt::Debug for Trace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Count for Trace {
    fn add(&mut self, other: &Trace) {
        self.0 ^= other.0;
    }

    fn report(&self, _: &str, _: &mut Vec<String>) {}
}

/// A struct of counts, which adds up field by field.
macro_rules! counts {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$what:meta])* pub $count:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default)]
        pub struct $name {
            $($(#[$what])* pub $count: $kind,)*
        }

        impl Count for $name {
            fn add(&mut self, other: &$name) {
                $(self.$count.add(&other.$count);)*
            }

            fn report(&self, _: &str, report: &mut Vec<String>) {
                $(self.$count.report(stringify!($count), report);)*
            }
        }
    };
}

counts! {
    /// What a history did, or many of them did together.
    pub struct Summary {
        pub operations: u64,
        pub crashes: u64,
        /// Crashes with writes that were not flushed.
        pub torn_crashes: u64,
        pub remounts: u64,
        pub no_space: u64,
        /// How often a quota refused.
        pub over_quota: u64,
        pub faults: u64,
        pub faults_by_kind: [u64; FaultKind::ALL.len()],
        pub ended_early: u64,
        /// How often everything was made whole again after a device had been away.
        pub mended: u64,
        /// Devices added, replaced, emptied, given up, taken away and brought back by a person.
        pub changes: u64,
        /// Devices that were made smaller.
        pub shrunk: u64,
        pub groups_cut: u64,
        /// How often the loss of a device was played beside the history, and borne.
        pub proofs: u64,
        pub tier: TierCounts,
        /// How often a version was read.
        pub versions: u64,
        /// How often a change that no CRC tells was looked for.
        pub digests_proven: u64,
        /// How often a plugin failed and was looked at.
        pub plugin_troubles: u64,
        /// How often what is said of lists was compared with what holds, for all files.
        pub lists_compared: u64,
        /// How often what holds was proven of a file.
        pub lists_proven: u64,
        /// How often a file was cut into records and looked at.
        pub records_proven: u64,
        /// How often a change was made durable because policy says that it is when a call returns.
        pub syncs_proven: u64,
        /// Files with several names whose records were as the strictest of them asks.
        pub several_names_proven: u64,
        /// How often what a plugin was told last was compared with all files.
        pub told_compared: u64,
        /// How often it was looked at where all files lie, and how many of their segments somebody had asked to lie somewhere.
        pub places_compared: u64,
        pub places_met: u64,
        /// How often all accounts were compared with the model, and how often a limit of stored bytes was reached.
        pub accounts_compared: u64,
        pub stored_reached: u64,
        /// Keys of names that were put away, and how often it was proven what goes.
        pub names_put_away: u64,
        pub names_proven: u64,
        /// Backups that came to their end, that did not, and that were proven.
        pub backups_done: u64,
        pub backups_cut: u64,
        pub backups_proven: u64,
        /// Single copies that were there again after their device had not answered, by what it did not do.
        pub singles_kept: [u64; AILMENTS.len()],
        /// Nearly full pools in which what was written stayed within its bound.
        pub nearly_full: u64,
        /// Devices that hung and answered again, and that never did.
        pub hangs: [u64; 2],
        /// Devices whose place a spare took and that came back intact, by how they had failed.
        pub takeovers: [u64; MANNERS],
        /// Mounts of pools that several machines reach, attempts that were refused, and owners that found another one.
        pub rivals: [u64; 3],
        /// What reached the devices.
        pub trace: Trace,
    }
}

counts! {
    /// What histories did with volumes.
    pub struct TierCounts {
        pub segments_uploaded: u64,
        pub segments_released: u64,
        pub segments_staged: u64,
        pub harms: u64,
        pub troubles: u64,
        /// Reads that failed, as they may.
        pub reads_refused: u64,
        /// Writes that came between while another read a volume.
        pub changed_meanwhile: u64,
        /// Objects emptied into others.
        pub segments_repacked: u64,
        /// Volumes of which an heir had everything.
        pub volumes_retired: u64,
        /// Released by marks.
        pub segments_evicted: u64,
        /// Segments that went because nobody had used them for long.
        pub segments_unused: u64,
        /// Reads that were told to come back, or refused, as the mount was told.
        pub reads_put_off: u64,
        /// How often everything that was to go down had gone.
        pub settled: u64,
        /// How often volumes alone gave everything back.
        pub rescues: u64,
        /// Files of which all content had gone down then.
        pub files_rescued: u64,
        /// How often a server erred for an hour, and everything went on by itself.
        pub outlasted: u64,
        /// How often what went first was as the order says, a unit came or went down as one, what follows was known or
        /// fetched ahead, and turns were taken.
        pub heats_proven: u64,
        pub units_proven: u64,
        pub units_down: u64,
        pub followers_proven: u64,
        pub ahead_proven: u64,
        pub turns_taken: u64,
    }
}

/// Columns of a report.
const REPORT_COLUMNS: usize = 100;

impl Summary {
    /// All counts that are not 0, as lines: names as in the table, arrays in brackets.
    pub fn report(&self) -> Vec<String> {
        let mut counts = Vec::new();
        Count::report(self, "", &mut counts);
        let mut lines: Vec<String> = Vec::new();
        for count in counts {
            match lines.last_mut() {
                Some(line) if line.len() + count.len() + 2 <= REPORT_COLUMNS => {
                    line.push_str(", ");
                    line.push_str(&count);
                }
                _ => lines.push(count),
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests;
