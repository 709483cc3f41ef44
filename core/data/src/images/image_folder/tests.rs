use super::*;
use tempfile::TempDir;

const JPEG: &[u8] = include_bytes!("../decode/fixtures/one_pixel.jpg");

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    dir
}

/// A folder of good images with these names.
fn images(names: &[&str]) -> TempDir {
    folder(&names.iter().map(|name| (*name, JPEG)).collect::<Vec<_>>())
}

/// The files' names below the root, and their labels.
fn listed<'a>(folder: &'a ImageFolder, root: &TempDir) -> Vec<(&'a str, usize)> {
    let relative = |path: &'a Path| path.strip_prefix(root.path()).unwrap().to_str().unwrap();
    folder.samples().iter().map(|(path, label)| (relative(path), *label)).collect()
}

fn lenient(root: &TempDir) -> ImageFolder {
    ImageFolder::with_options(root.path(), ImageFolderOptions { skip_bad: true }).unwrap()
}

fn refused(root: &Path) -> String {
    let message = ImageFolder::new(root).unwrap_err().to_string();
    message.replace(&root.display().to_string(), "ROOT")
}

#[test]
fn classes_and_files_come_in_torchvisions_order() {
    let names =
        ["b/2.jpg", "b/10.png", "a/z.JPEG", "a/y/1.jpg", "a/y-0/2.jpg", "B/1.jpg", "a/A.jpg"];
    let root = images(&names);
    let folder = ImageFolder::new(root.path()).unwrap();
    assert_eq!(folder.classes(), ["B", "a", "b"]);
    // A folder's own files come before those below it; "y-0" before "y/" only as text.
    let expected = [
        ("B/1.jpg", 0),
        ("a/A.jpg", 1),
        ("a/z.JPEG", 1),
        ("a/y/1.jpg", 1),
        ("a/y-0/2.jpg", 1),
        ("b/10.png", 2),
        ("b/2.jpg", 2),
    ];
    assert_eq!(listed(&folder, &root), expected);
    let (image, label) = folder.image(6).unwrap().unwrap();
    assert_eq!((image.width(), label), (1, 2));
}

#[test]
fn files_that_are_no_images_are_left_out() {
    let root =
        folder(&[("a/1.jpg", JPEG), ("a/notes.txt", b"?"), ("a/LICENSE", b""), ("b.jpg", b"")]);
    let folder = ImageFolder::new(root.path()).unwrap();
    assert_eq!(listed(&folder, &root), [("a/1.jpg", 0)]);
}

#[test]
fn links_are_followed_and_a_folder_that_is_linked_twice_is_listed_twice() {
    let elsewhere = images(&["real/1.jpg"]);
    let root = images(&["a/real/1.jpg"]);
    std::os::unix::fs::symlink(elsewhere.path().join("real"), root.path().join("b")).unwrap();
    std::os::unix::fs::symlink(root.path().join("a/real"), root.path().join("a/same")).unwrap();
    let folder = ImageFolder::new(root.path()).unwrap();
    let expected = [("a/real/1.jpg", 0), ("a/same/1.jpg", 0), ("b/1.jpg", 1)];
    assert_eq!(listed(&folder, &root), expected);
}

#[test]
fn links_that_lead_round_in_a_circle_are_refused() {
    let elsewhere = images(&["real/1.jpg"]);
    let root = images(&["a/1.jpg"]);
    let real = elsewhere.path().join("real");
    std::os::unix::fs::symlink(&real, root.path().join("a/there")).unwrap();
    std::os::unix::fs::symlink(root.path().join("a"), real.join("back")).unwrap();
    let message = refused(root.path());
    assert!(message.starts_with("ROOT/a/there/back: links back to "), "{message}");
}

#[test]
fn folders_that_are_no_data_set_are_refused() {
    let no_image = "ROOT/dog: is the folder of a class, but holds no image; expected at least one file that ends in \
                    .jpg, .jpeg, .png; or remove the folder";
    let no_class = "ROOT: holds no folder; expected a folder for every class";
    let webp = "ROOT/a/2.WebP: has the extension of an unsupported image format; expected JPEG or PNG images only; \
                convert it, or remove it";
    for (root, expected) in [
        (folder(&[("cat/1.jpg", JPEG), ("dog/notes.txt", b"?")]), no_image),
        (images(&["1.jpg"]), no_class),
        (folder(&[("a/1.jpg", JPEG), ("a/2.WebP", b"RIFF")]), webp),
    ] {
        assert_eq!(refused(root.path()), expected);
        assert_eq!(refused(&root.path().join("none")), "cannot read directory ROOT");
    }
}

#[test]
fn validation_classes_must_be_the_training_classes() {
    let train = images(&["cat/1.jpg", "dog/1.jpg", "owl/1.jpg"]);
    let same = images(&["cat/2.jpg", "dog/2.jpg", "owl/2.jpg"]);
    let other = images(&["cat/2.jpg", "cow/2.jpg", "dog/2.jpg"]);
    let open = |root: &TempDir| ImageFolder::new(root.path()).unwrap();
    let [train, same, other] = [&train, &same, &other].map(open);
    train.check_same_classes(&same).unwrap();
    let [of, found] = [&train, &other].map(|folder| folder.root.display());
    let expected = format!("{found}: lacks owl and adds cow; expected the 3 classes of {of}");
    assert_eq!(train.check_same_classes(&other).unwrap_err().to_string(), expected);
}

#[test]
fn of_many_differing_classes_a_few_are_named() {
    let names: Vec<_> = (0..9).map(|class| format!("class{class}/1.jpg")).collect();
    let many = images(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let few = images(&["class0/1.jpg"]);
    let [many, few] = [&many, &few].map(|root| ImageFolder::new(root.path()).unwrap());
    let message = many.check_same_classes(&few).unwrap_err().to_string();
    let named = "lacks class1, class2, class3, class4, class5 and 3 more";
    assert!(message.contains(named), "{message}");
}

#[test]
fn a_damaged_image_is_an_error_that_names_it() {
    let root = folder(&[("a/1.jpg", JPEG), ("a/2.jpg", &JPEG[..300])]);
    let folder = ImageFolder::new(root.path()).unwrap();
    folder.image(0).unwrap();
    let message = folder.image(1).unwrap_err().to_string();
    let named = format!("{}/a/2.jpg: cannot be decoded (", root.path().display());
    assert!(message.starts_with(&named), "{message}");
    assert_eq!(folder.skipped(), 0);
}

#[test]
fn a_damaged_image_can_be_left_out_and_is_counted_once() {
    let root = folder(&[("a/1.jpg", b""), ("a/2.jpg", b"?"), ("b/1.jpg", JPEG), ("b/2.jpg", b"")]);
    let folder = lenient(&root);
    assert_eq!(folder.skipped(), 0);
    for _ in 0..2 {
        let labels = [0, 1, 2, 3].map(|index| folder.image(index).unwrap().map(|(_, label)| label));
        assert_eq!(labels, [None, None, Some(1), None]);
        assert_eq!(folder.skipped(), 3);
    }
    let bad = ["a/1.jpg", "a/2.jpg", "b/2.jpg"].map(|name| root.path().join(name));
    assert_eq!(folder.bad_files(), bad);
}

#[test]
fn a_file_that_has_gone_is_an_error_even_where_damaged_ones_are_left_out() {
    let root = images(&["a/1.jpg", "a/2.jpg"]);
    let folder = lenient(&root);
    let path = root.path().join("a/1.jpg");
    fs::remove_file(&path).unwrap();
    assert_eq!(folder.image(0).unwrap_err().to_string(), format!("cannot read {}", path.display()));
    assert_eq!(folder.skipped(), 0);
}
