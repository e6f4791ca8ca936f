//! Calls that the type system cannot vouch for, and nothing else: each one's safety is argued where it stands. Everything
//! else in this workspace is free of `unsafe`.

use std::fs::File;
use std::io::{self, Read as _};
use std::time::Duration;

use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What the program's allocator does for its whole heap, in its own words.
const PURGE: &std::ffi::CStr = c"arena.4096.purge";

/// Gives memory back that the process can do without for now: free heap pages, and pages of program files that are
/// mapped but were only touched once, such as those of the start. Returns how many bytes of program files were unmapped.
///
/// What is needed again is mapped again from the page cache, 64 KiB at a time.
///
/// # Errors
/// When the process's own maps cannot be read.
#[expect(unsafe_code, reason = "the allocator's controls and madvise have no safe face")]
pub fn give_back() -> Result<u64, procfs::ProcError> {
    // SAFETY: the name is a C string, and this control takes and returns nothing. 4096 stands for all arenas
    // (`MALLCTL_ARENAS_ALL`); the allocator locks them itself. Refused, it changes nothing.
    let _purged = unsafe {
        tikv_jemalloc_sys::mallctl(PURGE.as_ptr(), std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), 0)
    };
    let mut unmapped = 0;
    for map in Process::myself()?.smaps()? {
        if !is_only_the_file(&map) {
            continue;
        }
        let (start, end) = map.address;
        let (Ok(address), Ok(length)) = (usize::try_from(start), usize::try_from(end - start)) else { continue };
        // SAFETY: the range is one mapping of this process that is private, not writable and holds no page that
        // differs from its file, so that dropping its pages changes no byte that anybody can read: the next touch maps
        // the same page of the same file. Mappings of program files are never unmapped while the process lives.
        let done = unsafe {
            rustix::mm::madvise(
                std::ptr::with_exposed_provenance_mut(address),
                length,
                rustix::mm::Advice::LinuxDontNeed,
            )
        };
        if done.is_ok() {
            unmapped += map.extension.map.get("Rss").copied().unwrap_or(0);
        }
    }
    Ok(unmapped)
}

/// Whether the mapping shows a program file's bytes and no others: dropping its pages loses nothing.
fn is_only_the_file(map: &MemoryMap) -> bool {
    let counts = &map.extension.map;
    let clean = ["Anonymous", "Private_Dirty", "Shared_Dirty", "Swap", "Locked"].iter().all(|key| {
        // A kernel that does not count it proves nothing.
        counts.get(*key).is_some_and(|bytes| *bytes == 0)
    });
    let readable_only = map.perms.contains(MMPermissions::READ)
        && map.perms.contains(MMPermissions::PRIVATE)
        && !map.perms.contains(MMPermissions::WRITE);
    clean && readable_only && matches!(&map.pathname, MMapPath::Path(path) if path.is_absolute())
}

/// A file that tells when there is something to read, such as a device; ordinary files never do.
#[derive(Debug)]
pub struct ReadableFile(AsyncFd<File>);

impl ReadableFile {
    /// Takes a file that was opened so that it never blocks. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the kernel cannot wait for such a file.
    #[expect(unsafe_code, reason = "registering a descriptor has no safe face")]
    pub fn new(file: File) -> io::Result<Self> {
        // SAFETY: a `File` owns its descriptor, and this type hands out no way to replace or close it while it is registered.
        let registered = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        Ok(Self(registered?))
    }

    /// Waits until there is something to read, and reads it.
    ///
    /// # Errors
    /// As the read itself.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(done) = ready.try_io(|file| file.get_ref().read(buffer)) {
                return done;
            }
        }
    }
}

/// CPU time that the process has used, all its threads together.
#[must_use]
pub fn cpu_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sum over the mappings that may be given back, in KiB.
    fn mapped() -> u64 {
        let maps = Process::myself().unwrap().smaps().unwrap();
        maps.iter().filter(|map| is_only_the_file(map)).filter_map(|map| map.extension.map.get("Rss")).sum()
    }

    #[test]
    fn giving_back_drops_pages_of_the_program_file_and_the_program_goes_on() {
        let text: Vec<String> = (0..1000).map(|number| format!("{number:>12}")).collect();
        let before = mapped();
        assert!(before > 0);
        let unmapped = give_back().unwrap();
        assert!(unmapped > 0, "of {before}");
        // Heap, statics and relocated tables are as they were.
        assert_eq!(text[999], "         999");
        assert_eq!(text.iter().map(String::len).sum::<usize>(), 12_000);
        assert!(give_back().unwrap() <= before);
    }

    #[test]
    fn a_mapping_with_changed_pages_is_left_alone() {
        let maps = Process::myself().unwrap().smaps().unwrap();
        let touched = maps.iter().filter(|map| map.extension.map.get("Anonymous").is_some_and(|bytes| *bytes > 0));
        assert_eq!(touched.filter(|map| is_only_the_file(map)).count(), 0);
        assert!(maps.iter().filter(|map| map.perms.contains(MMPermissions::WRITE)).all(|map| !is_only_the_file(map)));
    }

    #[test]
    fn work_shows_in_cpu_time() {
        let before = cpu_time();
        let sum = (0..3_000_000_u64).fold(0_u64, |sum, number| sum.wrapping_mul(31).wrapping_add(number));
        assert!(sum != 1 && cpu_time() > before);
    }
}
