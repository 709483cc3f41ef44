use super::*;
use crate::images::image::tests::grey;

#[test]
fn a_crop_is_black_outside_of_the_image() {
    let image = grey(3, 2, &[1, 2, 3, 4, 5, 6]);
    let inside = crop(&image, 0, 1, 2).unwrap();
    assert_eq!(inside, grey(2, 2, &[2, 3, 5, 6]));
    let top_left = crop(&image, -1, -1, 3).unwrap();
    assert_eq!(top_left, grey(3, 3, &[0, 0, 0, 0, 1, 2, 0, 4, 5]));
    let bottom_right = crop(&image, 1, 2, 2).unwrap();
    assert_eq!(bottom_right, grey(2, 2, &[6, 0, 0, 0]));
    for (top, left) in [(-2, 0), (2, 0), (0, -2), (0, 3), (isize::MIN, isize::MAX)] {
        assert_eq!(crop(&image, top, left, 2).unwrap(), grey(2, 2, &[0; 4]), "{top}, {left}");
    }
}

#[test]
fn the_pixels_around_a_part_do_not_show_in_it() {
    let image = grey(4, 3, &[9, 9, 9, 9, 9, 200, 200, 9, 9, 9, 9, 9]);
    let part = CropBox { top: 1, left: 1, height: 1, width: 2 };
    assert_eq!(resized_crop(&image, part, 5, 5).unwrap(), grey(5, 5, &[200; 25]));
}

#[test]
fn a_part_that_does_not_lie_in_the_image_is_refused() {
    let image = grey(2, 2, &[0; 4]);
    let part = CropBox { top: 1, left: 0, height: 2, width: 1 };
    let message = resized_crop(&image, part, 2, 2).unwrap_err().to_string();
    let expected = "part of an image to resize is CropBox { top: 1, left: 0, height: 2, width: 1 } \
                    to 2×2, but must be inside of Image(2×2) (";
    assert!(message.starts_with(expected), "{message}");
}
