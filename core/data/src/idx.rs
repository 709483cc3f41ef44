//! IDX, the file format of MNIST: a magic number, the dimensions, then one byte per value.
//!
//! | bytes | meaning |
//! |---|---|
//! | 2 | zero |
//! | 1 | the type of a value: 8 for an unsigned byte, the only one that MNIST uses |
//! | 1 | the number of dimensions `n`: 3 for images, 1 for labels |
//! | 4 · n | the dimensions, big-endian |
//! | the rest | the values, in row-major order |

use crate::{Error, Result, check_file};
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::{array, fs::File, path::Path};

const UNSIGNED_BYTE: u8 = 8;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The contents of an IDX file of unsigned bytes.
///
/// ```
/// use tch_parallel::data::idx::Idx;
///
/// let labels = [0, 0, 8, 1, 0, 0, 0, 2, 7, 9];
/// let labels = Idx::<1>::parse(&labels[..], "labels".as_ref())?;
/// assert_eq!((labels.dims, labels.data), ([2], vec![7, 9]));
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idx<const N: usize> {
    /// The dimensions, `[number of images, rows, columns]` or `[number of labels]`.
    pub dims: [usize; N],
    /// The values, as many as the product of the dimensions.
    pub data: Vec<u8>,
}

impl<const N: usize> Idx<N> {
    /// Reads a file with `N` dimensions, compressed with gzip or not, which its first bytes tell.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read; [`Error::Format`] if it is not an IDX file of unsigned
    /// bytes with `N` dimensions, or too short or too long for them.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let mut file = BufReader::with_capacity(1 << 16, file);
        let start = file.fill_buf().map_err(Error::io("read", path))?;
        let named_gz = path.extension().is_some_and(|extension| extension == "gz");
        let not_gzip = start.first_chunk::<2>().filter(|magic| named_gz && **magic != GZIP_MAGIC);
        if let Some([a, b]) = not_gzip {
            let found = format!("is named .gz, but begins with 0x{a:02x}{b:02x}");
            return Err(Error::format(path, found, "gzip data, which begins with 0x1f8b"));
        }
        Self::parse(file, path)
    }

    /// Reads from memory or any other source; `path` is its name in errors.
    pub fn parse(mut source: impl BufRead, path: &Path) -> Result<Self> {
        let start = source.fill_buf().map_err(Error::io("read", path))?;
        if start.starts_with(&GZIP_MAGIC) {
            Self::parse_raw(GzDecoder::new(source), path)
        } else {
            Self::parse_raw(source, path)
        }
    }

    fn parse_raw(mut source: impl Read, path: &Path) -> Result<Self> {
        let read_error = |error: io::Error| match error.kind() {
            // flate2's errors for data that is damaged or truncated.
            ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                let found = format!("holds damaged gzip data ({error})");
                Error::format(path, found, "an undamaged file; download it again")
            }
            _ => Error::io("read", path)(error),
        };

        let mut header = Vec::new();
        let header_len = 4 + 4 * N;
        source.by_ref().take(header_len as u64).read_to_end(&mut header).map_err(read_error)?;
        if let Some(magic) = header.first_chunk::<4>() {
            let expected = [0, 0, UNSIGNED_BYTE, N as u8];
            let found = format!("has the magic number {}", describe_magic(*magic));
            check_file(*magic == expected, path, found, describe_magic(expected))?;
        }
        let found = match header.len() {
            0 => "is empty".to_owned(),
            n => format!("ends after {n} bytes"),
        };
        let expected = format_args!("a header of {header_len} bytes");
        check_file(header.len() >= header_len, path, found, expected)?;

        let (numbers, _) = header[4..].as_chunks::<4>();
        let dims: [usize; N] = array::from_fn(|dim| u32::from_be_bytes(numbers[dim]) as usize);
        let product = dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
        let found = format_args!("claims the dimensions {dims:?}");
        let expected = "dimensions whose product fits into memory";
        let values = product.ok_or_else(|| Error::format(path, found, expected))?;

        // A damaged header must not cause a huge allocation.
        let mut data = Vec::with_capacity(values.min(64 << 20));
        source.by_ref().take(values as u64).read_to_end(&mut data).map_err(read_error)?;
        let surplus = io::copy(&mut source, &mut io::sink()).map_err(read_error)?;
        let found = format!("ends after {} of {values} values", data.len());
        let expected = format!("{values} values, because the header says {dims:?}");
        check_file(data.len() >= values, path, found, expected)?;
        let found = format!("goes on for {surplus} bytes after the last value");
        let expected = format!("{values} values and no more, because the header says {dims:?}");
        check_file(surplus == 0, path, found, expected)?;
        Ok(Self { dims, data })
    }
}

fn describe_magic(magic: [u8; 4]) -> String {
    let number = u32::from_be_bytes(magic);
    match magic {
        [0, 0, UNSIGNED_BYTE, 1] => format!("0x{number:08x} (labels)"),
        [0, 0, UNSIGNED_BYTE, 3] => format!("0x{number:08x} (images)"),
        _ => format!("0x{number:08x}"),
    }
}

#[cfg(test)]
mod tests;
