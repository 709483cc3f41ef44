use super::*;
use crate::plot::testing::{awkward_names, read};

const MIB: f64 = 1_048_576.0;

fn chart(values: &[[[f64; 2]; 2]]) -> Bars {
    let group = |(index, members): (usize, &[[f64; 2]; 2])| Group {
        name: format!("method {index}"),
        values: members.map(Vec::from).to_vec(),
    };
    Bars {
        title: "Peak memory".into(),
        axis: "memory".into(),
        unit: Unit::Bytes,
        parts: ["parameters", "gradients"].map(String::from).to_vec(),
        members: ["cuda:0", "cuda:1"].map(String::from).to_vec(),
        groups: values.iter().enumerate().map(group).collect(),
    }
}

fn plain(values: &[(&str, f64)]) -> Bars {
    let groups = values.iter().map(|(name, value)| ((*name).to_owned(), vec![*value]));
    Bars::undivided("Throughput", "throughput", "images/s", "throughput", &[""], groups)
}

#[test]
fn parts_are_drawn_to_scale_one_after_the_other() {
    let values = [[[30.0 * MIB, 90.0 * MIB], [60.0 * MIB, 0.0]], [[0.0, 0.0], [0.0, 15.5]]];
    let areas = read(&bars(&chart(&values)).unwrap()).areas;
    let tooltips: Vec<_> = areas.iter().map(|area| area.tooltip.as_str()).collect();
    let expected = [
        "method 0, cuda:0, parameters: 31457280 bytes",
        "method 0, cuda:0, gradients: 94371840 bytes",
        "method 0, cuda:1, parameters: 62914560 bytes",
        "method 0, cuda:1, gradients: 0 bytes",
        "method 1, cuda:0, parameters: 0 bytes",
        "method 1, cuda:0, gradients: 0 bytes",
        "method 1, cuda:1, parameters: 0 bytes",
        "method 1, cuda:1, gradients: 15.5 bytes",
    ];
    assert_eq!(tooltips, expected);
    let width = |index: usize| areas[index].right - areas[index].left;
    // Coordinates have two decimals.
    for (index, times) in [(1, 3.0), (2, 2.0), (3, 0.0)] {
        assert!((width(index) - times * width(0)).abs() < 0.06, "part {index}");
    }
    assert!((areas[1].left - areas[0].right).abs() < 0.02);
    assert_eq!(areas[0].left, areas[2].left);
    assert!(areas.is_sorted_by_key(|area| area.top));
    assert_ne!(areas[0].fill, areas[1].fill);
    assert_eq!(areas[0].fill, areas[2].fill);
}

#[test]
fn a_bar_ends_with_its_sum_in_the_unit_of_the_axis() {
    for (unit, size) in [("bytes", 1.0), ("KiB", 1024.0), ("MiB", MIB), ("GiB", 1024.0 * MIB)] {
        let values = [[[1.5 * size, 2.0 * size], [0.0, 0.25 * size]]];
        let texts = read(&bars(&chart(&values)).unwrap()).texts;
        for text in ["3.50", "0.250", "cuda:0", "method 0", &format!("memory ({unit})")] {
            assert!(texts.iter().any(|other| other == text), "{text} is not in {texts:?}");
        }
    }
}

#[test]
fn a_plain_chart_has_neither_legend_nor_headings() {
    let texts = read(&bars(&plain(&[("one", 110.0), ("four", 402.7)])).unwrap()).texts;
    let axis = ["0", "100", "200", "300", "400", "throughput (images/s)"];
    assert_eq!(texts[0], "Throughput");
    assert_eq!(texts[1..7], axis);
    assert_eq!(texts[7..], ["one", "110", "four", "403"]);
}

#[test]
fn a_plain_chart_writes_long_names_above_its_bars() {
    let long = "DistributedDataParallel, mixed precision";
    let drawing = read(&bars(&plain(&[("one", 110.0), (long, 402.7)])).unwrap());
    assert!(drawing.texts.iter().any(|text| text == long), "{:?}", drawing.texts);
}

#[test]
fn a_chart_of_zeros_is_drawn() {
    let areas = read(&bars(&plain(&[("nothing", 0.0)])).unwrap()).areas;
    assert_eq!(areas[0].left, areas[0].right);
}

#[test]
fn awkward_names_are_drawn_inside_the_card() {
    let names = awkward_names();
    for title in awkward_names() {
        let values = vec![vec![1e9; names.len()]; names.len()];
        let groups = names.iter().map(|name| Group { name: name.clone(), values: values.clone() });
        let chart = Bars {
            axis: title.clone(),
            unit: Unit::Other(title.clone()),
            title,
            parts: names.clone(),
            members: names.clone(),
            groups: groups.collect(),
        };
        let svg = bars(&chart).unwrap();
        assert_eq!(read(&svg).areas.len(), names.len().pow(3));
        assert_eq!(svg, bars(&chart).unwrap());
    }
}

#[test]
fn data_that_makes_no_chart_is_refused() {
    let good = || chart(&[[[1.0, 2.0], [3.0, 4.0]]]);
    let with = |change: fn(&mut Bars)| {
        let mut chart = good();
        change(&mut chart);
        bars(&chart).unwrap_err().to_string()
    };
    bars(&good()).unwrap();
    assert_eq!(with(|c| c.groups.clear()), "groups is empty, but must be a list of at least one");
    assert_eq!(with(|c| c.members.clear()), "members is empty, but must be a list of at least one");
    assert_eq!(with(|c| c.parts.clear()), "parts is empty, but must be a list of at least one");
    assert_eq!(
        with(|c| c.groups[0].values.truncate(1)),
        "group \"method 0\" is a list of 1, but must be of 2 (one for each member: cuda:0, cuda:1)"
    );
    assert_eq!(
        with(|c| c.groups[0].values[1].push(1.0)),
        "member \"cuda:1\" of group \"method 0\" is a list of 3, but must be of 2 (one for each \
         part: parameters, gradients)"
    );
    let of = "member \"cuda:0\" of group \"method 0\"";
    type Change = fn(&mut Bars);
    let cases: [(Change, &str); 3] = [
        (|c| c.groups[0].values[0][1] = f64::NAN, "NaN, but must be a finite number not below 0"),
        (|c| c.groups[0].values[0][1] = -1.0, "-1, but must be a finite number not below 0"),
        (|c| c.groups[0].values[0] = vec![1e308; 2], "inf in sum, but must be finite in sum"),
    ];
    for (change, found) in cases {
        assert_eq!(with(change), format!("{of} is {found}"));
    }
}
