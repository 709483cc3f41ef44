use super::*;
use crate::plot::testing::{awkward_names, read};
use crate::plot::{Axis, Scale};

fn chart(names: &[String], curves: &[&[(f64, f64)]]) -> Lines {
    let axis = |title: &str| Axis { title: title.into(), scale: Scale::Linear };
    let series = names
        .iter()
        .zip(curves)
        .map(|(name, points)| Series { name: name.clone(), points: points.to_vec() });
    Lines { title: "Loss".into(), x: axis("step"), y: axis("loss"), series: series.collect() }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("method {index}")).collect()
}

#[test]
fn every_curve_has_a_panel_with_the_same_axes() {
    let (steep, flat) = (&[(0.0, 3.0), (10.0, 1.0)][..], &[(0.0, 3.0), (20.0, 2.0)][..]);
    let drawing = read(&panels(&chart(&names(3), &[steep, flat, steep])).unwrap());
    let [first, second, third] = &drawing.curves[..] else { panic!("not three curves") };
    // Beside the first, and below it.
    assert!(second[0].0 > first[1].0 && second[0].1 == first[0].1);
    assert!(third[0].0 == first[0].0 && third[0].1 > first[1].1);
    let size = |curve: &[(f64, f64)]| (curve[1].0 - curve[0].0, curve[1].1 - curve[0].1);
    let ((width, height), (wide, low)) = (size(first), size(second));
    assert!(width > 1.0 && height > 1.0);
    // Coordinates have two decimals.
    assert!((wide - 2.0 * width).abs() < 0.05 && (low - height / 2.0).abs() < 0.05);
    assert!((size(third).1 - height).abs() < 0.05);
}

#[test]
fn the_other_curves_are_faint_behind_each() {
    let curve = &[(0.0, 1.0), (1.0, 2.0)][..];
    for count in [1, 2, 12] {
        let svg = panels(&chart(&names(count), &vec![curve; count])).unwrap();
        assert_eq!(svg.matches("<polyline").count(), count * count);
        let faint = format!("stroke-linejoin=\"round\" stroke-opacity=\"{FAINT}\"");
        assert_eq!(svg.matches(&faint).count(), count * (count - 1));
    }
}

#[test]
fn the_axes_are_labelled_at_the_edges() {
    let curve = &[(0.0, 5.0), (9.0, 6.0)][..];
    let texts = read(&panels(&chart(&names(9), &[curve; 9])).unwrap()).texts;
    let count = |label: &str| texts.iter().filter(|text| *text == label).count();
    // Below the last panel of each column, and to the left of each of five rows, where there is no
    // room for every tick.
    assert_eq!((count("8"), count("5.4"), count("5.2")), (2, 5, 0));
    assert_eq!((count("step"), count("loss"), count("method 8")), (1, 1, 1));
}

#[test]
fn a_single_point_is_a_dot() {
    let svg = panels(&chart(&names(2), &[&[(0.0, 1.0)], &[(0.0, 1.0), (1.0, 2.0)]])).unwrap();
    assert_eq!(svg.matches("<circle").count(), 1);
}

#[test]
fn awkward_names_are_drawn_inside_the_card() {
    let points = [(-1e7, 0.1), (3.0, 1e-7)];
    for title in awkward_names() {
        let axis = Axis { title: title.clone(), scale: Scale::Linear };
        let Lines { series, .. } = chart(&awkward_names(), &[&points[..]; 6]);
        let chart = Lines { title, x: axis.clone(), y: axis, series };
        let svg = panels(&chart).unwrap();
        assert_eq!(read(&svg).curves.len(), 6);
        assert_eq!(svg, panels(&chart).unwrap());
    }
}

#[test]
fn data_that_makes_no_chart_is_refused() {
    let error = panels(&chart(&[], &[])).unwrap_err().to_string();
    assert_eq!(error, "series is empty, but must be a list of at least one");
}
