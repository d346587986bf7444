"""Helpers for tests of a command of `lockstep`: a separate folder for each case, and checks for
every command. The program is the script's first argument.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv[1])


def limited():
    """Lets files grow to at most 100 bytes, as on an almost full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def suggested(command):
    """Returns the program's suggestions for a command's first word, for example all schedules."""
    described = json.loads(subprocess.run([PROGRAM, "--describe"], capture_output=True,
                                          check=True).stdout)
    [found] = [each for each in described["commands"] if each["name"] == command]
    return found["positionals"][0]["suggested"]


class CommandCase(unittest.TestCase):
    COMMAND = ""  # for example "mesh"
    FILES = {}  # in the folder of each case

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name, content in self.FILES.items():
            self.write(name, content)

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)

    def run_program(self, *arguments, **options):
        return subprocess.run([PROGRAM, self.COMMAND, *arguments], cwd=self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, **options)

    def text(self, *arguments):
        done = self.run_program(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout.decode()

    def document(self, *arguments):
        return json.loads(self.text(*arguments, "--json"))

    def assert_refused(self, done, status, words, stdout=b""):
        sentence = done.stderr.decode()
        self.assertEqual(done.returncode, status, sentence)
        self.assertEqual(done.stdout, stdout)
        self.assertRegex(sentence, r"\Alockstep: [^\n]+\n\Z")
        self.assertNotIn("exception", sentence)
        for word in words:
            self.assertIn(word, sentence)
