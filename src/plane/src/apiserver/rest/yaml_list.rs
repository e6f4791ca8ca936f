//! A long list in YAML, put together while it goes out: a whole one would be held in memory ten times over, and for as long
//! as its client likes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use longshore_util::{fair, yaml};
use serde_json::{Value, json};

use crate::apiserver::object::parse;
use crate::store::Text;

/// Bytes handed out at a time, at least.
const PIECE: usize = 64 << 10;

/// What writing a byte of YAML takes, in bytes that are sent.
const EFFORT: usize = 8;

/// The text of a list whose objects are still apart.
#[derive(Debug)]
pub(super) struct YamlList {
    /// What stands before the objects, until it is out.
    head: String,
    items: std::vec::IntoIter<Text>,
    /// What stands behind them, until it is out.
    tail: String,
}

impl YamlList {
    /// Returns the list of these objects, of which there is at least one.
    pub(super) fn new(kind: &str, api_version: &str, metadata: &Value, items: Vec<Text>) -> io::Result<Self> {
        let head = format!("{}items:\n", write(&json!({"apiVersion": api_version}))?);
        let tail = write(&json!({"kind": kind, "metadata": metadata}))?;
        Ok(Self { head, items: items.into_iter(), tail })
    }

    /// Writes on; nothing if all is written.
    fn fill(&mut self) -> io::Result<String> {
        let mut out = std::mem::take(&mut self.head);
        while out.len() < PIECE {
            let Some(item) = self.items.next() else {
                out.push_str(&std::mem::take(&mut self.tail));
                break;
            };
            let object = parse(&item.bytes()).map_err(|error| io::Error::other(error.to_string()))?;
            let mut begin = "- ";
            for line in write(&object)?.split_inclusive('\n') {
                // An empty line belongs to a text, and is the same at every depth.
                if line != "\n" {
                    out.push_str(begin);
                }
                out.push_str(line);
                begin = "  ";
            }
        }
        Ok(out)
    }
}

fn write(value: &Value) -> io::Result<String> {
    yaml::to_string(value).map_err(io::Error::other)
}

impl Body for YamlList {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        ready!(fair::poll_turn(cx));
        let piece = match this.fill() {
            Ok(piece) if piece.is_empty() => return Poll::Ready(None),
            Ok(piece) => piece,
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        fair::charge(cx, piece.len() * EFFORT);
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_list_in_pieces_is_the_text_of_the_whole() {
        let text = "first\n\n  - third: x\n\ttabbed \n\n";
        let items: Vec<Value> = (0..400)
            .map(|index| {
                json!({"kind": "ConfigMap", "metadata": {"name": format!("c{index}"), "labels": {}},
                "data": {"plain": "x", "text": text, "end": "a\nb", "blank": "\n", "indented": "  x\n y\n", "list": [[1, [2]], [], {"a": []}],
                    "long": "y ".repeat(200)}})
            })
            .collect();
        let metadata = json!({"resourceVersion": "7", "continue": "x"});
        for count in [1, 2, 400] {
            let texts = items.iter().take(count).map(|item| Text::from(Bytes::from(item.to_string()))).collect();
            let body = YamlList::new("ConfigMapList", "v1", &metadata, texts).unwrap();
            let found = body.collect().await.unwrap().to_bytes();
            let whole =
                json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": &items[..count]});
            assert_eq!(std::str::from_utf8(&found).unwrap(), yaml::to_string(&whole).unwrap());
        }
    }

    #[tokio::test]
    async fn a_damaged_object_ends_the_list_with_an_error() {
        let texts = vec![Text::from(Bytes::from_static(b"{}")), Text::from(Bytes::from_static(b"{"))];
        assert!(YamlList::new("L", "v1", &json!({}), texts).unwrap().collect().await.is_err());
    }
}
