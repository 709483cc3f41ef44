//! Decoding of image files.

use super::{Image, image::CHANNELS};
use crate::{Error, Result};
use png::Transformations;
use std::{fmt::Display, io::Cursor, iter, mem, ops::RangeInclusive, panic, path::Path};
use zune_core::{colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::JpegDecoder;

/// The maximum number of pixels of an image, Pillow's (half a GiB): a bad header must not cause a huge allocation.
pub const MAX_PIXELS: usize = 178_956_970;

const JPEG_MAGIC: &[u8] = &[0xff, 0xd8, 0xff];
const PNG_MAGIC: &[u8] = &[0x89, b'P', b'N', b'G'];

// Markers of a JPEG's segments.
const FRAMES: RangeInclusive<u8> = 0xc0..=PROGRESSIVE_FRAME;
const PROGRESSIVE_FRAME: u8 = 0xc2;
const END_OF_IMAGE: u8 = 0xd9;
const START_OF_SCAN: u8 = 0xda;

/// Decodes a JPEG or PNG file of any colour type as `PIL.Image.convert("RGB")` does; `path` is its name in errors.
///
/// The first bytes determine the format, not the file's name. As in torchvision, grey images get three equal channels,
/// transparency is dropped, and the orientation noted by a camera (EXIF) is ignored. PNG gives exactly Pillow's bytes,
/// except for 16-bit grey: here the upper 8 bits are used, as for colours, where Pillow makes everything above 255
/// white. JPEG may differ by a few levels, because the standard does not define the decoder's rounding.
///
/// JPEG has no checksum: a file with missing data but an end marker becomes an image that is partly grey, as in Pillow.
///
/// # Errors
/// [`Error::Format`] for other formats, files that are truncated or found damaged, more than [`MAX_PIXELS`], and a JPEG
/// that is not progressive but has separate scans for its colours, with fewer pixels of some.
pub fn decode(bytes: &[u8], path: &Path) -> Result<Image> {
    let decoded = if bytes.starts_with(JPEG_MAGIC) {
        // The decoder panics at some damaged files.
        panic::catch_unwind(|| jpeg(bytes))
            .unwrap_or_else(|_| Err(damaged("its parts contradict each other")))
    } else if bytes.starts_with(PNG_MAGIC) {
        png(bytes)
    } else {
        let hex: String = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let found =
            if hex.is_empty() { "is empty".to_owned() } else { format!("begins with 0x{hex}") };
        let expected = "a JPEG or PNG image, which begins with 0xffd8ff or 0x89504e47";
        return Err(Error::format(path, found, expected));
    };
    decoded.map_err(|(found, expected)| Error::format(path, found, expected))
}

/// Why an image cannot be decoded: what is found, and what is expected.
type Problem = (String, String);

fn damaged(reason: impl Display) -> Problem {
    (format!("cannot be decoded ({reason})"), "an undamaged JPEG or PNG image".to_owned())
}

fn check_size(width: usize, height: usize) -> Result<(), Problem> {
    if width.checked_mul(height).is_some_and(|pixels| pixels <= MAX_PIXELS) {
        return Ok(());
    }
    let found = format!("claims to be an image of {width}×{height} pixels");
    Err((found, format!("at most {MAX_PIXELS} pixels; make it smaller")))
}

fn jpeg(bytes: &[u8]) -> Result<Image, Problem> {
    let options = DecoderOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        // Otherwise missing data is filled with grey.
        .set_strict_mode(true)
        // Only the number of pixels is limited; a panorama may be wide.
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX));
    let mut decoder = JpegDecoder::new_with_options(Cursor::new(bytes), options);
    decoder.decode_headers().map_err(damaged)?;
    let (width, height) = decoder.dimensions().ok_or_else(|| damaged("it has no dimensions"))?;
    check_size(width, height)?;
    if !has_end(bytes) {
        return Err(damaged("it ends before the marker for the end of the image"));
    }
    if has_misread_scans(bytes) {
        let found = "has separate scans for its colours, and fewer pixels of some".to_owned();
        let expected = "all colours in one scan, or a progressive JPEG; save it again";
        return Err((found, expected.to_owned()));
    }
    let pixels = decoder.decode().map_err(damaged)?;
    Image::new(width, height, pixels).map_err(damaged)
}

/// Whether a JPEG is complete: the decoder does not notice missing bits in the last blocks. Pillow looks as well.
fn has_end(bytes: &[u8]) -> bool {
    // Data may follow the image, which ends at the first such marker outside a segment: a segment may hold a thumbnail.
    bytes.ends_with(&[0xff, END_OF_IMAGE])
        || segments(bytes).any(|(marker, _)| marker == END_OF_IMAGE)
}

/// Whether the decoder would skip scans without an error, as it does if colours have separate scans and some colours have
/// fewer pixels.
fn has_misread_scans(bytes: &[u8]) -> bool {
    let mut segments = segments(bytes);
    let frame = segments.find(|(marker, _)| FRAMES.contains(marker));
    let scan = segments.find(|(marker, _)| *marker == START_OF_SCAN);
    match (frame, scan) {
        (Some((PROGRESSIVE_FRAME, _)), _) => false,
        // After the size come three bytes for each colour; the second says how many blocks it has, across and down.
        (Some((_, [_, _, _, _, _, colours, of_each @ ..])), Some((_, [scanned, ..]))) => {
            let is_misread = |[across, down]: [u8; 2]| down > 1 || (*scanned > 1 && across > 1);
            let blocks = |colour: &[u8]| [colour[1] >> 4, colour[1] & 0xf];
            scanned < colours && of_each.chunks_exact(3).map(blocks).any(is_misread)
        }
        _ => false,
    }
}

/// The marker and the content of each segment of a JPEG, without the data of scans.
fn segments(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = bytes.get(2..).unwrap_or_default();
    let mut in_scan = false;
    iter::from_fn(move || {
        loop {
            match rest {
                [0xff, END_OF_IMAGE, ..] => return Some((END_OF_IMAGE, mem::take(&mut rest))),
                // Within a scan: a byte 0xff of the data, a restart, or a fill byte.
                [0xff, 0x00 | 0xd0..=0xd7 | 0xff, ..] => rest = &rest[1..],
                [0xff, marker, high, low, ..] => {
                    in_scan = *marker == START_OF_SCAN;
                    let length = usize::from(u16::from_be_bytes([*high, *low]));
                    let content = rest.get(4..2 + length).unwrap_or_default();
                    rest = rest.get(2 + length..).unwrap_or_default();
                    return Some((*marker, content));
                }
                [_, ..] if in_scan => rest = &rest[1..],
                _ => return None,
            }
        }
    })
}

fn png(bytes: &[u8]) -> Result<Image, Problem> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    // Palettes become colours, and every channel gets 8 bits.
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let header = decoder.read_header_info().map_err(damaged)?;
    let (width, height) = (header.width as usize, header.height as usize);
    check_size(width, height)?;
    let mut reader = decoder.read_info().map_err(damaged)?;
    let channels = reader.output_color_type().0.samples();
    let mut samples = vec![0; width * height * channels];
    reader.next_frame(&mut samples).map_err(damaged)?;
    // The data after the pixels shows whether the file is complete.
    reader.finish().map_err(damaged)?;
    let pixels = match channels {
        CHANNELS => samples,
        // Grey, or grey with opacity.
        1 | 2 => samples.chunks_exact(channels).flat_map(|sample| [sample[0]; 3]).collect(),
        _ => samples.chunks_exact(channels).flat_map(|rgb| [rgb[0], rgb[1], rgb[2]]).collect(),
    };
    Image::new(width, height, pixels).map_err(damaged)
}

#[cfg(test)]
mod tests;
