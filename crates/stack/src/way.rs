//! Ways: how the content of a file is stored, and which rule says so.
//!
//! `*.c: compress=zstd, encrypt=yes, plugins=delta:2+rotate`, one rule a line or between semicolons, `#` begins a comment. The first
//! rule whose pattern matches decides; what none matches is passed through. A pattern with a slash is matched against the path from
//! the source, others against the name.

use globset::{GlobBuilder, GlobMatcher};
use stere_policy::Compression;

use crate::error::Error;

/// Bytes that a way takes as text, as it stands in a file's header.
pub(crate) const TEXT_BYTES_MAX: usize = 440;

/// How content is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    pub compression: Compression,
    pub is_encrypted: bool,
    /// Names of plugins and their parameters, the first nearest to the file.
    pub plugins: Vec<(String, String)>,
}

impl Way {
    /// As it is.
    pub const PLAIN: Way = Way { compression: Compression::NONE, is_encrypted: false, plugins: Vec::new() };

    /// Whether nothing is done to the content.
    pub fn is_plain(&self) -> bool {
        *self == Way::PLAIN
    }

    /// The settings of a rule.
    pub fn parse(text: &str) -> Result<Way, String> {
        let mut way = Way::PLAIN;
        for setting in text.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').ok_or_else(|| format!("'{setting}' is not KEY=VALUE"))?;
            match (key.trim(), value.trim()) {
                ("compress", value) => {
                    let compression = Compression::from_text(value);
                    way.compression = compression
                        .ok_or_else(|| format!("compress is none, lz4, zstd or zstd:1 to 19, not '{value}'"))?;
                }
                ("encrypt", "yes") => way.is_encrypted = true,
                ("encrypt", "no") => way.is_encrypted = false,
                ("encrypt", value) => return Err(format!("encrypt is yes or no, not '{value}'")),
                ("plugins", "none") => way.plugins = Vec::new(),
                ("plugins", value) => way.plugins = plugins(value)?,
                (key, _) => {
                    return Err(format!("'{key}' is no key; they are compress, encrypt, plugins, follow and backup"));
                }
            }
        }
        if way.text().len() > TEXT_BYTES_MAX {
            return Err("the settings are too long; give plugins shorter parameters".into());
        }
        Ok(way)
    }

    /// As it is written.
    pub fn text(&self) -> String {
        let encrypt = if self.is_encrypted { "yes" } else { "no" };
        let plugin = |(name, parameters): &(String, String)| match parameters.is_empty() {
            true => name.clone(),
            false => format!("{name}:{parameters}"),
        };
        let plugins: Vec<String> = self.plugins.iter().map(plugin).collect();
        let plugins = if plugins.is_empty() { "none".into() } else { plugins.join("+") };
        format!("compress={},encrypt={encrypt},plugins={plugins}", self.compression.text())
    }
}

fn plugins(text: &str) -> Result<Vec<(String, String)>, String> {
    let one = |text: &str| {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if name.is_empty() || !is_plain {
            return Err(format!("'{name}' is no name of a plugin"));
        }
        Ok((name.to_owned(), parameters.to_owned()))
    };
    let plugins: Vec<(String, String)> = text.split('+').map(|text| one(text.trim())).collect::<Result<_, _>>()?;
    if plugins.len() > stere_plugin::PLUGINS_MAX {
        return Err(format!("at most {} plugins, one behind the other", stere_plugin::PLUGINS_MAX));
    }
    Ok(plugins)
}

/// How files are followed up after they were changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Follows {
    /// Names of plugins that are told, and their parameters.
    pub plugins: Vec<(String, String)>,
    /// Whether they are copied to the second directory.
    pub backup: bool,
}

impl Follows {
    /// Takes the settings out of a rule that are about this; gives the others.
    fn parse(text: &str) -> Result<(Follows, String), String> {
        let (mut follows, mut others) = (Follows::default(), Vec::new());
        for setting in text.split(',') {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            match (key.trim(), value.trim()) {
                ("follow", "none") => follows.plugins = Vec::new(),
                ("follow", value) => follows.plugins = plugins(value)?,
                ("backup", "yes") => follows.backup = true,
                ("backup", "no") => follows.backup = false,
                ("backup", value) => return Err(format!("backup is yes or no, not '{value}'")),
                _ => others.push(setting),
            }
        }
        Ok((follows, others.join(",")))
    }
}

/// Which files are stored how, and followed up how.
#[derive(Debug, Clone, Default)]
pub struct Rules(Vec<(Pattern, Way, Follows)>);

#[derive(Debug, Clone)]
struct Pattern {
    matcher: GlobMatcher,
    is_of_path: bool,
}

impl Rules {
    /// Rules as they are written.
    pub fn parse(text: &str) -> Result<Rules, Error> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let said = line.split('#').next().unwrap_or_default();
            for rule in said.split(';').map(str::trim).filter(|rule| !rule.is_empty()) {
                rules.push(parse_one(rule).map_err(|why| Error::Rule { line: index + 1, why })?);
            }
        }
        Ok(Rules(rules))
    }

    /// Whether any rule has to be told the path.
    pub fn needs_path(&self) -> bool {
        self.0.iter().any(|(pattern, _, _)| pattern.is_of_path)
    }

    /// Every way that a rule asks for.
    pub fn ways(&self) -> impl Iterator<Item = &Way> {
        self.0.iter().map(|(_, way, _)| way)
    }

    /// Every way of following up that a rule asks for.
    pub fn all_follows(&self) -> impl Iterator<Item = &Follows> {
        self.0.iter().map(|(_, _, follows)| follows).filter(|follows| **follows != Follows::default())
    }

    /// How a file of this name is stored; `path` is that from the source, without a slash in front.
    pub fn way_of(&self, name: &[u8], path: &[u8]) -> Way {
        self.first(name, path).map_or(Way::PLAIN, |(_, way, _)| way.clone())
    }

    /// How it is followed up, if it is.
    pub fn follows(&self, name: &[u8], path: &[u8]) -> Option<&Follows> {
        self.first(name, path).map(|(_, _, follows)| follows).filter(|follows| **follows != Follows::default())
    }

    fn first(&self, name: &[u8], path: &[u8]) -> Option<&(Pattern, Way, Follows)> {
        let as_path = |bytes: &[u8]| -> std::path::PathBuf {
            use std::os::unix::ffi::OsStrExt;
            std::ffi::OsStr::from_bytes(bytes).into()
        };
        let (name, path) = (as_path(name), as_path(path));
        let matches = |pattern: &Pattern| pattern.matcher.is_match(if pattern.is_of_path { &path } else { &name });
        self.0.iter().find(|(pattern, _, _)| matches(pattern))
    }
}

fn parse_one(rule: &str) -> Result<(Pattern, Way, Follows), String> {
    let example = "write for example `*.c: compress=zstd`";
    let (pattern, settings) = rule.split_once(':').ok_or_else(|| format!("'{rule}' has no colon; {example}"))?;
    let pattern = pattern.trim().trim_start_matches('/');
    if pattern.is_empty() {
        return Err(format!("there is no pattern before the colon; {example}"));
    }
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    let glob = glob.map_err(|error| format!("the pattern '{pattern}' is none: {}", error.kind()))?;
    let (follows, settings) = Follows::parse(settings)?;
    let way = Way::parse(&settings)?;
    Ok((Pattern { matcher: glob.compile_matcher(), is_of_path: pattern.contains('/') }, way, follows))
}

#[cfg(test)]
mod tests;
