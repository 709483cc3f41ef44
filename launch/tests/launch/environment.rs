//! What a rank learns about its job.

use crate::prelude::*;
use std::collections::BTreeMap;

/// The variables of a rank that are not those of the tests or the shell.
fn variables(job: &Job, rank: u32) -> BTreeMap<String, String> {
    let text = job.note(&format!("env.{rank}")).unwrap();
    let of_tests = ["PATH", "HOME", "DIR", "TMPDIR", "PWD", "_", "SHLVL", "OLDPWD"];
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let pairs = pairs.filter(|(name, _)| !of_tests.contains(name));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

const WRITE_ENV: &str = r#"note "$(env)" env.$RANK"#;

#[test]
fn every_rank_of_the_second_node_gets_torchruns_variables() {
    let job = Job::new();
    let nodes = Nodes::new(2);
    let flags = "--max-restarts 5 --rdzv-id myjob";
    let first = nodes.start(&job, 0, &format!("-n 1 --role reader {flags}"), WRITE_ENV);
    let second = nodes.start(&job, 1, &format!("-n 2 {flags}"), WRITE_ENV);
    first.finish().expect_code(0);
    second.finish().expect_code(0);
    assert_eq!(variables(&job, 0)["ROLE_NAME"], "reader");
    for (rank, local_rank) in [("1", "0"), ("2", "1")] {
        let mut variables = variables(&job, rank.parse().unwrap());
        // A free port of node 0, and a private file and a private socket of this launcher.
        assert!(variables.remove("MASTER_PORT").unwrap().parse::<u16>().is_ok());
        assert!(variables.remove("TORCHELASTIC_ERROR_FILE").is_some());
        assert!(variables.remove("TCH_PARALLEL_ELASTIC").is_some());
        let expected = format!(
            "GROUP_RANK=1 GROUP_WORLD_SIZE=2 LOCAL_RANK={local_rank} LOCAL_WORLD_SIZE=2 \
             MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1 RANK={rank} ROLE_NAME=default \
             ROLE_RANK={local_rank} ROLE_WORLD_SIZE=2 TORCHELASTIC_MAX_RESTARTS=5 \
             TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_RUN_ID=myjob WORLD_SIZE=3"
        );
        let found = variables.iter().map(|(name, value)| format!("{name}={value}"));
        assert_eq!(found.collect::<Vec<_>>().join(" "), expected);
    }
}

#[test]
fn omp_num_threads_is_left_alone_for_one_rank_and_where_it_is_set() {
    let job = Job::new();
    run(job.launch_sh("-n 1", WRITE_ENV)).expect_code(0);
    assert!(!variables(&job, 0).contains_key("OMP_NUM_THREADS"));

    run(job.launch_sh("-n 2", WRITE_ENV).env("OMP_NUM_THREADS", "7")).expect_code(0);
    assert_eq!(variables(&job, 1)["OMP_NUM_THREADS"], "7");
}

#[test]
fn what_another_launcher_has_set_and_the_secret_of_a_job_are_not_passed_on() {
    let job = Job::new();
    let mut command = job.launch_sh("-n 2", WRITE_ENV);
    command.envs([("RANK", "17"), ("TORCHELASTIC_USE_AGENT_STORE", "True")]);
    command.env("TCH_PARALLEL_SECRET", "s");
    command.envs([("TCH_PARALLEL_MASTER_LISTEN_FD", "9"), ("TORCHELASTIC_ERROR_FILE", "/x")]);
    run(command).expect_code(0);
    for rank in [0, 1] {
        let variables = variables(&job, rank);
        assert_eq!(variables["RANK"], rank.to_string());
        assert_ne!(variables["TORCHELASTIC_ERROR_FILE"], "/x");
        assert!(!variables.contains_key("TORCHELASTIC_USE_AGENT_STORE"));
        assert!(!variables.contains_key("TCH_PARALLEL_MASTER_LISTEN_FD"));
        assert!(!variables.contains_key("TCH_PARALLEL_SECRET"));
    }
}

#[test]
fn flags_can_come_from_torchruns_variables_and_the_command_line_wins() {
    let job = Job::new();
    let flags = [("PET_NPROC_PER_NODE", "3"), ("PET_RDZV_ID", "a"), ("PET_NO_PYTHON", "1")];
    run(job.launch_sh("--rdzv-id b", WRITE_ENV).envs(flags)).expect_code(0);
    assert_eq!(variables(&job, 2)["WORLD_SIZE"], "3");
    assert_eq!(variables(&job, 2)["TORCHELASTIC_RUN_ID"], "b");
}
