use super::*;
use crate::plot::testing::{awkward_names, read};

fn span(category: &str, start: u64, duration: u64) -> Span {
    let [start, duration] = [start, duration].map(Duration::from_millis);
    Span { category: category.into(), start, duration }
}

fn lane(name: &str, spans: &[Span]) -> Lane {
    Lane { name: name.into(), spans: spans.to_vec() }
}

fn chart(lanes: &[Lane]) -> Timeline {
    Timeline {
        title: "One step".into(),
        categories: ["forward", "backward", "step"].map(String::from).to_vec(),
        lanes: lanes.to_vec(),
    }
}

#[test]
fn spans_are_drawn_to_scale_from_the_first_one_on() {
    let lanes = [
        lane("cpu:0", &[span("backward", 500, 200), span("forward", 400, 100)]),
        lane("cpu:1", &[span("forward", 450, 50)]),
    ];
    let areas = read(&timeline(&chart(&lanes)).unwrap()).areas;
    let tooltips: Vec<_> = areas.iter().map(|area| area.tooltip.as_str()).collect();
    let expected = [
        "cpu:0, backward: 200.000 ms, from 100.000 ms",
        "cpu:0, forward: 100.000 ms, from 0.000 ms",
        "cpu:1, forward: 50.000 ms, from 50.000 ms",
    ];
    assert_eq!(tooltips, expected);
    let [backward, forward, other] = &areas[..] else { panic!("{} spans", areas.len()) };
    let unit = (forward.right - forward.left) / 100.0;
    // Coordinates have two decimals.
    let near = |left: f64, right: f64| assert!((left - right).abs() < 0.03, "{left} {right}");
    near(backward.left, forward.right);
    near(backward.right - backward.left, 200.0 * unit);
    near(other.left, forward.left + 50.0 * unit);
    near(other.right, forward.right);
    assert_eq!(backward.top, forward.top);
    assert!(other.top > forward.top);
    assert_eq!(other.fill, forward.fill);
    assert_ne!(backward.fill, forward.fill);
}

#[test]
fn spans_at_the_same_time_are_drawn_below_each_other() {
    let lanes = [
        lane("cpu:0", &[span("forward", 0, 9), span("step", 2, 3), span("step", 5, 2)]),
        lane("cpu:1", &[span("forward", 0, 9)]),
    ];
    let areas = read(&timeline(&chart(&lanes)).unwrap()).areas;
    let tops: Vec<_> = areas.iter().map(|area| area.top).collect();
    assert!(tops[0] < tops[1] && tops[1] == tops[2] && tops[2] < tops[3], "{tops:?}");
}

#[test]
fn a_span_too_short_for_the_scale_is_seen_all_the_same() {
    let spans =
        [span("forward", 0, 50_000), span("step", 50_000, 0), span("backward", 50_000, 50_000)];
    let areas = read(&timeline(&chart(&[lane("cpu:0", &spans)])).unwrap()).areas;
    let last = areas.last().unwrap();
    assert!(last.tooltip.starts_with("cpu:0, step: 0.000 ms"), "{}", last.tooltip);
    assert!((last.right - last.left - 1.0).abs() < 0.03);
}

#[test]
fn the_legend_names_the_categories_that_occur() {
    let lanes = [lane("cpu:0", &[span("step", 0, 1), span("forward", 1, 1_000)])];
    let texts = read(&timeline(&chart(&lanes)).unwrap()).texts;
    assert_eq!(texts[..4], ["One step", "forward", "step", "cpu:0"]);
}

#[test]
fn awkward_names_are_drawn_inside_the_card() {
    let categories = awkward_names();
    let lanes: Vec<_> =
        categories.iter().map(|name| lane(name, &[span(name, 1, 200_000)])).collect();
    for title in awkward_names() {
        let chart = Timeline { title, categories: categories.clone(), lanes: lanes.clone() };
        let svg = timeline(&chart).unwrap();
        assert_eq!(read(&svg).areas.len(), 6);
        assert_eq!(svg, timeline(&chart).unwrap());
    }
}

#[test]
fn data_that_makes_no_chart_is_refused() {
    let refused = |chart: &Timeline| timeline(chart).unwrap_err().to_string();
    for lanes in [&[][..], &[lane("cpu:0", &[])]] {
        assert_eq!(
            refused(&chart(lanes)),
            "lanes is a list without any span, but must be at least one lane with a span"
        );
    }
    assert_eq!(
        refused(&chart(&[lane("cpu:0", &[span("gather", 0, 1)])])),
        "category of a span is \"gather\", but must be one of the chart's: forward, backward, step"
    );
    let categories = vec!["forward".into(); 10];
    assert_eq!(
        refused(&Timeline { categories, ..chart(&[lane("cpu:0", &[span("forward", 0, 1)])]) }),
        "categories is a list of 10, but must be at most nine, since more colours could not be \
         told apart"
    );
}
