use k8s_openapi::api::core::v1::PodStatus;

use super::*;
use crate::model::annotations::CONFIG_REVISION;
use crate::source::fixture::{Recorder, clock, pod};

fn mux(sources: &[SourceKind]) -> (Mux, Arc<Recorder>) {
    let recorder = Recorder::new();
    let sink: Arc<dyn PodSink> = recorder.clone();
    let events = EventRecorder::log_only(clock());
    (Mux::new(sources.iter().copied(), sink, clock(), events), recorder)
}

#[test]
fn nothing_is_ready_before_every_source_has_spoken() {
    let (mux, seen) = mux(&[SourceKind::Api, SourceKind::File]);
    mux.replace(SourceKind::File, vec![pod("a", "1", "i", "1")]);
    mux.apply(SourceKind::Api, pod("b", "2", "i", "1"));
    assert_eq!(seen.take(), ["set a", "set b"]);
    mux.replace(SourceKind::Api, vec![pod("b", "2", "i", "1")]);
    assert_eq!(seen.take(), ["ready"]);
    mux.replace(SourceKind::Api, vec![]);
    assert_eq!(seen.take(), ["remove 2"]);
}

#[test]
fn a_node_without_sources_is_ready_at_once() {
    let (_mux, seen) = mux(&[]);
    assert_eq!(seen.take(), ["ready"]);
}

#[test]
fn what_did_not_change_is_not_passed_on() {
    let (mux, seen) = mux(&[SourceKind::Api]);
    mux.replace(SourceKind::Api, vec![pod("a", "1", "i", "1")]);
    seen.take();
    mux.apply(SourceKind::Api, pod("a", "1", "i", "2"));
    assert!(seen.take().is_empty());
    let mut running = pod("a", "1", "i", "3");
    running.status = Some(PodStatus { phase: Some("Running".into()), ..PodStatus::default() });
    mux.apply(SourceKind::Api, running.clone());
    assert_eq!(seen.take(), ["status a"]);
    running.metadata.deletion_grace_period_seconds = Some(3);
    mux.apply(SourceKind::Api, running);
    assert_eq!(seen.take(), ["set a"]);
    mux.apply(SourceKind::Api, pod("a", "1", "other", "5"));
    assert_eq!(seen.take(), ["set a"]);
}

#[test]
fn pods_are_stamped_with_source_and_first_sight() {
    let (mux, seen) = mux(&[SourceKind::File]);
    mux.replace(SourceKind::File, vec![pod("a", "1", "i", "1")]);
    let change = seen.changes.lock()[0].clone();
    let PodChange::Set(desired) = change else { panic!("{change:?}") };
    let notes = desired.pod.metadata.annotations.clone().unwrap();
    assert_eq!((notes[CONFIG_SOURCE].as_str(), notes[CONFIG_SEEN].as_str()), ("file", "2026-01-02T03:04:05Z"));
}

#[test]
fn a_second_pod_of_a_name_waits_for_the_first_to_go() {
    let (mux, seen) = mux(&[SourceKind::Api, SourceKind::File]);
    mux.replace(SourceKind::File, vec![pod("a", "1", "i", "1"), pod("a", "2", "other", "1")]);
    mux.replace(SourceKind::Api, vec![pod("a", "3", "i", "1")]);
    assert_eq!(seen.take(), ["set a", "ready"]);
    mux.replace(SourceKind::File, vec![pod("a", "2", "other", "1")]);
    assert_eq!(seen.take(), ["remove 1", "set a"]);
    mux.replace(SourceKind::File, vec![]);
    assert_eq!(seen.take(), ["remove 2", "set a"]);
    mux.remove(SourceKind::Api, &PodUid::from("3"));
    assert_eq!(seen.take(), ["remove 3"]);
}

#[test]
fn one_uid_in_two_manifests_runs_once() {
    let (mux, seen) = mux(&[SourceKind::File]);
    mux.replace(SourceKind::File, vec![pod("a", "1", "i", "1"), pod("b", "1", "i", "1")]);
    assert_eq!(seen.take(), ["set a", "ready"]);
}

#[test]
fn an_api_pod_made_anew_replaces_the_old_one_also_when_its_end_was_missed() {
    let (mux, seen) = mux(&[SourceKind::Api]);
    mux.replace(SourceKind::Api, vec![pod("a", "1", "i", "1")]);
    mux.apply(SourceKind::Api, pod("a", "2", "i", "9"));
    assert_eq!(seen.take(), ["set a", "ready", "remove 1", "set a"]);
    mux.remove(SourceKind::Api, &PodUid::from("1"));
    assert!(seen.take().is_empty());
}

#[test]
fn a_given_uid_with_another_name_or_manifest_is_a_new_pod() {
    let (mux, seen) = mux(&[SourceKind::File]);
    let of = |name: &str, revision: &str| {
        let mut pod = pod(name, "1", "i", "1");
        pod.metadata.annotations = Some([(CONFIG_REVISION.to_owned(), revision.to_owned())].into());
        pod
    };
    mux.replace(SourceKind::File, vec![of("a", "x")]);
    mux.replace(SourceKind::File, vec![of("a", "x")]);
    assert_eq!(seen.take(), ["set a", "ready"]);
    mux.replace(SourceKind::File, vec![of("a", "y")]);
    assert_eq!(seen.take(), ["remove 1", "set a"]);
    mux.replace(SourceKind::File, vec![of("b", "y")]);
    assert_eq!(seen.take(), ["remove 1", "set b"]);
    // Nobody of the API may do this to a pod by an annotation.
    let (mux, seen) = self::mux(&[SourceKind::Api]);
    mux.replace(SourceKind::Api, vec![of("a", "x")]);
    mux.replace(SourceKind::Api, vec![of("a", "y")]);
    assert_eq!(seen.take(), ["set a", "ready", "set a"]);
}

#[test]
fn the_first_file_of_a_name_keeps_it_when_it_is_edited() {
    let (mux, seen) = mux(&[SourceKind::File]);
    let second = pod("a", "2", "i", "1");
    mux.replace(SourceKind::File, vec![pod("a", "1", "i", "1"), second.clone()]);
    mux.replace(SourceKind::File, vec![pod("a", "3", "new", "1"), second.clone()]);
    assert_eq!(seen.take(), ["set a", "ready", "remove 1", "set a"]);
    assert!(!seen.changes.lock().iter().any(|change| matches!(change, PodChange::Set(pod) if pod.uid.as_str() == "2")));
    mux.replace(SourceKind::File, vec![second]);
    assert_eq!(seen.take(), ["remove 3", "set a"]);
    // Let in, it waits no more: when its file goes, it goes.
    mux.replace(SourceKind::File, vec![]);
    assert_eq!(seen.take(), ["remove 2"]);
}

#[test]
fn everyone_who_waited_for_a_pod_that_went_comes_in() {
    let (mux, seen) = mux(&[SourceKind::File, SourceKind::Http]);
    mux.replace(SourceKind::File, vec![pod("a", "1", "i", "1")]);
    mux.replace(SourceKind::Http, vec![pod("a", "2", "i", "1"), pod("c", "1", "i", "1")]);
    assert_eq!(seen.take(), ["set a", "ready"]);
    mux.replace(SourceKind::File, vec![]);
    assert_eq!(seen.take(), ["remove 1", "set a", "set c"]);
}
