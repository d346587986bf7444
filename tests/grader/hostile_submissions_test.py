#!/usr/bin/env python3
"""Grades, as a course, submissions that attack the grader. Each must get a valid report and the
right points. No report may have a secret, and no process or file may remain. Runs as the current
user. If the current user is root, also runs as a normal user.

Arguments: the grader, the folder of the assignment's sources, and unittest's arguments.
"""

import glob
import json
import os
import re
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

from grade_formats import CHECKS, check
from hostile_submissions import SECRETS, SUBMISSIONS, begins, tells
from informed_submissions import INFORMED
from orphans import adopt_orphans, children_left

PROGRAM, SOURCES = map(os.path.abspath, sys.argv[1:3])
sys.path.insert(0, os.path.dirname(SOURCES))
import solve  # pylint: disable=wrong-import-position
SLUG = os.path.basename(SOURCES).replace("_", "-")
ROOT = os.path.join(SOURCES, "../../..")
NOBODY = 65534
IS_ROOT = os.geteuid() == 0
ALL_SUBMISSIONS = {**SUBMISSIONS, **INFORMED}


def requests():
    """Returns the names of a rank's requests, by their numbers."""
    with open(os.path.join(ROOT, "lessons/grader/remote/request.hpp"), encoding="utf-8") as file:
        body = re.search(r"enum class RankRequest[^{]*{(.*?)};", file.read(), re.S)[1]
    return re.findall(r"^\s*(\w+),?\s*///", body, re.M)


class Place:
    """A copy of the grader that any user can read, secrets, and a temporary folder."""

    def __init__(self, folder, user):
        self.folder, self.user = folder, user
        os.chmod(folder, 0o755)
        self.identity = {"user": user, "group": user, "extra_groups": []} if IS_ROOT else {}
        self.program = os.path.join(folder, "lockstep/lockstep-grader")
        shutil.copytree(os.path.join(os.path.dirname(PROGRAM), "kit"),
                        os.path.join(folder, "lockstep/kit"))
        shutil.copy(PROGRAM, self.program)
        self.temporary = os.path.join(folder, "tmp")
        os.mkdir(self.temporary)
        self.all = os.path.join(folder, "all")
        self.paths = {
            "OUTSIDE": os.path.join(folder, "home/secret"),
            "NEIGHBOUR": os.path.join(self.all, "neighbour/ring.cpp"),
            "REFERENCE": os.path.join(folder, "reference/ring.cpp"),
            "TEMPORARY": os.path.join(self.temporary, "planted/secret"),
            "GRADING": os.path.join(folder, "lockstep/kit/assignments", SLUG, "grading/secret")}
        self.secrets = {name: f"secret_{secrets.token_hex(8)}" for name in SECRETS + ["OWN"]}
        self.give_away()
        self.run("assignment", "new", SLUG, os.path.join(folder, "solved"))
        solve.solve(SOURCES, os.path.join(folder, "solved"))
        solve.join_adapters(os.path.join(folder, "solved"))
        with open(os.path.join(folder, "solved", "ring.cpp"), encoding="utf-8") as file:
            self.reference = file.read()
        self.add("neighbour", self.reference)
        for name, path in self.paths.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"//{self.secrets[name]}\n{self.reference}"
                           if path.endswith(".cpp") else f"{self.secrets[name]}\n")
        self.give_away()

    def run(self, *words):
        return subprocess.run([self.program, *words], capture_output=True, check=False,
                              cwd=self.folder, env=dict(os.environ, TMPDIR=self.temporary),
                              **self.identity)

    def add(self, name, ring, files=()):
        """Makes the folder of a submission, and returns the folder."""
        folder = os.path.join(self.all, name)
        shutil.copytree(os.path.join(self.folder, "solved"), folder)
        for file, text in {**dict(files), "ring.cpp": ring}.items():
            with open(os.path.join(folder, file), "w", encoding="utf-8") as opened:
                opened.write(self.filled(text))
        return folder

    def filled(self, text):
        for number, name in enumerate(requests()):
            text = text.replace(f"@{name.upper()}@", str(number))
        for name, path in {**self.paths, "OWN": self.secrets["OWN"]}.items():
            text = text.replace(f"@{name}@", path)
        return text

    def give_away(self):
        """Gives the grading user all files except sources that no user can open."""
        if not IS_ROOT:
            return
        for folder, _, files in os.walk(self.folder):
            for path in [folder, *(os.path.join(folder, file) for file in files)]:
                status = os.lstat(path)
                if not (stat.S_ISREG(status.st_mode) and status.st_mode & 0o777 == 0):
                    os.lchown(path, self.user, self.user)


class Graded:
    """Tests every second submission as one user, since grading all of them takes 10 minutes; the
    other user has the others. If `slow`, tests those that use up a limit; otherwise the rest."""
    user = os.geteuid()
    slow = False
    first = 0

    def setUp(self):
        if self.user != os.geteuid() and not IS_ROOT:
            self.skipTest("only root can become another user")
        kind = [name for name, submission in ALL_SUBMISSIONS.items()
                if submission.slow == self.slow]
        step = 2 if IS_ROOT else 1
        self.chosen = {name: ALL_SUBMISSIONS[name] for name in kind[self.first % step::step]}
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.place = Place(folder, self.user)

    def prepare(self, name, submission):
        folder = self.place.add(name, submission.ring(self.place.reference), submission.files)
        if submission.prepare:
            submission.prepare(folder)
        return folder

    def nothing_is_left(self):
        self.assertEqual(children_left(), [])
        self.assertEqual(os.listdir(self.place.temporary), ["planted"])
        self.assertEqual(os.listdir(os.path.join(self.place.temporary, "planted")), ["secret"])
        for name, path in self.place.paths.items():
            with open(path, encoding="utf-8") as file:
                self.assertIn(self.place.secrets[name], file.readline())

    def tells_no_secret(self, data):
        for name in SECRETS:
            self.assertNotIn(self.place.secrets[name].encode(), data, name)
        self.assertNotIn(b"root:x:0", data)

    def test_each_has_what_it_must_get(self):
        folders = [self.prepare(name, submission) for name, submission in self.chosen.items()]
        self.place.give_away()
        out = os.path.join(self.place.folder, "grades")
        done = self.place.run("grade", SLUG, os.path.join(self.place.all, "neighbour"), *folders,
                              "--out", out, "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.nothing_is_left()
        for path in glob.glob(os.path.join(out, "*")):
            with open(path, "rb") as file:
                self.tells_no_secret(file.read())
        self.tells_no_secret(done.stdout + done.stderr)
        for name, submission in self.chosen.items():
            with self.subTest(name), open(os.path.join(out, name + ".json"), "rb") as file:
                data = file.read()
                check("json", data)
                report = json.loads(data)
                said = json.dumps(report, ensure_ascii=False)
                self.assertEqual(
                    (report["earned"], report["built"], report["finished"], report["stopped"]),
                    (submission.earned, submission.built, True, None), said)
                self.assertRegex(said, self.place.filled(submission.says))
                self.assertNotIn("it got away with", said)
        with open(os.path.join(out, "neighbour.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["earned"], 100)


class AsGrader(Graded, unittest.TestCase):
    def test_what_is_no_text_is_valid_in_every_format(self):
        for name, submission in ALL_SUBMISSIONS.items():
            if not submission.in_all_formats:
                continue
            folder = self.prepare(name, submission)
            self.place.give_away()
            for format_name in set(CHECKS) - {"json"}:
                with self.subTest(name + ": " + format_name):
                    done = self.place.run("grade", SLUG, folder, "--format", format_name)
                    self.assertEqual((done.returncode, done.stderr), (1, b""))
                    check(format_name, done.stdout)
                    self.tells_no_secret(done.stdout)
        self.nothing_is_left()


class AsNormalUser(Graded, unittest.TestCase):
    user = NOBODY
    first = 1


class SlowAsGrader(Graded, unittest.TestCase):
    slow = True


class SlowAsNormalUser(Graded, unittest.TestCase):
    user = NOBODY
    slow = True
    first = 1


INSTALL = """
set -e
mount -t tmpfs none /usr/local
mkdir -p /usr/local/lib/lockstep/kit /usr/local/share /usr/local/src/lockstep
cp {reference} /usr/local/src/lockstep
# Any library stands for Lockstep's own.
cp $(ls /usr/lib/*/libfmt.so.*.* | head -n 1) /usr/local/lib/liblockstep.so.0
mkdir -p /usr/local/include/lockstep
touch /usr/local/include/lockstep/lockstep.hpp
export MESON_INSTALL_DESTDIR_PREFIX=/usr/local
python3 -B {root}/lessons/grader/install_kit.py {kit} lib/lockstep/kit share/lockstep/grading
cp -r {kit}/lib /usr/local/lib/lockstep/kit
cp {program} /usr/local/lib/lockstep
exec /usr/local/lib/lockstep/lockstep-grader "$@"
"""


class Installed(unittest.TestCase):
    """Tests with the kit among the system's libraries, in a separate mount namespace."""

    def setUp(self):
        if subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0:
            self.skipTest("this user cannot mount anything")
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.place = Place(folder, os.geteuid())

    def test_nobodys_program_reads_what_it_is_graded_by(self):
        kit = "/usr/local/lib/lockstep/kit/assignments/" + SLUG
        shared = "/usr/local/share/lockstep/grading/" + SLUG
        clone = "/usr/local/src/lockstep/ring.cpp"
        library = "/usr/local/lib/liblockstep.so.0"
        paths = [kit + "/grading/secret", shared + "/secret", clone, kit + "/handout/ring.hpp",
                 "/usr/local/include/lockstep/lockstep.hpp"]
        sources = {f"includes {number}": f'#include "{path}"\n' + self.place.reference
                   for number, path in enumerate(paths)}
        sources["reads"] = tells(*paths)(self.place.reference)
        sources["calls"] = "#include <dlfcn.h>\n" + begins(
            f'if (dlopen("{library}", RTLD_NOW)) throw std::runtime_error("called");'
        )(self.place.reference)
        sources["right"] = self.place.reference
        folders = [self.place.add(name, text) for name, text in sources.items()]
        out = os.path.join(self.place.folder, "grades")
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", INSTALL.format(
                root=ROOT, kit=os.path.join(self.place.folder, "lockstep/kit"),
                program=self.place.program, reference=self.place.paths["REFERENCE"]),
             "sh", "grade", SLUG, *folders, "--out", out, "--format", "json"],
            check=False, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        reports = {}
        for name in sources:
            with open(os.path.join(out, name + ".json"), encoding="utf-8") as file:
                reports[name] = file.read()
                for secret in ("GRADING", "REFERENCE"):
                    self.assertNotIn(self.place.secrets[secret], reports[name])
        self.assertEqual({name: json.loads(text)["earned"] for name, text in reports.items()},
                         {**dict.fromkeys(sources, 0), "right": 100, "calls": 100})
        self.assertEqual(reports["reads"].count("cannot read"), len(paths) * 3)


if __name__ == "__main__":
    adopt_orphans()
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
