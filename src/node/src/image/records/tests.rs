use jiff::Timestamp;
use longshore_cri::fake::{FakeOptions, FakeRuntime};
use longshore_cri::v1;
use longshore_util::clock::ManualClock;

use super::*;
use crate::image::login::Origin;

const IMAGE: &str = "reg.example.com/a:1";
const REF: &str = "sha256:1";

fn records(root: &Path) -> Records {
    let clock = Arc::new(ManualClock::new(Timestamp::from_second(1_000_000).unwrap()));
    Records::open(root, VerifyPolicy::NotPreloaded, clock).unwrap()
}

fn secret(name: &str, word: &str) -> Login {
    let origin = Origin { uid: format!("uid-{name}"), namespace: "n".into(), name: name.into() };
    Login { source: Source::Secret(origin), ..node(word) }
}

fn node(word: &str) -> Login {
    let auth = v1::AuthConfig { username: "me".into(), password: word.into(), ..Default::default() };
    Login { auth, source: Source::Node }
}

fn account(name: &str) -> Login {
    let origin = Origin { uid: format!("uid-{name}"), namespace: "n".into(), name: name.into() };
    Login { source: Source::ServiceAccount(origin), ..node("x") }
}

#[tokio::test]
async fn what_others_brought_is_free_and_what_a_login_brought_is_not() {
    let root = tempfile::tempdir().unwrap();
    let notes = records(root.path());
    assert_eq!(notes.proof(IMAGE, REF), Proof::None);
    notes.begin(IMAGE).await.unwrap();
    assert_eq!(notes.proof(IMAGE, REF), Proof::Pull);
    notes.pulled(IMAGE, REF, Some(&secret("s", "word"))).await;
    assert_eq!(notes.proof(IMAGE, REF), Proof::Login);
    // The same image under another name was never proven.
    assert_eq!(notes.proof("reg.example.com/b:1", REF), Proof::Pull);
    assert_eq!(notes.proof("reg.example.com/a:2", REF), Proof::Login);
    for (logins, want) in [
        (vec![], false),
        (vec![secret("t", "other")], false),
        (vec![node("word")], false),
        (vec![secret("t", "word")], true),
        (vec![secret("s", "changed")], true),
    ] {
        assert_eq!(notes.accepts(IMAGE, REF, &logins).await, want, "{logins:?}");
    }
    // What was accepted by its content is known by its name from then on.
    assert!(notes.accepts(IMAGE, REF, &[secret("t", "changed too")]).await);
}

#[tokio::test]
async fn an_image_that_needed_no_login_is_free() {
    for login in [None, Some(node("word"))] {
        let root = tempfile::tempdir().unwrap();
        let notes = records(root.path());
        notes.begin(IMAGE).await.unwrap();
        notes.pulled(IMAGE, REF, login.as_ref()).await;
        assert_eq!(notes.proof(IMAGE, REF), Proof::None);
        notes.pulled(IMAGE, REF, Some(&secret("s", "word"))).await;
        assert_eq!(notes.proof(IMAGE, REF), Proof::None);
    }
}

#[tokio::test]
async fn an_account_is_known_again() {
    let root = tempfile::tempdir().unwrap();
    let notes = records(root.path());
    notes.pulled(IMAGE, REF, Some(&account("a"))).await;
    assert_eq!(notes.proof(IMAGE, REF), Proof::Login);
    assert!(notes.accepts(IMAGE, REF, &[account("a")]).await);
    assert!(!notes.accepts(IMAGE, REF, &[account("b")]).await);
}

#[tokio::test]
async fn notes_outlive_the_agent() {
    let root = tempfile::tempdir().unwrap();
    let notes = records(root.path());
    notes.begin(IMAGE).await.unwrap();
    notes.pulled(IMAGE, REF, Some(&secret("s", "word"))).await;
    notes.begin("reg.example.com/b:1").await.unwrap();
    assert_eq!(notes.counts(), (1, 1));
    drop(notes);
    let notes = records(root.path());
    assert_eq!(notes.counts(), (1, 1));
    assert_eq!(notes.proof(IMAGE, REF), Proof::Login);
    assert!(notes.accepts(IMAGE, REF, &[secret("s", "word")]).await);
    // The agent died in the middle of this pull: the image may have come.
    assert_eq!(notes.proof("reg.example.com/b:1", "sha256:2"), Proof::Pull);
}

#[tokio::test]
async fn open_ends_are_settled_with_the_runtime() {
    let root = tempfile::tempdir().unwrap();
    let runtime = FakeRuntime::new(FakeOptions { any_image: true, ..FakeOptions::default() });
    let images: SharedImages = Arc::new(runtime.clone());
    let spec = v1::ImageSpec { image: IMAGE.into(), ..Default::default() };
    let came = images.pull_image(v1::PullImageRequest { image: Some(spec), ..Default::default() }).await.unwrap();
    let notes = records(root.path());
    for image in [IMAGE, "reg.example.com/gone:1"] {
        notes.begin(image).await.unwrap();
    }
    notes.pulled("reg.example.com/old:1", "sha256:old", None).await;
    drop(notes);
    let clock = Arc::new(ManualClock::new(Timestamp::from_second(2_000_000).unwrap()));
    let notes = Records::open(root.path(), VerifyPolicy::NotPreloaded, clock).unwrap();
    assert!(notes.reconcile(&images).await);
    assert_eq!(notes.counts(), (0, 1));
    assert_eq!(notes.proof(IMAGE, &came.image_ref), Proof::Pull);
    assert_eq!(records(root.path()).counts(), (0, 1));
}

#[tokio::test]
async fn a_pull_that_two_make_ends_with_the_second() {
    let root = tempfile::tempdir().unwrap();
    let notes = records(root.path());
    notes.begin(IMAGE).await.unwrap();
    notes.begin(IMAGE).await.unwrap();
    notes.failed(IMAGE).await;
    assert_eq!(records(root.path()).counts(), (1, 0));
    notes.failed(IMAGE).await;
    assert_eq!(records(root.path()).counts(), (0, 0));
}

#[tokio::test]
async fn an_image_is_not_pulled_when_the_intent_cannot_be_written() {
    let root = tempfile::tempdir().unwrap();
    let notes = records(root.path());
    std::fs::remove_dir_all(root.path().join("image_manager")).unwrap();
    assert!(notes.begin(IMAGE).await.unwrap_err().starts_with("failed to record image pull intent"));
    assert_eq!(notes.counts(), (0, 0));
}
