//! Lists as a client without a parser reads them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http_body_util::BodyExt as _;

use super::Wire;

/// A list that was read.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// From the request to the last byte.
    pub took: Duration,
    /// Bytes as they came.
    pub bytes: usize,
}

/// Reads a list to its end; the bytes are counted and dropped.
pub async fn listing(wire: &Wire, path: &str, gzip: bool) -> Result<Read> {
    let begin = Instant::now();
    let mut body = wire.open(path, gzip).await?;
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes += data.len();
        }
    }
    Ok(Read { took: begin.elapsed(), bytes })
}

/// Reads a list in pages; returns also how many there were.
pub async fn pages(wire: &Wire, path: &str, limit: usize) -> Result<(Read, usize)> {
    const BEFORE: &str = "\"continue\":\"";
    let begin = Instant::now();
    let (mut bytes, mut count, mut page) = (0, 0, String::new());
    loop {
        let answer = wire.get(&format!("{path}?limit={limit}{page}")).await?.good()?;
        bytes += answer.body.len();
        count += 1;
        ensure!(count < 10_000, "{path} has no last page");
        // It stands in the list's metadata, before all items.
        let head = String::from_utf8_lossy(&answer.body[..answer.body.len().min(600)]).into_owned();
        let metadata = head.split_once("\"items\":[").map_or(&*head, |(before, _)| before);
        match metadata.split_once(BEFORE).and_then(|(_, rest)| rest.split_once('"')) {
            Some((token, _)) => page = format!("&continue={token}"),
            None => return Ok((Read { took: begin.elapsed(), bytes }, count)),
        }
    }
}
