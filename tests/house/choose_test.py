#!/usr/bin/env python3
"""Runs choose.py on trees with different changes."""

import os
import re
import unittest
from unittest import mock

import choose

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


def left_out(*files, mode="changed"):
    # git may be missing here.
    with mock.patch("lint.changed", lambda *_: set(files)), \
            mock.patch("shutil.which", lambda name: "/usr/bin/" + name):
        return choose.left_out(ROOT, mode)


class Choose(unittest.TestCase):
    def test_all_leaves_out_nothing_and_everyone_what_is_rare(self):
        self.assertEqual(left_out(mode="all"), [])
        with mock.patch("find_cuda.has_driver", lambda: False):
            self.assertEqual(left_out(mode="everyone"), list(choose.RARE))
        with mock.patch("find_cuda.has_driver", lambda: True):
            self.assertNotIn("gpu", left_out(mode="everyone"))

    def test_a_change_asks_for_what_depends_on_it(self):
        self.assertEqual(left_out(), list(choose.RARE))
        for file, suites in (("lessons/page/fill.cpp", set()),
                             ("src/text/wrap.hpp", {"headers"}),
                             ("lessons/grader/judge.cpp", {"hostile", "grading"}),
                             ("lessons/assignments/zero/mistakes.txt", {"hostile", "grading"}),
                             ("src/meson.build", {"package", "bundle"}),
                             ("sim/engine.cpp", {"emulated"}),
                             ("gpu/kernels/sort.cu", {"emulated", "gpu"})):
            self.assertEqual(set(choose.RARE) - set(left_out(file)), suites, file)

    def test_a_clone_that_does_not_know_runs_everything(self):
        with mock.patch("lint.changed", lambda *_: None):
            self.assertEqual(choose.left_out(ROOT, "changed"), [])

    def test_each_rare_test_has_a_suite_that_says_when_it_runs(self):
        named = set()
        for folder, _, names in os.walk(os.path.join(ROOT, "tests")):
            if "meson.build" not in names:
                continue
            with open(os.path.join(folder, "meson.build"), encoding="utf-8") as file:
                text = file.read()
            named.update(re.findall(r"'rare', '(\w+)'", text))
            self.assertEqual(len(re.findall("'rare'", text)), len(re.findall("'rare', '", text)))
        self.assertEqual(named, set(choose.RARE))


if __name__ == "__main__":
    unittest.main()
