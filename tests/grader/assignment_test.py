#!/usr/bin/env python3
"""An assignment as its users meet it: what is handed out gets no points and says what to do
first; the reference gets all, within two minutes; each mutant loses what it must, and no more;
and the targets are what the reference measures.

Arguments: the program, the folder of the assignment's sources.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, SOURCES = map(os.path.abspath, sys.argv[1:3])
SLUG = os.path.basename(SOURCES).replace("_", "-")
# A reference of few lines: these, as the changes of a mutant are written.
CHANGES = "changes.json"
MOST_SECONDS = 120
MOST_BYTES = 768 << 20


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


def grade(folder):
    """The exit status and the report."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = run("grade", SLUG, folder, "--format", "json", "--out", file.name)
        if done.stderr:
            raise AssertionError(done.stderr)
        with open(file.name, encoding="utf-8") as text:
            return done.returncode, json.load(text)


def lost(report):
    return sorted(entry["id"] for entry in report["criteria"] if entry["earned"] == 0)


def whole_lines(lines):
    return "\n".join(lines) + "\n"


class Assignment(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.work = os.path.join(self.folder, "work")
        done = run("assignment", "new", SLUG, self.work)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.given = shutil.copytree(self.work, os.path.join(self.folder, "given"))
        self.solved = os.listdir(os.path.join(SOURCES, "reference"))
        self.changes = []
        if CHANGES in self.solved:
            self.solved.remove(CHANGES)
            with open(os.path.join(SOURCES, "reference", CHANGES), encoding="utf-8") as file:
                self.changes = json.load(file)

    def put_reference(self):
        shutil.copytree(self.given, self.work, dirs_exist_ok=True)
        for name in self.solved:
            shutil.copy(os.path.join(SOURCES, "reference", name), self.work)
        self.mutate(self.changes)

    def mutate(self, changes):
        for change in changes:
            path = os.path.join(self.work, change["file"])
            with open(path, encoding="utf-8") as file:
                text = file.read()
            before = whole_lines(change["from"])
            self.assertEqual(text.count(before), 1, f"{change['file']} has not once: {before}")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace(before, whole_lines(change["to"])))

    def test_what_is_handed_out_gets_nothing_and_says_what_to_do_first(self):
        status, report = grade(self.work)
        self.assertEqual(status, 1)
        self.assertTrue(report["finished"])
        self.assertIsNone(report["build_failure"])
        self.assertEqual(report["earned"], 0)
        self.assertTrue(report["first"])
        for entry in report["criteria"]:
            self.assertNotIn("lockstep:", entry["said"] or "")

    def test_the_reference_is_not_handed_out(self):
        names = os.listdir(self.work)
        self.assertNotIn(CHANGES, names)
        for change in self.changes:
            self.assertNotEqual(change["from"], change["to"])
        for name in self.solved:
            self.assertIn(name, names)
            with open(os.path.join(SOURCES, "reference", name), encoding="utf-8") as reference:
                with open(os.path.join(self.work, name), encoding="utf-8") as given:
                    self.assertNotEqual(given.read(), reference.read(), name)

    def test_the_reference_gets_all_points_in_time(self):
        self.put_reference()
        begun = time.monotonic()
        status, report = grade(self.work)
        self.assertEqual(lost(report), [])
        self.assertEqual(status, 0)
        self.assertEqual(report["earned"], report["points"])
        self.assertFalse(report["first"])
        self.assertLess(time.monotonic() - begun, MOST_SECONDS)
        # Of any process that was waited for: the grader, the compiler, a student's.
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        self.assertLess(largest, MOST_BYTES)

    def test_the_targets_are_what_the_reference_measures(self):
        self.put_reference()
        with open(os.path.join(SOURCES, "grading/targets.json"), encoding="utf-8") as file:
            kept = file.read()
        made = run("assignment", "targets", SLUG, self.work,
                   "--seed", str(json.loads(kept)["seed"]))
        self.assertEqual(made.stderr, "")
        self.assertEqual(made.stdout, kept)

    def test_each_mutant_loses_what_it_must(self):
        with open(os.path.join(SOURCES, "mutants.json"), encoding="utf-8") as file:
            mutants = json.load(file)
        self.assertGreaterEqual(len(mutants), 6)
        for mutant in mutants:
            with self.subTest(mutant["name"]):
                self.put_reference()
                self.mutate(mutant["changes"])
                status, report = grade(self.work)
                self.assertIsNone(report["build_failure"])
                self.assertEqual(lost(report), sorted(mutant["loses"]),
                                 json.dumps(report, indent=1))
                self.assertEqual(status, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
