//! The walls of the workspace, enforced by reading manifests and sources: which crate may use which, which room of the
//! node may use which, how long a file may be. A commit that needs another use changes the table here and says why.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A crate and the workspace crates it may depend on.
const CRATES: &[(&str, &[&str])] = &[
    ("util", &[]),
    // Pure: not even run-time help.
    ("api", &[]),
    ("host", &["util"]),
    ("cri", &["util", "api", "cri"]),
    ("transport", &["util", "api"]),
    ("node", &["util", "api", "host", "cri", "transport"]),
    ("plane", &["util", "api", "host", "transport"]),
    ("longshore", &["util", "api", "host", "cri", "transport", "node", "plane"]),
];

/// External crates that would break a crate's promise.
const FORBIDDEN: &[(&str, &[&str])] = &[
    // No IO, no runtime, no wire.
    ("api", &["tokio", "tokio-util", "kube", "hyper", "axum", "tonic", "nix", "rustix", "tracing"]),
    ("util", &["kube", "axum", "tonic", "hyper"]),
    // The agent carries no database.
    ("node", &["redb"]),
];

/// A room of the node and the rooms it may use; `model` and `telemetry` are for all.
const ROOMS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("telemetry", &[]),
    ("settings", &[]),
    ("event", &[]),
    // Pure: the agent tells it of the node through a trait.
    ("admit", &[]),
    ("logs", &[]),
    ("userns", &[]),
    ("stats", &[]),
    ("cert", &[]),
    // Sources hand mirrors to their room; they reach pods through the sink in `model` only.
    ("source", &["event", "mirror"]),
    ("mirror", &[]),
    ("observe", &[]),
    // The door for people at the machine.
    ("control", &[]),
    // Tells of processes that the kernel killed for memory.
    ("oom", &["event"]),
    ("object", &["event"]),
    ("image", &["event", "object"]),
    // Volumes tell the container configuration, which lives in `pod`, where they are.
    ("volume", &["event", "object", "pod"]),
    ("resource", &["pod"]),
    // The journal keeps facts in the words of `pod`.
    ("journal", &["pod"]),
    ("pod", &["admit", "event", "journal", "object", "image", "volume", "probe", "resource", "status", "logs"]),
    // The writer stands behind a port of `pod` and listens to mirrors.
    ("status", &["pod", "mirror"]),
    // A container goes with its log.
    ("gc", &["journal", "logs", "pod", "resource", "image", "volume"]),
    ("node", &["event", "stats"]),
    ("server", &["logs", "settings", "stats", "event"]),
    ("probe", &["event"]),
    ("evict", &["event", "stats", "image", "gc"]),
    ("plugin", &["event"]),
    ("why", &["journal", "logs"]),
];

/// Rooms that put all others together.
const ROOTS: &[&str] = &["agent", "hands"];
/// Rooms that every room may use.
const COMMON: &[&str] = &["model", "telemetry"];
/// A room outside this list is unknown and must be entered above.
const MAX_LINES: usize = 500;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "target") {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The names left of `=` or `.workspace` in the dependency sections of a manifest, each with its section.
fn dependencies(manifest: &str) -> Vec<(String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
        } else if section.ends_with("dependencies") && !line.starts_with('#') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            if !name.is_empty() {
                found.push((section.clone(), name.to_owned()));
            }
        }
    }
    found
}

#[test]
fn crates_use_only_what_lies_below_them() {
    let root = workspace();
    let mut faults = Vec::new();
    for (name, allowed) in CRATES {
        let manifest = fs::read_to_string(root.join("src").join(name).join("Cargo.toml")).unwrap();
        let forbidden = FORBIDDEN.iter().filter(|(of, _)| of == name).flat_map(|(_, names)| *names);
        let forbidden: BTreeSet<&str> = forbidden.copied().collect();
        for (section, dependency) in dependencies(&manifest) {
            if let Some(ours) = dependency.strip_prefix("longshore-")
                && !allowed.contains(&ours)
            {
                faults.push(format!("{name} may not use {ours}"));
            }
            if section == "dependencies" && forbidden.contains(dependency.as_str()) {
                faults.push(format!("{name} may not use {dependency}"));
            }
        }
    }
    let known: BTreeSet<&str> = CRATES.iter().map(|(name, _)| *name).collect();
    for entry in fs::read_dir(root.join("src")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !known.contains(name.as_str()) {
            faults.push(format!("crate {name} is not in the table"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The room a file belongs to; `None` for the crate's root and for tests.
fn room_of(file: &Path, source: &Path) -> Option<String> {
    let parts: Vec<&str> = file.strip_prefix(source).unwrap().iter().map(|part| part.to_str().unwrap()).collect();
    let is_test = parts.iter().any(|part| matches!(*part, "tests" | "tests.rs" | "fixture.rs" | "test_api.rs"));
    let room = parts[0].trim_end_matches(".rs");
    (!is_test && !matches!(room, "lib" | "main")).then(|| room.to_owned())
}

/// The rooms named after `crate::` in a text without its inline tests.
fn used(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found = BTreeSet::new();
    for line in code {
        for after in line.split("crate::").skip(1) {
            // `use crate::{a, b::c}` names several.
            let names = match after.strip_prefix('{') {
                Some(list) => list.split([',', '}']).map(str::trim).collect(),
                None => vec![after],
            };
            for name in names {
                let end = name
                    .find(|character: char| !(character.is_alphanumeric() || character == '_'))
                    .unwrap_or(name.len());
                if end > 0 {
                    found.insert(name[..end].to_owned());
                }
            }
        }
    }
    found
}

#[test]
fn rooms_of_the_node_use_only_what_is_listed() {
    let source = workspace().join("src/node/src");
    let table: BTreeMap<&str, &[&str]> = ROOMS.iter().map(|(room, uses)| (*room, *uses)).collect();
    let mut faults = Vec::new();
    for file in sources(&source) {
        let Some(room) = room_of(&file, &source) else { continue };
        if ROOTS.contains(&room.as_str()) {
            continue;
        }
        let shown = file.strip_prefix(&source).unwrap().display().to_string();
        let Some(allowed) = table.get(room.as_str()) else {
            faults.push(format!("{shown}: room {room} is not in the table"));
            continue;
        };
        for other in used(&fs::read_to_string(&file).unwrap()) {
            let is_free = other == room || (COMMON.contains(&other.as_str()) && room != "model");
            // What is no folder of the crate is an item of its root.
            let is_room = source.join(&other).is_dir() || source.join(format!("{other}.rs")).is_file();
            if is_room && !is_free && !allowed.contains(&other.as_str()) {
                faults.push(format!("{shown}: room {room} may not use {other}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_file_is_longer_than_it_can_be_read() {
    let root = workspace();
    let mut faults = Vec::new();
    for folder in ["src", "tests", "integration", "fuzz"] {
        for file in sources(&root.join(folder)) {
            let lines = fs::read_to_string(&file).unwrap().lines().count();
            if lines > MAX_LINES {
                faults.push(format!(
                    "{}: {lines} lines, at most {MAX_LINES}: split it by thing",
                    file.strip_prefix(&root).unwrap().display()
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The table of types costs memory from the first look on; the agent's promise does not allow for it.
#[test]
fn the_agent_leaves_the_table_of_types_alone() {
    let mut faults = Vec::new();
    for file in sources(&workspace().join("src/node/src")) {
        let text = fs::read_to_string(&file).unwrap();
        let program = text.split("#[cfg(test)]").next().unwrap_or_default();
        let uses = ["schema", "managed", "patch"].map(|room| format!("longshore_api::{room}"));
        if !file.ends_with("tests.rs") && uses.iter().any(|name| program.contains(name.as_str())) {
            faults.push(file.display().to_string());
        }
    }
    assert!(faults.is_empty(), "{}", faults.join(", "));
}

#[test]
fn unsafe_code_stands_in_one_room() {
    let root = workspace().join("src");
    let home = root.join("host/src/sys");
    let mut faults = Vec::new();
    for file in sources(&root) {
        let text = fs::read_to_string(&file).unwrap();
        let has_unsafe = text.lines().map(str::trim_start).any(|line| {
            !line.starts_with("//")
                && (line.contains("unsafe {") || line.starts_with("unsafe ") || line.contains(" unsafe fn"))
        });
        if has_unsafe && !file.starts_with(&home) && file != root.join("host/src/sys.rs") {
            faults.push(file.strip_prefix(&root).unwrap().display().to_string());
        }
    }
    assert!(faults.is_empty(), "unsafe outside host::sys: {}", faults.join(", "));
}

#[test]
fn the_readers_above_read_right() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\nlongshore-util.workspace = true\nserde = { version = \"1\" }\n[dev-dependencies]\na-b = \"1\"\n";
    let names: Vec<String> =
        dependencies(manifest).into_iter().map(|(section, name)| format!("{section}:{name}")).collect();
    assert_eq!(names, ["dependencies:longshore-util", "dependencies:serde", "dev-dependencies:a-b"]);
    let text = "use crate::pod::X;\nuse crate::{event, model::Y};\n// use crate::never;\nfn a() { crate::logs::b() }\n#[cfg(test)]\nmod tests {\nuse crate::late;\n}";
    assert_eq!(used(text).into_iter().collect::<Vec<_>>(), ["event", "logs", "model", "pod"]);
}
