#!/usr/bin/env python3
"""If the machine lacks something that grading needs, there is no grade; otherwise there is one.

Arguments: the program, the folder of the assignment's sources.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCES = map(os.path.abspath, sys.argv[1:3])
sys.path.insert(0, os.path.dirname(SOURCES))
import solve  # pylint: disable=wrong-import-position
SLUG = os.path.basename(SOURCES).replace("_", "-")


def can_unshare(*options):
    return shutil.which("unshare") and \
        subprocess.run(["unshare", *options, "true"], check=False).returncode == 0


class Machine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.work = os.path.join(self.folder, "work")
        self.spare = os.path.join(self.folder, "spare")
        os.mkdir(self.spare)
        os.chmod(self.folder, 0o755)
        subprocess.run([PROGRAM, "assignment", "new", SLUG, self.work], check=True,
                       capture_output=True)
        solve.solve(SOURCES, self.work)

    def run_grader(self, *before, options=(), **variables):
        path = os.path.join(self.folder, "report.json")
        done = subprocess.run([*before, PROGRAM, "grade", SLUG, self.work, "--format", "json",
                               "--out", path, *options], capture_output=True, text=True, check=False, env=dict(os.environ, TMPDIR=self.spare, **variables))
        with open(path, encoding="utf-8") as file:
            return done, json.load(file)

    def is_no_grade(self, why, *before, **variables):
        done, report = self.run_grader(*before, **variables)
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn(why, done.stderr)
        self.assertIn(why, report["stopped"])
        self.assertFalse(report["finished"])
        self.assertEqual({entry["mark"] for entry in report["criteria"]}, {"not_judged"})
        self.assertEqual(os.listdir(self.spare), [])

    def test_the_machines_trouble_is_not_the_students(self):
        self.is_no_grade("cannot be built here", CXX="/bin/false")
        self.is_no_grade("unrecognized command-line option", CXX="g++ -fno-such-option")
        if can_unshare("-m"):
            self.is_no_grade("cannot be run here", "unshare", "-m", "sh", "-c",
                             f'mount -t tmpfs -o noexec none {self.spare} && exec "$@"', "sh")
            self.is_no_grade("no room for the compiler's files", "unshare", "-m", "sh", "-c",
                             f'mount -t tmpfs -o size=1m none {self.spare} && exec "$@"', "sh")

    @unittest.skipUnless(can_unshare("-Ur"), "no containers here")
    def test_a_container_whose_only_user_is_root_can_grade(self):
        done, report = self.run_grader("unshare", "-Ur")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(report["earned"], 100)

    def make_compiler(self, before, name="gcc"):
        """Returns a compiler in a folder of its own. It runs the commands `before`, then g++."""
        compiler = os.path.join(self.folder, name, "bin/g++")
        os.makedirs(os.path.dirname(compiler))
        with open(compiler, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n{before}\nexec g++ "$@"\n')
        os.chmod(compiler, 0o755)
        for folder, _, _ in os.walk(os.path.join(self.folder, name)):
            os.chmod(folder, 0o755)
        return compiler

    def test_a_compiler_that_lacked_memory_or_room_runs_once_more(self):
        for number, error in enumerate(["Killed signal terminated program cc1plus",
                                        "error writing to a.s: No space left on device"]):
            compiler = self.make_compiler(f"test -e lacked || {{ : > lacked; echo 'g++: fatal"
                                          f" error: {error}'; exit 1; }}", f"gcc{number}")
            done, report = self.run_grader(CXX=compiler)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(report["earned"], 100)

    def test_a_report_says_how_to_draw_the_same(self):
        _, first = self.run_grader()
        _, same = self.run_grader(options=("--drawn", first["drawn"]))
        _, other = self.run_grader(options=("--drawn", str(int(first["drawn"]) ^ 1)))
        asked, again, others = ([entry["asked"] for entry in report["criteria"]]
                                for report in (first, same, other))
        self.assertEqual(again, asked)
        self.assertEqual(same["drawn"], first["drawn"])
        self.assertNotEqual(others, asked)

    def test_a_compiler_may_stand_anywhere(self):
        compiler = self.make_compiler("")
        link = os.path.join(self.folder, "my-g++")
        os.symlink(shutil.which("g++"), link)
        for path in (compiler, link):
            done, report = self.run_grader(CXX=path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(report["earned"], 100)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
