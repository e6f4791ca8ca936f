//! Drops etcd's old history. Several apiservers agree through one key, as stock ones do: whoever writes it drops what
//! was there one period ago.

use std::time::Duration;

use longshore_util::Tasks;
use tonic::Status;

use super::wire::{self, pb};
use super::{Hub, unsigned};

/// The key that stock apiservers use for this too.
const KEY: &[u8] = b"compact_rev_key";

pub(super) fn start(hub: Hub, age: Duration, tasks: &Tasks) {
    let token = tasks.token().clone();
    let work = async move {
        let (mut version, mut before) = (0, 0);
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(age) => {}
            }
            match round(&hub, version, before).await {
                Ok((seen, now)) => (version, before) = (seen, now),
                Err(status) => tracing::warn!(error = wire::describe(&status), "etcd's old history is not dropped"),
            }
        }
    };
    longshore_util::spawn(tasks, "etcd-tidy", work);
}

/// One try. Returns the key's version and etcd's revision now.
async fn round(hub: &Hub, version: i64, before: i64) -> Result<(i64, i64), Status> {
    let put = pb::PutRequest { key: KEY.to_vec(), value: before.to_string().into_bytes() };
    let wanted = pb::compare::TargetUnion::Version(version);
    let answer = hub.wire.guarded(KEY.to_vec(), wanted, pb::request_op::Request::RequestPut(put)).await?;
    let now = answer.header.map_or(0, |header| header.revision);
    if !answer.succeeded {
        // Another apiserver was faster; its version is the one to beat next time.
        let seen = answer.responses.into_iter().find_map(|response| match response.response {
            Some(pb::response_op::Response::ResponseRange(range)) => range.kvs.first().map(|kv| kv.version),
            _ => None,
        });
        return Ok((seen.unwrap_or(0), now));
    }
    if before > 0 {
        hub.wire.compact(before).await?;
        tracing::debug!(revision = unsigned(before), "dropped etcd's older history");
    }
    Ok((version + 1, now))
}
