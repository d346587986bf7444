#!/usr/bin/env python3
"""All texts of the book's scripts must be in the table of translations for Chinese pages.

Argument: the folder of the lessons.
"""

import ast
import glob
import os
import re
import sys
import unittest

LESSONS = os.path.abspath(sys.argv[1])
LITERAL = r'"(?:[^"\\]|\\.)*"'


def text_of(path):
    with open(os.path.join(LESSONS, path), encoding="utf-8") as file:
        return file.read()


def joined(literals):
    """Returns the text of literals that are side by side or have a + between them."""
    return "".join(map(ast.literal_eval, re.findall(LITERAL, literals)))


def phrases():
    """Returns pairs of an English text and its Chinese translation."""
    several = rf"({LITERAL}(?:\s*{LITERAL})*)"
    return [(joined(english), joined(chinese)) for english, chinese in re.findall(
        rf"\{{{several},\s*{several}\}}", text_of("page/language.cpp"))]


def sentences(script):
    """Returns the texts that a script shows. A text that is no literal becomes None."""
    said = rf"(?<!function )\bsaid\(\s*({LITERAL}(?:\s*\+\s*{LITERAL})*)?"
    script = re.sub(r"^\s*//.*$", "", script, flags=re.M)
    return [joined(literals) or None for literals in re.findall(said, script)]


def places(text):
    """Returns how many values a text needs."""
    named = [int(place) + 1 for place in re.findall(r"\{(\d)\}", text)]
    return max(named, default=text.count("{}"))


class Words(unittest.TestCase):
    def test_all_that_scripts_say_is_translated(self):
        table = dict(phrases())
        self.assertGreater(len(table), 200)
        for path in glob.glob(os.path.join(LESSONS, "book", "*.js")):
            said = sentences(text_of(path))
            self.assertTrue(said)
            for sentence in said:
                with self.subTest(path=path):
                    self.assertIn(sentence, table)

    def test_a_phrase_is_translated_in_one_way(self):
        table = dict(phrases())
        for english, chinese in phrases():
            with self.subTest(english):
                self.assertEqual(chinese, table[english])

    def test_a_translation_has_the_places_of_its_sentence(self):
        for english, chinese in phrases():
            with self.subTest(english):
                self.assertEqual(places(english), places(chinese))

    def test_a_sentence_that_is_not_translated_is_found(self):
        self.assertEqual(sentences('said("a {}" +\n "b", 1); said(x); function said(y) {}\n'
                                   '  // said("c")\n'), ["a {}b", None])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
