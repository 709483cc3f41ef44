//! Image files, with one folder per class.

use super::{Image, ImageSource, decode};
use crate::{Error, Result, check_file};
use std::{collections::BTreeSet, fs, path::Path, path::PathBuf, sync::Mutex};
use tch_parallel_base::lock;

/// The extensions that are read, in lower case.
const EXTENSIONS: [&str; 3] = ["jpg", "jpeg", "png"];
/// Extensions that torchvision reads but this does not: ignoring them silently would shrink the data set.
const OTHER_EXTENSIONS: [&str; 7] = ["bmp", "pgm", "pnm", "ppm", "tif", "tiff", "webp"];

/// Options of an [`ImageFolder`].
#[derive(Debug, Clone, Copy, Default)]
pub struct ImageFolderOptions {
    /// Whether to skip and count damaged images, which are errors otherwise. Their batches get smaller, but not fewer,
    /// so all ranks still make the same number of steps, and no other image is used twice.
    pub skip_bad: bool,
}

/// torchvision's `ImageFolder`: `root/CLASS/any/where/FILE.jpg`, in the same order.
///
/// The classes are the folders in `root`, sorted by name; a class's files are in its folder and those below. JPEG and
/// PNG are supported, see [`decode()`]. At first, files are only listed; each is read and decoded when needed.
#[derive(Debug)]
pub struct ImageFolder {
    root: PathBuf,
    classes: Vec<String>,
    /// Files and their labels.
    samples: Vec<(PathBuf, usize)>,
    options: ImageFolderOptions,
    /// The samples found damaged, so that each is read and counted only once.
    bad: Mutex<BTreeSet<usize>>,
}

impl ImageFolder {
    /// Lists the files in `root`.
    ///
    /// # Errors
    /// [`Error::Io`] if a folder cannot be read; [`Error::Format`] for a folder without classes, a class without
    /// images, image formats that torchvision reads but this does not, and circular links.
    pub fn new(root: impl Into<PathBuf>) -> Result<Self> {
        Self::with_options(root, ImageFolderOptions::default())
    }

    /// The same, with all its options.
    pub fn with_options(root: impl Into<PathBuf>, options: ImageFolderOptions) -> Result<Self> {
        let root = root.into();
        let (mut classes, mut samples) = (Vec::new(), Vec::new());
        for (folder, _) in entries(&root)?.into_iter().filter(|(_, is_folder)| *is_folder) {
            let label = classes.len();
            let files = images_below(&folder)?;
            let found = "is the folder of a class, but holds no image";
            let ends = EXTENSIONS.join(", .");
            let expected = format!("at least one file that ends in .{ends}; or remove the folder");
            check_file(!files.is_empty(), &folder, found, expected)?;
            classes.push(folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
            samples.extend(files.into_iter().map(|file| (file, label)));
        }
        check_file(!classes.is_empty(), &root, "holds no folder", "a folder for every class")?;
        Ok(Self { root, classes, samples, options, bad: Mutex::default() })
    }

    /// The files in order, each with its label.
    pub fn samples(&self) -> &[(PathBuf, usize)] {
        &self.samples
    }

    /// The files found damaged so far, with [`skip_bad`](ImageFolderOptions::skip_bad).
    pub fn bad_files(&self) -> Vec<&Path> {
        lock(&self.bad).iter().map(|&index| self.samples[index].0.as_path()).collect()
    }

    /// Compares this training set's classes with a validation set's: if they differ, labels mean different things.
    ///
    /// # Errors
    /// [`Error::Format`], naming the classes that only one of them has.
    pub fn check_same_classes(&self, validation: &ImageFolder) -> Result<()> {
        let missing = |from: &ImageFolder, of: &ImageFolder| -> Vec<String> {
            of.classes.iter().filter(|class| !from.classes.contains(class)).cloned().collect()
        };
        let found = [("lacks", missing(validation, self)), ("adds", missing(self, validation))]
            .into_iter()
            .filter(|(_, classes)| !classes.is_empty())
            .map(|(says, classes)| format!("{says} {}", some_of(&classes)))
            .collect::<Vec<_>>();
        let expected = format!("the {} classes of {}", self.classes.len(), self.root.display());
        check_file(found.is_empty(), &validation.root, found.join(" and "), expected)
    }
}

impl ImageSource for ImageFolder {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn image(&self, index: usize) -> Result<Option<(Image, usize)>> {
        if lock(&self.bad).contains(&index) {
            return Ok(None);
        }
        let (path, label) = &self.samples[index];
        // A file that cannot be read is not a damaged one: a lost disk must not look like bad images.
        let bytes = fs::read(path).map_err(Error::io("read", path))?;
        match decode(&bytes, path) {
            Err(Error::Format { .. }) if self.options.skip_bad => {
                lock(&self.bad).insert(index);
                Ok(None)
            }
            image => Ok(Some((image?, *label))),
        }
    }

    fn skipped(&self) -> usize {
        lock(&self.bad).len()
    }
}

/// The files below the folder, in torchvision's order: folder by folder, sorted by whole path.
fn images_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut folders, mut unseen) = (Vec::new(), vec![(folder.to_owned(), Vec::new())]);
    while let Some((folder, mut above)) = unseen.pop() {
        let itself = fs::canonicalize(&folder).map_err(Error::io("follow", &folder))?;
        let found = format!("links back to {}, which contains it", itself.display());
        let expected = "no link to a folder above it; remove the link";
        check_file(!above.contains(&itself), &folder, found, expected)?;
        above.push(itself);
        let (below, files): (Vec<_>, Vec<_>) =
            entries(&folder)?.into_iter().partition(|(_, is_folder)| *is_folder);
        unseen.extend(below.into_iter().map(|(path, _)| (path, above.clone())));
        folders.push((folder, files));
    }
    // As text: paths are compared component by component, so that "a/b" would come before "a-b".
    folders.sort_by(|(a, _), (b, _)| a.as_os_str().cmp(b.as_os_str()));

    let mut images = Vec::new();
    for (path, _) in folders.into_iter().flat_map(|(_, files)| files) {
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        let found = "has the extension of an unsupported image format";
        let expected = "JPEG or PNG images only; convert it, or remove it";
        check_file(!OTHER_EXTENSIONS.contains(&extension.as_str()), &path, found, expected)?;
        images.extend(EXTENSIONS.contains(&extension.as_str()).then_some(path));
    }
    Ok(images)
}

/// The folder's contents, sorted by name, each with whether it is a folder. Links are followed.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("read directory", folder))? {
        let entry = entry.map_err(Error::io("read directory", folder))?;
        let path = entry.path();
        let mut kind = entry.file_type().map_err(Error::io("read", &path))?;
        if kind.is_symlink() {
            kind = fs::metadata(&path).map_err(Error::io("follow", &path))?.file_type();
        }
        entries.push((path, kind.is_dir()));
    }
    entries.sort();
    Ok(entries)
}

/// The first few: two unrelated folders differ in all of them.
fn some_of(classes: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = classes[..classes.len().min(SHOWN)].join(", ");
    match classes.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
