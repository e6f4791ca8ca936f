use super::*;

fn facts(name: &str, attempt: u32) -> PodFacts {
    let mut facts = PodFacts { namespace: "n".into(), name: name.into(), ..PodFacts::default() };
    let instance = InstanceFacts {
        id: format!("c{attempt}").into(),
        attempt,
        sandbox: None,
        hash: String::new(),
        started_at: 5,
        ready: true,
        started: true,
        image: String::new(),
        image_ref: String::new(),
        user: None,
        in_force: None,
        exit: None,
    };
    facts.containers.entry("c".into()).or_default().put(instance);
    facts
}

#[tokio::test]
async fn what_was_put_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, found) = Journal::open(folder.path()).unwrap();
    assert!(found.is_empty());
    let ticket = journal.put(&"a".into(), facts("a", 0));
    journal.written(ticket).await;
    // A killed agent runs no destructor: read beside the live writer.
    let (_, found) = log::Log::open(folder.path()).unwrap();
    assert_eq!(found[&"a".into()], facts("a", 0));
    let _ = journal.put(&"a".into(), facts("a", 1));
    let _ = journal.put(&"b".into(), facts("b", 0));
    let _ = journal.forget(&"b".into());
    journal.flush().await;
    drop(journal);
    let (_, found) = Journal::open(folder.path()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[&"a".into()].containers["c"].instances[0].attempt, 1);
}

#[tokio::test]
async fn a_torn_tail_is_cut_at_every_length() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(folder.path()).unwrap();
    let ticket = journal.put(&"a".into(), facts("a", 0));
    journal.written(ticket).await;
    let ticket = journal.put(&"b".into(), facts("b", 0));
    journal.written(ticket).await;
    drop(journal);
    let path = folder.path().join("journal");
    let whole = std::fs::read(&path).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let (log, found) = log::Log::open(folder.path()).unwrap();
        assert!(found.len() <= 2);
        drop(log);
        // What is left is whole: a second look changes nothing.
        let before = std::fs::read(&path).unwrap();
        let (_, again) = log::Log::open(folder.path()).unwrap();
        assert_eq!(again, found);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[test]
fn a_flipped_bit_never_becomes_a_fact() {
    let folder = tempfile::tempdir().unwrap();
    {
        let (mut log, _) = log::Log::open(folder.path()).unwrap();
        log.append(&[("a".into(), Some(facts("a", 0)))]).unwrap();
    }
    let path = folder.path().join("journal");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(log::Log::open(folder.path()).unwrap().1.is_empty());
}

#[test]
fn a_newer_version_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let payload = br#"{"version":"2","uid":"a","what":1}"#;
    let mut bytes = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(crc::crc32(payload).to_le_bytes());
    bytes.extend(payload);
    std::fs::write(folder.path().join("journal"), bytes).unwrap();
    let error = Journal::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("version 2") && error.contains("move the file away"), "{error}");
}

#[test]
fn the_stored_sample_of_version_1_is_read() {
    let record: facts::Record = serde_json::from_str(
        r#"{"version":"1","uid":"u","facts":{"namespace":"n","name":"p","start_time":"2026-01-01T00:00:00Z",
        "admission":"Admitted","containers":{"c":{"instances":[{"id":"x","attempt":2,"started_at":7,
        "exit":{"code":3,"reason":"Error","finished_at":9}}],
        "backoff":{"delay_ms":10000,"updated":"2026-01-01T00:00:00Z","hash":"h"}}},"end":{"grace_seconds":2}}}"#,
    )
    .unwrap();
    let found = record.facts.unwrap();
    assert_eq!(found.containers["c"].instances[0].exit.as_ref().unwrap().code, 3);
    assert_eq!(found.end.unwrap().grace_seconds, Some(2));
}

/// Sizes came later: a record without them is whole, one with them is read back.
#[test]
fn the_stored_sample_with_sizes_is_read() {
    let record: facts::Record = serde_json::from_str(
        r#"{"version":"1","uid":"u","facts":{"namespace":"n","name":"p","admission":"Admitted",
        "granted":{"containers":{"c":{"requests":{"cpu":"150m"}}}},
        "pending":{"reason":"Deferred","message":"full","generation":3,"since":"2026-01-01T00:00:00Z"},
        "resize":{"generation":2,"before":{"containers":{"c":{"requests":{"cpu":"100m"}}}},"since":"2026-01-01T00:00:00Z"},
        "containers":{"c":{"instances":[{"id":"x","attempt":0,"in_force":{"requests":{"cpu":"100m"}}}]}}}}"#,
    )
    .unwrap();
    let found = record.facts.unwrap();
    let resize = found.resize.as_ref().unwrap();
    assert!(found.granted.as_ref().unwrap().change(&resize.before).cpu);
    assert_eq!(found.containers["c"].instances[0].in_force.as_ref(), resize.before.container("c"));
    let text = serde_json::to_string(&*found).unwrap();
    assert_eq!(serde_json::from_str::<PodFacts>(&text).unwrap(), *found);
}

#[test]
fn compaction_keeps_the_newest_only_and_the_mode() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let (mut log, _) = log::Log::open(folder.path()).unwrap();
    for attempt in 0..50 {
        log.append(&[("a".into(), Some(facts("a", attempt)))]).unwrap();
    }
    let path = folder.path().join("journal");
    let before = std::fs::metadata(&path).unwrap().len();
    log.compact().unwrap();
    log.append(&[("b".into(), Some(facts("b", 0)))]).unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    assert!(meta.len() < before / 10);
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    let (_, found) = log::Log::open(folder.path()).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[&"a".into()].containers["c"].instances[0].attempt, 49);
}
