//! The house stands: imports run downward only, rooms know the rooms named before them, and a few absences hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

use crate::program::root;

/// Each wing and its floor. A wing uses wings on lower floors only.
const FLOORS: [(&str, u8); 6] =
    [("foundation", 1), ("inference", 2), ("governance", 2), ("simulation", 3), ("studies", 4), ("app", 5)];

#[test]
fn imports_run_downward_and_rooms_know_only_the_rooms_before_them() {
    let rooms = rooms_by_wing();
    let mut faults = Vec::new();
    for file in rust_files(&src()) {
        let here = module_path(&file);
        let [wing, room @ ..] = here.as_slice() else { continue };
        for used in paths_used(&file, &here) {
            let [used_wing, used_room @ ..] = used.as_slice() else { continue };
            if let Some(fault) = fault(&rooms, (wing, room.first()), (used_wing, used_room.first())) {
                faults.push(format!("{}: uses crate::{}: {fault}", file.display(), used.join("::")));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

type Place<'a> = (&'a String, Option<&'a String>);

fn fault(
    rooms: &BTreeMap<String, Vec<String>>,
    (wing, room): Place<'_>,
    (used_wing, used_room): Place<'_>,
) -> Option<String> {
    let (floor, used_floor) = (floor(wing)?, floor(used_wing)?);
    if wing != used_wing {
        return (used_floor >= floor).then(|| format!("floor {used_floor} is not below floor {floor}"));
    }
    let order = rooms.get(wing)?;
    let place = |name: Option<&String>| order.iter().position(|room| Some(room) == name);
    let (room, used_room) = (place(room)?, place(used_room)?);
    (used_room > room).then(|| format!("`{}` is named after `{}` in {wing}.rs", order[used_room], order[room]))
}

#[test]
fn the_check_itself_finds_an_upward_a_sideways_and_a_forward_import() {
    let rooms = BTreeMap::from([("foundation".to_owned(), vec!["base".to_owned(), "chat".to_owned()])]);
    let check = |from: [&str; 2], to: [&str; 2]| {
        let [from, to] = [from, to].map(|path| path.map(str::to_owned));
        fault(&rooms, (&from[0], Some(&from[1])), (&to[0], Some(&to[1]))).is_some()
    };
    assert!(check(["foundation", "base"], ["app", "cli"]));
    assert!(check(["inference", "engine"], ["governance", "mood"]));
    assert!(check(["foundation", "base"], ["foundation", "chat"]));
    assert!(!check(["foundation", "chat"], ["foundation", "base"]));
    assert!(!check(["app", "cli"], ["foundation", "chat"]));

    let file = "use super::super::inference::engine; mod tests { use super::super::chat::{Role, token::Flow}; fn f() -> crate::app::X { todo!() } }";
    let here = ["foundation", "base", "clock"].map(str::to_owned);
    let used: Vec<_> = paths_in(file, &here).into_iter().map(|path| path.join("::")).collect();
    assert_eq!(
        used,
        [
            "foundation::inference::engine",
            "foundation::base::chat::Role",
            "foundation::base::chat::token::Flow",
            "app::X"
        ]
    );
}

/// Folders that a reader can read from the bottom up: a file uses those that the file beside the folder names before it.
/// Modules that are only there under test know all of them.
const STAIRS: [&str; 3] = ["app/session", "governance/memory", "governance/mood"];

#[test]
fn what_is_read_from_the_bottom_up_uses_nothing_above_it() {
    let mut faults = Vec::new();
    for folder in STAIRS {
        let steps = modules(&src().join(folder).with_extension("rs"));
        let inside: Vec<String> = folder.split('/').map(str::to_owned).collect();
        let step = |path: &[String]| {
            let name = path.strip_prefix(inside.as_slice())?.first()?;
            steps.iter().position(|step| step == name)
        };
        for file in rust_files(&src().join(folder)) {
            let here = module_path(&file);
            let Some(own) = step(&here) else { continue };
            for used in paths_used(&file, &here) {
                if step(&used).is_some_and(|used| used > own) {
                    faults.push(format!(
                        "{}: uses crate::{}, which is named after it",
                        file.display(),
                        used.join("::")
                    ));
                }
            }
        }
        assert!(steps.len() > 5, "{folder}: {steps:?}");
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn some_words_stand_only_where_they_belong() {
    let mut faults = Vec::new();
    for file in rust_files(&src()) {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(src()).unwrap().to_string_lossy().into_owned();
        let mut only_in = |word: &str, places: &[&str]| {
            if text.contains(word) && !places.contains(&name.as_str()) {
                faults.push(format!("src/{name} says `{word}`; only {places:?} may"));
            }
        };
        only_in("feature = \"inference\"", &["lib.rs"]);
        only_in("feature = \"cuda\"", &["inference/engine/device.rs"]);
        only_in("todo!(", &[]);
        only_in("unimplemented!(", &[]);
        if file.file_name().is_some_and(|name| name == "mod.rs") {
            faults.push(format!("src/{name}: write `x.rs` beside `x/`"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Where the program lies.
pub(crate) fn src() -> PathBuf {
    root().join("src")
}

fn floor(wing: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == wing).map(|(_, floor)| *floor)
}

/// The rooms of each wing, in the order in which its root file names them.
fn rooms_by_wing() -> BTreeMap<String, Vec<String>> {
    FLOORS.iter().map(|(wing, _)| ((*wing).to_owned(), modules(&src().join(format!("{wing}.rs"))))).collect()
}

/// The modules that a file names, in order, but for those that are only there under test.
fn modules(file: &Path) -> Vec<String> {
    let tests = |attr: &syn::Attribute| attr.meta.require_list().is_ok_and(|meta| meta.tokens.to_string() == "test");
    let items = syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap().items;
    let named = items.into_iter().filter_map(|item| match item {
        syn::Item::Mod(module) if !module.attrs.iter().any(tests) => Some(module.ident.to_string()),
        _ => None,
    });
    named.collect()
}

/// Every Rust file below `folder`.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn module_path(file: &Path) -> Vec<String> {
    let relative = file.strip_prefix(src()).unwrap().with_extension("");
    relative.iter().map(|part| part.to_string_lossy().into_owned()).collect()
}

/// Every path that the file takes from this crate, absolute, without the leading `crate`.
fn paths_used(file: &Path, here: &[String]) -> Vec<Vec<String>> {
    paths_in(&fs::read_to_string(file).unwrap(), here)
}

fn paths_in(text: &str, here: &[String]) -> Vec<Vec<String>> {
    let mut paths = Paths { here: here.to_vec(), found: Vec::new() };
    paths.visit_file(&syn::parse_file(text).unwrap());
    paths.found
}

struct Paths {
    here: Vec<String>,
    found: Vec<Vec<String>>,
}

impl Paths {
    fn resolve(&mut self, segments: &[String]) {
        let mut absolute = match segments.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.here.clone(),
            _ => return,
        };
        for segment in segments {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => drop(absolute.pop()),
                name => absolute.push(name.to_owned()),
            }
        }
        self.found.push(absolute);
    }

    fn use_tree(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |ident: &syn::Ident| before.iter().cloned().chain([ident.to_string()]).collect::<Vec<_>>();
        match tree {
            syn::UseTree::Path(path) => self.use_tree(&path.tree, &with(&path.ident)),
            syn::UseTree::Name(name) => self.resolve(&with(&name.ident)),
            syn::UseTree::Rename(rename) => self.resolve(&with(&rename.ident)),
            syn::UseTree::Glob(_) => self.resolve(before),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.use_tree(tree, before)),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.here.push(module.ident.to_string());
        syn::visit::visit_item_mod(self, module);
        self.here.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.resolve(&segments);
        syn::visit::visit_path(self, path);
    }
}
