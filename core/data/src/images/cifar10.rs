//! CIFAR-10: 60,000 colour images of 32×32 pixels in ten classes.

use super::{Image, ImageSource, image::CHANNELS};
use crate::{Error, Result, Split, check_file, mnist::check_labels};
use std::{fs, path::Path, path::PathBuf};

/// The classes in the order of their labels.
pub const CIFAR10_CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// The folder of the files in the archive `cifar-10-binary.tar.gz`.
const FOLDER: &str = "cifar-10-batches-bin";
const TRAIN_FILES: [&str; 5] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
];
const TEST_FILES: [&str; 1] = ["test_batch.bin"];
const IMAGES_PER_FILE: usize = 10_000;

/// Rows and columns of an image.
const SIDE: usize = 32;
/// A label, then the image's red, green and blue planes, row by row.
const RECORD: usize = 1 + CHANNELS * SIDE * SIDE;

/// The training or test images of CIFAR-10, in memory (154 or 31 MB): `torchvision.datasets.CIFAR10`.
///
/// It reads the binary version of the data set, whose files hold 10,000 records of a label and 3,072 pixels each.
#[derive(Debug)]
pub struct Cifar10 {
    /// The files' contents, concatenated.
    records: Vec<u8>,
    classes: Vec<String>,
}

impl Cifar10 {
    /// Reads the files from `dir`, or from `cifar-10-batches-bin` in it.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read; [`Error::Format`] for a missing one, another size, or a label above 9.
    pub fn from_dir(dir: impl AsRef<Path>, split: Split) -> Result<Self> {
        let dir = dir.as_ref();
        // A missing directory is a different mistake from an empty one.
        fs::read_dir(dir).map_err(Error::io("read directory", dir))?;
        let files = match split {
            Split::Train => &TRAIN_FILES[..],
            Split::Test => &TEST_FILES,
        };
        let folders = [dir.to_owned(), dir.join(FOLDER)];
        let Some(folder) = folders.iter().find(|folder| folder.join(files[0]).is_file()) else {
            let found = format!("holds no {}, nor does {FOLDER} in it", files[0]);
            let expected = "the binary version of CIFAR-10, unpacked from cifar-10-binary.tar.gz";
            return Err(Error::format(dir, found, expected));
        };
        let mut records = Vec::with_capacity(files.len() * IMAGES_PER_FILE * RECORD);
        for file in files {
            records.extend(read(folder.join(file))?);
        }
        Ok(Self { records, classes: CIFAR10_CLASSES.map(str::to_owned).into() })
    }
}

impl ImageSource for Cifar10 {
    fn len(&self) -> usize {
        self.records.len() / RECORD
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn image(&self, index: usize) -> Result<Option<(Image, usize)>> {
        let (label, planes) = (self.records[index * RECORD], &self.records[index * RECORD + 1..]);
        let (red, rest) = planes.split_at(SIDE * SIDE);
        let (green, blue) = rest.split_at(SIDE * SIDE);
        let colours = red.iter().zip(green).zip(blue);
        let pixels = colours.flat_map(|((&red, &green), &blue)| [red, green, blue]).collect();
        Ok(Some((Image::new(SIDE, SIDE, pixels)?, usize::from(label))))
    }
}

fn read(path: PathBuf) -> Result<Vec<u8>> {
    let expected = IMAGES_PER_FILE * RECORD;
    // Checked before reading: another kind of file can have any size.
    let found = fs::metadata(&path).map_err(Error::io("read", &path))?.len();
    let is_whole = found == expected as u64;
    let expected =
        format!("{expected} bytes, {IMAGES_PER_FILE} images of {RECORD} each; download it again");
    check_file(is_whole, &path, format_args!("holds {found} bytes"), expected)?;
    let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
    check_labels(bytes.iter().step_by(RECORD), &path)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
