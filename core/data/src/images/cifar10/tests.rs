use super::*;

/// A folder with these files. Image `i` has the label `i % 10`; red pixels are `i`, green ones count up, blue are 7.
fn folder(files: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        fs::write(dir.path().join(file), records()).unwrap();
    }
    dir
}

fn records() -> Vec<u8> {
    let green: Vec<u8> = (0..1024).map(|pixel| pixel as u8).collect();
    let record = |i: usize| [&[(i % 10) as u8][..], &[i as u8; 1024], &green, &[7; 1024]].concat();
    (0..10_000).map(record).collect::<Vec<_>>().concat()
}

fn refused(dir: &Path, split: Split) -> String {
    let message = Cifar10::from_dir(dir, split).unwrap_err().to_string();
    message.replace(&dir.display().to_string(), "DIR")
}

#[test]
fn an_image_has_its_planes_put_together() {
    let dir = folder(&TEST_FILES);
    let cifar = Cifar10::from_dir(dir.path(), Split::Test).unwrap();
    assert_eq!(cifar.len(), 10_000);
    let (image, label) = cifar.image(9_999).unwrap().unwrap();
    assert_eq!((image.width(), image.height(), label), (32, 32, 9));
    let expected: Vec<u8> =
        (0..1024).flat_map(|pixel| [(9_999 % 256) as u8, pixel as u8, 7]).collect();
    assert_eq!(image.pixels(), expected);
    assert_eq!(cifar.classes()[label], "truck");
}

#[test]
fn the_five_training_files_follow_each_other() {
    let dir = folder(&TRAIN_FILES);
    let cifar = Cifar10::from_dir(dir.path(), Split::Train).unwrap();
    assert_eq!(cifar.len(), 50_000);
    assert_eq!(cifar.image(40_123).unwrap(), cifar.image(123).unwrap());
}

#[test]
fn the_files_are_found_where_the_archive_puts_them() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join(FOLDER);
    fs::create_dir(&below).unwrap();
    fs::write(below.join("test_batch.bin"), records()).unwrap();
    assert_eq!(Cifar10::from_dir(dir.path(), Split::Test).unwrap().len(), 10_000);
}

#[test]
fn what_is_missing_is_named() {
    let dir = folder(&TRAIN_FILES[..2]);
    let expected = "DIR: holds no test_batch.bin, nor does cifar-10-batches-bin in it; expected the binary version of \
                    CIFAR-10, unpacked from cifar-10-binary.tar.gz";
    assert_eq!(refused(dir.path(), Split::Test), expected);
    assert_eq!(refused(dir.path(), Split::Train), "cannot read DIR/data_batch_3.bin");
    assert_eq!(refused(&dir.path().join("none"), Split::Test), "cannot read directory DIR");
}

#[test]
fn files_of_another_size_and_labels_above_9_are_refused() {
    let (dir, mut ten) = (folder(&[]), records());
    ten[3073 * 12] = 10;
    let size = "holds 30726927 bytes; expected 30730000 bytes, 10000 images of 3073 each; download it again";
    let label = "holds the label 10 at index 12; expected labels from 0 to 9";
    for (bytes, found) in [(&records()[..3073 * 9_999], size), (&ten, label)] {
        fs::write(dir.path().join("test_batch.bin"), bytes).unwrap();
        assert_eq!(refused(dir.path(), Split::Test), format!("DIR/test_batch.bin: {found}"));
    }
}
