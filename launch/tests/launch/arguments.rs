//! The program is started as it was written.

use crate::job::{self, Job, run};
use crate::nodes::Nodes;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

#[test]
fn arguments_reach_the_program_byte_for_byte() {
    let job = Job::new();
    let arguments: [&OsStr; 7] = [
        "--epochs".as_ref(),
        "3".as_ref(),
        "--".as_ref(),
        "".as_ref(),
        "two words\n$HOME *".as_ref(),
        "--tee".as_ref(),
        OsStr::from_bytes(b"\xff\xfe"),
    ];
    let mut words: Vec<OsString> =
        ["-n", "2", "sh", "-c", r#"printf '%s\0' "$@" > "$DIR/arguments.$RANK""#, "sh"]
            .map(OsString::from)
            .into();
    words.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    run(job.launch(words)).expect_code(0);
    for rank in [0, 1] {
        let written = fs::read(job.dir().join(format!("arguments.{rank}"))).unwrap();
        let mut expected = arguments.map(OsStr::as_bytes).join(&b'\0');
        expected.push(0);
        assert_eq!(written, expected);
    }
}

#[test]
fn the_local_rank_follows_the_arguments_if_the_flag_asks_for_it() {
    let (job, nodes) = (Job::new(), Nodes::new(2));
    let start = |node, ranks| {
        let flags = format!("-n {ranks} --pass-local-rank");
        let mut command = nodes.launch(&job, node, &flags, r#"note "$*" arguments.$RANK"#);
        job::start(command.args(["sh", "lr.py", "--lr", "0.1"]))
    };
    for running in [start(0, 1), start(1, 2)] {
        running.finish().expect_code(0);
    }
    for (rank, local_rank) in [(0, 0), (1, 0), (2, 1)] {
        let expected = format!("lr.py --lr 0.1 --local_rank={local_rank}");
        assert_eq!(job.wait_for_note(&format!("arguments.{rank}")), expected);
    }
}

#[test]
fn a_program_is_found_in_path_and_by_a_relative_path() {
    let job = Job::new();
    // By a process of its own: a descriptor open for writing, inherited by what another test starts at
    // that moment, would make the program busy.
    let copy = Command::new("cp").arg("/bin/true").arg(job.dir().join("my-trainer")).status();
    assert!(copy.unwrap().success());
    run(job.launch(["./my-trainer"]).current_dir(job.dir())).expect_code(0);
    run(job.launch(["my-trainer"]).env("PATH", job.dir())).expect_code(0);
}

#[test]
fn ranks_read_nothing_from_stdin() {
    assert_eq!(run(Job::new().launch(["-n", "2", "cat"])).expect_code(0).stdout, "");
}
