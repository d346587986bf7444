#!/usr/bin/env python3
"""The steps of a student with an installed copy: a folder, its own build, the public test, a
timeline, a grade.

Arguments: the build folder, the folder of the assignment's sources, the compiler's command.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCES = map(os.path.abspath, sys.argv[1:3])
COMPILER = sys.argv[3:]
SLUG = os.path.basename(SOURCES).replace("_", "-")
MESON = shlex.split(os.environ.get("MESON", "meson"))

if not shutil.which("pkg-config"):
    print("skipped: pkg-config is not installed; a student's build needs it to find the library")
    sys.exit(77)


def run(*words, folder=None):
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False,
                          env=dict(os.environ, CXX=shlex.join(COMPILER)))


class Student(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.work = os.path.join(self.folder, "work")
        done = run(*MESON, "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir",
                   self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        [self.program] = [os.path.join(path, name) for path, _, names in os.walk(self.folder)
                          for name in names if name == "lockstep" and path.endswith("/bin")]

    def build(self):
        done = run(*MESON, "compile", "-C", "build", folder=self.work)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("warning:", done.stdout)

    def words_of_run(self):
        """Returns the commands that the handout asks the student to type, in both languages."""
        typed = []
        for name in ("README.md", "README.zh.md"):
            with open(os.path.join(self.work, name), encoding="utf-8") as file:
                page = file.read()
            self.assertNotRegex(page, "`src/|<!--")
            typed.append(re.search(r"&& (\./build/run( \S+)*)  ", page)[1].split())
        self.assertEqual(*typed)
        return typed[0]

    def test_from_new_to_full_marks(self):
        done = run(self.program, "assignment", "new", SLUG, self.work)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        [setup] = [line.split() for line in done.stdout.splitlines() if "meson setup" in line]
        done = run(*MESON, *setup[1:], folder=self.work)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

        self.build()
        done = run(os.path.join(self.work, "build/public_test"), folder=self.work)
        self.assertEqual(done.returncode, 1)
        self.assertIn("First: ", done.stdout)
        self.assertIn("0 passed", done.stdout)

        done = run(sys.executable, "-B", os.path.join(os.path.dirname(SOURCES), "solve.py"),
                   os.path.basename(SOURCES), self.work)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.build()
        done = run(os.path.join(self.work, "build/public_test"), folder=self.work)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        done = run(*self.words_of_run(), folder=self.work)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertTrue(done.stdout)

        done = run(self.program, "grade", SLUG, self.work)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("100 of 100 points", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
