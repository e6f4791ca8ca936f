//! The door for people at the machine: a socket below the agent's root that only root can open. One line of JSON asks, one
//! line answers. It says of a pod what its status has no room for, and has what waits tried again at once. It needs no
//! apiserver and no certificate, so it works when those are what is broken.

mod answer;

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_util::Tasks;
use longshore_util::clock::SharedClock;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::model::LocalPods;

/// The socket's name in the folder of the journal.
const SOCKET: &str = "agent.sock";
/// A question is no longer.
const QUESTION_BYTES: u64 = 4096;
/// Who asks has this long to do so and to take the answer: people take turns.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);

/// Where the socket of an agent is, by its root.
pub fn socket(root: &Path) -> PathBuf {
    root.join("longshore").join(SOCKET)
}

/// Opens the door; where that fails it is said and the agent goes on.
pub fn start(root: &Path, pods: Arc<dyn LocalPods>, clock: SharedClock, tasks: &Tasks) {
    let path = socket(root);
    let listener = match listen(&path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "no socket for longshore why and longshore retry");
            return;
        }
    };
    let token = tasks.token().clone();
    let work = Box::pin(async move {
        token.run_until_cancelled(serve(listener, &*pods, &clock)).await;
        drop(std::fs::remove_file(path));
    });
    drop(longshore_util::spawn(tasks, "control", work));
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        // What an earlier agent left.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn serve(listener: UnixListener, pods: &dyn LocalPods, clock: &SharedClock) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a question at the agent's socket cannot be taken");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        match tokio::time::timeout(PATIENCE, converse(stream, pods, clock)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a question at the agent's socket was not heard to its end"),
            Err(_) => tracing::debug!("somebody at the agent's socket said nothing"),
        }
    }
}

async fn converse(mut stream: UnixStream, pods: &dyn LocalPods, clock: &SharedClock) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    BufReader::new(reader.take(QUESTION_BYTES)).read_line(&mut line).await?;
    let mut answer = answer::to(&line, pods, clock.now()).to_string();
    answer.push('\n');
    writer.write_all(answer.as_bytes()).await?;
    writer.shutdown().await
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use longshore_util::clock::ManualClock;

    use super::*;
    use crate::control::answer::tests::Pods;

    async fn ask(root: &Path, line: &str) -> String {
        let mut stream = UnixStream::connect(socket(root)).await.unwrap();
        stream.write_all(line.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_socket_answers_root_alone_and_outlives_what_an_earlier_agent_left() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("longshore")).unwrap();
        std::fs::write(socket(dir.path()), "left").unwrap();
        let tasks = Tasks::new();
        let pods = Arc::new(Pods::default());
        start(dir.path(), pods.clone(), Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH)), &tasks);
        assert_eq!(std::fs::metadata(socket(dir.path())).unwrap().permissions().mode() & 0o777, 0o600);
        // One that says nothing holds nobody up for long.
        let _silent = UnixStream::connect(socket(dir.path())).await.unwrap();
        let answer = ask(dir.path(), "{\"ask\":\"retry\",\"namespace\":\"ns\",\"name\":\"p\"}\n").await;
        assert!(answer.contains("\"pod\""), "{answer}");
        assert_eq!(*pods.retried.lock(), ["u"]);
        let answer = ask(dir.path(), "nonsense\n").await;
        assert!(answer.contains("\"error\""), "{answer}");
        tasks.cancel();
        tasks.join().await;
        assert!(!socket(dir.path()).exists());
    }
}
