//! Which shared objects the running program needs: what goes beside it into an image made of it.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

/// Returns the shared objects mapped into this process: the loader and all libraries, with links resolved.
pub fn shared_objects() -> io::Result<Vec<PathBuf>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    Ok(parse(&maps))
}

pub(super) fn parse(maps: &str) -> Vec<PathBuf> {
    let paths: BTreeSet<PathBuf> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .filter(|path| path.rsplit('/').next().is_some_and(|name| name.contains(".so")))
        .map(PathBuf::from)
        .collect();
    paths.into_iter().collect()
}
