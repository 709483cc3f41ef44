"""Drives a headless Chromium over its debugging pipe, with nothing but Python's standard library.

    with Browser() as browser:
        page = browser.page("file:///…/index.html")
        page.press("Tab")
        page.evaluate("document.activeElement.tagName")
"""

import contextlib
import functools
import json
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

# Where Chromium is only a snap, `chromium-browser` is a script that starts it, or fails.
NAMES = ["google-chrome", "google-chrome-stable", "chromium", "chromium-browser"]
# Seconds for an answer. A busy machine can be very slow, and a caller that measures progress gives up much sooner.
PATIENCE = 600
# Seconds for a browser to end that has agreed to.
CLOSING = 60

# Keys that have no character of their own: the name of the key and its number.
KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    " ": 32,
    "PageUp": 33,
    "PageDown": 34,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


@functools.cache
def installed():
    """The browser's program, or None."""
    return next(filter(is_usable, filter(None, map(shutil.which, NAMES))), None)


def is_usable(program):
    """Whether a program on the PATH is a browser that starts. A snap cannot read books below /tmp."""
    if any(path.startswith("/snap/") for path in [program, os.path.realpath(program)]):
        return False
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PATIENCE)
        return version.returncode == 0 and "snap" not in version.stdout.split()
    return False


class Browser:
    """A browser of its own, with a profile that is gone afterwards."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self.commands = os.pipe()
        answers, theirs = os.pipe()
        self.answers = os.fdopen(answers, "rb")
        flags = ["--headless", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
        flags += ["--disable-breakpad"]
        # As root a sandbox is refused, and a container's /dev/shm is often too small.
        flags += ["--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={self.profile.name}"]
        # The browser reads commands from descriptor 3 and writes its answers to 4.
        shell = f'exec "$@" 3<&{commands} 4>&{theirs}'
        line = ["bash", "-c", shell, "browser", installed(), *flags, "about:blank"]
        # Nothing is read from the user's settings, and nothing is left there.
        homes = dict.fromkeys(["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"], self.profile.name)
        self.complaints = Path(self.profile.name, "stderr.txt")
        with self.complaints.open("wb") as stderr:
            output = {"stdout": subprocess.DEVNULL, "stderr": stderr}
            self.process = subprocess.Popen(line, pass_fds=[commands, theirs], env={**os.environ, **homes}, **output)
        os.close(commands)
        os.close(theirs)
        self.number = 0
        self.unread = b""
        self.pages = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(EOFError):
            self.call("Browser.close")
        os.close(self.commands)
        try:
            self.process.wait(timeout=CLOSING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.answers.close()
        self.profile.cleanup()

    def page(self, url):
        """Opens an address and waits until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ["Page", "Runtime", "Network", "Log"]:
            page.call(f"{domain}.enable")
        page.call("Page.setLifecycleEventsEnabled", enabled=True)
        page.open(url)
        return page

    def call(self, method, session=None, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if session is not None:
            request["sessionId"] = session
        self.send(json.dumps(request).encode() + b"\0")
        return self.read_until(lambda message: message.get("id") == self.number).get("result", {})

    def send(self, request):
        try:
            while request:
                request = request[os.write(self.commands, request) :]
        except BrokenPipeError:
            raise self.ended() from None

    def read_until(self, is_wanted):
        """The first message that is wanted. Those before it are events, of which a page keeps what it needs."""
        # A browser that no longer answers is ended, and then so is reading from it.
        watch = threading.Timer(PATIENCE, self.process.kill)
        watch.start()
        try:
            while True:
                message = self.read()
                if "error" in message:
                    raise RuntimeError(message["error"]["message"])
                if (page := self.pages.get(message.get("sessionId"))) is not None:
                    page.keep(message)
                if is_wanted(message):
                    return message
        finally:
            watch.cancel()

    def read(self):
        # Messages end with a zero byte.
        while b"\0" not in self.unread:
            piece = self.answers.read1()
            if not piece:
                raise self.ended()
            self.unread += piece
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def ended(self):
        """The error for a browser that is gone, with the end of what it wrote to stderr."""
        what = f"{installed()} has ended, or did not answer for {PATIENCE} s"
        return EOFError(f"{what}. Its stderr ends with:\n{self.complaints.read_text(errors='replace')[-2000:]}")


class Page:
    """A page in a browser."""

    def __init__(self, browser, session):
        self.browser = browser
        self.session = session
        # Messages of the console that are warnings or errors, and uncaught exceptions.
        self.errors = []
        # The addresses of all that the page has asked for.
        self.requests = []
        # What has been loaded completely, by the browser's name for each load.
        self.loaded = set()

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def keep(self, message):
        """Keeps what tests ask for of an event."""
        event, of = message.get("method"), message.get("params", {})
        if event == "Network.requestWillBeSent":
            self.requests.append(of["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            details = of["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Runtime.consoleAPICalled" and of["type"] in ["error", "warning", "assert"]:
            self.errors.append(" ".join(str(part.get("value", part.get("description"))) for part in of["args"]))
        elif event == "Log.entryAdded" and of["entry"]["level"] in ["error", "warning"]:
            # The browser's own plans, which are no fault of the page.
            if of["entry"]["source"] not in ["deprecation", "intervention"]:
                self.errors.append(of["entry"]["text"])
        elif event == "Page.lifecycleEvent" and of["name"] == "load":
            self.loaded.add(of["loaderId"])

    def open(self, url):
        """Loads another address. Errors and requests are those of this address from now on."""
        self.errors.clear()
        self.requests.clear()
        answer = self.call("Page.navigate", url=url)
        if "errorText" in answer:
            raise RuntimeError(f"{url}: {answer['errorText']}")
        # A place on the same page is there at once, without a load.
        load = answer.get("loaderId")
        if load is not None and load not in self.loaded:
            self.browser.read_until(lambda _: load in self.loaded)

    def resize(self, width, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def emulate(self, media="", **features):
        """Shows pages as this medium does ("print"), and for readers who prefer this (`forced_colors="active"`)."""
        preferred = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", media=media, features=preferred)

    def without_scripts(self):
        """Runs no scripts of pages that are opened from now on."""
        self.call("Emulation.setScriptExecutionDisabled", value=True)

    def print(self):
        self.call("Page.printToPDF")

    def press(self, key):
        """Presses and releases a key, named as JavaScript's `event.key`: "Tab", "ArrowRight", " ", "a"."""
        event = {"key": key, "windowsVirtualKeyCode": KEYS.get(key) or ord(key.upper())}
        text = {"Enter": "\r"}.get(key, key)
        typed = {"text": text} if len(text) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def evaluate(self, expression):
        """The value of a JavaScript expression, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")
