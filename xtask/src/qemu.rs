//! QEMU, which runs programs for ARM on other machines.

use crate::prelude::*;

const PROGRAM: &str = "/usr/bin/qemu-aarch64-static";

/// Where Linux is told which program runs which files.
const BINFMT: &str = "/proc/sys/fs/binfmt_misc";

/// Files for ARM are known by their ELF header; F keeps the program open, so that it is found in any root.
const RULE: &str = concat!(
    r":qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:",
    r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:F"
);

/// What libtorch reads of each processor, and crashes without: those of a Neoverse N1.
const CPU: &str = "BogoMIPS\t: 50.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

";
const MIDR: &str = "0x00000000413fd0c1\n";

/// Has Linux run programs for ARM in QEMU, and sets the variables with which QEMU runs those that this command starts.
pub(crate) fn use_for(workspace: &Workspace, command: &mut Command) -> Result<()> {
    register().context("Linux cannot run programs for ARM: `apt-get install qemu-user-static`, then try again as root")?;
    let root = workspace.venv().join("qemu");
    remove(&root)?;
    make(&root)?;
    symlink("/usr/aarch64-linux-gnu/lib", root.join("lib"))?;
    let processors = 0..thread::available_parallelism()?.get();
    let cpuinfo = processors.clone().map(|cpu| format!("processor\t: {cpu}\n{CPU}"));
    write(&root.join("proc/cpuinfo"), cpuinfo.collect::<String>())?;
    for cpu in processors {
        let registers = format!("sys/devices/system/cpu/cpu{cpu}/regs/identification/midr_el1");
        write(&root.join(registers), MIDR)?;
    }
    command.env("QEMU_LD_PREFIX", root).env("QEMU_CPU", "neoverse-n1");
    Ok(())
}

fn register() -> Result<()> {
    if Path::new(BINFMT).join("qemu-aarch64").exists() {
        return Ok(());
    }
    fs::metadata(PROGRAM).with_context(|| format!("{PROGRAM} is not there"))?;
    let register = Path::new(BINFMT).join("register");
    if !register.exists() {
        command::run(Command::new("mount").args(["-t", "binfmt_misc", "binfmt_misc", BINFMT]))?;
    }
    fs::write(&register, RULE).with_context(|| format!("cannot write {}", register.display()))
}
