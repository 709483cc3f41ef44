use super::*;
use roxmltree::Document;
use std::time::Duration;

/// A chart's texts, rectangles (left, top, width, height, colour) but the card, circles (x, y), and curves' points.
struct Drawing {
    texts: Vec<String>,
    areas: Vec<([f64; 4], String)>,
    dots: Vec<[f64; 2]>,
    curves: Vec<Vec<[f64; 2]>>,
}

fn read(svg: &str) -> Drawing {
    let document = Document::parse(svg).unwrap();
    let named = |name: &'static str| document.descendants().filter(move |n| n.has_tag_name(name));
    fn at<const N: usize>(node: roxmltree::Node<'_, '_>, names: [&str; N]) -> [f64; N] {
        names.map(|name| node.attribute(name).unwrap().parse().unwrap())
    }
    let area = ["x", "y", "width", "height"];
    let curve = |text: &str| -> Vec<[f64; 2]> {
        let points = text.split_whitespace().filter_map(|point| point.split_once(','));
        points.map(|(x, y)| [x, y].map(|number| number.parse().unwrap())).collect()
    };
    Drawing {
        texts: named("text").map(|node| node.text().unwrap().trim().into()).collect(),
        areas: named("rect")
            .skip(1)
            .map(|node| (at(node, area), node.attribute("fill").unwrap().into()))
            .collect(),
        dots: named("circle").map(|node| at(node, ["cx", "cy"])).collect(),
        curves: named("polyline").map(|node| curve(node.attribute("points").unwrap())).collect(),
    }
}

/// Coordinates are whole numbers.
fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() <= 2.0, "{value} is not near {expected}");
}

fn columns(values: &[[f64; 2]]) -> Bars {
    let group = |(index, values): (usize, &[f64; 2])| (format!("way {index}"), values.to_vec());
    let groups = values.iter().enumerate().map(group);
    Bars::undivided("Speed", "rate", "images/s", &["one", "two"], groups)
}

fn series(name: &str, points: &[(f64, f64)]) -> Series {
    Series { name: name.into(), points: points.to_vec() }
}

fn curves(scale: Scale, series: &[Series]) -> Lines {
    Lines::new("Loss", ["step", "loss"], scale, series.to_vec())
}

fn span(category: &str, start: u64, duration: u64) -> Span {
    let [start, duration] = [start, duration].map(Duration::from_millis);
    Span { category: category.into(), start, duration }
}

fn lanes(lanes: &[&[Span]]) -> Timeline {
    let lane = |(index, spans): (usize, &&[Span])| Lane {
        name: format!("cpu:{index}"),
        spans: spans.to_vec(),
    };
    Timeline {
        title: "One step".into(),
        categories: ["forward", "backward", "step"].map(String::from).to_vec(),
        lanes: lanes.iter().enumerate().map(lane).collect(),
    }
}

#[test]
fn the_length_of_a_bar_is_the_sum_of_its_parts_which_is_written_at_its_end() {
    let chart = Bars {
        unit: Unit::Bytes,
        parts: vec!["parameters".into(), "gradients".into()],
        members: vec!["cpu:0".into()],
        groups: vec![
            Group { name: "ddp".into(), values: vec![vec![2048.0, 1024.0]] },
            Group { name: "zero".into(), values: vec![vec![1024.0, 1024.0]] },
        ],
        ..columns(&[])
    };
    let Drawing { texts, areas, .. } = read(&bars(&chart).unwrap());
    for text in ["Speed", "parameters", "gradients", "ddp", "zero", "rate (KiB)", "3.00", "2.00"] {
        assert!(texts.iter().any(|found| found == text), "{text} is not in {texts:?}");
    }
    // Two squares of the legend.
    let [_, _, (long, parameters), (next, gradients), (short, _), (end, _)] = &areas[..] else {
        panic!("{areas:?}")
    };
    assert_ne!(parameters, gradients);
    assert_near(long[0] + long[2], next[0]);
    assert_near(long[2], 2.0 * next[2]);
    assert_near(short[2], end[2]);
    assert_near(end[2], next[2]);
    assert!(short[1] > long[1] && long[1] == next[1]);
}

#[test]
fn bars_of_several_members_stand_below_the_name_of_their_group() {
    let texts = read(&bars(&columns(&[[1.0, 0.0], [2.0, 4.0]])).unwrap()).texts;
    let of_rows: Vec<_> = texts.iter().skip_while(|text| *text != "way 0").collect();
    let rows = ["way 0", "one", "1.00", "two", "0", "way 1", "one", "2.00", "two", "4.00"];
    assert_eq!(of_rows, rows);
}

#[test]
fn equal_differences_or_equal_ratios_have_equal_lengths() {
    let linear = [(0.0, 3.0), (10.0, 2.0), (20.0, 1.0)];
    let log = [(1.0, 8.0), (10.0, 4.0), (100.0, 2.0)];
    for (scale, points) in [(Scale::Linear, linear), (Scale::Log, log)] {
        let Drawing { curves, dots, .. } =
            read(&lines(&curves(scale, &[series("a", &points)])).unwrap());
        let [a, b, c] = curves.last().unwrap()[..] else { panic!("{curves:?}") };
        assert_near(b[0] - a[0], c[0] - b[0]);
        assert_near(b[1] - a[1], c[1] - b[1]);
        assert!(b[0] > a[0] + 100.0 && b[1] > a[1] + 100.0);
        assert_eq!(dots, [a, b, c]);
    }
}

#[test]
fn equal_curves_are_both_seen_and_a_single_one_needs_no_legend() {
    let curve = |name| series(name, &[(0.0, 1.0), (1.0, 2.0)]);
    let one = read(&lines(&curves(Scale::Linear, &[curve("a")])).unwrap());
    assert!(!one.texts.contains(&"a".into()));
    let two = read(&lines(&curves(Scale::Linear, &[curve("a"), curve("b")])).unwrap());
    assert_eq!(two.texts[..4], ["Loss", "a", "b", "loss"]);
    // The second is of dashes, each of which is a line.
    assert!(two.curves.len() > one.curves.len() + 10);
}

#[test]
fn every_curve_has_a_panel_with_the_others_behind_it() {
    let names = ["a", "b", "c"];
    let points: Vec<_> = (0..4).map(|x| (f64::from(x), f64::from(x * x))).collect();
    let chart = curves(Scale::Linear, &names.map(|name| series(name, &points)));
    let Drawing { texts, curves, .. } = read(&panels(&chart).unwrap());
    assert!(names.iter().all(|name| texts.contains(&name.to_string())));
    let curves: Vec<_> = curves.iter().filter(|curve| curve.len() == 4).collect();
    let [first, .., last] = &curves[..] else { panic!("{curves:?}") };
    assert_eq!(curves.len(), 9);
    // The third panel is below the first.
    assert_near(first[0][0], last[0][0]);
    assert!(last[3][1] > first[0][1]);
}

#[test]
fn spans_are_drawn_to_scale_from_the_first_one_on_and_below_each_other_if_they_overlap() {
    let first = [span("backward", 500, 200), span("forward", 400, 100), span("step", 450, 0)];
    let Drawing { areas, texts, .. } =
        read(&timeline(&lanes(&[&first, &[span("forward", 450, 50)]])).unwrap());
    // After three squares of the legend and the shade of the first lane.
    let [_, _, _, _, backward, forward, step, other] =
        &areas.iter().map(|area| area.0).collect::<Vec<_>>()[..]
    else {
        panic!("{areas:?}")
    };
    assert_near(forward[0] + forward[2], backward[0]);
    assert_near(backward[2], 2.0 * forward[2]);
    assert_near(other[0] + other[2], backward[0]);
    assert_near(other[2], forward[2] / 2.0);
    assert!(step[1] > forward[1] && forward[1] == backward[1] && other[1] > step[1]);
    // However short it is.
    assert!(step[2] >= 3.0);
    assert_eq!(texts[..4], ["One step", "forward", "backward", "step"]);
}

#[test]
fn a_chart_has_the_colours_of_its_page_and_any_name() {
    let title = "a <b> & \"c\" \u{1F600} with many words that do not fit into one line of a card";
    let chart = Bars { title: title.into(), ..columns(&[[1.0, 2.0]]) };
    let svg = bars(&chart).unwrap();
    assert_eq!(svg, bars(&chart).unwrap());
    let texts = read(&svg).texts;
    assert!(title.starts_with(&texts[0]) && title.contains(&texts[1]), "{texts:?}");
    assert!(svg.contains("class=\"card\" ") && svg.contains("currentColor"));
    assert!(!svg.contains("#000000"));
}

#[test]
fn data_that_makes_no_chart_is_refused() {
    let one = [[1.0, 2.0]];
    let mut missing = columns(&one);
    missing.groups[0].values.pop();
    let mut uneven = columns(&one);
    uneven.groups[0].values[1].push(1.0);
    let infinite = series("a", &[(0.0, 1.0), (1.0, f64::INFINITY)]);
    let points = |points: &[(f64, f64)]| [series("a", points)];
    let categories = vec!["forward".into(); 10];
    let of = "of group \"way 0\"";
    let cases = [
        (bars(&columns(&[])), "groups is empty, but must be a list of at least one".into()),
        (bars(&missing), "group \"way 0\" is a list of 1, but must be of 2 (one for each member: one, two)".into()),
        (bars(&uneven), format!("member \"two\" {of} is a list of 2, but must be of 1 (one for each part: rate)")),
        (bars(&columns(&[[1.0, f64::NAN]])), format!("member \"two\" {of} is NaN, but must be a finite number not below 0")),
        (bars(&columns(&[[-1.0, 1.0]])), format!("member \"one\" {of} is -1, but must be a finite number not below 0")),
        (lines(&curves(Scale::Linear, &[])), "series is empty, but must be a list of at least one".into()),
        (panels(&curves(Scale::Linear, &[])), "series is empty, but must be a list of at least one".into()),
        (lines(&curves(Scale::Linear, &points(&[]))), "series \"a\" is without a point, but must be a list of at least one".into()),
        (lines(&curves(Scale::Linear, &[infinite])), "y of point 1 of series \"a\" is inf, but must be a finite number".into()),
        (lines(&curves(Scale::Log, &points(&[(0.0, 1.0)]))), "x of point 0 of series \"a\" is 0, but must be above 0 on a logarithmic axis".into()),
        (lines(&curves(Scale::Linear, &vec![series("a", &[(1.0, 1.0)]); 10])), "series is a list of 10, but must be at most nine, since more colours could not be told apart".into()),
        (timeline(&lanes(&[&[]])), "lanes is a list without any span, but must be at least one lane with a span".into()),
        (timeline(&lanes(&[&[span("gather", 0, 1)]])), "category of a span is \"gather\", but must be one of the chart's: forward, backward, step".into()),
        (timeline(&Timeline { categories, ..lanes(&[&[span("forward", 0, 1)]]) }), "categories is a list of 10, but must be at most nine, since more colours could not be told apart".into()),
    ];
    for (drawn, expected) in cases {
        assert_eq!(drawn.unwrap_err().to_string(), expected);
    }
}
