#!/usr/bin/env python3
"""Programs that mean harm, or act as if: each costs the points of what it broke, and ends in a
whole report, in time, with nothing left
behind. tests/grader/hostile.cpp has more of them.

Arguments: the program, the folder of the assignment's sources.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, SOURCES = map(os.path.abspath, sys.argv[1:3])
sys.path.insert(0, os.path.dirname(SOURCES))
import solve  # pylint: disable=wrong-import-position
SLUG = os.path.basename(SOURCES).replace("_", "-")

BROKEN = ["a1.3-bytes", "a1.3-memory", "a1.3-time", "a1.3-values"]
HEADERS = """
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
"""
FAKE = r'''{"score": 100, "tests": [{"score": 100, "max_score": 100, "status": "passed"}]}'''

# name: (what all_reduce does, what the report says of it)
IN_ALL_REDUCE = {
    "forks for ever": ("for (;;) fork();", ""),
    "prints and writes a report": (
        f"std::puts(R\"({FAKE})\"); std::fflush(stdout);"
        f"if (FILE* file = std::fopen(\"report.json\", \"w\")) {{ std::fputs(R\"({FAKE})\", file);"
        " std::fclose(file); std::exit(9); } std::exit(0);", "exit status 0"),
}
# Before main, or in the compiler: nothing is left that could pass.
IN_ALL = {
    "loops before main": "static const int before = [] { for (volatile int i = 0;; ++i) {}"
                         " return 0; }();",
    "exits before main": "static const int before = [] { std::exit(0); return 0; }();",
    "includes what never ends": "#include \"/dev/zero\"",
    "instantiates for ever": "template <int N> struct Deep { static constexpr int value ="
                             " Deep<N + 1>::value + Deep<N + 2>::value; };"
                             " static const int deep = Deep<0>::value;",
}


class Hostile(unittest.TestCase):
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
        with open(os.path.join(self.work, "ring.cpp"), encoding="utf-8") as file:
            self.reference = file.read()

    def run_grader(self, *before, **variables):
        path = os.path.join(self.folder, "report.json")
        done = subprocess.run([*before, PROGRAM, "grade", SLUG, self.work, "--format", "json",
                               "--out", path], capture_output=True, text=True, check=False,
                              timeout=200, env=dict(os.environ, TMPDIR=self.spare, **variables))
        with open(path, encoding="utf-8") as file:
            return done, json.load(file)

    def grade(self, text):
        with open(os.path.join(self.work, "ring.cpp"), "w", encoding="utf-8") as file:
            file.write(text)
        begun = time.monotonic()
        done, report = self.run_grader()
        self.assertLess(time.monotonic() - begun, 150)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", ""))
        self.assertTrue(report["finished"])
        self.assertEqual(os.listdir(self.spare), [])
        return report

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
        can_mount = subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0 \
            if shutil.which("unshare") else False
        if can_mount:
            self.is_no_grade("cannot be run here", "unshare", "-m", "sh", "-c",
                             f'mount -t tmpfs -o noexec none {self.spare} && exec "$@"', "sh")

    def test_a_program_that_the_system_cannot_run_is_the_students(self):
        report = self.grade('asm(".pushsection .interp,\\"a\\",@progbits\\n.ascii \\"x\\"\\n'
                            f'.popsection\\n");\n{self.reference}')
        self.assertIsNone(report["build_failure"], report["build_failure"])
        self.assertEqual(report["earned"], 0)
        self.assertIn("the system cannot run it", report["criteria"][0]["said"])

    def test_a_compiler_may_stand_anywhere(self):
        compiler = os.path.join(self.folder, "gcc/bin/g++")
        os.makedirs(os.path.dirname(compiler))
        with open(compiler, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\nexec g++ "$@"\n')
        os.chmod(compiler, 0o755)
        for folder, _, _ in os.walk(os.path.join(self.folder, "gcc")):
            os.chmod(folder, 0o755)
        link = os.path.join(self.folder, "my-g++")
        os.symlink(shutil.which("g++"), link)
        for path in (compiler, link):
            done, report = self.run_grader(CXX=path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(report["earned"], 100)

    def test_a_source_that_cannot_be_read_is_one_that_cannot_be_built(self):
        path = os.path.join(self.work, "ring.cpp")
        os.remove(path)
        done, report = self.run_grader()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(report["build_failure"]["message"], "ring.cpp is not there")
        os.mkdir(path)
        done, report = self.run_grader()
        self.assertEqual(report["build_failure"]["message"], "ring.cpp is not a file of its own")

    def test_what_is_left_in_another_shape_costs_its_criteria_alone(self):
        head, tail = self.reference.split("void reduce_scatter(Rank& rank, const Tensor& buffer) {")
        report = self.grade(f"{head}void reduce_scatter(Rank&, const Tensor& buffer) {{"
                            "const_cast<Tensor&>(buffer) = buffer.slice(0, 1); }\n"
                            f"static void unused(Rank& rank, const Tensor& buffer) {{{tail}")
        self.assertIsNone(report["build_failure"], report["build_failure"])
        entry = report["criteria"][0]
        self.assertEqual((entry["mark"], entry["measured"]), ("failed", "(1) x f64"))
        self.assertIn("a1.2-values", [each["id"] for each in report["criteria"] if each["earned"]])

    def test_what_breaks_one_function_costs_its_points_alone(self):
        head, tail = self.reference.split("void all_reduce(")
        for name, (body, said) in IN_ALL_REDUCE.items():
            with self.subTest(name):
                report = self.grade(f"{HEADERS}{head}\nvoid all_reduce(Rank& rank, "
                                    f"const Tensor& buffer) {{ (void)rank; (void)buffer; {body} }}\n")
                self.assertIsNone(report["build_failure"], report["build_failure"])
                lost = {entry["id"]: entry for entry in report["criteria"] if not entry["earned"]}
                self.assertEqual(sorted(lost), BROKEN)
                self.assertIn(said, lost["a1.3-values"]["said"])
                self.assertNotIn("status 9", lost["a1.3-values"]["said"])
        self.assertIn("all_gather(rank, buffer)", tail)

    def test_what_breaks_all_costs_all(self):
        for name, before in IN_ALL.items():
            with self.subTest(name):
                report = self.grade(f"{HEADERS}{before}\n{self.reference}")
                self.assertEqual(report["earned"], 0)

    def test_links_lead_nowhere(self):
        os.remove(os.path.join(self.work, "ring.hpp"))
        os.symlink("/etc/passwd", os.path.join(self.work, "ring.hpp"))
        report = self.grade(self.reference)
        self.assertEqual(report["build_failure"]["file"], "ring.hpp")
        self.assertNotIn("root:", json.dumps(report))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
