use super::*;
use crate::{Ended, Job, programs::shell};

fn bash(hosts: &Hosts, host: usize, script: &str) -> Ended {
    Job::new().unwrap().run(hosts.on(host, Command::new("bash").args(["-c", script]))).unwrap()
}

/// How long host 1 takes to refuse a connection from host 0; `None` if it does not answer within `limit` seconds.
fn answer(hosts: &Hosts, limit: u8) -> Option<Duration> {
    let begin = Instant::now();
    let address = hosts.address(1);
    let ended = bash(hosts, 0, &format!("timeout {limit} bash -c ': > /dev/tcp/{address}/9'"));
    ended.stderr.contains("refused").then(|| begin.elapsed())
}

#[test]
fn hosts_have_names_and_reach_each_other_unless_the_network_is_cut() {
    let Some(hosts) = Hosts::or_skip(2).unwrap() else { return };
    assert_eq!(bash(&hosts, 0, "cat /proc/sys/kernel/hostname").stdout, "host0\n");
    assert!(answer(&hosts, 30).is_some());

    hosts.set_link(1, false).unwrap();
    assert_eq!(answer(&hosts, 1), None);
    hosts.set_link(1, true).unwrap();
    assert!(answer(&hosts, 30).is_some());

    hosts.switch.cut_off(1, true);
    assert_eq!(answer(&hosts, 1), None);
    assert!(hosts.switch.traffic().lost > 0);
    hosts.switch.cut_off(1, false);
    assert!(answer(&hosts, 30).is_some());
}

#[test]
fn each_host_has_a_boot_id_of_its_own() {
    let Some(hosts) = Hosts::or_skip(2).unwrap() else { return };
    let id = |host| {
        bash(&hosts, host, "cat /proc/sys/kernel/random/boot_id").expect_success().unwrap().stdout
    };
    let machine = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let found = [machine, id(0), id(1), id(0)];
    assert!(found[0] != found[1] && found[1] != found[2] && found[2] != found[0], "{found:?}");
    assert_eq!(found[1], found[3]);
}

#[test]
fn a_slow_network_delays_every_answer() {
    let Some(hosts) = Hosts::or_skip(2).unwrap() else { return };
    let delay = Duration::from_secs(1);
    hosts.switch.set_conditions(0, Conditions { delay, ..Default::default() });
    assert!(answer(&hosts, 30).unwrap() >= delay);
    assert!(hosts.switch.traffic().delayed > 0);
}

#[test]
fn a_signal_reaches_all_processes_of_one_host() {
    let Some(hosts) = Hosts::or_skip(2).unwrap() else { return };
    let job = Job::new().unwrap();
    let sleepers = shell("sleep 1000 & sleep 1000");
    let mut there = [0, 1].map(|host| job.start(hosts.on(host, &sleepers)).unwrap());
    let all_run = || (0..2).all(|host| hosts.processes(host).is_ok_and(|all| all.len() == 3));
    job.until("all have begun", || Ok(all_run().then_some(()))).unwrap();

    hosts.signal(1, Signal::SIGKILL).unwrap();
    there[1].wait().unwrap();
    job.until("they are gone", || Ok(hosts.processes(1)?.is_empty().then_some(()))).unwrap();
    assert_eq!(hosts.processes(0).unwrap().len(), 3);
    assert!(!there[0].has_ended().unwrap());
}
