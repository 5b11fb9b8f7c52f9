//! Accounts and their limits: what is asked and told.

use serde::{Deserialize, Serialize};
use stere_naming::{AccountInfo, Limits};

use stere_machine::clock;

/// Limits as they are sent: absent to leave one as it is, null to take it away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Most>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inodes: Option<Most>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Most>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_bytes: Option<Most>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_inodes: Option<Most>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_stored: Option<Most>,
    /// In seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Most>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Most {
    Unlimited,
    Of(u64),
}

impl Most {
    fn number(self) -> Option<u64> {
        match self {
            Most::Unlimited => None,
            Most::Of(number) => Some(number),
        }
    }
}

impl From<Wanted> for Limits {
    fn from(wanted: Wanted) -> Limits {
        let seconds = |most: Most| most.number().map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
        Limits {
            bytes: wanted.bytes.map(Most::number),
            inodes: wanted.inodes.map(Most::number),
            stored: wanted.stored.map(Most::number),
            soft_bytes: wanted.soft_bytes.map(Most::number),
            soft_inodes: wanted.soft_inodes.map(Most::number),
            soft_stored: wanted.soft_stored.map(Most::number),
            grace_seconds: wanted.grace.map(seconds),
        }
    }
}

/// What is asked about accounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    List,
    CreateVolume {
        inode: u64,
        limits: Wanted,
    },
    SetVolume {
        inode: u64,
        limits: Wanted,
    },
    Dissolve {
        inode: u64,
    },
    Condemn {
        inode: u64,
    },
    Spare,
    SetUser {
        name: String,
        limits: Wanted,
    },
    SetGroup {
        name: String,
        limits: Wanted,
    },
    /// All users, or groups, who have no limits of their own.
    SetOthers {
        groups: bool,
        limits: Wanted,
    },
}

/// An account, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccountLine {
    pub number: u32,
    /// Of volumes: from the root of the pool; null when it is deleted and not empty yet.
    pub path: Option<String>,
    /// Of volumes: the number of the volume that it lies in; 0 for none.
    pub parent: u32,
    pub bytes: u64,
    pub inodes: u64,
    /// On devices, with copies or parity; 0 where nobody ever limited that.
    #[serde(default)]
    pub stored: u64,
    pub bytes_max: Option<u64>,
    pub inodes_max: Option<u64>,
    #[serde(default)]
    pub stored_max: Option<u64>,
    pub bytes_soft: Option<u64>,
    pub inodes_soft: Option<u64>,
    #[serde(default)]
    pub stored_soft: Option<u64>,
    /// How long there may still be more than the soft limit, in seconds; null while there is not more.
    pub bytes_grace_left: Option<u64>,
    pub inodes_grace_left: Option<u64>,
    #[serde(default)]
    pub stored_grace_left: Option<u64>,
    /// Whether the limits are those of all who have none of their own.
    pub by_default: bool,
    pub is_deleted: bool,
}

/// All accounts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccountsReport {
    /// `off`, `counting`, `moving` or `exact`.
    pub state: String,
    /// Whether deleted volumes are still being emptied.
    pub is_emptying: bool,
    /// Whether stored bytes are counted: somebody limited them once.
    #[serde(default)]
    pub keeps_stored: bool,
    pub users: Vec<AccountLine>,
    pub groups: Vec<AccountLine>,
    pub volumes: Vec<AccountLine>,
    /// The limits of those users and groups who have none of their own.
    pub default_user: Option<AccountLine>,
    pub default_group: Option<AccountLine>,
}

impl From<AccountInfo> for AccountLine {
    fn from(info: AccountInfo) -> AccountLine {
        let AccountInfo { account, value, most, path } = info;
        let now = clock::now().seconds.try_into().unwrap_or(0);
        let left = |since: u64| (since != 0).then(|| most.left_seconds(since, now).unwrap_or(0));
        AccountLine {
            number: account.number,
            path: path.map(|path| String::from_utf8_lossy(&path).into_owned()),
            parent: value.place.map_or(0, |place| place.parent),
            bytes: value.bytes,
            inodes: value.inodes,
            stored: value.stored,
            bytes_max: most.bytes,
            inodes_max: most.inodes,
            stored_max: most.stored,
            bytes_soft: most.soft.bytes,
            inodes_soft: most.soft.inodes,
            stored_soft: most.soft.stored,
            bytes_grace_left: left(value.soft.bytes_since),
            inodes_grace_left: left(value.soft.inodes_since),
            stored_grace_left: left(value.soft.stored_since),
            by_default: !value.has_limits() && most != stere_naming::Most::default(),
            is_deleted: value.place.is_some_and(|place| place.is_deleted),
        }
    }
}
