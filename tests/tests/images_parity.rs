//! Images equal Pillow's and torchvision's, for the same photograph in many file formats.

use crate::prelude::*;

/// The results for each picture in Rust and in Python, by `FILE/STEP`.
fn both() -> Result<Arc<[Tensors; 2]>> {
    static BOTH: Shared<[Tensors; 2]> = Shared::new();
    BOTH.get((), || {
        let photo = workspace().join("tests/images/grace_hopper.jpg").display().to_string();
        let job = Job::done(python("images", [&*photo, "pictures", "python.safetensors"])?)?;
        job.run(example("images", ["pictures", "rust.safetensors"])?)?.expect_success()?;
        Ok([job.tensors("rust.safetensors")?, job.tensors("python.safetensors")?])
    })
}

/// The tensors of both sides; they have the same type and shape.
fn pair(name: &str) -> Result<[Tensor; 2]> {
    let [rust, python] =
        both()?.each_ref().map(|all| all.get(name).cloned().with_context(|| format!("no {name}")));
    let (rust, python) = (rust?, python?);
    ensure!((&rust.dtype, &rust.shape) == (&python.dtype, &python.shape), "{name}");
    Ok([rust, python])
}

/// Expects that the bytes differ by at most `largest` anywhere, and by at most `mean` on average.
fn expect_near(name: &str, largest: u8, mean: f64) -> Result<()> {
    let [rust, python] = pair(name)?;
    ensure!(rust.dtype == "U8", "{name} is {}", rust.dtype);
    let levels = || rust.bytes.iter().zip(&python.bytes).map(|(a, b)| a.abs_diff(*b));
    let sum: f64 = levels().map(f64::from).sum();
    let found = (levels().max().unwrap_or_default(), sum / rust.bytes.len() as f64);
    ensure!(found.0 <= largest && found.1 <= mean, "{name} differs by {found:?}");
    Ok(())
}

fn expect_all_near(kinds: &[&str], end: &str, largest: u8, mean: f64) -> Result<()> {
    kinds.iter().try_for_each(|kind| expect_near(&format!("{kind}.{end}"), largest, mean))
}

cases! {
    fn png_files_of_all_kinds_are_decoded_to_pillows_bytes() = expect_all_near(
        &["rgb", "rgba", "grey", "grey_alpha", "palette", "black_and_white"], "png/decoded", 0, 0.0);
    /// The two decoders round at different points of the cosine transform and of the colour conversion. Measured: at
    /// most 4 levels, mean 0.16.
    fn jpeg_files_of_all_kinds_are_decoded_to_pillows_pixels_but_for_rounding() = expect_all_near(
        &["444", "422", "420", "coarse", "progressive", "restarts", "grey", "cmyk"], "jpg/decoded", 4, 0.2);
    /// Both round to bytes between the two directions, but one begins with the rows, the other with the columns.
    /// Measured: mean 0.2 levels.
    fn resized_images_are_torchvisions_within_one_level() = ["evaluated", "shrunk", "enlarged"].iter().try_for_each(
        |step| expect_all_near(&["rgb", "grey", "palette"], &format!("png/{step}"), 1, 0.25));
}

#[test]
fn normalised_pixels_are_torchvisions_to_the_last_bit() -> Result<()> {
    for file in ["rgb.png", "grey.png", "palette.png"] {
        let [rust, python] = pair(&format!("{file}/normalized"))?;
        ensure!(rust.dtype == "F32" && rust.shape == [3, 224, 224], "{file}: {:?}", rust.shape);
        ensure!(rust == python, "{file} differs");
    }
    Ok(())
}
