//! `cargo xtask quick`: red or green within a minute for what was changed, before everything else is tried.
//!
//! For the crates that changed: formatting, unit tests and clippy. For the crates that depend on them: whether they still
//! compile. Integration tests and the simulator are left to `cargo xtask test`. The profile `quick` (Cargo.toml) is
//! incremental and hardly optimised; its artefacts lie beside those of the release profile and never replace them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use crate::command::{self, MINUTE, program};
use crate::error::{Result, XtaskError};
use crate::subject::cargo;

const PROFILE: &[&str] = &["--profile", "quick", "--quiet"];
/// Cold builds take minutes; afterwards it is seconds.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(40 * 60);

/// The packages of this workspace.
#[derive(Debug, Default)]
struct Packages {
    /// The folder of a package below the root, such as `crates/tree`, to its name.
    by_folder: BTreeMap<String, String>,
    /// A package to those of this workspace that it is built or tested with.
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Packages {
    /// From what `cargo metadata` says.
    fn parse(root: &Path, said: &str) -> Result<Self> {
        let unreadable = |error| XtaskError::found(format!("`cargo metadata` says what is not JSON: {error}"));
        let metadata: Value = serde_json::from_str(said).map_err(unreadable)?;
        let mut packages = Packages::default();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
            let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
            let (Some(folder), Some(name)) = (folder, package["name"].as_str()) else { continue };
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            let in_workspace = dependencies.filter(|one| one["path"].is_string());
            let names = in_workspace.filter_map(|one| one["name"].as_str()).map(str::to_owned);
            packages.uses.insert(name.to_owned(), names.collect());
            packages.by_folder.insert(folder.to_string_lossy().into_owned(), name.to_owned());
        }
        match packages.uses.is_empty() {
            true => Err(XtaskError::found("`cargo metadata` names no package of this workspace")),
            false => Ok(packages),
        }
    }

    /// The package that a changed file belongs to.
    fn of_file(&self, file: &str) -> Option<&String> {
        let is_in = |folder: &str| file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        self.by_folder.iter().find(|(folder, _)| is_in(folder)).map(|(_, name)| name)
    }

    /// A package by its name or by that of its folder: `tree` is `stere-tree`.
    fn named(&self, word: &str) -> Option<&String> {
        let by_folder = self.by_folder.iter().find(|(folder, _)| folder.rsplit('/').next() == Some(word));
        by_folder.map(|(_, name)| name).or_else(|| self.uses.keys().find(|name| *name == word))
    }

    /// What is built on `changed`, over any number of steps, without these themselves.
    fn dependents(&self, changed: &BTreeSet<String>) -> BTreeSet<String> {
        let mut reached = changed.clone();
        loop {
            let is_next = |(name, uses): &(&String, &BTreeSet<String>)| {
                !reached.contains(*name) && uses.iter().any(|one| reached.contains(one))
            };
            let next: Vec<String> = self.uses.iter().filter(is_next).map(|(name, _)| name.clone()).collect();
            if next.is_empty() {
                return reached.difference(changed).cloned().collect();
            }
            reached.extend(next);
        }
    }
}

/// Files that differ from where this branch left main, committed or not, and new ones.
fn changed_files(root: &Path) -> Result<Vec<String>> {
    let git = |words: &[&str]| {
        let mut git = program(&["git", "-c", "safe.directory=*"]);
        command::capture(git.args(words).current_dir(root), MINUTE)
    };
    // A clone without a branch `main` compares with its own head.
    let base = git(&["merge-base", "HEAD", "main"]).unwrap_or_else(|_| "HEAD".into());
    let mut files: Vec<String> = Vec::new();
    files.extend(git(&["diff", "--name-only", base.trim()])?.lines().map(str::to_owned));
    files.extend(git(&["ls-files", "--others", "--exclude-standard"])?.lines().map(str::to_owned));
    Ok(files)
}

fn changed_packages(root: &Path, packages: &Packages, asked: Option<&str>) -> Result<BTreeSet<String>> {
    let Some(word) = asked else {
        let files = changed_files(root)?;
        return Ok(files.iter().filter_map(|file| packages.of_file(file)).cloned().collect());
    };
    match packages.named(word) {
        Some(name) => Ok([name.clone()].into()),
        None => Err(XtaskError::found(format!("no crate of this workspace is called {word}"))),
    }
}

fn chosen(names: &BTreeSet<String>) -> Vec<&str> {
    names.iter().flat_map(|name| ["-p", name.as_str()]).collect()
}

/// One step, with the time it took; the first that fails ends the run.
fn step(root: &Path, what: &str, words: &[&str]) -> Result<()> {
    let begun = Instant::now();
    command::run(&mut cargo(root, words), LIMIT)?;
    println!("    {what}: ok ({:.1} s)", begun.elapsed().as_secs_f64());
    Ok(())
}

pub fn run(root: &Path, asked: Option<&str>) -> Result<()> {
    let begun = Instant::now();
    let metadata = cargo(root, &["metadata", "--no-deps", "--format-version", "1"]);
    let packages = Packages::parse(root, &command::capture(&mut { metadata }, MINUTE)?)?;
    let changed = changed_packages(root, &packages, asked)?;
    if changed.is_empty() {
        println!("    nothing to do: no crate differs from main");
        return Ok(());
    }
    println!("    changed: {}", changed.iter().cloned().collect::<Vec<_>>().join(", "));
    let these = chosen(&changed);
    step(root, "formatting", &[&["fmt"], &these[..], &["--check"]].concat())?;
    step(root, "unit tests", &[&["test"], &these[..], PROFILE, &["--lib", "--bins"]].concat())?;
    step(
        root,
        "clippy",
        &[&["clippy"], &these[..], PROFILE, &["--lib", "--bins", "--", "--deny", "warnings"]].concat(),
    )?;
    let dependents = packages.dependents(&changed);
    if !dependents.is_empty() {
        let what = format!("{} crates that depend on them compile", dependents.len());
        step(root, &what, &[&["clippy"], &chosen(&dependents)[..], PROFILE, &["--", "--cap-lints", "allow"]].concat())?;
    }
    println!("    green in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages() -> Packages {
        let package = |name: &str, uses: &[&str]| {
            let uses: Vec<Value> = uses.iter().map(|name| serde_json::json!({ "name": name, "path": "x" })).collect();
            let manifest = format!("/r/crates/{name}/Cargo.toml");
            serde_json::json!({ "name": format!("stere-{name}"), "manifest_path": manifest, "dependencies": uses })
        };
        let all = [
            package("format", &[]),
            package("tree", &["stere-format"]),
            package("store", &["stere-tree"]),
            package("fuse", &[]),
        ];
        let said = serde_json::json!({ "packages": all }).to_string();
        Packages::parse(Path::new("/r"), &said).expect("it is metadata")
    }

    #[test]
    fn dependents_are_followed_over_steps() {
        let dependents = packages().dependents(&["stere-format".to_owned()].into());
        assert_eq!(dependents.into_iter().collect::<Vec<_>>(), ["stere-store", "stere-tree"]);
        assert!(packages().dependents(&["stere-fuse".to_owned()].into()).is_empty());
    }

    #[test]
    fn a_file_belongs_to_the_crate_it_lies_in() {
        assert_eq!(packages().of_file("crates/tree/src/merge.rs").map(String::as_str), Some("stere-tree"));
        assert_eq!(packages().of_file("crates/tree-of-others/a.rs"), None);
        assert_eq!(packages().of_file("docs/faults.md"), None);
    }

    #[test]
    fn a_crate_has_two_names() {
        assert_eq!(packages().named("tree"), packages().named("stere-tree"));
        assert_eq!(packages().named("trees"), None);
    }

    #[test]
    fn what_cargo_does_not_say_is_an_error() {
        assert!(Packages::parse(Path::new("/r"), "{}").is_err());
        assert!(Packages::parse(Path::new("/r"), "no").is_err());
    }
}
