//! Where rank 0 listens, and for whom launch keeps the port.

use crate::prelude::*;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, socket};
use std::{net::TcpListener, os::fd::AsRawFd};

/// For rank 0, without SO_REUSEADDR. `server` is the socket.
const BIND: &str = r#"
import os, socket
server = socket.socket()
server.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))"#;

/// A free port that no system hands out, and that no connection of the last minute holds: it can be bound as it is.
fn quiet_port() -> u16 {
    let can_be_bound = |port: &u16| {
        let probe = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
        bind(probe.unwrap().as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, *port)).is_ok()
    };
    (20_000..30_000).find(can_be_bound).unwrap()
}

#[test]
fn rank_0_opens_the_port_that_launch_keeps_from_all_who_do_not_name_it() {
    let script = include_str!("reserved_port.py");
    let job = Job::new();
    for flags in ["-n 2", "-n 2 --standalone"] {
        assert_eq!(run(job.launch_python(flags, script)).expect_code(0).stdout, "heard 1\n");
    }
}

#[test]
fn nobody_holds_the_port_when_rank_0_is_gone() {
    run(Job::new().launch_python("-n 2", include_str!("released_port.py"))).expect_code(0);
}

#[test]
fn an_explicit_port_is_rank_0s_to_bind() {
    let others = "import os\nif os.environ['RANK'] != '0': raise SystemExit";
    let script = format!("{others}{BIND}\nprint('bound', server.getsockname()[1])");
    let port = quiet_port();
    for flags in [format!("--master-port {port}"), format!("--rdzv-endpoint 127.0.0.1:{port}")] {
        let ended = run(Job::new().launch_python(&format!("-n 2 {flags}"), &script));
        assert_eq!(ended.expect_code(0).stdout, format!("bound {port}\n"));
    }
}

#[test]
fn a_port_that_another_program_has_is_refused_before_any_rank_starts_and_is_no_place_to_meet() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    std::thread::spawn(move || drop(taken.accept()));
    for (flags, advice) in [
        ("-n 2", ", or omit it to get a free one"),
        ("--nnodes 2 --master-addr 127.0.0.1", " for every node"),
    ] {
        let job = Job::new();
        let ended = run(job.launch_sh(&format!("--master-port {port} {flags}"), "note x started"));
        let taken = format!("port {port} on 127.0.0.1 is already in use: choose another{advice}");
        ended.expect_code(1).expect_stderr(&format!("launch: {taken}"));
        assert_eq!(job.note("started"), None);
    }
}

#[test]
fn a_program_that_shares_the_port_with_nobody_is_told_what_it_needs() {
    run(Job::new().launch_python("", BIND))
        .expect_code(1)
        .expect_stderr("Address already in use")
        .expect_stderr("a program that binds it without SO_REUSEADDR needs --master-port");
}

#[test]
fn with_several_nodes_it_is_told_what_it_must_do_for_its_port_is_always_a_free_one() {
    let (job, nodes) = (Job::new(), Nodes::new(2));
    let script = format!("[ $RANK = 0 ] || stay; exec python3 -c '{BIND}'");
    for running in [0, 1].map(|rank| nodes.start(&job, rank, "", &script)) {
        running.finish().expect_code(1).expect_stderr("Address already in use").expect_stderr(
            "\nlaunch: launch reserves the port for rank 0, which must bind it with SO_REUSEADDR\n",
        );
    }
}
