//! Keys that are `yes` or `no`: two bits each in one byte on media, 0 nothing said, 1 no, 2 yes.

/// What can be switched on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// `provenance`: who wrote a file, and from what.
    Provenance,
    /// `audit`: what happens to a file.
    Audit,
    /// `dedup`: content that is stored twice becomes one.
    Dedup,
    /// `backup`: a file is copied to the pool's destinations of backups.
    Backup,
}

impl Switch {
    /// All of them, in the order of their bits.
    pub const ALL: [Switch; 4] = [Switch::Provenance, Switch::Audit, Switch::Dedup, Switch::Backup];
    /// Those for which it is looked at what is done to files.
    pub const WATCHED: [Switch; 3] = [Switch::Provenance, Switch::Audit, Switch::Dedup];

    fn shift(self) -> u8 {
        self as u8 * 2
    }
}

/// What is said about each switch; the field is the byte on media.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switches(pub u8);

const MASK: u8 = 3;
const _: () = assert!(Switch::ALL.len() * 2 <= u8::BITS as usize, "a byte has two bits for each switch");
const _: () = {
    let mut at = 0;
    while at < Switch::ALL.len() {
        assert!(Switch::ALL[at] as usize == at, "switches stand in the order of their bits");
        at += 1;
    }
};
const NO: u8 = 1;
const YES: u8 = 2;

impl Switches {
    /// What is said about a switch.
    pub fn get(self, switch: Switch) -> Option<bool> {
        match self.0 >> switch.shift() & MASK {
            NO => Some(false),
            YES => Some(true),
            _ => None,
        }
    }

    /// Says something else, or nothing.
    pub fn set(&mut self, switch: Switch, is_on: Option<bool>) {
        let bits = is_on.map_or(0, |is_on| if is_on { YES } else { NO });
        self.0 = self.0 & !(MASK << switch.shift()) | bits << switch.shift();
        assert_eq!(self.get(switch), is_on, "what was set of {switch:?} can be read");
    }

    /// Of two that both hold: on, where one of them says so.
    pub fn or_more(self, other: Switches) -> Switches {
        let mut both = Switches::default();
        for switch in Switch::ALL {
            both.set(switch, [self.get(switch), other.get(switch)].into_iter().flatten().max());
        }
        let is_any_watched = self.has_any_watched() || other.has_any_watched();
        assert_eq!(both.has_any_watched(), is_any_watched, "what one of two watches is watched");
        both
    }

    /// Whether something is switched on for which it is looked at what is done to files.
    pub fn has_any_watched(self) -> bool {
        Switch::WATCHED.into_iter().any(|switch| self.get(switch) == Some(true))
    }

    /// The word of a value.
    pub fn word(is_on: bool) -> &'static str {
        if is_on { "yes" } else { "no" }
    }

    /// A value from its word.
    pub fn from_word(text: &str) -> Option<bool> {
        match text {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_do_not_disturb_each_other() {
        let mut both = Switches::default();
        both.set(Switch::Audit, Some(true));
        both.set(Switch::Provenance, Some(false));
        assert_eq!((both.0, both.get(Switch::Provenance), both.get(Switch::Audit)), (9, Some(false), Some(true)));
        both.set(Switch::Audit, None);
        assert_eq!((both.0, both.get(Switch::Audit), both.has_any_watched()), (1, None, false));
        assert_eq!(both.or_more(Switches(2)).get(Switch::Provenance), Some(true));
        assert_eq!(Switches(3).get(Switch::Provenance), None, "what is impossible says nothing");
    }
}
