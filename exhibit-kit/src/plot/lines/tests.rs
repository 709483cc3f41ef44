use super::*;
use crate::plot::testing::{awkward_names, read};

fn series(name: &str, points: &[(f64, f64)]) -> Series {
    Series { name: name.into(), points: points.to_vec() }
}

fn chart(scale: Scale, series: &[Series]) -> Lines {
    let axis = |title: &str| Axis { title: title.into(), scale };
    let title = "Loss".into();
    Lines { title, x: axis("step"), y: axis("loss"), series: series.to_vec() }
}

/// The distances between the points of a curve, to the right and up, are these multiples of the first.
fn assert_distances(scale: Scale, points: &[(f64, f64)], multiples: [(f64, f64); 2]) {
    let drawing = read(&lines(&chart(scale, &[series("a", points)])).unwrap());
    let pairs = drawing.curves[0].windows(2);
    let distances: Vec<_> =
        pairs.map(|pair| (pair[1].0 - pair[0].0, pair[0].1 - pair[1].1)).collect();
    let [a, b, c] = distances[..] else { panic!("not three distances") };
    assert!(a.0 > 1.0 && a.1 < -1.0, "{a:?}");
    // Coordinates have two decimals.
    for (is, (right, up)) in [b, c].into_iter().zip(multiples) {
        assert!((is.0 - right * a.0).abs() < 0.05 && (is.1 - up * a.1).abs() < 0.05, "{is:?}");
    }
}

#[test]
fn equal_differences_have_equal_lengths_on_a_linear_scale() {
    let points = [(0.0, 3.0), (10.0, 2.0), (20.0, 1.0), (60.0, 1.5)];
    assert_distances(Scale::Linear, &points, [(1.0, 1.0), (4.0, -0.5)]);
}

#[test]
fn equal_ratios_have_equal_lengths_on_a_logarithmic_scale() {
    let points = [(1.0, 8.0), (10.0, 4.0), (100.0, 2.0), (1e4, 4.0)];
    assert_distances(Scale::Log, &points, [(1.0, 1.0), (2.0, -1.0)]);
}

#[test]
fn a_single_curve_needs_no_legend() {
    let curve = |name| series(name, &[(0.0, 1.0), (1.0, 2.0)]);
    let texts = read(&lines(&chart(Scale::Linear, &[curve("a")])).unwrap()).texts;
    assert_eq!(texts[..2], ["Loss", "loss"]);
    let texts = read(&lines(&chart(Scale::Linear, &[curve("a"), curve("b")])).unwrap()).texts;
    assert_eq!(texts[..4], ["Loss", "a", "b", "loss"]);
}

#[test]
fn equal_curves_are_both_seen() {
    let curve = |name| series(name, &[(0.0, 1.0), (1.0, 2.0)]);
    let svg = lines(&chart(Scale::Linear, &[curve("a"), curve("b")])).unwrap();
    let drawing = read(&svg);
    assert_eq!(drawing.curves[0], drawing.curves[1]);
    // One in the legend, one in the chart.
    assert_eq!(svg.matches("stroke-dasharray=\"10 6\"").count(), 2);
}

#[test]
fn a_chart_of_many_points_has_dots_for_single_ones_only() {
    let points: Vec<_> = (0..97).map(|x| (f64::from(x), 0.0)).collect();
    let circles = |curves: &[&[(f64, f64)]]| {
        let curves: Vec<_> = curves.iter().map(|points| series("a", points)).collect();
        lines(&chart(Scale::Linear, &curves)).unwrap().matches("<circle").count()
    };
    assert_eq!(circles(&[&points[..96]]), 96);
    assert_eq!(circles(&[&points[..]]), 0);
    assert_eq!(circles(&[&points[..48], &points[48..96]]), 96);
    assert_eq!(circles(&[&points[..48], &points[48..]]), 0);
    assert_eq!(circles(&[&points[..96], &points[96..]]), 1);
}

#[test]
fn awkward_names_are_drawn_inside_the_card() {
    for title in awkward_names() {
        let axis = Axis { title: title.clone(), scale: Scale::Linear };
        let points = [(-1e7, 0.1), (3.0, 1e-7)];
        let series = awkward_names().iter().map(|name| series(name, &points)).collect();
        let chart = Lines { title, x: axis.clone(), y: axis, series };
        let svg = lines(&chart).unwrap();
        assert_eq!(read(&svg).curves.len(), 6);
        assert_eq!(svg, lines(&chart).unwrap());
    }
}

#[test]
fn data_that_makes_no_chart_is_refused() {
    let refused = |scale, series: &[Series]| lines(&chart(scale, series)).unwrap_err().to_string();
    assert_eq!(refused(Scale::Linear, &[]), "series is empty, but must be a list of at least one");
    let expected = "series \"a\" is without a point, but must be a list of at least one";
    assert_eq!(refused(Scale::Linear, &[series("a", &[])]), expected);
    let infinite = series("a", &[(0.0, 1.0), (1.0, f64::INFINITY)]);
    let expected = "y of point 1 of series \"a\" is inf, but must be a finite number";
    assert_eq!(refused(Scale::Linear, &[infinite]), expected);
    let expected = "x of point 0 of series \"a\" is 0, but must be above 0 on a logarithmic axis";
    assert_eq!(refused(Scale::Log, &[series("a", &[(0.0, 1.0)])]), expected);
    let curve = series("a", &[(1.0, 1.0)]);
    assert!(refused(Scale::Linear, &vec![curve; 10]).contains("at most nine"));
}
