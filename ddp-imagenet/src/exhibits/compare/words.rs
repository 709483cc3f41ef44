//! The comparison's table, `table.jinja`, and the same in words beside the article's numbers, `explain.jinja`.

use super::runs::Measured;
use exhibit_kit::template;
use minijinja::{Error, Value, context, value::Serde};
use report::{DeviceReport, flag_value, hours};

const TEXT: &str = include_str!("explain.jinja");

/// Classes of CIFAR-10: the numbers in the network's output for an image.
const CLASSES: usize = 10;

/// A row for each training, and below them a row for each of its devices.
pub fn tables_of(measured: &[Measured]) -> Result<String, Error> {
    let trainings: Vec<_> = measured.iter().map(numbers).collect();
    template::environment()?.render_str(include_str!("table.jinja"), context! { trainings })
}

/// Paragraphs on time and memory, and on what the article says of them.
pub fn explain(measured: &[Measured; 5]) -> Result<String, Error> {
    let [single, sgd, adam, ddp, apex] = measured.each_ref().map(numbers);
    template::environment()?.render_str(TEXT, context! { single, sgd, adam, ddp, apex })
}

fn numbers(found: &Measured) -> Value {
    let highest_other = found.devices[1..].iter().map(|device| device.peak).max().unwrap_or(0);
    let gathered = found.batch_size() - found.images;
    context! {
        run => found.name.clone(),
        method => flag_value(&found.method),
        images => found.images,
        images_per_second => found.images_per_second(),
        batch_seconds => found.batch_seconds,
        fetch_seconds => found.fetch_seconds,
        fetch_percent => 100.0 * found.fetch_seconds / found.seconds(),
        epoch => hours(found.epoch_seconds().round() as u64),
        is_whole_epoch => found.epoch_seconds.is_some(),
        devices => Serde(&found.devices),
        surplus => found.devices[0].peak as i64 - highest_other as i64,
        others => found.devices.iter().map(DeviceReport::others).max(),
        gathered,
        gathered_bytes => output_bytes(gathered),
    }
}

fn output_bytes(images: usize) -> usize {
    images * CLASSES * size_of::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exhibits::train_cifar::Method;
    use report::{size, thousands};

    const CIFAR10_IMAGES: usize = 50_000;

    fn assert_says(expected: &str) {
        assert!(TEXT.replace('\n', " ").contains(expected), "{expected}");
    }

    #[test]
    fn the_articles_outputs_are_30_720_bytes() {
        // S4.42
        assert_eq!(output_bytes(768), 30_720);
        assert_says("768 x 10 numbers are 30,720 bytes");
    }

    #[test]
    fn the_articles_optimizers_have_one_number_for_each_parameter_or_two() {
        let parameters = 24_253_410;
        let numbers = |count: usize| size(count * size_of::<f32>());
        let (adam, sgd) = (numbers(2 * parameters), numbers(parameters));
        assert_says(&format!("{adam} for {} parameters, SGD's {sgd}:", thousands(parameters)));
    }

    #[test]
    fn an_epoch_of_cifar_10_has_209_batches_of_240_and_66_of_768() {
        let batches = |images: usize, batch: usize| (images.div_ceil(batch), images % batch);
        assert_eq!(batches(CIFAR10_IMAGES, 240), (209, 80));
        assert_eq!(batches(CIFAR10_IMAGES, 768), (66, 80));
        assert_says("in 209 batches of 240, and 5 on 4, in 66 of 768");
        assert_eq!(batches(CIFAR10_IMAGES, 512).0, 98);
        // A rank's quarter, in batches of its own.
        assert_eq!(batches(CIFAR10_IMAGES / 4, 192), (66, 20));
        assert_eq!(batches(CIFAR10_IMAGES / 4, 60), (209, 20));
        assert_says("On each of the 4 a batch has 192 images");
    }

    #[test]
    fn the_articles_minutes_follow_from_its_seconds() {
        // S4.44 and S4.45: 209 batches of 6 to 7 s, 66 of 5 s.
        let minutes = |batches: f64, seconds: f64| batches * seconds / 60.0;
        assert!((minutes(209.0, 6.0)..minutes(209.0, 7.0)).contains(&22.0));
        assert_eq!(minutes(66.0, 5.0), 5.5);
        assert_says("66 batches of 5 s take 5.5 minutes");
    }

    /// S4.44 and S4.45: 22 minutes, and 5.
    #[test]
    fn the_articles_numbers_make_this_table() {
        let device = |index| DeviceReport {
            device: format!("cuda:{index}"),
            peak: 10 << 30,
            idle_share: 0.01,
            ..Default::default()
        };
        let article = |method: Method, images, devices, batches, batch_seconds| Measured {
            name: format!("{}, SGD", flag_value(&method)),
            method,
            images,
            devices: (0..devices).map(device).collect(),
            batches,
            batch_seconds,
            fetch_seconds: 0.0,
            epoch_seconds: None,
        };
        let single = article(Method::Single, 240, 1, 209, 6.3);
        let text = tables_of(&[single, article(Method::DataParallel, 192, 4, 66, 5.0)]).unwrap();
        let row = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let rows: Vec<_> = text.lines().skip(1).map(row).collect();
        let trainings = [
            "single, SGD 1 x 240 6.300 s 0.000 s 0:21:57 projected 38.1",
            "data-parallel, SGD 4 x 192 5.000 s 0.000 s 0:05:30 projected 153.6",
        ];
        assert_eq!(rows[..2], trainings);
        assert_eq!(rows[4], "single, SGD cuda:0 10.0 GiB 10,737,418,240 99 %");
        assert_eq!(rows[8], "cuda:3 10.0 GiB 10,737,418,240 99 %");
    }
}
