#!/usr/bin/env python3
"""The code that lessons quote must exist, and quote.py must gather this code correctly.

Arguments: quote.py, the project's root, and the sources that the build gives to quote.py.
"""

import glob
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPT, ROOT, *SOURCES = sys.argv[1:]
spec = importlib.util.spec_from_file_location("quote", SCRIPT)
quote = importlib.util.module_from_spec(spec)
spec.loader.exec_module(quote)

CODE = re.compile(r"\{\{code ([^}]+)\}\}")
SOLUTION = re.compile(r"\{\{solution ([^:}]+): ([^}]+)\}\}")


def lessons():
    """Yields name and text of each lesson's page, in each language."""
    for file in glob.glob(os.path.join(ROOT, "lessons", "[0-9]*", "lesson*.md")):
        with open(file, encoding="utf-8") as text:
            yield os.path.relpath(file, ROOT), text.read()


class Lessons(unittest.TestCase):
    def test_every_quoted_anchor_exists(self):
        anchors = {one.name for one in quote.quotes_in(ROOT, SOURCES)}
        for file, text in lessons():
            asked_for = [name for _, names in SOLUTION.findall(text)
                         for name in names.split(", ")]
            for name in CODE.findall(text) + asked_for:
                with self.subTest(file=file, anchor=name):
                    self.assertIn(name, anchors)

    def test_what_an_assignment_asks_for_is_quoted_nowhere(self):
        asked_for = {}
        for file, text in lessons():
            for slug, names in SOLUTION.findall(text):
                folder = os.path.join(ROOT, "lessons/assignments", slug.replace("-", "_"))
                self.assertTrue(os.path.isdir(folder), f"{file}: there is no {slug}")
                asked_for |= {name: slug for name in names.split(", ")}
        self.assertGreater(len(set(asked_for.values())), 6)
        for file, text in lessons():
            for name in CODE.findall(text):
                self.assertNotIn(name, asked_for, file)


class Regions(unittest.TestCase):
    def one(self, text):
        found = quote.quotes_of(text, "a.cpp")
        self.assertEqual(len(found), 1)
        return found[0]

    def assert_refused(self, text, sentence):
        with self.assertRaises(quote.BadMark) as caught:
            quote.quotes_of(text, "a.cpp")
        self.assertEqual(str(caught.exception), sentence)

    def test_code_is_dedented_and_has_its_line(self):
        one = self.one("x\n    // lesson: a\n\n    if (b)\n        c();  \n\n    // lesson: end\n")
        self.assertEqual(one, ("a", "a.cpp", 4, "if (b)\n    c();"))

    def test_regions_nest_and_marks_are_left_out(self):
        text = "// lesson: outer\na\n// lesson: inner\nb\n// lesson: end\nc\n// lesson: end\n"
        found = {one.name: one for one in quote.quotes_of(text, "a.cpp")}
        self.assertEqual(found["outer"].code, "a\nb\nc")
        self.assertEqual(found["inner"], ("inner", "a.cpp", 4, "b"))

    def test_a_mark_is_a_whole_line(self):
        self.assertEqual(quote.quotes_of("f();  // lesson: a\n", "a.cpp"), [])

    def test_marks_that_do_not_pair_are_refused(self):
        self.assert_refused("\n// lesson: a\nx\n", "a.cpp:2: `// lesson: a` is not closed")
        self.assert_refused("x\n// lesson: end\n", "a.cpp:2: `// lesson: end` closes nothing")
        self.assert_refused("// lesson: a\n\n// lesson: end\n",
                            "a.cpp:1: `// lesson: a` holds no code")

    def test_a_literal_is_what_it_was(self):
        self.assertEqual(quote.literal('"\\?\t−1'), r'"\042\134\077\011\342\210\2221"')


class Script(unittest.TestCase):
    def run_on(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name + ".cpp") for name in files]
            for path, text in zip(paths, files.values()):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            output = os.path.join(folder, "output")
            done = subprocess.run([sys.executable, "-B", SCRIPT, output, folder, *paths],
                                  capture_output=True, text=True)
            if done.returncode:
                return done.stderr
            with open(output, encoding="utf-8") as file:
                return file.read()

    def test_the_table_is_in_the_order_of_names(self):
        text = self.run_on(x="// lesson: b\n1\n// lesson: end\n",
                           y="// lesson: a\n2\n// lesson: end\n")
        self.assertIn('std::array<Quote, 2>', text)
        self.assertLess(text.index('{"a", "y.cpp", 2,'), text.index('{"b", "x.cpp", 2,'))

    def test_no_region_is_an_empty_table(self):
        self.assertIn("std::array<Quote, 0>", self.run_on(x="int main() {}\n"))

    def test_a_name_that_is_taken_is_refused(self):
        region = "// lesson: a\n1\n// lesson: end\n"
        self.assertEqual(self.run_on(x=region, y=region),
                         "quote.py: y.cpp:2: `// lesson: a` is also in x.cpp:2\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
