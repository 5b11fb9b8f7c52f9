//! How long the kernel may believe what it is told.
//!
//! Of a pool that one machine mounts: for a day, for nothing changes but through it. Of one that several machines mount: names of
//! files are asked for anew each time, so whoever opens a file sees what was closed elsewhere; the rest is good for a second, in which the
//! owner's notices usually come first. Read next: `answer.rs`.

use std::time::Duration;

use stere_naming::Attributes;

/// How long something on a pool that others change too may be believed.
const SHARED: Duration = Duration::from_secs(1);

/// How long each kind of answer may be believed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Belief {
    attributes: Duration,
    directory_names: Duration,
    other_names: Duration,
    /// That there is no such name.
    pub absence: Duration,
}

impl Belief {
    /// Nothing changes but through this mount.
    pub fn alone(time: Duration) -> Belief {
        Belief { attributes: time, directory_names: time, other_names: time, absence: time }
    }

    /// Other machines change it too.
    pub fn shared() -> Belief {
        Belief { attributes: SHARED, directory_names: SHARED, other_names: Duration::ZERO, absence: Duration::ZERO }
    }

    /// What comes and goes without the kernel is not believed at all.
    pub fn in_attributes(&self, attributes: &Attributes) -> Duration {
        if attributes.is_fleeting { Duration::ZERO } else { self.attributes }
    }

    /// After a change of size. The kernel passes over older attributes that arrive later, also those of an owner that has served others in
    /// between; so where others write, it asks again.
    pub fn in_size(&self, attributes: &Attributes) -> Duration {
        let time = if self.other_names.is_zero() { Duration::ZERO } else { self.in_attributes(attributes) };
        assert!(time <= self.attributes, "a size is believed no longer than other attributes");
        time
    }

    pub fn in_name(&self, attributes: &Attributes) -> Duration {
        match attributes.mode & libc::S_IFMT {
            _ if attributes.is_fleeting => Duration::ZERO,
            libc::S_IFDIR => self.directory_names,
            _ => self.other_names,
        }
    }
}
