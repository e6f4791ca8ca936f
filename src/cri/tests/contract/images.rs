use super::*;

pub(super) async fn are_looked_up(subject: &Subject) {
    let status =
        |name: &str| subject.images.image_status(v1::ImageStatusRequest { image: image(name), verbose: false });
    let found = status(&subject.image).await.unwrap().image.unwrap();
    assert!(!found.id.is_empty() && found.size > 0);
    assert_eq!(status(&found.id).await.unwrap().image.unwrap().id, found.id, "an id names it too");
    assert_eq!(status("localhost/not-there:1").await.unwrap().image, None, "absence is no error");

    let all = subject.images.list_images(v1::ListImagesRequest::default()).await.unwrap().images;
    assert!(all.iter().any(|one| one.id == found.id));
    let remove = v1::RemoveImageRequest { image: image("localhost/not-there:1") };
    subject.images.remove_image(remove).await.unwrap();

    let pull = v1::PullImageRequest { image: image("localhost:1/not-there:1"), ..Default::default() };
    assert!(subject.images.pull_image(pull).await.is_err());
    let usage = subject.images.image_fs_info(v1::ImageFsInfoRequest {}).await.unwrap();
    assert!(!usage.image_filesystems.is_empty());
}
