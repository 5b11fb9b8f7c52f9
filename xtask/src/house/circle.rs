//! Files of a crate that need each other: the largest set in which every file leads to every other.
//!
//! A file leads to another when it names a path into it (`crate::`, `super::`, a module of its own), or calls a method
//! that only the other file defines in an `impl`; methods of a trait are called through it, so they lead nowhere.
//! Re-exports and `mod` lines say where things are and need nothing, so they lead nowhere; a name that a file only
//! re-exports leads to where it is defined.

use std::collections::{BTreeMap, BTreeSet};

use super::count::{self, Source, is_word};

/// Methods of the standard library: a call of one says nothing about who defines another of that name.
const STANDARD: &[&str] = &[
    "all",
    "and_then",
    "any",
    "append",
    "as_ref",
    "as_slice",
    "as_str",
    "borrow",
    "chain",
    "checked_add",
    "checked_sub",
    "clear",
    "clone",
    "cloned",
    "cmp",
    "collect",
    "contains",
    "copied",
    "count",
    "drain",
    "elapsed",
    "entry",
    "eq",
    "expect",
    "extend",
    "fill",
    "filter",
    "find",
    "first",
    "flush",
    "fmt",
    "fold",
    "for_each",
    "from",
    "get",
    "get_mut",
    "hash",
    "insert",
    "into",
    "into_iter",
    "is_empty",
    "is_none",
    "is_some",
    "iter",
    "iter_mut",
    "join",
    "keys",
    "last",
    "len",
    "lock",
    "map",
    "map_err",
    "max",
    "min",
    "next",
    "or",
    "parse",
    "pop",
    "position",
    "push",
    "range",
    "read",
    "recv",
    "remove",
    "replace",
    "reserve",
    "resize",
    "retain",
    "rev",
    "send",
    "set",
    "skip",
    "sort",
    "split",
    "start",
    "store",
    "sum",
    "swap",
    "take",
    "then",
    "to_owned",
    "to_string",
    "trim",
    "truncate",
    "try_from",
    "unwrap",
    "unwrap_or",
    "update",
    "values",
    "wait",
    "write",
    "zip",
    "load",
    "drop",
    "default",
    "new",
    "end",
    "seek",
    "name",
    "open",
    "close",
    "kind",
    "id",
];

/// The files of one crate, by the module that each is.
struct Crate<'a> {
    /// Module path such as `["tree", "merge"]` to the number of the file; the root is empty.
    modules: BTreeMap<Vec<String>, usize>,
    sources: Vec<&'a Source>,
    /// For each file, the names that it re-exports and the paths they come from, below the root.
    exports: Vec<BTreeMap<String, Vec<String>>>,
    /// Methods that exactly one file defines, and not for a trait.
    methods: BTreeMap<String, usize>,
}

/// For each crate, the files of its largest circle.
pub fn largest_by_crate(sources: &[Source]) -> BTreeMap<String, Vec<String>> {
    let mut crates: BTreeMap<String, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_harness() && source.path.starts_with("src/")) {
        crates.entry(source.crate_name.clone()).or_default().push(source);
    }
    let largest = |sources: Vec<&Source>| {
        let edges = Crate::new(sources.clone()).edges();
        let files = components(&edges).into_iter().max_by_key(Vec::len).unwrap_or_default();
        files.into_iter().map(|file| sources[file].path.clone()).collect()
    };
    crates.into_iter().map(|(name, sources)| (name, largest(sources))).collect()
}

/// `src/tree/merge.rs` is the module `tree::merge`.
fn module_of(path: &str) -> Vec<String> {
    let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
    let mut parts: Vec<String> = inner.split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

impl<'a> Crate<'a> {
    fn new(sources: Vec<&'a Source>) -> Self {
        let numbered = sources.iter().enumerate();
        let modules: BTreeMap<Vec<String>, usize> =
            numbered.map(|(index, source)| (module_of(&source.path), index)).collect();
        let mut defined: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for (index, source) in sources.iter().enumerate() {
            for name in count::methods(&source.code).into_iter().flat_map(|(_, names)| names) {
                defined.entry(name).or_default().insert(index);
            }
        }
        let of_traits: BTreeSet<String> =
            sources.iter().flat_map(|source| count::methods_of_traits(&source.code)).collect();
        let only = |(name, files): (String, BTreeSet<usize>)| {
            let is_called_here = !STANDARD.contains(&name.as_str()) && !of_traits.contains(&name);
            let is_telling = files.len() == 1 && is_called_here;
            files.into_iter().next().filter(|_| is_telling).map(|file| (name, file))
        };
        let methods = defined.into_iter().filter_map(only).collect();
        let mut this = Crate { modules, sources, exports: Vec::new(), methods };
        this.exports = this.sources.iter().map(|source| this.exports_of(source)).collect();
        this
    }

    fn exports_of(&self, source: &Source) -> BTreeMap<String, Vec<String>> {
        let mut exports = BTreeMap::new();
        for statement in re_exports(&source.code) {
            for path in self.absolute_paths(source, statement) {
                if let Some(name) = path.last() {
                    exports.insert(name.clone(), path);
                }
            }
        }
        exports
    }

    /// Every path in `code` that leads into this crate, from its root.
    fn absolute_paths(&self, source: &Source, code: &str) -> Vec<Vec<String>> {
        let here = module_of(&source.path);
        let mut paths = Vec::new();
        for (start, base) in self.path_starts(&here, code) {
            let (tree, _) = path_tree(&code[start..]);
            paths.extend(tree.into_iter().filter_map(|tail| resolve_supers(&base, tail)));
        }
        paths
    }

    /// Where paths start that lead into this crate, and the module that the first name is looked up in.
    fn path_starts(&self, here: &[String], code: &str) -> Vec<(usize, Vec<String>)> {
        let is_start = |start: &usize| {
            let before = code[..*start].trim_end();
            // `pub(super)` says who may see a thing, and needs nothing.
            !before.ends_with("::") && !before.ends_with('.') && !before.ends_with("pub(")
        };
        let mut starts = Vec::new();
        for start in count::whole_words(code, "crate").filter(is_start) {
            if code[start + 5..].starts_with("::") {
                starts.push((start + 7, Vec::new()));
            }
        }
        for start in count::whole_words(code, "super").filter(is_start) {
            starts.push((start, here.to_vec()));
        }
        for start in count::whole_words(code, "self").filter(is_start) {
            if code[start + 4..].starts_with("::") {
                starts.push((start + 6, here.to_vec()));
            }
        }
        let is_child = |path: &&Vec<String>| path.len() == here.len() + 1 && path.starts_with(here);
        for child in self.modules.keys().filter(is_child).filter_map(|path| path.last()) {
            for start in count::whole_words(code, child).filter(is_start) {
                if code[start + child.len()..].starts_with("::") {
                    starts.push((start, here.to_vec()));
                }
            }
        }
        starts
    }

    /// The file that a path leads to: by its longest part that is a module, and from there by what that re-exports.
    fn file_of(&self, path: &[String]) -> Option<usize> {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let length = (0..=path.len()).rev().find(|length| self.modules.contains_key(&path[..*length]))?;
            let file = self.modules[&path[..length]];
            let exported = path.get(length).and_then(|name| self.exports[file].get(name));
            match exported {
                Some(target) if *target != path => path = target.clone(),
                _ => return Some(file),
            }
        }
        None
    }

    fn edges(&self) -> Vec<BTreeSet<usize>> {
        let of = |(index, source): (usize, &&'a Source)| {
            let mut code = source.code.clone();
            for statement in re_exports(&source.code) {
                code = code.replace(statement, "");
            }
            let paths = self.absolute_paths(source, &code);
            let mut targets: BTreeSet<usize> = paths.iter().filter_map(|path| self.file_of(path)).collect();
            targets.extend(called_methods(&code).filter_map(|name| self.methods.get(name).copied()));
            targets.remove(&index);
            targets
        };
        self.sources.iter().enumerate().map(of).collect()
    }
}

/// The statements `pub use ...;`, `pub(crate) use ...;`.
fn re_exports(code: &str) -> impl Iterator<Item = &str> {
    let is_public = |start: usize| {
        let line = code[..start].rsplit('\n').next().unwrap_or_default().trim();
        line.starts_with("pub")
    };
    count::whole_words(code, "use")
        .filter(move |start| is_public(*start))
        .filter_map(|start| code[start..].find(';').map(|end| &code[start..start + end + 1]))
}

/// Names of methods that are called: `.name(`, `Self::name(`.
fn called_methods(code: &str) -> impl Iterator<Item = &str> {
    let after = |separator: &'static str| {
        code.match_indices(separator).filter_map(move |(start, _)| {
            let rest = &code[start + separator.len()..];
            let end = rest.find(|character: char| !is_word(character))?;
            (end > 0 && rest[end..].starts_with(['('])).then_some(&rest[..end])
        })
    };
    after(".").chain(after("Self::"))
}

/// `a::{b::c, self, d}` as its paths, and how much of the text it took.
fn path_tree(text: &str) -> (Vec<Vec<String>>, usize) {
    let mut head = Vec::new();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let space = rest.len() - rest.trim_start().len();
        let rest = rest.trim_start();
        if rest.starts_with('{') {
            let (inner, length) = braced(rest);
            let joined = inner.into_iter().map(|tail| [head.clone(), tail].concat()).collect();
            return (joined, at + space + length);
        }
        let end = rest.find(|character: char| !is_word(character)).unwrap_or(rest.len());
        if end == 0 {
            return (vec![head], at + space);
        }
        head.push(rest[..end].to_owned());
        at += space + end;
        match text[at..].strip_prefix("::") {
            Some(_) => at += 2,
            None => return (vec![head], at),
        }
    }
}

fn braced(text: &str) -> (Vec<Vec<String>>, usize) {
    let mut paths = Vec::new();
    let mut at = 1;
    while at < text.len() {
        let character = text[at..].chars().next().unwrap_or('}');
        match character {
            '}' => return (paths, at + 1),
            _ if is_word(character) || character == '{' => {
                let (inner, length) = path_tree(&text[at..]);
                paths.extend(inner);
                at += length.max(1);
            }
            _ => at += character.len_utf8(),
        }
    }
    (paths, text.len())
}

/// The path from the root; `self` and `super` go where they say.
fn resolve_supers(base: &[String], tail: Vec<String>) -> Option<Vec<String>> {
    let mut path = base.to_vec();
    for name in tail {
        match name.as_str() {
            "self" => {}
            "super" => drop(path.pop()?),
            _ => path.push(name),
        }
    }
    Some(path)
}

/// Sets of files in which each leads to each other: Kosaraju's two passes.
pub fn components(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut order = Vec::new();
    let mut seen = vec![false; edges.len()];
    for start in 0..edges.len() {
        visit(start, edges, &mut seen, &mut order);
    }
    let mut reversed = vec![BTreeSet::new(); edges.len()];
    for (from, targets) in edges.iter().enumerate() {
        for to in targets {
            reversed[*to].insert(from);
        }
    }
    let mut seen = vec![false; edges.len()];
    let mut components = Vec::new();
    for start in order.into_iter().rev() {
        let mut component = Vec::new();
        visit(start, &reversed, &mut seen, &mut component);
        component.sort_unstable();
        if !component.is_empty() {
            components.push(component);
        }
    }
    components
}

/// Appends what can be reached from `start` and was not seen, in the order in which it is left.
fn visit(start: usize, edges: &[BTreeSet<usize>], seen: &mut [bool], left: &mut Vec<usize>) {
    if seen[start] {
        return;
    }
    seen[start] = true;
    for next in &edges[start] {
        visit(*next, edges, seen, left);
    }
    left.push(start);
}
