//! A long list's text, put together while it goes out: the objects' own bytes are shared with the store, so that a list
//! costs no memory of its own however many read it at a time, and however slowly.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use longshore_util::fair;

use crate::store::Text;

/// Bytes handed out at a time; small objects are put together into one piece.
const PIECE: usize = 256 << 10;

/// What stands behind the last object.
const END: &[u8] = b"]}";

/// The text of a list whose objects are still apart.
#[derive(Debug)]
pub(super) struct ListBody {
    /// What is to be written next, if it is not an object.
    head: Bytes,
    items: std::vec::IntoIter<Text>,
    first: bool,
    left: usize,
}

impl ListBody {
    /// Returns the text that begins with `head`, up to the bracket, and has these objects.
    pub(super) fn new(head: Vec<u8>, items: Vec<Text>) -> Self {
        let commas = items.len().saturating_sub(1);
        let left = head.len() + items.iter().map(Text::len).sum::<usize>() + commas + END.len();
        Self { head: head.into(), items: items.into_iter(), first: true, left }
    }

    /// Returns all of it in one.
    pub(super) fn join(mut self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.left);
        while self.left > 0 {
            self.fill(&mut out, usize::MAX);
        }
        out.freeze()
    }

    /// Writes on until there is so much.
    fn fill(&mut self, out: &mut BytesMut, most: usize) {
        let before = out.len();
        out.extend_from_slice(&std::mem::take(&mut self.head));
        while out.len() < most {
            let Some(item) = self.items.next() else {
                out.extend_from_slice(END);
                break;
            };
            if !std::mem::take(&mut self.first) {
                out.extend_from_slice(b",");
            }
            item.write(out);
        }
        self.left = self.left.saturating_sub(out.len() - before);
    }
}

impl Body for ListBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        // A client with a large window would have all of it put together before anybody else's request is looked at.
        ready!(fair::poll_turn(cx));
        fair::charge(cx, PIECE);
        let mut piece = BytesMut::with_capacity(PIECE.min(this.left) + (PIECE >> 2));
        this.fill(&mut piece, PIECE);
        Poll::Ready(Some(Ok(Frame::data(piece.freeze()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.left).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn pieces_are_the_whole_and_their_length_is_told() {
        for (count, size) in [(0, 1), (1, 10), (2, 10), (3, 70_000), (500, 1000), (1, 200_000)] {
            let items: Vec<Bytes> = (0..count).map(|index| format!("{{{index}{}}}", "x".repeat(size)).into()).collect();
            let texts: Vec<&str> = items.iter().map(|item| std::str::from_utf8(item).unwrap()).collect();
            let want = format!("{{\"items\":[{}]}}", texts.join(","));
            let body = || ListBody::new(b"{\"items\":[".to_vec(), items.iter().cloned().map(Text::from).collect());
            assert_eq!(body().join(), want);
            assert_eq!(body().size_hint().exact(), Some(want.len() as u64));
            let mut body = body();
            let mut found = Vec::new();
            while let Some(frame) = body.frame().await {
                let data = frame.unwrap().into_data().unwrap();
                assert!(!data.is_empty());
                found.extend_from_slice(&data);
                assert_eq!(body.left, want.len() - found.len());
            }
            assert!(body.is_end_stream());
            assert_eq!(found, want.as_bytes());
        }
    }
}
