//! Reading bodies with a cap, so that no peer can fill our memory.

use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is longer than allowed.
    #[error("body is longer than {limit} bytes")]
    TooLarge {
        /// What was allowed.
        limit: usize,
    },
    /// The connection broke.
    #[error("reading the body: {0}")]
    Broken(String),
}

/// Reads a whole body of at most `limit` bytes.
pub async fn read<B>(body: B, limit: usize) -> Result<Bytes, BodyError>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    // A length that is announced too long need not be read at all.
    if body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Err(BodyError::TooLarge { limit });
    }
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge { limit }),
        Err(error) => Err(BodyError::Broken(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn a_body_up_to_the_limit_is_read_and_one_byte_more_is_refused() {
        assert_eq!(read(Body::from("12345"), 5).await.unwrap(), "12345");
        assert!(matches!(read(Body::from("123456"), 5).await, Err(BodyError::TooLarge { limit: 5 })));
    }

    #[tokio::test]
    async fn a_body_without_a_length_is_cut_off_too() {
        let chunks = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(b"xxxx")));
        assert!(matches!(read(Body::from_stream(chunks), 10).await, Err(BodyError::TooLarge { .. })));
    }
}
