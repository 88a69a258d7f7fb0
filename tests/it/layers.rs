//! The layering of the crate: imports go to lower layers only, modules of a layer import only modules declared before them,
//! and some identifiers occur only in certain files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

use crate::program::root;

/// The top-level modules with their layers. A module imports only modules of lower layers.
const LAYERS: [(&str, u8); 6] =
    [("foundation", 1), ("inference", 2), ("governance", 2), ("simulation", 3), ("studies", 4), ("app", 5)];

#[test]
fn imports_go_to_lower_layers_and_to_modules_declared_before() {
    let children = children_by_module();
    let mut faults = Vec::new();
    for file in rust_files(&src()) {
        let here = module_path(&file);
        let [module, child @ ..] = here.as_slice() else { continue };
        for used in paths_used(&file, &here) {
            let [used_module, used_child @ ..] = used.as_slice() else { continue };
            if let Some(fault) = fault(&children, (module, child.first()), (used_module, used_child.first())) {
                faults.push(format!("{}: imports crate::{}: {fault}", file.display(), used.join("::")));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// A top-level module, and its child module if there is one.
type ModuleRef<'a> = (&'a String, Option<&'a String>);

fn fault(
    children: &BTreeMap<String, Vec<String>>,
    (module, child): ModuleRef<'_>,
    (used_module, used_child): ModuleRef<'_>,
) -> Option<String> {
    let (layer, used_layer) = (layer(module)?, layer(used_module)?);
    if module != used_module {
        return (used_layer >= layer).then(|| format!("layer {used_layer} is not below layer {layer}"));
    }
    let order = children.get(module)?;
    let index = |name: Option<&String>| order.iter().position(|child| Some(child) == name);
    let (child, used_child) = (index(child)?, index(used_child)?);
    (used_child > child).then(|| format!("`{}` is declared after `{}` in {module}.rs", order[used_child], order[child]))
}

#[test]
fn the_check_finds_imports_upward_sideways_and_forward() {
    let children = BTreeMap::from([("foundation".to_owned(), vec!["base".to_owned(), "chat".to_owned()])]);
    let check = |from: [&str; 2], to: [&str; 2]| {
        let [from, to] = [from, to].map(|path| path.map(str::to_owned));
        fault(&children, (&from[0], Some(&from[1])), (&to[0], Some(&to[1]))).is_some()
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

/// Folders whose modules import only modules declared before them in the parent file. Test modules are exempt.
const ORDERED_FOLDERS: [&str; 3] = ["app/session", "governance/memory", "governance/mood"];

#[test]
fn modules_of_ordered_folders_import_only_modules_declared_before() {
    let mut faults = Vec::new();
    for folder in ORDERED_FOLDERS {
        let order = modules(&src().join(folder).with_extension("rs"));
        let inside: Vec<String> = folder.split('/').map(str::to_owned).collect();
        let index = |path: &[String]| {
            let name = path.strip_prefix(inside.as_slice())?.first()?;
            order.iter().position(|module| module == name)
        };
        for file in rust_files(&src().join(folder)) {
            let here = module_path(&file);
            let Some(this) = index(&here) else { continue };
            for used in paths_used(&file, &here) {
                if index(&used).is_some_and(|used| used > this) {
                    faults.push(format!(
                        "{}: imports crate::{}, which is declared after it",
                        file.display(),
                        used.join("::")
                    ));
                }
            }
        }
        assert!(order.len() > 5, "{folder}: {order:?}");
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn sibling_modules_import_each_other_in_no_circle() {
    let mut circles = Vec::new();
    let tests = test_modules();
    for file in rust_files(&src()) {
        let module = if file.ends_with("lib.rs") || file.ends_with("main.rs") { continue } else { module_path(&file) };
        let children = modules(&file);
        if children.len() < 2 {
            continue;
        }
        let exported = re_exports(&fs::read_to_string(&file).unwrap(), &children);
        let folder = file.with_extension("");
        let imports = |child: &String| {
            let of = |path: &Path| {
                let here = module_path(path);
                let within = here.strip_prefix(module.as_slice()).and_then(<[_]>::first) == Some(child)
                    && !tests.iter().any(|test| here.starts_with(test));
                if within { production_paths(path, &here) } else { Vec::new() }
            };
            let mut used = BTreeSet::new();
            for path in rust_files(&folder).iter().flat_map(|path| of(path)) {
                let name = path.strip_prefix(module.as_slice()).and_then(<[_]>::first);
                let target = name.and_then(|name| exported.get(name).or(children.iter().find(|child| *child == name)));
                used.extend(target.filter(|target| *target != child).cloned());
            }
            used
        };
        let graph: BTreeMap<_, _> = children.iter().map(|child| (child.clone(), imports(child))).collect();
        circles.extend(
            circles_of(&graph).into_iter().map(|circle| format!("{}: {}", module.join("::"), circle.join(", "))),
        );
    }
    assert!(circles.is_empty(), "\n{}", circles.join("\n"));
}

/// The modules that exist only under test.
fn test_modules() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for file in rust_files(&src()) {
        let here = module_path(&file);
        for item in syn::parse_file(&fs::read_to_string(&file).unwrap()).unwrap().items {
            if let syn::Item::Mod(module) = item
                && module.attrs.iter().any(is_test)
            {
                found.push([here.as_slice(), &[module.ident.to_string()]].concat());
            }
        }
    }
    found
}

/// The sets of modules that reach each other.
fn circles_of(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let mut reach = graph.clone();
    for middle in graph.keys() {
        let beyond = reach[middle].clone();
        for to in reach.values_mut().filter(|to| to.contains(middle)) {
            to.extend(beyond.iter().cloned());
        }
    }
    let together = |one: &String| {
        let back = |other: &&String| reach.get(*other).is_some_and(|to| to.contains(one));
        reach[one].iter().filter(back).cloned().collect::<Vec<_>>()
    };
    let circles: BTreeSet<_> = graph.keys().map(together).filter(|circle| !circle.is_empty()).collect();
    circles.into_iter().collect()
}

/// The names that a module takes from its children, with the child: `use child::Name`, `pub use self::child::{A, B}`.
fn re_exports(text: &str, children: &[String]) -> BTreeMap<String, String> {
    let mut paths = Paths { here: Vec::new(), found: Vec::new(), production: true };
    for item in syn::parse_file(text).unwrap().items {
        if let syn::Item::Use(item) = item {
            paths.use_tree(&item.tree, &["self".to_owned()]);
        }
    }
    let named = paths.found.into_iter().filter_map(|path| match path.as_slice() {
        [child, .., name] if children.contains(child) => Some((name.clone(), child.clone())),
        _ => None,
    });
    named.collect()
}

#[test]
fn the_check_finds_circles_of_any_length_and_through_the_parent() {
    let graph = |edges: &[(&str, &[&str])]| {
        let set = |to: &[&str]| to.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        edges.iter().map(|(from, to)| ((*from).to_owned(), set(to))).collect::<BTreeMap<_, _>>()
    };
    let straight = graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]);
    assert!(circles_of(&straight).is_empty());
    let round = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"])]);
    assert_eq!(circles_of(&round), [["a", "b", "c"]]);
    let children = ["one", "two"].map(str::to_owned);
    let exported = re_exports("mod one; mod two; pub use one::{A, inner::B}; use self::two::C; use std::D;", &children);
    let pairs: Vec<_> = exported.iter().map(|(name, child)| format!("{child}::{name}")).collect();
    assert_eq!(pairs, ["one::A", "one::B", "two::C"]);
    let file = "use super::A; #[cfg(test)] mod tests { use super::super::B; }";
    let here = ["x", "y"].map(str::to_owned);
    let mut paths = Paths { here: here.to_vec(), found: Vec::new(), production: true };
    paths.visit_file(&syn::parse_file(file).unwrap());
    assert_eq!(paths.found, [["x", "A"]]);
}

#[test]
fn restricted_texts_occur_only_in_their_files() {
    let mut faults = Vec::new();
    for file in rust_files(&src()) {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(src()).unwrap().to_string_lossy().into_owned();
        let mut only_in = |word: &str, places: &[&str]| {
            if text.contains(word) && !places.contains(&name.as_str()) {
                faults.push(format!("src/{name} contains `{word}`; only {places:?} may"));
            }
        };
        only_in("feature = \"inference\"", &["lib.rs"]);
        only_in("feature = \"app\"", &["lib.rs"]);
        let on_gpus = ["device.rs", "gpu.rs", "launch.rs"].map(|file| format!("inference/engine/{file}"));
        only_in("feature = \"cuda\"", &on_gpus.each_ref().map(String::as_str));
        only_in("todo!(", &[]);
        only_in("unimplemented!(", &[]);
        // Files from outside are opened, read and written by the functions of the store, with their limits.
        let production = text.split("#[cfg(all(test").next().and_then(|text| text.split("#[cfg(test)]").next());
        let production = production.unwrap_or_default();
        let tests = ["_tests.rs", "tests.rs", "spec_cases.rs", "exploration.rs", "properties.rs", "conformance.rs"];
        let store = name.starts_with("foundation/store/") || tests.iter().any(|end| name.ends_with(end));
        // The system's own files in /proc and /sys; the regulator's stream of events.
        let own = ["inference/engine/machine.rs", "app/serve/http/connections.rs"];
        if !store && !own.contains(&name.as_str()) && name != "app/cli/regulate.rs" {
            for word in ["fs::read(", "fs::read_to_string(", "fs::write(", "fs::copy(", "File::open(", "File::create("]
            {
                if production.contains(word) {
                    faults.push(format!("src/{name} contains `{word}`: use the functions of foundation::store"));
                }
            }
        }
        if file.file_name().is_some_and(|name| name == "mod.rs") {
            faults.push(format!("src/{name}: use `x.rs` next to `x/`"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The source folder.
pub(crate) fn src() -> PathBuf {
    root().join("src")
}

fn layer(module: &str) -> Option<u8> {
    LAYERS.iter().find(|(name, _)| *name == module).map(|(_, layer)| *layer)
}

/// The child modules of each top-level module, in the order of declaration.
fn children_by_module() -> BTreeMap<String, Vec<String>> {
    LAYERS.iter().map(|(module, _)| ((*module).to_owned(), modules(&src().join(format!("{module}.rs"))))).collect()
}

/// The modules that a file declares, in order, except test modules.
fn modules(file: &Path) -> Vec<String> {
    let items = syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap().items;
    let named = items.into_iter().filter_map(|item| match item {
        syn::Item::Mod(module) if !module.attrs.iter().any(is_test) => Some(module.ident.to_string()),
        _ => None,
    });
    named.collect()
}

/// `#[cfg(test)]`.
fn is_test(attribute: &syn::Attribute) -> bool {
    attribute.meta.require_list().is_ok_and(|meta| meta.tokens.to_string() == "test")
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

/// Every path into this crate that the file uses, absolute, without the leading `crate`.
fn paths_used(file: &Path, here: &[String]) -> Vec<Vec<String>> {
    paths_in(&fs::read_to_string(file).unwrap(), here)
}

/// As [`paths_used`], without test code.
fn production_paths(file: &Path, here: &[String]) -> Vec<Vec<String>> {
    let mut paths = Paths { here: here.to_vec(), found: Vec::new(), production: true };
    paths.visit_file(&syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap());
    paths.found
}

fn paths_in(text: &str, here: &[String]) -> Vec<Vec<String>> {
    let mut paths = Paths { here: here.to_vec(), found: Vec::new(), production: false };
    paths.visit_file(&syn::parse_file(text).unwrap());
    paths.found
}

struct Paths {
    here: Vec<String>,
    found: Vec<Vec<String>>,
    /// Skip test code.
    production: bool,
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
        if self.production && module.attrs.iter().any(is_test) {
            return;
        }
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
