#!/usr/bin/env python3
"""The README must fit on two screens, and its diagnosis must be real.

Arguments: the project's root.
"""

import os
import re
import sys
import unittest

ROOT = sys.argv[1]


def text_of(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


class Readme(unittest.TestCase):
    def test_it_is_short(self):
        self.assertLessEqual(len(text_of("README.md").splitlines()), 70)

    def test_the_first_thing_to_see_is_what_the_checker_prints(self):
        shown = re.search(r"```\n(.*?)```", text_of("README.md"), re.S)[1]
        printed = re.search(r"<!-- printed: F11_ring_send_first -->\n```\n(.*?)```",
                            text_of("lessons/faults/F11.md"), re.S)[1]
        self.assertGreaterEqual(len(shown.splitlines()), 6)
        self.assertTrue(printed.startswith(shown), shown)

    def test_what_a_newcomer_needs_is_one_link_away(self):
        links = re.findall(r"\]\(([^)#]+)", text_of("README.md"))
        for page in ("lessons/README.md", "lessons/glossary.md", "lessons/faults/README.md",
                     "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "gpu/README.md"):
            self.assertIn(page, links)

    def test_the_course_lists_all_lessons_and_assignments(self):
        course = text_of("lessons/README.md")
        for folder in os.listdir(os.path.join(ROOT, "lessons")):
            if os.path.isfile(os.path.join(ROOT, "lessons", folder, "lesson.md")):
                self.assertIn(f"({folder}/README.md)", course)
        for folder in os.listdir(os.path.join(ROOT, "lessons/assignments")):
            if os.path.isdir(os.path.join(ROOT, "lessons/assignments", folder, "handout")):
                self.assertIn(f"`{folder.replace('_', '-')}`", course)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
