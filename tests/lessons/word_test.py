#!/usr/bin/env python3
"""`lockstep word` prints the entries of the glossary, and lessons point to them. `lockstep fault`
prints the pages on mistakes.

Arguments: the program, the folder of the lessons.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata
import unittest

PROGRAM, LESSONS = sys.argv[1:]
with open(os.path.join(LESSONS, "glossary.md"), encoding="utf-8") as file:
    PAGE = file.read()
# The operations of NCCL and MPI, as papers spell them.
VERBS = ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "gather", "scatter",
         "all-to-all", "barrier", "send", "recv"]
ALL_REDUCE = """\
all-reduce
    In: each rank gives a buffer of S bytes. Out: each rank has the sum (or
    another reduction) of all buffers. Round a ring of n ranks each sends
    2(n−1)/n · S bytes in 2(n−1) steps: a reduce-scatter, then an all-gather.
"""


def asked(*words):
    return subprocess.run([PROGRAM, "word", *words], capture_output=True, text=True, check=True,
                          env={**os.environ, "COLUMNS": "80"}).stdout


def words():
    """Yields each word of the page with its text."""
    for heading, text in re.findall(r"^### (.*)\n((?:(?!^#).*\n)*)", PAGE, re.M):
        for word in heading.split(", "):
            yield word, text.strip()


def letters():
    """Yields each letter of the page with its meaning."""
    for names, meaning, where in re.findall(r"^\| (.*?) \| (.*?) \| (.*?) \|$", PAGE, re.M)[1:]:
        for name in names.split(", "):
            yield name, f"{meaning} ({where})"


def plain(markdown):
    """Returns the text without marks and line breaks, for comparisons."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return re.sub(r"\s+", " ", re.sub(r"[`*]", "", text)).strip()


class Word(unittest.TestCase):
    def test_an_entry_is_printed(self):
        self.assertEqual(asked("all-reduce"), ALL_REDUCE)

    def test_each_word_has_a_text_which_is_printed(self):
        found = list(words())
        self.assertGreater(len(found), 50)
        for word, text in found:
            with self.subTest(word=word):
                self.assertTrue(text)
                self.assertIn(plain(text), plain(asked(*word.split())))
        self.assertEqual(len(dict(found)), len(found), "a word has two entries")

    def test_each_letter_has_all_its_meanings(self):
        found = list(letters())
        self.assertGreater(len(found), 20)
        for letter, meaning in found:
            with self.subTest(letter=letter):
                self.assertIn(plain(meaning), plain(asked(letter)))

    def test_a_letter_has_one_meaning_in_each_place(self):
        places = [(letter, meaning.rsplit("(", 1)[1]) for letter, meaning in letters()]
        self.assertEqual(sorted(places), sorted(set(places)))

    def test_each_verb_says_what_goes_in_and_what_comes_out(self):
        for verb in VERBS:
            self.assertRegex(asked(verb), r"(?s)In:\s.*Out:\s|In and out:\s", verb)

    def test_the_list_has_each_word_and_letter(self):
        listed = re.split(r", |\n *", asked())
        for name in [word for word, _ in words()] + [letter for letter, _ in letters()]:
            self.assertIn(name, re.sub(r"\s+", " ", " | ".join(listed)))

    def test_spelling_may_differ_a_little(self):
        for words_typed in (["AllReduce"], ["all_reduce"], ["all", "reduce"], ["ALL-REDUCE"]):
            self.assertEqual(asked(*words_typed), ALL_REDUCE)
        self.assertTrue(asked("schedule").startswith("schedule\n"))  # this word is also a command

    def test_each_lesson_leads_to_the_glossary(self):
        for folder in sorted(os.listdir(LESSONS)):
            if re.match(r"\d\d_", folder):
                with open(os.path.join(LESSONS, folder, "README.md"), encoding="utf-8") as page:
                    self.assertIn("../glossary.md#", page.read(), folder)


def fault_page(program, *words, locale="C.UTF-8"):
    return subprocess.run([program, "fault", *words], capture_output=True, text=True, check=True,
                          env={**os.environ, "COLUMNS": "80", "LC_ALL": locale}).stdout


def columns(line):
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in line)


def joined(text):
    """Returns the text without white space, because Chinese lines break at any letter."""
    return re.sub(r"\s+", "", text)


class Fault(unittest.TestCase):
    def test_the_program_alone_has_all_pages(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(PROGRAM, folder)
            pages = glob.glob(os.path.join(LESSONS, "faults/[FR]*[0-9E].md"))
            self.assertGreater(len(pages), 31)
            for path in pages:
                name = os.path.basename(path).removesuffix(".md")
                with open(os.path.join(LESSONS, "faults", name + ".md"), encoding="utf-8") as page:
                    markdown = page.read()
                said = fault_page(alone, name.lower(), "--lang", "en")
                with self.subTest(page=name):
                    self.assertIn(plain(re.search("^# (.*)", markdown)[1]), plain(said))
                    self.assertNotRegex(said, r"<!--|```|\]\((\.\.|http|F\d|README)")
                    self.assertLessEqual(max(map(len, said.split("\n"))), 80)

    def test_pages_are_there_in_chinese(self):
        with open(os.path.join(LESSONS, "faults/zh.md"), encoding="utf-8") as page:
            head, *sections = re.split(r"^## (?=F)", re.sub(r"<!--.*?-->", "", page.read()),
                                       flags=re.M)
        shared = re.findall(r"^\| ([^|]*) \| ([^|]*) \|$", head, re.M)[1:]
        self.assertEqual(len(sections),
                         len(glob.glob(os.path.join(LESSONS, "faults/F[0-9][0-9].md"))))
        for section in sections:
            said = fault_page(PROGRAM, section[:3], "--lang", "zh")
            letters_said = joined(plain(said))
            with self.subTest(page=section[:3]):
                self.assertEqual(said.split("\n")[0], section.split("\n")[0])
                for paragraph in section.split("\n\n"):
                    self.assertIn(joined(plain(paragraph).removeprefix("###")), letters_said)
                for english, chinese in shared:
                    self.assertNotIn(english.replace("{}", ""), said)
                    self.assertIn(joined(chinese.split("{}")[0]), letters_said)
                self.assertLessEqual(max(map(columns, said.split("\n"))), 80)

    def test_the_locale_says_which_language(self):
        for name in ("F16", "README"):
            chinese = fault_page(PROGRAM, name, "--lang", "zh")
            self.assertEqual(fault_page(PROGRAM, name, locale="zh_CN.UTF-8"), chinese)
            self.assertNotEqual(fault_page(PROGRAM, name), chinese)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
