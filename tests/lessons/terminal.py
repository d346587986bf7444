"""A pseudo-terminal that runs a program, as learners use it."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unicodedata

# Under nohup, the programs that the tests start would otherwise ignore this signal.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

PROMPT = re.compile(r"\[Enter\] (more|next step|end)(  \[[q?bn]\] [a-z ]+?)*(?=\r|$|  \Z)")
PREDICTION = re.compile(r"\(Enter skips\): ")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PATIENCE = 600  # seconds, for a slow machine under load


class Terminal:
    def __init__(self, command, columns=80, rows=40, stdin=None, **environment):
        self.master, self.slave = pty.openpty()
        self.set_size(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.raw = ""
        self.text = ""  # everything shown so far
        self.seen = 0   # expect() has searched the text up to this place
        base = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
        self.process = subprocess.Popen(
            command, stdin=self.slave if stdin is None else stdin, stdout=self.slave,
            stderr=self.slave, start_new_session=True, preexec_fn=self.take_terminal,
            env={**base, "TERM": "xterm-256color", **environment})

    def set_size(self, rows, columns):
        """Changes the window's size, and tells the program."""
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def take_terminal(self):
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for descriptor in (self.master, self.slave):
            try:
                os.close(descriptor)
            except OSError:
                pass

    def read(self, seconds):
        """Reads the program's output. Returns False if there was no output for `seconds`."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        self.raw += self.decoder.decode(os.read(self.master, 65536))
        self.text = self.raw.replace("\r\n", "\n")
        return True

    def expect(self, *patterns):
        """Waits for output that matches a pattern. Returns the match, and the output before it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = [re.compile(pattern).search(self.text, self.seen) for pattern in patterns]
            matches = [match for match in found if match]
            if matches:
                match = min(matches, key=lambda m: m.start())
                before = self.text[self.seen:match.start()]
                self.seen = match.end()
                return match, before
            if time.monotonic() > deadline:
                raise AssertionError(f"no {patterns} in {self.text[self.seen:]!r}")
            if not self.read(0.05) and self.process.poll() is not None and not self.read(0.2):
                raise AssertionError(f"ended before {patterns}: {self.text[self.seen:]!r}")

    def send(self, keys):
        os.write(self.master, keys.encode())

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        """Waits for the program's end. Returns the exit status that a shell would report."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None or self.read(0.05):
            self.read(0.05)
            if time.monotonic() > deadline:
                raise AssertionError(f"does not end: {self.text[self.seen:]!r}")
        code = self.process.returncode
        return 128 - code if code < 0 else code

    def settings(self):
        return termios.tcgetattr(self.slave)

    def is_single_key(self):
        return not self.settings()[3] & termios.ICANON


def without_escapes(text):
    return ESCAPE.sub("", text)


def columns(line):
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
               for c in line)


def lines(text):
    """Returns lines as on the screen. Text before a carriage return is a separate line."""
    return [part for line in without_escapes(text).split("\n") for part in line.split("\r")]
