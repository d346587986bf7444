#!/usr/bin/env python3
"""The package for Gradescope is complete, has no solutions, and grades a submission.

Arguments: the program, its build folder, the project's root. The build folder has the programs that
setup.sh would build.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from grade_formats import check

PROGRAM, BUILD, ROOT = map(os.path.abspath, sys.argv[1:4])
sys.path.insert(0, os.path.join(ROOT, "lessons/assignments"))
import solve  # pylint: disable=wrong-import-position
SLUG = "ring-all-reduce"
FOLDER = os.path.join(ROOT, "lessons/assignments/ring_all_reduce")


class Gradescope(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.file = os.path.join(self.folder, "autograder.zip")
        done = subprocess.run([PROGRAM, "assignment", "gradescope", SLUG, self.file],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def unpack(self):
        """Installs the package as Gradescope does, but with the build of this checkout."""
        source = os.path.join(self.folder, "source")
        with zipfile.ZipFile(self.file) as archive:
            for entry in archive.infolist():
                path = archive.extract(entry, source)
                os.chmod(path, entry.external_attr >> 16)
        os.symlink(BUILD, os.path.join(source, "lockstep/build"))
        with open(os.path.join(source, "environment"), "w", encoding="utf-8"):
            pass
        for name in ["submission", "results"]:
            os.mkdir(os.path.join(self.folder, name))

    def grade(self):
        """Returns the results of a run. If possible, the run has no network."""
        alone = ["unshare", "-n"] if os.geteuid() == 0 and shutil.which("unshare") else []
        script = os.path.join(self.folder, "source/run_autograder")
        done = subprocess.run([*alone, script], capture_output=True, text=True, check=False,
                              env=dict(os.environ, AUTOGRADER=self.folder))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with open(os.path.join(self.folder, "results/results.json"), "rb") as file:
            text = file.read()
        check("gradescope", text)
        return json.loads(text)

    def test_it_holds_what_it_needs(self):
        with zipfile.ZipFile(self.file) as archive:
            names = archive.namelist()
            modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        self.assertTrue(modes["setup.sh"] & modes["run_autograder"] & 0o111)
        self.assertIn("lockstep/meson.build", names)
        self.assertIn("lockstep/lessons/assignments/ring_all_reduce/grading/criteria.cpp", names)
        for name in names:
            self.assertFalse(name.startswith("lockstep/tests/"), name)
        self.assertLess(os.path.getsize(self.file), 100 << 20)

    def test_solutions_are_removed_when_they_are_compiled(self):
        self.unpack()
        lockstep = os.path.join(self.folder, "source/lockstep")
        build = os.path.join(lockstep, "build")
        os.unlink(build)
        grader = os.path.join(build, "lessons/lockstep-grader")
        os.makedirs(os.path.join(build, "lessons/kit/assignments"))
        os.makedirs(os.path.join(build, "lessons/assignments/liblockstep_solutions.a.p"))
        shutil.copy(PROGRAM + "-grader", grader)
        with open(os.path.join(self.folder, "source/setup.sh"), encoding="utf-8") as file:
            removal = file.read().split("ninja -C build")[1].split("\n", 1)[1]
        subprocess.run(["bash", "-ec", removal], cwd=lockstep, check=True)
        self.assertEqual(os.stat(grader).st_mode & 0o777, 0o711)
        self.assertEqual(os.listdir(os.path.join(build, "lessons/assignments")), [])
        names = subprocess.run(["nm", grader], capture_output=True, text=True, check=False)
        self.assertNotIn("copy_1", names.stdout)
        left = [name for _, folders, files in os.walk(lockstep) for name in folders + files]
        self.assertIn("criteria.cpp", left)
        self.assertNotIn("reference", left)
        self.assertNotIn("mistakes.txt", left)

    def test_it_is_the_same_each_time(self):
        with open(self.file, "rb") as file:
            first = file.read()
        self.setUp()
        with open(self.file, "rb") as file:
            self.assertEqual(file.read(), first)

    def test_a_solution_in_a_folder_of_its_own_gets_all_points(self):
        self.unpack()
        work = os.path.join(self.folder, "submission/mine")
        done = subprocess.run([PROGRAM, "assignment", "new", SLUG, work], check=False)
        self.assertEqual(done.returncode, 0)
        solve.solve(FOLDER, work)
        results = self.grade()
        self.assertEqual(results["score"], 100)

    def test_an_empty_submission_gets_none(self):
        self.unpack()
        results = self.grade()
        self.assertEqual(results["score"], 0)
        self.assertIn("is not there", json.dumps(results))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
