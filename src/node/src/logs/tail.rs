//! Where the last lines of a file begin. Blocking: for `spawn_blocking`.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use super::LogOptions;
use super::write::{Next, Output};

const BLOCK: u64 = 32 * 1024;
/// Of a file whose end holds this much without a newline no more is read.
const LONGEST_TAIL: u64 = 8 * 1024 * 1024;

/// Returns the offset at which the last `lines` lines before `end` begin, and how many there are if there are fewer. A last
/// line without newline counts.
pub(super) fn start_of_last(file: &mut File, end: u64, lines: u64) -> io::Result<(u64, u64)> {
    if lines == 0 {
        return Ok((end, 0));
    }
    let mut block = vec![0u8; usize::try_from(BLOCK).unwrap_or(usize::MAX)];
    let mut high = end;
    let mut seen = 0u64;
    while high > 0 {
        let low = high.saturating_sub(BLOCK);
        let size = usize::try_from(high - low).unwrap_or(block.len());
        file.seek(SeekFrom::Start(low))?;
        file.read_exact(&mut block[..size])?;
        for (index, _) in block[..size].iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let after = low + u64::try_from(index).unwrap_or(0) + 1;
            // The newline that ends the last line begins none.
            if after == end {
                continue;
            }
            seen += 1;
            if seen == lines {
                return Ok((after, lines));
            }
        }
        high = low;
    }
    Ok((0, seen + u64::from(end > 0)))
}

/// Returns the end of a container's output: at most `lines` lines of the file and the last `bytes` bytes of these. For
/// termination messages taken from the log.
pub fn last_lines(path: &Path, lines: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let end = file.seek(SeekFrom::End(0))?;
    let (start, _) = start_of_last(&mut file, end, lines)?;
    let start = start.max(end.saturating_sub(LONGEST_TAIL));
    file.seek(SeekFrom::Start(start))?;
    let mut raw = Vec::new();
    file.take(LONGEST_TAIL).read_to_end(&mut raw)?;
    let mut output = Output::new(&LogOptions::default());
    let mut text = Vec::new();
    for line in raw.split_inclusive(|byte| *byte == b'\n') {
        if output.line(line, &mut text) == Next::Full {
            break;
        }
    }
    Ok(text.split_off(text.len().saturating_sub(bytes)))
}
