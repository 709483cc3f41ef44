use super::*;
use flate2::{Compression, write::GzEncoder};
use std::io::Write;

/// Two images of 1×3 pixels.
const IMAGES: [u8; 22] = [0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 10, 20, 30, 40, 50, 60];
const LABELS: [u8; 10] = [0, 0, 8, 1, 0, 0, 0, 2, 7, 9];

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// What reading a file of this name and these bytes as images says, without the directory.
fn read(name: &str, bytes: &[u8]) -> Result<Idx<3>, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    Idx::read(&path)
        .map_err(|error| error.to_string().replace(&format!("{}/", dir.path().display()), ""))
}

#[test]
fn a_file_is_read_raw_and_compressed_which_its_bytes_tell_and_not_its_name() {
    let expected = Idx { dims: [2, 1, 3], data: vec![10, 20, 30, 40, 50, 60] };
    assert_eq!(read("images", &IMAGES).unwrap(), expected);
    assert_eq!(read("images.gz", &gzip(&IMAGES)).unwrap(), expected);
    assert_eq!(read("images", &gzip(&IMAGES)).unwrap(), expected);
}

#[test]
fn files_that_are_not_whole_idx_files_are_refused() {
    let longer = [&IMAGES[..], &[1, 2]].concat();
    let truncated =
        "ends after 4 of 6 values; expected 6 values, because the header says [2, 1, 3]";
    let header = "ends after 10 bytes; expected a header of 16 bytes";
    let empty = "is empty; expected a header of 16 bytes";
    let surplus = "goes on for 2 bytes after the last value; expected 6 values and no more, because the \
                   header says [2, 1, 3]";
    let png = "has the magic number 0x504e4720; expected 0x00000803 (images)";
    let labels = "has the magic number 0x00000801 (labels); expected 0x00000803 (images)";
    let no_gzip =
        "is named .gz, but begins with 0x3c68; expected gzip data, which begins with 0x1f8b";
    for (name, bytes, expected) in [
        ("images", &IMAGES[..20], truncated),
        ("images.gz", &gzip(&IMAGES[..20]), truncated),
        ("images", &IMAGES[..10], header),
        ("images", &[], empty),
        ("images.gz", &[], empty),
        ("images", &longer, surplus),
        ("images.gz", &gzip(&longer), surplus),
        ("images", b"PNG and more than a header", png),
        ("images", &LABELS, labels),
        ("images.gz", b"<html>not found</html>", no_gzip),
    ] {
        assert_eq!(read(name, bytes).unwrap_err(), format!("{name}: {expected}"));
    }
    let error = Idx::<1>::parse(&IMAGES[..], Path::new("labels")).unwrap_err().to_string();
    let expected = "labels: has the magic number 0x00000803 (images); expected 0x00000801 (labels)";
    assert_eq!(error, expected);
}

#[test]
fn damaged_gzip_data_is_refused() {
    let whole = gzip(&IMAGES);
    let mut wrong_checksum = whole.clone();
    wrong_checksum[whole.len() - 8] ^= 1;
    for bytes in [&whole[..whole.len() - 12], &wrong_checksum[..]] {
        let message = read("images.gz", bytes).unwrap_err();
        assert!(message.starts_with("images.gz: holds damaged gzip data ("), "{message}");
        assert!(message.ends_with("); expected an undamaged file; download it again"), "{message}");
    }
}

#[test]
fn impossible_dimensions_are_refused_without_asking_for_the_memory() {
    let mut bytes = IMAGES;
    bytes[4..16].fill(0xff);
    let expected = "images: claims the dimensions [4294967295, 4294967295, 4294967295]; expected dimensions whose \
                    product fits into memory";
    assert_eq!(read("images", &bytes).unwrap_err(), expected);
    // 2^60 values would fit into an address, but the file has six.
    bytes[4..16].copy_from_slice(&[0x40, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 1]);
    let message = read("images", &bytes).unwrap_err();
    assert!(message.starts_with("images: ends after 6 of 1152921504606846976 values"), "{message}");
}

#[test]
fn a_missing_file_is_named() {
    let error = Idx::<3>::read(Path::new("/nowhere/images")).unwrap_err();
    assert_eq!(error.to_string(), "cannot open /nowhere/images");
}
