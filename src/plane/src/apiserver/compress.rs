//! Large answers go out compressed to those who can read that.

use std::io::Write as _;

use axum::body::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;

/// Below this it is not worth the while, as upstream has it.
const LEAST: u64 = 128 << 10;

/// Whether a client reads gzip.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim().eq_ignore_ascii_case("gzip") && quality.trim() != "q=0"
    })
}

/// So much is compressed before others have their turn.
const STEP: usize = 64 << 10;

/// So much is sent at a time.
const PIECE: usize = 16 << 10;

/// Compresses an answer whose length is known and large, while it goes out; all others pass as they are.
pub(super) fn compress(response: Response<Body>) -> Response<Body> {
    if response.body().size_hint().exact().is_none_or(|size| size < LEAST) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    parts.headers.remove(header::CONTENT_LENGTH);
    let zip =
        Zip { body, plain: Bytes::new(), encoder: GzEncoder::new(Vec::with_capacity(PIECE), Compression::fast()) };
    let pieces = stream::unfold(Some(zip), |zip| async move {
        let mut zip = zip?;
        match zip.next().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(zip))),
            Ok(None) => zip.encoder.finish().map_or_else(
                |error| Some((Err(axum::Error::new(error)), None)),
                |last| Some((Ok(Bytes::from(last)), None)),
            ),
            // Cut off, so that nobody takes it for the whole.
            Err(error) => Some((Err(error), None)),
        }
    });
    Response::from_parts(parts, Body::from_stream(pieces))
}

/// A body on its way through the compressor.
struct Zip {
    body: Body,
    plain: Bytes,
    encoder: GzEncoder<Vec<u8>>,
}

impl Zip {
    /// Returns the next piece; none when only the compressor's last words are left.
    async fn next(&mut self) -> Result<Option<Bytes>, axum::Error> {
        loop {
            while self.plain.is_empty() {
                match self.body.frame().await {
                    None => return Ok(None),
                    Some(frame) => self.plain = frame?.into_data().unwrap_or_default(),
                }
            }
            let step = self.plain.split_to(STEP.min(self.plain.len()));
            self.encoder.write_all(&step).map_err(axum::Error::new)?;
            if self.encoder.get_ref().len() >= PIECE {
                return Ok(Some(std::mem::take(self.encoder.get_mut()).into()));
            }
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[tokio::test]
    async fn only_large_answers_are_compressed_and_read_back_the_same() {
        let large = "{\"some\":\"json\"}".repeat(20_000);
        let answer = compress(Response::new(Body::from(large.clone())));
        assert_eq!(answer.headers()[header::CONTENT_ENCODING], "gzip");
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(bytes.len() < large.len() / 10);
        let mut back = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut back).unwrap();
        assert_eq!(back, large);
        let small = compress(Response::new(Body::from("{}")));
        assert!(small.headers().get(header::CONTENT_ENCODING).is_none());
    }

    #[test]
    fn a_client_says_what_it_reads() {
        let headers = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, value.parse().unwrap());
            headers
        };
        assert!(is_wanted(&headers("gzip")) && is_wanted(&headers("deflate, GZIP;q=0.5")));
        assert!(!is_wanted(&headers("identity")) && !is_wanted(&headers("gzip;q=0")) && !is_wanted(&HeaderMap::new()));
    }
}
