//! The program is started as it was written.

use crate::prelude::*;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

#[test]
fn arguments_reach_the_program_byte_for_byte() {
    let job = Job::new();
    let text = ["--epochs", "3", "--", "", "two words\n$HOME *", "--tee"].map(OsStr::new);
    let arguments = [&text[..], &[OsStr::from_bytes(b"\xff\xfe")]].concat();
    let script = r#"printf '%s\0' "$@" > "$DIR/arguments.$RANK""#;
    let words = ["-n", "2", "sh", "-c", script, "sh"].map(OsStr::new);
    run(job.launch(words.iter().chain(&arguments))).expect_code(0);
    for rank in [0, 1] {
        let written = fs::read(job.dir().join(format!("arguments.{rank}"))).unwrap();
        let expected = arguments.iter().flat_map(|argument| [argument.as_bytes(), b"\0"].concat());
        assert_eq!(written, expected.collect::<Vec<_>>());
    }
}

#[test]
fn the_local_rank_follows_the_arguments_if_the_flag_asks_for_it() {
    let (job, nodes) = (Job::new(), Nodes::new(2));
    let start = |node, ranks| {
        let flags = format!("-n {ranks} --pass-local-rank");
        let mut command = nodes.launch(&job, node, &flags, r#"note "$*" arguments.$RANK"#);
        start(command.args(["sh", "lr.py", "--lr", "0.1"]))
    };
    for running in [start(0, 1), start(1, 2)] {
        running.finish().expect_code(0);
    }
    let noted = [0, 1, 2].map(|rank| job.wait_for_note(&format!("arguments.{rank}")));
    assert_eq!(noted, [0, 0, 1].map(|it| format!("lr.py --lr 0.1 --local_rank={it}")));
}

#[test]
fn a_program_is_found_in_path_and_by_a_relative_path() {
    let job = Job::new();
    // By a process of its own: a descriptor for writing that another test's process inherits would make it busy.
    let copy = Command::new("cp").arg("/bin/true").arg(job.dir().join("my-trainer")).status();
    assert!(copy.unwrap().success());
    run(job.launch(["./my-trainer"]).current_dir(job.dir())).expect_code(0);
    run(job.launch(["my-trainer"]).env("PATH", job.dir())).expect_code(0);
}

#[test]
fn ranks_read_nothing_from_stdin() {
    let job = Job::new();
    let (inner, mut typed) = (job.launch(["-n", "2", "cat"]), job.clean("sh"));
    typed.args(["-c", r#"echo typed | "$0" "$@""#]).arg(inner.get_program()).args(inner.get_args());
    assert_eq!(run(typed).expect_code(0).stdout, "");
}
