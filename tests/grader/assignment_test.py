#!/usr/bin/env python3
"""Tests an assignment as its users see it. The handed-out files get no points, and the grade says
what to do first. The reference gets all points within two minutes. Some mistakes must run as
separate programs; they lose exactly the right points. The test `mistakes` tries all other mistakes.

Arguments: the program, the folder of the assignment's sources, "Assignment" or
"ConfinedMistakes".

The seed of sizes and values is LOCKSTEP_DRAW, by default 1. Try other seeds after a change of
criteria.
"""

import filecmp
import glob
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCES = map(os.path.abspath, sys.argv[1:3])
sys.path.insert(0, os.path.dirname(SOURCES))
import mistakes  # pylint: disable=wrong-import-position
import solve  # pylint: disable=wrong-import-position
SLUG = os.path.basename(SOURCES).replace("_", "-")
DRAWN = ["--drawn", os.environ.get("LOCKSTEP_DRAW", "1")]
MOST_BYTES = 768 << 20


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


def grade(folder):
    """Returns the exit status and the report."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = run("grade", SLUG, folder, "--format", "json", "--out", file.name, *DRAWN)
        if done.stderr:
            raise AssertionError(done.stderr)
        with open(file.name, encoding="utf-8") as text:
            return done.returncode, json.load(text)


def lost(report):
    return sorted(entry["id"] for entry in report["criteria"] if entry["earned"] == 0)


def said(report):
    """Returns the message of the first criterion that lost points."""
    return next((entry["said"] or entry["measured"] or "" for entry in report["criteria"]
                 if entry["earned"] == 0), "").replace("\n", " ")


class WorkFolder:
    """The files that a student gets, and later the solved files."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.work = os.path.join(self.folder, "work")
        done = run("assignment", "new", SLUG, self.work)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.given = shutil.copytree(self.work, os.path.join(self.folder, "given"))

    def put_reference(self):
        shutil.copytree(self.given, self.work, dirs_exist_ok=True)
        solve.solve(SOURCES, self.work)


class Assignment(WorkFolder, unittest.TestCase):
    def test_what_is_handed_out_gets_nothing_and_says_what_to_do_first(self):
        status, report = grade(self.work)
        self.assertEqual(status, 1)
        self.assertTrue(report["finished"])
        self.assertIsNone(report["build_failure"])
        self.assertEqual(report["earned"], 0)
        self.assertTrue(report["first"])
        taught = {(entry["lesson"], entry["lesson_step"]) for entry in report["criteria"]}
        with open(os.path.join(self.work, "README.md"), encoding="utf-8") as file:
            for lesson, step in re.findall(r"lockstep lesson ([a-z0-9-]+)`, step (\d+)", file.read()):
                self.assertIn((lesson, int(step)), taught)
        for entry in report["criteria"]:
            self.assertNotIn("lockstep:", entry["said"] or "")

    def test_the_reference_is_not_handed_out(self):
        names = os.listdir(self.given)
        self.put_reference()
        solved = [name for name in names
                  if not filecmp.cmp(os.path.join(self.given, name),
                                     os.path.join(self.work, name), shallow=False)]
        # Each of the reference's files replaces a handed-out file and differs from it.
        self.assertEqual(sorted(os.listdir(self.work)), sorted(names))
        self.assertTrue(solved)
        for name in os.listdir(os.path.join(SOURCES, "reference")):
            if name == mistakes.CHANGES:
                self.assertNotIn(name, names)
            else:
                self.assertIn(name, solved)

    def test_no_line_of_the_reference_stands_in_a_program(self):
        # Lines that are also in the library or in the programs of fault pages do not count.
        known = "".join(mistakes.read_folder(os.path.join(SOURCES, "handout")).values())
        for path in (glob.glob(os.path.join(SOURCES, "../../../src/*/*.[ch]pp")) +
                     glob.glob(os.path.join(SOURCES, "../../faults/*.md"))):
            with open(path, encoding="utf-8") as file:
                known += file.read()
        solved = "\n".join(mistakes.reference(SOURCES).values())
        lines = {line.strip().encode() for line in solved.splitlines() if len(line.strip()) > 30
                 and line.strip() not in known}
        self.assertTrue(lines)
        for program in [PROGRAM, PROGRAM + "-grader"]:
            with open(program, "rb") as file:
                data = file.read()
            self.assertEqual([line for line in lines if line in data], [])

    def test_no_solution_is_in_what_students_link(self):
        kit = os.path.join(os.path.dirname(PROGRAM), "kit")
        libraries = [path for path in glob.glob(os.path.join(kit, "**"), recursive=True)
                     if path.endswith((".a", ".so", ".o"))]
        self.assertTrue(libraries)
        for path in [PROGRAM, *libraries]:
            names = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True)
            self.assertNotIn("copy_0::", names.stdout, path)

    def test_answers_are_hashed_and_nowhere_else(self):
        script = os.path.join(SOURCES, "hash_answers.py")
        if not os.path.exists(script):
            self.skipTest("there are no answers to write down")
        made = subprocess.run([sys.executable, "-B", script], capture_output=True, check=True)
        with open(os.path.join(SOURCES, "grading/answers.json"), "rb") as file:
            self.assertEqual(file.read(), made.stdout)
        with open(os.path.join(SOURCES, "right_answers.json"), encoding="utf-8") as file:
            lines = [line for program in json.load(file).values() for line in program["line"]]
        for program in [PROGRAM, PROGRAM + "-grader"]:
            with open(program, "rb") as file:
                data = file.read()
            self.assertEqual([line for line in lines if line.encode() in data], [])

    def test_the_reference_gets_all_points_in_little_memory(self):
        self.put_reference()
        status, report = grade(self.work)
        self.assertEqual(lost(report), [])
        self.assertEqual(status, 0)
        self.assertEqual(report["earned"], report["points"])
        self.assertFalse(report["first"])
        # The largest process: the grader, the compiler or the student's program.
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        self.assertLess(largest, MOST_BYTES)


class ConfinedMistakes(WorkFolder, unittest.TestCase):
    def test_each_of_them_loses_what_it_must(self):
        tried = [mistake for mistake in mistakes.read_mistakes(os.path.join(SOURCES, "mistakes.txt"))
                 if mistake.confined]
        if not tried:
            self.skipTest("all mistakes are tried in the grader's own process")
        folders = []
        for number, mistake in enumerate(tried):
            folder = shutil.copytree(self.given, os.path.join(self.folder, "all", str(number)))
            solve.solve(SOURCES, folder, mistake.changes)
            folders.append(folder)
        grades = os.path.join(self.folder, "grades", "")
        # Grades one at a time, because other tests run at the same time.
        done = run("grade", SLUG, *folders, "--out", grades, "--format", "json",
                   "--at-once", "1", *DRAWN)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for number, mistake in enumerate(tried):
            with self.subTest(mistake.title):
                with open(os.path.join(grades, f"{number}.json"), encoding="utf-8") as file:
                    report = json.load(file)
                self.assertIsNone(report["build_failure"])
                self.assertEqual(lost(report), sorted(mistake.loses),
                                 json.dumps(report, indent=1))
                sentence = mistake.says or mistake.expects
                self.assertTrue(sentence)
                self.assertRegex(said(report), ".*".join(map(re.escape, sentence.split("..."))))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:4])
