use super::*;
use std::fs;

fn idx(dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dims.len() as u8];
    dims.iter().for_each(|dim| bytes.extend(dim.to_be_bytes()));
    bytes.extend(data);
    bytes
}

/// A directory with a training set of `images` black images and these labels.
fn directory(images: u32, labels: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), images, labels);
    dir
}

fn write(dir: &Path, images: u32, labels: &[u8]) {
    let pixels = vec![0; images as usize * PIXELS];
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("train-images-idx3-ubyte"), idx(&[images, 28, 28], &pixels)).unwrap();
    fs::write(dir.join("train-labels-idx1-ubyte"), idx(&[labels.len() as u32], labels)).unwrap();
}

fn refused(dir: &Path, split: Split) -> String {
    let message = Mnist::from_dir(dir, split).unwrap_err().to_string();
    message.replace(&dir.display().to_string(), "DIR")
}

#[test]
fn ten_thousand_digits_are_embedded() {
    assert_eq!(Mnist::embedded(Split::Train).unwrap().len(), 8000);
    let test = Mnist::embedded(Split::Test).unwrap();
    assert_eq!(test.len(), 2000);
    // Every digit is there about equally often.
    for digit in 0..10 {
        let count = test.labels().iter().filter(|&&label| label == digit).count();
        assert!((150..250).contains(&count), "{count} images of {digit}");
    }
}

#[test]
fn a_batch_is_written_where_a_dropped_one_was() {
    let mnist = Mnist::embedded(Split::Test).unwrap();
    let (images, _) = mnist.batch(&[7, 0], 0).unwrap();
    let address = images.data_ptr();
    drop(images);
    assert_eq!(mnist.clone().batch(&[1, 2], 0).unwrap().0.data_ptr(), address);
}

#[test]
fn torchvisions_folders_are_found() {
    for folder in ["", "MNIST/raw", "FashionMNIST/raw"] {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join(folder), 3, &[1, 2, 9]);
        let mnist = Mnist::from_dir(dir.path(), Split::Train).unwrap();
        assert_eq!(mnist.labels(), [1, 2, 9]);
    }
    let both = tempfile::tempdir().unwrap();
    write(&both.path().join("MNIST/raw"), 1, &[1]);
    write(&both.path().join("FashionMNIST/raw"), 1, &[2]);
    assert_eq!(Mnist::from_dir(both.path(), Split::Train).unwrap().labels(), [1]);
    assert_eq!(Mnist::fashion(Some(both.path()), Split::Train).unwrap().labels(), [2]);
}

#[test]
fn an_empty_directory_is_refused_with_the_names_that_are_missing_and_a_missing_one_too() {
    let dir = tempfile::tempdir().unwrap();
    let expected = "DIR: holds no t10k-images-idx3-ubyte and no t10k-images-idx3-ubyte.gz, also not in MNIST/raw or \
                    FashionMNIST/raw; expected the IDX files of MNIST or of a data set in its format";
    assert_eq!(refused(dir.path(), Split::Test), expected);
    assert_eq!(refused(&dir.path().join("none"), Split::Test), "cannot read directory DIR");
}

#[test]
fn labels_and_images_that_do_not_fit_are_refused() {
    let (unlabelled, larger) = (directory(1, &[0]), directory(1, &[0]));
    fs::remove_file(unlabelled.path().join("train-labels-idx1-ubyte")).unwrap();
    let images = idx(&[1, 32, 32], &[0; 1024]);
    fs::write(larger.path().join("train-images-idx3-ubyte"), images).unwrap();
    let no_labels = "DIR: holds no train-labels-idx1-ubyte and no train-labels-idx1-ubyte.gz; expected the labels of \
                     DIR/train-images-idx3-ubyte";
    let too_many = "DIR/train-labels-idx1-ubyte: holds 3 labels; expected 2, one for each image in \
                    DIR/train-images-idx3-ubyte";
    let ten =
        "DIR/train-labels-idx1-ubyte: holds the label 10 at index 2; expected labels from 0 to 9";
    let size = "DIR/train-images-idx3-ubyte: holds images of 32×32 pixels; expected images of 28×28 pixels";
    for (dir, expected) in [
        (unlabelled, no_labels),
        (directory(2, &[0, 1, 2]), too_many),
        (directory(3, &[0, 9, 10]), ten),
        (larger, size),
    ] {
        assert_eq!(refused(dir.path(), Split::Train), expected);
    }
}

#[test]
fn an_index_beyond_the_end_is_refused() {
    let mnist = Mnist::from_dir(directory(2, &[0, 1]).path(), Split::Train).unwrap();
    let expected = "index is 2, but must be less than the number of images, 2";
    assert_eq!(mnist.batch(&[1, 2], 0).unwrap_err().to_string(), expected);
}

#[test]
fn fashion_mnist_is_read_where_debian_puts_it() {
    let missing = "/usr/share/datasets/fashion-mnist: does not exist; expected Fashion-MNIST; on Debian and Ubuntu \
                   `apt-get install dataset-fashion-mnist` puts it there";
    match Mnist::fashion(None, Split::Test) {
        Ok(fashion) => assert_eq!(fashion.len(), 10_000),
        Err(error) => assert_eq!(error.to_string(), missing),
    }
}
