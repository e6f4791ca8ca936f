//! The last word of a command's session. Over SPDY a client takes a connection that simply ends for a command that ended
//! well, so one whose other half broke must not end without a word.
//!
//! Only the lengths of frames and the stream that tells how the command ended are looked at: it is the first that a client
//! opens. When the far side is gone without having said anything on it, a frame is put there that says so.

use http::header::HeaderMap;

/// Clients open the stream that tells of the end first, and theirs have odd numbers.
const ERROR_STREAM: u32 = 1;
const HEAD: usize = 8;
const CONTROL: u8 = 0x80;
const LAST: u8 = 0x01;
/// No more of a frame that was begun is filled up; senders make theirs half as long.
const FILLED: usize = 64 * 1024;
/// Control frame that ends one stream.
const RESET: u16 = 3;

const TEXT: &[u8] = br#"{"metadata":{},"status":"Failure","message":"the connection to the container was lost before the command had ended","reason":"InternalError","code":500}"#;

/// Whether an answer begins a session in which the end of a command is told.
pub(super) fn is_told_of_the_end(protocol: &[u8], answer: &HeaderMap) -> bool {
    let version = answer.get("x-stream-protocol-version").and_then(|version| version.to_str().ok());
    protocol.eq_ignore_ascii_case(b"SPDY/3.1") && version.is_some_and(|version| version.ends_with("channel.k8s.io"))
}

/// Follows what the far side sends.
#[derive(Debug, Default)]
pub(super) struct LastWord {
    head: [u8; HEAD],
    have: usize,
    /// Bytes of the present frame that are still to come.
    left: usize,
    said: bool,
    /// Nobody knows what arrived of the last piece.
    torn: bool,
}

impl LastWord {
    /// Bytes are about to be passed on.
    pub(super) fn passing(&mut self) {
        self.torn = true;
    }

    /// They were passed on.
    pub(super) fn passed(&mut self, mut bytes: &[u8]) {
        self.torn = false;
        while !bytes.is_empty() {
            if self.left > 0 {
                let skip = self.left.min(bytes.len());
                self.left -= skip;
                bytes = bytes.get(skip..).unwrap_or_default();
                continue;
            }
            let Some((first, rest)) = bytes.split_first() else { return };
            if let Some(place) = self.head.get_mut(self.have) {
                *place = *first;
            }
            self.have += 1;
            bytes = rest;
            if self.have == HEAD {
                self.have = 0;
                self.begin();
            }
        }
    }

    fn begin(&mut self) {
        let [a, b, c, d, flags, x, y, z] = self.head;
        self.left = usize::try_from(u32::from_be_bytes([0, x, y, z])).unwrap_or(usize::MAX);
        if a & CONTROL == 0 {
            let stream = u32::from_be_bytes([a, b, c, d]);
            self.said |= stream == ERROR_STREAM && (self.left > 0 || flags & LAST != 0);
        } else if u16::from_be_bytes([c, d]) == RESET {
            // Which stream it is stands in the body; a far side that resets streams has its reasons.
            self.said = true;
        }
    }

    /// The frame to send in the far side's place, if it has gone without a word; what it began to send is filled up.
    pub(super) fn missing(&self) -> Option<Vec<u8>> {
        if self.said || self.torn || self.have > 0 || self.left > FILLED {
            return None;
        }
        let mut frame = vec![0; self.left];
        frame.extend(ERROR_STREAM.to_be_bytes());
        let [_, x, y, z] = u32::try_from(TEXT.len()).unwrap_or(0).to_be_bytes();
        frame.extend([LAST, x, y, z]);
        frame.extend(TEXT);
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, x, y, z] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&stream.to_be_bytes()[..], &[flags, x, y, z], payload].concat()
    }

    fn after(pieces: &[&[u8]]) -> Option<Vec<u8>> {
        let mut word = LastWord::default();
        for piece in pieces {
            word.passing();
            word.passed(piece);
        }
        word.missing()
    }

    #[test]
    fn a_session_that_broke_is_given_a_last_word_wherever_its_frames_were_cut() {
        let sent = [data(3, 0, b"output"), vec![0x80, 3, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1]].concat();
        let whole = after(&[&sent]).unwrap();
        assert_eq!(whole, data(ERROR_STREAM, LAST, TEXT));
        for cut in 0..sent.len() {
            assert_eq!(after(&[&sent[..cut], &sent[cut..]]).unwrap(), whole, "cut at {cut}");
        }
        let half = after(&[&sent[..10]]).unwrap();
        assert_eq!(half, [&[0; 4][..], &whole].concat(), "what was begun is filled up");
    }

    #[test]
    fn a_session_that_told_its_end_is_left_alone() {
        assert_eq!(after(&[&data(ERROR_STREAM, 0, b"{}")]), None);
        assert_eq!(after(&[&data(ERROR_STREAM, LAST, b"")]), None);
        assert_eq!(after(&[&[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1]]), None);
        assert!(after(&[&data(ERROR_STREAM, 0, b"")]).is_some());
        assert!(serde_json::from_slice::<serde_json::Value>(TEXT).is_ok());
    }

    #[test]
    fn only_commands_over_spdy_are_meant() {
        let mut answer = HeaderMap::new();
        assert!(!is_told_of_the_end(b"SPDY/3.1", &answer));
        answer.insert("x-stream-protocol-version", "portforward.k8s.io".parse().unwrap());
        assert!(!is_told_of_the_end(b"SPDY/3.1", &answer));
        answer.insert("x-stream-protocol-version", "v4.channel.k8s.io".parse().unwrap());
        assert!(is_told_of_the_end(b"spdy/3.1", &answer) && !is_told_of_the_end(b"websocket", &answer));
    }
}
