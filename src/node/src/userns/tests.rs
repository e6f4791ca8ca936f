use super::*;

fn ranges(folder: &Path) -> UserRanges {
    UserRanges::open(folder.to_owned(), Span::usual(65536))
}

fn uid(folder: &Path, name: &str) -> PodUid {
    std::fs::create_dir_all(folder.join(name)).unwrap();
    name.into()
}

#[test]
fn no_two_pods_have_the_same_ids_and_they_outlive_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (uid(folder.path(), "a"), uid(folder.path(), "b"));
    let before = ranges(folder.path());
    assert_eq!(before.of(&a).unwrap(), UserRange { first: 65536, length: 65536 });
    assert_eq!(before.of(&a).unwrap().first, 65536);
    assert_eq!(before.of(&b).unwrap().first, 131_072);
    assert_eq!(
        std::fs::read_to_string(folder.path().join("a/userns")).unwrap(),
        r#"{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}"#
    );
    let after = ranges(folder.path());
    let c = uid(folder.path(), "c");
    assert_eq!(after.of(&c).unwrap().first, 196_608);
    assert_eq!(after.of(&a).unwrap().first, 65536);
}

#[test]
fn ids_are_given_again_only_once_the_folder_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (uid(folder.path(), "a"), uid(folder.path(), "b"));
    let ranges = ranges(folder.path());
    ranges.of(&a).unwrap();
    std::fs::remove_dir_all(folder.path().join("a")).unwrap();
    ranges.release(&a);
    assert_eq!(ranges.of(&b).unwrap().first, 65536);
}

#[test]
fn a_range_that_cannot_be_noted_is_not_given() {
    let folder = tempfile::tempdir().unwrap();
    let ranges = ranges(folder.path());
    assert!(matches!(ranges.of(&"nowhere".into()), Err(RangeError::Note(_))));
    let a = uid(folder.path(), "a");
    assert_eq!(ranges.of(&a).unwrap().first, 65536);
}

#[test]
fn an_unreadable_note_is_never_overwritten_and_bars_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let a = uid(folder.path(), "a");
    for bad in [
        "",
        "{}",
        r#"{"uidMappings":[],"gidMappings":[]}"#,
        r#"{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}"#,
    ] {
        std::fs::write(folder.path().join("a/userns"), bad).unwrap();
        let ranges = ranges(folder.path());
        assert!(matches!(ranges.of(&a), Err(RangeError::Unreadable { .. })), "{bad}");
        let b = uid(folder.path(), "b");
        assert!(matches!(ranges.of(&b), Err(RangeError::Unreadable { .. })), "it may be any range");
        ranges.release(&a);
        assert_eq!(ranges.of(&b).unwrap().first, 65536);
        std::fs::remove_dir_all(folder.path().join("b")).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("a/userns")).unwrap(), bad);
    }
}
