#!/usr/bin/env python3
"""Grades a course's submissions, folders and .zip files, in one command. It makes a table and one
report for each, with the same points as if each were graded separately.

Arguments: the program, the folder of the assignment's sources.
"""

import csv
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
import zipfile

PROGRAM, SOURCES = map(os.path.abspath, sys.argv[1:3])
sys.path.insert(0, os.path.dirname(SOURCES))
import solve  # pylint: disable=wrong-import-position
SLUG = os.path.basename(SOURCES).replace("_", "-")


def run(*arguments, **variables):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False,
                          env=dict(os.environ, **variables))


class GradeMany(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.solved = os.path.join(self.folder, "solved")
        done = run("assignment", "new", SLUG, self.solved)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.given = shutil.copytree(self.solved, os.path.join(self.folder, "given"))
        solve.solve(SOURCES, self.solved)
        self.all = os.path.join(self.folder, "all")
        os.mkdir(self.all)
        self.out = os.path.join(self.folder, "out")

    def folder_of(self, name, source):
        return shutil.copytree(source, os.path.join(self.all, name))

    def zip_of(self, name, entries):
        """Writes an archive. An entry is a name and its bytes, or (mode, bytes)."""
        path = os.path.join(self.all, name)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for where, data in entries:
                entry = zipfile.ZipInfo(where)
                entry.compress_type = zipfile.ZIP_DEFLATED
                if isinstance(data, tuple):
                    entry.external_attr = data[0] << 16
                    data = data[1]
                archive.writestr(entry, data)
        return path

    def entries_of(self, source, below):
        entries = []
        for name in sorted(os.listdir(source)):
            with open(os.path.join(source, name), "rb") as file:
                entries.append((f"{below}{name}", file.read()))
        return entries

    def grade(self, *words, **variables):
        paths = [os.path.join(self.all, name) for name in sorted(os.listdir(self.all))]
        return run("grade", SLUG, *paths, "--out", self.out, "--format", "json", *words,
                   **variables)

    def table(self):
        with open(os.path.join(self.out, "grades.csv"), encoding="utf-8", newline="") as file:
            return {row["submission"]: row for row in csv.DictReader(file)}

    def written_at(self, name):
        return os.stat(os.path.join(self.out, name + ".json")).st_mtime_ns

    def report(self, name):
        with open(os.path.join(self.out, name + ".json"), encoding="utf-8") as file:
            return json.load(file)

    def test_each_has_a_report_and_a_line(self):
        self.folder_of("ada", self.solved)
        half = self.folder_of("half", self.solved)
        with open(os.path.join(half, "ring.cpp"), encoding="utf-8") as file:
            text = file.read()
        with open(os.path.join(half, "ring.cpp"), "w", encoding="utf-8") as file:
            file.write(text.replace("    all_gather(rank, buffer);\n", ""))
        self.folder_of("=cmd|' C calc'!A0", self.given)
        os.makedirs(os.path.join(self.all, "grace"))
        shutil.copytree(self.solved, os.path.join(self.all, "grace/work"))
        self.zip_of("alan.zip", self.entries_of(self.solved, "alan/work/")
                    + [("__MACOSX/alan/work/ring.cpp", b"\0"), ("ring.cpp", b"no")])
        done = self.grade()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("5 submissions graded, 3 with all points", done.stdout)
        table = self.table()
        self.assertEqual({name: row["earned"] for name, row in table.items()},
                         {"ada": "100", "half": "70", "grace": "100", "alan": "100",
                          "'=cmd|' C calc'!A0": "0"})
        for name in ("ada", "half", "grace", "alan", "=cmd|' C calc'!A0"):
            report = self.report(name)
            self.assertTrue(report["finished"])
            row = table[name] if name in table else table["'" + name]
            self.assertEqual([row[entry["id"]] for entry in report["criteria"]],
                             [str(entry["earned"]) for entry in report["criteria"]])
        # A separate grading gives the same grade.
        alone = os.path.join(self.folder, "alone.json")
        done = run("grade", SLUG, half, "--format", "json", "--out", alone)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        with open(alone, encoding="utf-8") as file:
            marks = [(entry["id"], entry["mark"]) for entry in json.load(file)["criteria"]]
        self.assertEqual(marks, [(entry["id"], entry["mark"])
                                 for entry in self.report("half")["criteria"]])

    def test_what_is_wrong_with_an_archive_costs_its_points_alone(self):
        files = self.entries_of(self.solved, "")
        with open(os.path.join(self.all, "damaged.zip"), "wb") as file:
            file.write(b"PK\3\4 and so on")
        self.zip_of("empty.zip", [("readme.txt", b"sorry")])
        self.zip_of("huge.zip", [("ring.cpp", b"//" + b" " * (1 << 21))])
        self.zip_of("linked.zip", [("ring.cpp", (stat.S_IFLNK | 0o777, b"/etc/passwd"))])
        self.zip_of("outside.zip", [("../../ring.cpp", b"int x;")])
        self.zip_of("one_lacks.zip", [entry for entry in files if entry[0] != "ring.hpp"])
        done = self.grade()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        notes = {name: row["note"] for name, row in self.table().items()}
        self.assertEqual({row["earned"] for row in self.table().values()}, {"0"})
        self.assertEqual(notes["damaged"], "not built: it is no zip file, or a damaged one")
        self.assertIn("none of ring.hpp, ring.cpp, adapters.cpp is in it", notes["empty"])
        self.assertIn("ring.cpp has more than 1 MiB", notes["huge"])
        self.assertIn("ring.cpp is a link", notes["linked"])
        self.assertIn("is not there", notes["outside"])
        self.assertIn("ring.hpp is not there", notes["one_lacks"])

    def test_a_name_stops_no_course(self):
        for name in ("x" * 255, "x" * 254 + "y", 'new\nline, "\u202e=1', ".zip"):
            self.folder_of(name, self.given)
        self.zip_of("x" * 250 + "z.zip", self.entries_of(self.solved, ""))
        self.folder_of("ada", self.solved)
        done = self.grade()
        self.assertEqual((done.returncode, done.stderr), (0, ""), self.table())
        table = self.table()
        self.assertEqual(len(table), 6)
        self.assertEqual(sorted(row["earned"] for row in table.values()),
                         ["0"] * 4 + ["100"] * 2)
        self.assertEqual(len([name for name in table if name.startswith("x" * 180)]), 3)
        for name in table:
            if name.startswith("x"):
                self.assertTrue(self.report(name)["finished"])

    def test_what_cannot_be_is_refused_before_anything_is_graded(self):
        ada = self.folder_of("ada", self.given)
        other = os.path.join(self.folder, "other/ada")
        shutil.copytree(self.given, other)
        for words, said in [
                ((ada, other, "--out", self.out), "the same name, ada"),
                ((ada, self.given), "--out is missing"),
                ((ada, os.path.join(ada, "ring.cpp"), "--out", self.out), "a .zip of it"),
                ((ada, self.given, "--out", self.all), "the folder is not empty")]:
            done = run("grade", SLUG, *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(said, done.stderr)
        self.assertFalse(os.path.exists(self.out))

    def test_a_slash_says_that_the_reports_go_to_a_folder(self):
        ada = self.folder_of("ada", self.given)
        done = run("grade", SLUG, ada, "--out", self.out + "/")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(sorted(os.listdir(self.out)), ["ada.txt", "grades.csv"])

    def test_what_was_interrupted_goes_on_where_it_was(self):
        ada, grace = (self.folder_of(name, self.given) for name in ("ada", "grace, =b"))
        zipped = self.zip_of("alan.zip", self.entries_of(self.given, ""))
        self.assertEqual(run("grade", SLUG, ada, zipped, "--out", self.out, "--format",
                             "json").returncode, 0)
        before = {name: self.written_at(name) for name in ("ada", "alan")}
        again = [ada, grace, zipped, "--out", self.out, "--format", "json"]
        done = run("grade", SLUG, *again)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--continue", done.stderr)

        done = run("grade", SLUG, *again, "--continue")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("1 submission graded, 0 with all points; 2 kept as they were", done.stdout)
        self.assertEqual(list(self.table()), ["ada", "grace, =b", "alan"])
        self.assertEqual({name: self.written_at(name) for name in before}, before)

        # A submission is graded again if it has changed, or has no report or no points.
        solve.solve(SOURCES, ada)
        os.remove(os.path.join(self.out, "grace, =b.json"))
        path = os.path.join(self.out, "grades.csv")
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertTrue(lines[3].startswith("alan,0,100,"))
        lines[3] = "alan" + "," * lines[0].count(",")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines + ["eve,5" + "," * (lines[0].count(",") - 1)]) + "\n")
        done = run("grade", SLUG, *again, "--continue")
        self.assertIn("3 submissions graded, 1 with all points: ", done.stdout)
        self.assertEqual({name: row["earned"] for name, row in self.table().items()},
                         {"ada": "100", "grace, =b": "0", "alan": "0", "eve": "5"})
        done = run("grade", SLUG, *again, "--continue")
        self.assertIn("0 submissions graded, 0 with all points; 3 kept", done.stdout)
        # A report in another format does not count as graded.
        done = run("grade", SLUG, ada, "--out", self.out, "--format", "prairielearn",
                   "--continue")
        self.assertIn("1 submission graded, 1 with all points: ", done.stdout)

    def test_a_script_can_always_continue(self):
        ada = self.folder_of("ada", self.given)
        for graded in (1, 0):
            done = run("grade", SLUG, ada, "--out", self.out, "--continue")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(f"{graded} submission", done.stdout)
        self.assertEqual(list(self.table()), ["ada"])

    def test_nothing_is_gone_on_with_that_is_something_else(self):
        ada = self.folder_of("ada", self.given)
        for text, said in (("a,b\n", "does not have the columns of"), (None, "is not empty")):
            os.makedirs(self.out, exist_ok=True)
            path = os.path.join(self.out, "grades.csv" if text else "notes.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text or "mine")
            done = run("grade", SLUG, ada, "--out", self.out, "--continue")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(said, done.stderr)
            os.remove(path)
        done = run("grade", SLUG, ada, "--out", os.path.join(self.folder, "one.txt"), "--continue")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--out FOLDER/", done.stderr)

    def test_the_machines_trouble_is_nobodys_grade(self):
        self.folder_of("ada", self.solved)
        self.folder_of("grace", self.solved)
        done = self.grade(CXX="/bin/false")
        self.assertEqual(done.returncode, 3)
        self.assertIn("cannot be built here", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
