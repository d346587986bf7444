#!/usr/bin/env python3
"""For each mistake in a mistakes.txt there is a message of one sentence.

Arguments: the folder of assignments.
"""

import os
import sys
import tempfile
import unittest

ASSIGNMENTS = sys.argv[1]
sys.path.insert(0, ASSIGNMENTS)
import mistakes  # pylint: disable=wrong-import-position

RIGHT = """# adds twice
says: it is added twice
loses: a1.1-values, a1.2-values
--- sum.cpp
 begin;
-add;
+add;
+add;
"""
SOURCE = "begin;\nadd;\nmax_add;\nend;"


class Patches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "mistakes.txt")

    def read(self, text):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)
        return mistakes.read_mistakes(self.path)

    def patched(self, text, source=SOURCE):
        mistake, = self.read(text)
        return mistakes.changed({"sum.cpp": source}, mistake.changes, mistake.title)["sum.cpp"]

    def refused(self, text, *words, source=SOURCE):
        with self.assertRaises(mistakes.PatchError) as caught:
            self.patched(text, source)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_a_mistake_is_read_and_made(self):
        mistake, = self.read(RIGHT)
        self.assertEqual((mistake.title, mistake.says), ("adds twice", "it is added twice"))
        self.assertEqual(mistake.loses, ("a1.1-values", "a1.2-values"))
        self.assertEqual(self.patched(RIGHT), "begin;\nadd;\nadd;\nmax_add;\nend;\n")

    def test_lines_are_whole_and_end(self):
        # "max_add;" contains "add;". The last lines of source and patch have no line end.
        self.assertEqual(self.patched(RIGHT.replace(" begin;\n", "").rstrip("\n")),
                         "begin;\nadd;\nadd;\nmax_add;\nend;\n")

    def test_windows_ends_of_lines_are_ends(self):
        self.assertEqual(self.patched(RIGHT.replace("\n", "\r\n")), self.patched(RIGHT))

    def test_lines_that_overlap_stand_twice(self):
        self.refused(RIGHT.replace(" begin;\n-add;\n", "-a;\n-a;\n"), "adds twice", "occur 2 times",
                     source="a;\na;\na;\n")

    def test_lines_that_are_not_there_are_named(self):
        self.refused(RIGHT.replace("-add;", "-sub;"), "adds twice", "occur 0 times in sum.cpp",
                     "begin;\nsub;")

    def test_a_file_that_is_not_there_is_named(self):
        self.refused(RIGHT.replace("sum.cpp", "sums.cpp"), "adds twice", "sums.cpp",
                     "there are sum.cpp")

    def test_unknown_words_are_named(self):
        self.refused(RIGHT.replace("says", "say"), "adds twice", "'say'", "expected says")
        self.refused(RIGHT.replace("loses", "confined: true\nloses"), "confined: true",
                     "expected yes")

    def test_blanks_behind_a_word_do_not_count(self):
        self.assertTrue(self.read(RIGHT.replace("loses", "confined: yes \nloses"))[0].confined)

    def test_what_it_loses_has_to_be_said(self):
        self.refused(RIGHT.replace("loses: a1.1-values, a1.2-values\n", ""),
                     "which criteria it loses")
        self.refused(RIGHT.replace("loses: a1.1-values, a1.2-values", "loses:"),
                     "which criteria it loses")

    def test_a_patch_has_to_change_something(self):
        self.refused(RIGHT.split("---")[0], "adds twice", "changes nothing")
        self.refused(RIGHT.replace(" begin;\n-add;\n", ""),
                     "only new lines, so its place is unknown")

    def test_text_before_the_first_title_is_none(self):
        self.refused("a note\n" + RIGHT, "'a note'", "title")

    def test_the_tree_has_right_ones_alone(self):
        for name in sorted(os.listdir(ASSIGNMENTS)):
            path = os.path.join(ASSIGNMENTS, name, "mistakes.txt")
            if os.path.exists(path):
                for mistake in mistakes.read_mistakes(path):
                    mistakes.changed(mistakes.reference(os.path.dirname(path)), mistake.changes,
                                     mistake.title)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
