//! Large answers go out compressed to those who can read that.

use std::io::Write as _;

use axum::body::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
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

/// Compresses an answer that is whole and large; all others pass as they are.
pub(super) async fn compress(response: Response<Body>) -> Response<Body> {
    if response.body().size_hint().exact().is_none_or(|size| size < LEAST) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(whole) = body.collect().await else { return Response::from_parts(parts, Body::empty()) };
    let whole = whole.to_bytes();
    let plain = whole.clone();
    match tokio::task::spawn_blocking(move || gzip(&whole)).await {
        Ok(Ok(small)) => {
            parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            parts.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
            parts.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(parts, Body::from(small))
        }
        Ok(Err(_)) | Err(_) => Response::from_parts(parts, Body::from(plain)),
    }
}

fn gzip(plain: &Bytes) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    encoder.write_all(plain)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[tokio::test]
    async fn only_large_answers_are_compressed_and_read_back_the_same() {
        let large = "{\"some\":\"json\"}".repeat(20_000);
        let answer = compress(Response::new(Body::from(large.clone()))).await;
        assert_eq!(answer.headers()[header::CONTENT_ENCODING], "gzip");
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(bytes.len() < large.len() / 10);
        let mut back = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut back).unwrap();
        assert_eq!(back, large);
        let small = compress(Response::new(Body::from("{}"))).await;
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
