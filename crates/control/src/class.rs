//! Classes of a pool: what is asked of them and told of them.

use serde::{Deserialize, Serialize};
use stere_naming::ClassInfo;

pub type Settings = Vec<(String, String)>;

/// What is asked about classes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    List,
    Create { name: String, settings: Settings },
    Change { name: String, settings: Settings },
    Delete { name: String, into: String },
}

/// A class, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClassLine {
    pub name: String,
    pub is_built_in: bool,
    /// What it asks for: keys and values.
    pub settings: Settings,
    /// Files and directories that have it themselves.
    pub members: u64,
    /// Places with rules that name it.
    pub rules: u64,
}

impl From<ClassInfo> for ClassLine {
    fn from(info: ClassInfo) -> ClassLine {
        let settings = info.settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let ClassInfo { name, is_built_in, members, rules, .. } = info;
        ClassLine { name, is_built_in, settings, members, rules }
    }
}

impl ClassLine {
    /// Its settings, for people.
    pub fn words(&self) -> String {
        let words: Vec<String> = self.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        if words.is_empty() { "says nothing".into() } else { words.join(" ") }
    }
}
