//! The layers that ARCHITECTURE.md lists, compared with what the crates' manifests depend on.
//!
//! Under the heading `## Layers` each numbered line is a layer, from below, with its crates in backquotes. Every crate stands there
//! once, and depends only on crates of earlier lines; what only its tests use may be anywhere. Read next: `references.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Finding;

const DOCUMENT: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Layers";

/// A crate's layer, and where that is said.
type Layers<'a> = BTreeMap<&'a str, (usize, usize)>;

/// A finding for each crate that is in no layer, or depends on one that is not below it.
pub fn check(files: &[(PathBuf, String)]) -> Vec<Finding> {
    let document = Path::new(DOCUMENT);
    let Some((_, text)) = files.iter().find(|(path, _)| path == document) else { return Vec::new() };
    let mut findings = Vec::new();
    let layers = layers(text, &mut findings);
    let mut crates = BTreeSet::new();
    for (path, manifest) in files {
        let Some(name) = crate_of(path) else { continue };
        crates.insert(name);
        let Some((layer, _)) = layers.get(name) else {
            findings.push(Finding::error(path, 1, format!("`{name}` is in no layer of {DOCUMENT}")));
            continue;
        };
        for (line, below) in dependencies(manifest) {
            if layers.get(below).is_some_and(|(other, _)| other >= layer) {
                let what = format!("`{name}` depends on `{below}`, which is not of an earlier layer in {DOCUMENT}");
                findings.push(Finding::error(path, line, what));
            }
        }
    }
    let gone = layers.iter().filter(|(name, _)| !crates.contains(*name));
    findings
        .extend(gone.map(|(name, (_, line))| Finding::error(document, *line, format!("there is no crate `{name}`"))));
    findings
}

fn layers<'a>(text: &'a str, findings: &mut Vec<Finding>) -> Layers<'a> {
    let mut layers = Layers::new();
    let lines = text.lines().enumerate().skip_while(|(_, line)| *line != HEADING).skip(1);
    let lines = lines.take_while(|(_, line)| !line.starts_with("## "));
    let mut layer = 0;
    for (index, line) in lines {
        let begins = line.split_once(". ").is_some_and(|(number, _)| number.parse::<usize>().is_ok());
        layer += usize::from(begins);
        // Lines that begin farther in go on with the layer.
        let names = line.split('`').skip(1).step_by(2).filter(|_| begins || (layer > 0 && line.starts_with("   ")));
        for name in names {
            if layers.insert(name, (layer, index + 1)).is_some() {
                findings.push(Finding::error(Path::new(DOCUMENT), index + 1, format!("`{name}` is in two layers")));
            }
        }
    }
    if layers.is_empty() {
        findings.push(Finding::error(Path::new(DOCUMENT), 1, format!("there are no layers under `{HEADING}`")));
    }
    layers
}

/// `crates/NAME/Cargo.toml`.
fn crate_of(path: &Path) -> Option<&str> {
    let mut parts = path.to_str()?.split('/');
    let (folder, name, file) = (parts.next()?, parts.next()?, parts.next()?);
    (folder == "crates" && file == "Cargo.toml" && parts.next().is_none()).then_some(name)
}

/// The crates of ours under `[dependencies]`, by the names of their folders, with their lines.
fn dependencies(manifest: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_within = false;
    manifest.lines().enumerate().filter_map(move |(index, line)| {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            is_within = section == "dependencies" || section.ends_with(".dependencies");
            return None;
        }
        let key = line.split(['.', '=', ' ']).next().filter(|key| is_within && !key.is_empty())?;
        Some((index + 1, key.strip_prefix("stere-").unwrap_or(key)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: &str = "# A\n\n## Layers\n\nText with `words`.\n\n1. `format`, `fuse-wire`: below\n   `device`\n2. `log`\n\n## Next\n\n1. `other`\n";

    fn found(document: &str, manifests: &[(&str, &str)]) -> Vec<String> {
        let mut files = vec![(PathBuf::from(DOCUMENT), document.to_owned())];
        let manifest =
            |(name, text): &(&str, &str)| (PathBuf::from(format!("crates/{name}/Cargo.toml")), (*text).to_owned());
        files.extend(manifests.iter().map(manifest));
        check(&files).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_crate_depends_on_earlier_layers_only() {
        let log = "[package]\nname = \"stere-log\"\n[dependencies]\nstere-format.workspace = true\nfuse-wire = { path = \"x\" }\n";
        let all = [("format", ""), ("fuse-wire", ""), ("device", ""), ("log", log)];
        assert_eq!(found(LAYERS, &all), Vec::<String>::new());
        let beside = [
            ("format", ""),
            ("fuse-wire", ""),
            ("device", "[dependencies]\nstere-format.workspace = true\n"),
            ("log", log),
        ];
        assert!(found(LAYERS, &beside)[0].contains("`device` depends on `format`"));
        let above = [
            ("format", "[target.x.dependencies]\nstere-log.workspace = true\n"),
            ("fuse-wire", ""),
            ("device", ""),
            ("log", log),
        ];
        assert!(found(LAYERS, &above)[0].contains("`format` depends on `log`"));
        // Tests may use anything.
        let tests = [
            ("format", "[dev-dependencies]\nstere-log.workspace = true\n"),
            ("fuse-wire", ""),
            ("device", ""),
            ("log", log),
        ];
        assert_eq!(found(LAYERS, &tests), Vec::<String>::new());
    }

    #[test]
    fn every_crate_stands_in_one_layer() {
        let all = [("format", ""), ("fuse-wire", ""), ("device", ""), ("log", ""), ("new", "")];
        assert_eq!(found(LAYERS, &all), ["`new` is in no layer of ARCHITECTURE.md"]);
        assert_eq!(found(LAYERS, &all[..3]), ["there is no crate `log`"]);
        let twice = LAYERS.replace("2. `log`", "2. `log`, `format`");
        assert!(found(&twice, &all[..4]).contains(&"`format` is in two layers".to_owned()));
        assert_eq!(found("# A\n", &[]), ["there are no layers under `## Layers`"]);
    }
}
