//! The zip archive of a file: named records in one folder, not compressed.

use std::io::{self, Cursor, Read, Write};
use std::{fmt::Display, fs::File, mem::ManuallyDrop};
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};
use zip::{result::ZipError, write::FileOptions};

/// The bytes to a multiple of which PyTorch aligns records, so that they can be mapped to memory.
const ALIGNMENT: u16 = 64;

/// `caffe2::serialize::PyTorchStreamWriter`.
pub(super) struct Writer<'a> {
    /// Dropped before its end, it would try to write that, and tell stderr if it could not.
    zip: ManuallyDrop<ZipWriter<&'a mut File>>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(file: &'a mut File) -> Self {
        Writer { zip: ManuallyDrop::new(ZipWriter::new(file)) }
    }

    pub(super) fn write(&mut self, record: &str, bytes: &[u8]) -> io::Result<()> {
        let options = FileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(u32::try_from(bytes.len()).is_err())
            // Equal tensors make equal files.
            .last_modified_time(DateTime::default());
        self.zip.start_file_aligned(format!("archive/{record}"), options, ALIGNMENT)?;
        self.zip.write_all(bytes)
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.zip.finish().map_err(|error| match error {
            ZipError::Io(error) => error,
            other => other.into(),
        })?;
        drop(ManuallyDrop::into_inner(self.zip));
        Ok(())
    }
}

/// `caffe2::serialize::PyTorchStreamReader`.
pub(super) struct Reader<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    /// The bytes of the file.
    size: usize,
    folder: String,
}

impl<'a> Reader<'a> {
    /// # Errors
    /// What is damaged; so are those of [`read`](Self::read).
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, String> {
        let read = || {
            let mut zip = ZipArchive::new(Cursor::new(bytes))?;
            let folder = zip.by_index(0)?.name().split('/').next().unwrap_or_default().to_owned();
            Ok(Reader { zip, size: bytes.len(), folder })
        };
        read().map_err(|error: ZipError| error.to_string())
    }

    pub(super) fn has(&self, record: &str) -> bool {
        let name = self.name(record);
        self.zip.file_names().any(|found| found == name)
    }

    pub(super) fn read(&mut self, record: &str) -> Result<Vec<u8>, String> {
        let name = self.name(record);
        let in_record = |error: &dyn Display| format!("{name}: {error}");
        let file = self.zip.by_name(&name).map_err(|error| in_record(&error))?;
        let size = usize::try_from(file.size()).ok().filter(|size| *size <= self.size);
        let size = size.ok_or_else(|| in_record(&"larger than the file"))?;
        let mut bytes = Vec::with_capacity(size);
        // One more than expected: the checksum is compared at the end.
        file.take(size as u64 + 1).read_to_end(&mut bytes).map_err(|error| in_record(&error))?;
        Ok(bytes)
    }

    fn name(&self, record: &str) -> String {
        format!("{}/{record}", self.folder)
    }
}
