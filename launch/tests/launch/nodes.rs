//! Launchers of several nodes, all on this machine: what they agree on, how they end together, and whom they name.

use crate::prelude::*;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, setsockopt, socket, sockopt,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::{fs::Permissions, io::Write, net::TcpStream, os::unix::fs::PermissionsExt};

/// A job of several nodes that meet on a port of this machine.
pub(crate) struct Nodes {
    flags: String,
    port: u16,
    /// The port belongs to this test for as long as this lives.
    _reservation: OwnedFd,
}

impl Nodes {
    pub(crate) fn new(count: u16) -> Self {
        Self::meeting_at(format!("--nnodes {count} --master-addr 127.0.0.1 --master-port="))
    }

    pub(crate) fn elastic(nnodes: &str) -> Self {
        let flags = format!("--nnodes {nnodes} --rdzv-backend c10d --rdzv-id job --rdzv-endpoint ");
        Self::meeting_at(flags + "127.0.0.1:")
    }

    /// `flags` must end where the port goes.
    fn meeting_at(flags: String) -> Self {
        let reservation =
            socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        setsockopt(&reservation, sockopt::ReuseAddr, &true).unwrap();
        bind(reservation.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
        let port = getsockname::<SockaddrIn>(reservation.as_raw_fd()).unwrap().port();
        Nodes { flags: format!("{flags}{port}"), port, _reservation: reservation }
    }

    pub(crate) fn launch(&self, job: &Job, rank: u16, flags: &str, script: &str) -> Command {
        job.launch_sh(&format!("{} --node-rank {rank} {flags}", self.flags), script)
    }

    pub(crate) fn start(&self, job: &Job, rank: u16, flags: &str, script: &str) -> Running {
        start(self.launch(job, rank, flags, script))
    }

    /// Starts the launchers of three nodes. They come in any order, and their ranks leave their process ids.
    fn three(flags: &str, script: &str) -> (Job, Self, [Running; 3], Vec<i32>) {
        let (job, nodes) = (Job::new(), Nodes::new(3));
        let mut running = [2, 0, 1].map(|rank| nodes.start(&job, rank, flags, script));
        running.rotate_left(1);
        let pids = job.wait_for_pids(&PIDS);
        (job, nodes, running, pids)
    }
}

fn finish<const N: usize>(running: [Running; N]) -> [Ended; N] {
    running.map(Running::finish)
}

const STAY: &str = "note $$ pid.$RANK; stay";

const PIDS: [&str; 3] = ["pid.0", "pid.1", "pid.2"];

#[test]
fn nodes_with_1_2_and_3_ranks_have_6_ranks_in_a_row() {
    let (job, nodes) = (Job::new(), Nodes::new(3));
    let script = "note \"$RANK of $WORLD_SIZE on $GROUP_RANK, $LOCAL_RANK of $LOCAL_WORLD_SIZE, \
                  port $MASTER_PORT\" rank.$RANK";
    let start = |rank| nodes.start(&job, rank, &format!("-n {}", rank + 1), script);
    finish([0, 1, 2].map(start)).iter().for_each(|it| assert_eq!(it.expect_code(0).stderr, ""));
    let first = job.note("rank.0").unwrap();
    let port = first.rsplit_once(' ').unwrap().1;
    let places = ["0, 0 of 1", "1, 0 of 2", "1, 1 of 2", "2, 0 of 3", "2, 1 of 3", "2, 2 of 3"];
    for (rank, place) in places.into_iter().enumerate() {
        let expected = format!("{rank} of 6 on {place}, port {port}");
        assert_eq!(job.note(&format!("rank.{rank}")).unwrap(), expected);
    }
    assert_ne!(port, nodes.port.to_string());
}

#[test]
fn every_node_names_the_rank_that_failed_on_one_and_has_its_exit_code() {
    let script = "note $$ pid.$RANK; [ $RANK = 1 ] || stay; await go; \
                  echo no such data set >&2; exit 7";
    let (job, _nodes, running, pids) = Nodes::three("", script);
    let before = Instant::now();
    job.leave("go");
    let ended = finish(running);
    assert!(before.elapsed() < 2 * WHOLE_END, "{:?}", before.elapsed());
    let failed = format!(": rank 1 (pid {}) exited with code 7", pids[1]);
    for ended in &ended {
        ended.expect_code(7).expect_stderr(&failed);
        ended.expect_stderr("launch: node 1 (").expect_stderr("    no such data set\n");
    }
    wait_until_dead(&pids);
}

#[test]
fn every_node_lists_those_of_its_own_ranks_that_failed_after_the_culprit() {
    let (job, nodes) = (Job::new(), Nodes::new(2));
    let script = r#"
        note $$ pid.$RANK
        case $RANK in
            0) stay ;;
            1) await pid.0; await pid.2; exit 3 ;;
        esac
        trap '' TERM
        dead pid.1
        exit 4"#;
    let start = |rank| nodes.start(&job, rank, &format!("-n {}", rank + 1), script);
    let [first, second] = finish([0, 1].map(start));
    let culprit = "exited with code 3; it wrote nothing to stderr\nlaunch: after that, ";
    first.expect_stderr(&format!("{culprit}rank 0 was killed by SIGTERM\n"));
    second.expect_stderr(&format!("{culprit}rank 2 exited with code 4\n"));
}

#[test]
fn a_rank_killed_on_one_node_ends_all_nodes_soon_though_the_others_ignore_it() {
    let (_job, _nodes, running, pids) = Nodes::three("", "trap '' TERM; note $$ pid.$RANK; stay");
    let before = Instant::now();
    kill(Pid::from_raw(pids[2]), Signal::SIGKILL).unwrap();
    let killed = format!(": rank 2 (pid {}) was killed by SIGKILL", pids[2]);
    for ended in finish(running) {
        ended.expect_code(128 + 9).expect_stderr(&killed);
    }
    assert!(before.elapsed() < 2 * WHOLE_END, "{:?}", before.elapsed());
    wait_until_dead(&pids);
}

#[test]
fn a_victim_on_another_node_is_not_blamed_though_it_ended_first() {
    let (job, nodes) = (Job::new(), Nodes::new(2));
    let script = r#"
        # Rank 0 has left its reason, but ends only after rank 1, when the launcher asks it to.
        if [ $RANK = 0 ]; then reason "disk full"; note x left; stay; fi
        await left; victim "lost rank 0"; exit 4"#;
    for ended in finish([0, 1].map(|rank| nodes.start(&job, rank, "", script))) {
        ended.expect_code(1).expect_stderr(") failed: disk full\n");
    }
}

#[test]
fn a_launcher_that_is_killed_ends_all_nodes_which_name_its_node() {
    for killed in [0, 1] {
        let (_job, _nodes, running, pids) = Nodes::three("", STAY);
        let before = Instant::now();
        running[killed].signal(Signal::SIGKILL);
        for (_, ended) in finish(running).iter().enumerate().filter(|(rank, _)| *rank != killed) {
            ended.expect_code(1).expect_stderr(&format!("launch: node {killed} ("));
            ended.expect_stderr(") has gone: its launcher closed the connection\n");
        }
        assert!(before.elapsed() < 2 * WHOLE_END, "{:?}", before.elapsed());
        wait_until_dead(&pids);
    }
}

#[test]
fn a_launcher_that_is_killed_and_started_again_has_its_place_in_a_restart_if_one_is_left() {
    for (nodes, is_lost_again) in [(Nodes::new(2), false), (Nodes::elastic("2"), true)] {
        let job = Job::new();
        let script = r#"
            attempt=$TORCHELASTIC_RESTART_COUNT
            note $$ pid.$attempt.$RANK
            [ $attempt = 1 ] || stay
            await go"#;
        let start = |rank| {
            let flags = format!("--max-restarts 1 --rdzv-conf is_host={}", 1 - rank);
            nodes.start(&job, rank, &flags, script)
        };
        let (first, second) = (start(0), start(1));
        let mut pids = job.wait_for_pids(&["pid.0.0", "pid.0.1"]);
        drop(second);
        first.wait_for_stderr("restart 1 of 1: starting all ranks again once 2 nodes are there\n");
        first.wait_for_stderr("launch: waiting at most 600 s for ");
        let second = start(1);
        pids.extend(job.wait_for_pids(&["pid.1.0", "pid.1.1"]));
        let gone = ") has gone: its launcher closed the connection\n";
        if is_lost_again {
            drop(second);
            let ended = first.finish();
            ended.expect_code(1).expect_stderr("launch: node 1 (");
            assert!(ended.stderr.ends_with(gone), "{ended:?}");
        } else {
            job.leave("go");
            second.finish().expect_code(0);
            first.finish().expect_code(0).expect_stderr(&format!("{gone}launch: restart 1 of 1"));
        }
        wait_until_dead(&pids);
    }
}

#[test]
fn a_node_that_is_silent_is_lost_after_the_heartbeat_timeout_and_ends_when_it_is_back() {
    for stopped in [0, 1] {
        let (_job, _nodes, running, pids) = Nodes::three("--heartbeat-timeout 6", STAY);
        running[stopped].signal(Signal::SIGSTOP);
        kill(Pid::from_raw(pids[stopped]), Signal::SIGSTOP).unwrap();
        let mut others = Vec::from(running);
        let back = others.remove(stopped);
        let silent = ") has been silent for 6 s\n";
        for ended in others.into_iter().map(Running::finish) {
            let sentence = format!("launch: node {stopped} (");
            ended.expect_code(1).expect_stderr(&sentence).expect_stderr(silent);
        }
        back.signal(Signal::SIGCONT);
        let sentence = format!("node {stopped} (");
        back.finish().expect_code(1).expect_stderr(&sentence).expect_stderr(silent);
        wait_until_dead(&pids);
    }
}

#[test]
fn a_signal_to_one_launcher_ends_all_nodes() {
    for stopped in [0, 2] {
        let (_job, _nodes, running, pids) = Nodes::three("--max-restarts 3", STAY);
        running[stopped].signal(Signal::SIGTERM);
        for (rank, ended) in finish(running).iter().enumerate() {
            ended.expect_code(128 + 15);
            match rank == stopped {
                true => ended.expect_stderr("launch: forwarding SIGTERM to the ranks\n"),
                false => ended.expect_stderr("): its launcher was stopped by SIGTERM\n"),
            };
        }
        wait_until_dead(&pids);
    }
}

#[test]
fn all_nodes_restart_together_on_a_new_port_and_count_alike() {
    let (job, nodes) = (Job::new(), Nodes::new(2));
    let script = r#"
        attempt=$TORCHELASTIC_RESTART_COUNT
        note $MASTER_PORT port.$attempt.$RANK
        if [ $attempt = 2 ]; then exit 0; fi
        if [ $RANK = $attempt ]; then await port.$attempt.0; await port.$attempt.1; exit 3; fi
        stay"#;
    for ended in finish([0, 1].map(|rank| nodes.start(&job, rank, "--max-restarts 2", script))) {
        ended.expect_code(0).expect_stderr("launch: restart 1 of 2: starting all ranks again\n");
        ended.expect_stderr("launch: restart 2 of 2: starting all ranks again\n");
        assert_eq!(ended.stderr.matches("restart").count(), 2, "{ended:?}");
    }
    let port = |attempt: u32, rank: u32| job.note(&format!("port.{attempt}.{rank}")).unwrap();
    (0..3).for_each(|attempt| assert_eq!(port(attempt, 0), port(attempt, 1)));
    assert!(port(0, 0) != port(1, 0) && port(1, 0) != port(2, 0));
}

#[test]
fn nodes_that_cannot_be_one_job_are_refused_on_every_host() {
    for (flags, ranks, reason) in [
        ("", [0, 1, 1], "--node-rank 1 twice: on host "),
        ("", [0, 0, 1], "--node-rank 0 twice: on host "),
        ("--max-restarts 3", [0, 1, 2], "different --max-restarts: 3 on node 0 ("),
    ] {
        let (job, nodes) = (Job::new(), Nodes::new(3));
        let begun = Instant::now();
        let flags = |rank: u16| if rank == 0 { flags } else { "" };
        let start = |rank| nodes.start(&job, rank, flags(rank), "note x started");
        for ended in finish(ranks.map(start)) {
            ended.expect_code(1).expect_stderr(reason);
            assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(job.note("started"), None);
    }
}

#[test]
fn different_programs_are_refused_unless_that_is_wanted() {
    let (job, nodes) = (Job::new(), Nodes::new(2));
    let programs = ["one", "two"].map(|name| {
        let path = job.dir().join(name);
        fs::write(&path, format!("#!/bin/sh\n# {name}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    });
    let pair = |flags: &str| {
        [0, 1].map(|rank| {
            let program = programs[rank].display();
            let all = format!("{} --node-rank {rank} {flags} {program}", nodes.flags);
            start(job.launch(all.split_whitespace()))
        })
    };
    for ended in finish(pair("")) {
        ended.expect_code(1).expect_stderr("launch: different programs");
    }
    for ended in finish(pair("--rdzv-conf check_program=0")) {
        ended.expect_code(0);
    }
}

#[test]
fn whoever_is_there_says_who_is_missing() {
    let (job, nodes) = (Job::new(), Nodes::new(3));
    let limit = "--rdzv-conf join_timeout=5";
    for ended in finish([0, 2].map(|rank| nodes.start(&job, rank, limit, ""))) {
        let sentence = "launch: waited 5 s (join_timeout) in vain for node 1 of 3; there are: ";
        ended.expect_code(1).expect_stderr(sentence);
    }
    let ended = nodes.start(&job, 1, "--rdzv-conf join_timeout=1", "").finish();
    let place = format!("node 0 was not reached at 127.0.0.1, port {}, within 1 s", nodes.port);
    ended.expect_code(1).expect_stderr(&format!("launch: {place}"));
}

#[test]
fn another_secret_or_another_job_is_refused_and_disturbs_nobody() {
    let (job, nodes) = (Job::new(), Nodes::new(2));
    let with_secret = |rank, flags, secret| {
        let mut command = nodes.launch(&job, rank, flags, "note $$ pid.$RANK; await go");
        start(command.env("TCH_PARALLEL_SECRET", secret))
    };
    let first = with_secret(0, "", "right");
    // Somebody who is not a launcher at all, and stays.
    let connect = || TcpStream::connect(("127.0.0.1", nodes.port)).ok();
    let mut stranger = wait_for("node 0's port", connect);
    // Every 127.x.y.z is an address of this machine: nobody listens on others than the one given.
    assert!(TcpStream::connect(("127.0.0.2", nodes.port)).is_err());
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let refused = with_secret(1, "", "wrong").finish();
    refused.expect_code(1).expect_stderr("launch: TCH_PARALLEL_SECRET differs from node 0's\n");
    let refused = with_secret(1, "--rdzv-id x", "right").finish();
    let other_job = "different jobs: --rdzv-id is \"none\" on node 0, and \"x\" on another node\n";
    refused.expect_code(1).expect_stderr(other_job);
    let second = with_secret(1, "", "right");
    job.wait_for_pids(&PIDS[..2]);
    job.leave("go");
    let first = first.finish();
    first.expect_code(0);
    for reason in ["it is not a launcher\n", "it closed the connection\n", other_job] {
        first.expect_stderr(&format!(" does not join the job: {reason}"));
    }
    second.finish().expect_code(0);
}
