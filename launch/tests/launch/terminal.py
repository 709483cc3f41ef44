"""Runs its arguments at a terminal; types Ctrl-C there once the files that CTRL_C_AFTER names exist."""

import os, pty, select, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
awaited = os.environ.get("CTRL_C_AFTER", "").split()
while True:
    if awaited and all(os.path.exists(os.path.join(os.environ["DIR"], name)) for name in awaited):
        os.write(terminal, b"\x03")
        awaited = []
    if not select.select([terminal], [], [], 0.01)[0]:
        continue
    try:
        text = os.read(terminal, 4096)
    except OSError:
        break
    if not text:
        break
    os.write(1, text)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
