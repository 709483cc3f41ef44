use super::*;
use png::{BitDepth, ColorType, Encoder};

const COLOURS: &[u8] = include_bytes!("fixtures/colours.jpg");
/// The colours of its halves.
const LEFT: [u8; 3] = [200, 30, 40];
const RIGHT: [u8; 3] = [20, 60, 180];

fn decode_named(name: &str, bytes: &[u8]) -> Result<Image> {
    decode(bytes, Path::new(name))
}

/// That the image has 16×8 pixels, and these colours in its halves.
fn expect_halves(name: &str, bytes: &[u8], left: [u8; 3], right: [u8; 3]) {
    let image = decode_named(name, bytes).unwrap();
    assert_eq!((image.width(), image.height()), (16, 8));
    for row in image.rows() {
        for (half, expected) in row.as_chunks::<3>().0.chunks_exact(8).zip([left, right]) {
            for pixel in half {
                // What JPEG at this quality and the rounding of its colours leave.
                let near = pixel.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 3);
                assert!(near, "{pixel:?} instead of {expected:?}");
            }
        }
    }
}

fn png_file(size: (u32, u32), colours: ColorType, depth: BitDepth, samples: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, size.0, size.1);
    encoder.set_color(colours);
    encoder.set_depth(depth);
    if colours == ColorType::Indexed {
        encoder.set_palette(vec![1, 2, 3, 4, 5, 6]);
        encoder.set_trns(vec![0, 255]);
    }
    encoder.write_header().unwrap().write_image_data(samples).unwrap();
    file
}

#[test]
fn jpegs_of_all_kinds_become_rgb_and_the_orientation_that_a_camera_noted_is_ignored() {
    expect_halves("colours.jpg", COLOURS, LEFT, RIGHT);
    expect_halves("progressive.jpg", include_bytes!("fixtures/progressive.jpg"), LEFT, RIGHT);
    expect_halves("cmyk.jpg", include_bytes!("fixtures/cmyk.jpg"), LEFT, RIGHT);
    expect_halves("turned.jpg", include_bytes!("fixtures/turned.jpg"), LEFT, RIGHT);
    // The weights of red, green and blue are 0.299, 0.587 and 0.114.
    expect_halves("grey.jpg", include_bytes!("fixtures/grey.jpg"), [82; 3], [62; 3]);
}

#[test]
fn an_image_of_one_pixel_is_an_image() {
    let jpeg = decode_named("one_pixel.jpg", include_bytes!("fixtures/one_pixel.jpg")).unwrap();
    assert_eq!((jpeg.width(), jpeg.height()), (1, 1));
    assert!(jpeg.pixels().iter().zip(LEFT).all(|(a, b)| a.abs_diff(b) <= 3), "{:?}", jpeg.pixels());

    let file = png_file((1, 1), ColorType::Rgb, BitDepth::Eight, &LEFT);
    assert_eq!(decode_named("a.png", &file).unwrap(), Image::new(1, 1, LEFT.into()).unwrap());
}

#[test]
fn pngs_of_all_kinds_become_rgb_and_keep_their_bytes() {
    let two = (2, 1);
    let sixteen_bits = [1, 200, 2, 0, 3, 0, 4, 0, 5, 0, 6, 255];
    for (colours, depth, samples, expected) in [
        (ColorType::Rgb, BitDepth::Eight, &[1, 2, 3, 4, 5, 6][..], [1, 2, 3, 4, 5, 6]),
        (ColorType::Rgba, BitDepth::Eight, &[1, 2, 3, 0, 4, 5, 6, 99], [1, 2, 3, 4, 5, 6]),
        (ColorType::Grayscale, BitDepth::Eight, &[7, 8], [7, 7, 7, 8, 8, 8]),
        (ColorType::Grayscale, BitDepth::One, &[0b0100_0000], [0, 0, 0, 255, 255, 255]),
        (ColorType::GrayscaleAlpha, BitDepth::Eight, &[7, 0, 8, 255], [7, 7, 7, 8, 8, 8]),
        (ColorType::Indexed, BitDepth::Eight, &[1, 0], [4, 5, 6, 1, 2, 3]),
        (ColorType::Rgb, BitDepth::Sixteen, &sixteen_bits, [1, 2, 3, 4, 5, 6]),
    ] {
        let image = decode_named("a.png", &png_file(two, colours, depth, samples)).unwrap();
        assert_eq!(image, Image::new(2, 1, expected.into()).unwrap(), "{colours:?} {depth:?}");
    }
}

#[test]
fn the_content_tells_the_format_and_not_the_name() {
    expect_halves("really_a_jpeg.png", COLOURS, LEFT, RIGHT);
    let expected = "notes.jpg: begins with 0x6e6f2069; expected a JPEG or PNG image, which begins with 0xffd8ff or \
                    0x89504e47";
    assert_eq!(decode_named("notes.jpg", b"no image").unwrap_err().to_string(), expected);
    let expected = "empty.jpg: is empty; expected a JPEG or PNG image, which begins with 0xffd8ff or 0x89504e47";
    assert_eq!(decode_named("empty.jpg", b"").unwrap_err().to_string(), expected);
}

#[test]
fn a_truncated_file_is_an_error_wherever_it_ends() {
    let png = png_file((16, 8), ColorType::Rgb, BitDepth::Eight, &[5; 16 * 8 * 3]);
    let progressive = include_bytes!("fixtures/progressive.jpg");
    for (name, file) in [("a.jpg", COLOURS), ("progressive.jpg", progressive), ("a.png", &png)] {
        for len in 0..file.len() {
            let error = decode_named(name, &file[..len]).expect_err(&format!("{len} bytes"));
            assert!(error.to_string().starts_with(&format!("{name}: ")), "{error}");
        }
    }
}

#[test]
fn what_follows_the_end_of_a_jpeg_does_no_harm_and_hides_no_truncation() {
    let followed = [COLOURS, &[0xff, 0xda, 0, 1, 2, 3]].concat();
    expect_halves("followed.jpg", &followed, LEFT, RIGHT);

    // As with a camera's small preview: a whole image in a segment before the image itself.
    let segment = [&[0xff, 0xe1], &(COLOURS.len() as u16 + 2).to_be_bytes()[..], COLOURS].concat();
    let previewed = [&COLOURS[..2], &segment, &COLOURS[2..]].concat();
    expect_halves("previewed.jpg", &previewed, LEFT, RIGHT);
    decode_named("truncated.jpg", &previewed[..previewed.len() - 2]).unwrap_err();
}

#[test]
fn a_damaged_file_is_named_with_the_reason() {
    let mut jpeg = COLOURS.to_vec();
    // The marker of the Huffman tables becomes one without a meaning.
    let tables = jpeg.windows(2).position(|bytes| bytes == [0xff, 0xc4]).unwrap();
    jpeg[tables + 1] = 0x02;
    let mut png = png_file((2, 2), ColorType::Rgb, BitDepth::Eight, &[5; 12]);
    let data = png.windows(4).position(|bytes| bytes == b"IDAT").unwrap();
    png[data + 8] ^= 0xff;
    for (name, file) in [("a.jpg", jpeg), ("a.png", png)] {
        let message = decode_named(name, &file).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{name}: cannot be decoded (")), "{message}");
        assert!(message.ends_with("); expected an undamaged JPEG or PNG image"), "{message}");
    }
}

#[test]
fn a_file_that_the_decoder_panics_at_or_misreads_is_an_error() {
    let message = |name: &str, bytes: &[u8]| decode_named(name, bytes).unwrap_err().to_string();
    let expected = "adobe.jpg: cannot be decoded (its parts contradict each other); expected an undamaged JPEG or PNG \
                    image";
    assert_eq!(message("adobe.jpg", include_bytes!("fixtures/adobe.jpg")), expected);
    let expected = "scans.jpg: has separate scans for its colours, and fewer pixels of some; expected all colours in \
                    one scan, or a progressive JPEG; save it again";
    assert_eq!(message("scans.jpg", include_bytes!("fixtures/scans.jpg")), expected);
}

#[test]
fn an_image_of_absurd_size_is_refused_before_memory_is_asked_for() {
    let mut jpeg = COLOURS.to_vec();
    // The frame's header: a marker, its length, the bits of a sample, then height and width.
    let frame = jpeg.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 9].fill(0xff);
    let expected = "huge.jpg: claims to be an image of 65535×65535 pixels; expected at most 178956970 pixels; make it \
                    smaller";
    assert_eq!(decode_named("huge.jpg", &jpeg).unwrap_err().to_string(), expected);

    let mut png = Vec::new();
    let mut writer = Encoder::new(&mut png, 1 << 30, 1 << 30).write_header().unwrap();
    writer.write_chunk(png::chunk::IDAT, &[0]).unwrap();
    drop(writer);
    let expected = "huge.png: claims to be an image of 1073741824×1073741824 pixels; expected at most 178956970 \
                    pixels; make it smaller";
    assert_eq!(decode_named("huge.png", &png).unwrap_err().to_string(), expected);
}
