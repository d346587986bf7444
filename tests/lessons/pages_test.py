#!/usr/bin/env python3
"""Only lessons' pages may have prose. A translation must have its original's names and steps.

Arguments: the folder of the lessons.
"""

import glob
import os
import re
import sys
import unittest

LESSONS = sys.argv[1]
PAGES = sorted(glob.glob(os.path.join(LESSONS, "[0-9][0-9]_*", "lesson*.md")))
FOLDERS = sorted({os.path.dirname(page) for page in PAGES})

NAME = r"[A-Za-z][A-Za-z0-9_.]*"
PLACE = re.compile(r"(?<!\{)\{(" + NAME + r")\??\}")
DIRECTIVE = re.compile(r"\{\{(\w+)(?: (not )?([^:}\s]+))?(?:: ((?:[^{}]|\{[^{}]*\})*))?\}\}")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
# The directives of a page that use names from the experiments.
USES = {"check", "output", "picture", "predict", "if", "each"}
MOST_SENTENCES = 3
# A directive at the beginning of a line, and the sentence after it.
STEP_LINE = re.compile(
    r"^\{\{(if|predict|else|end|check)\b(?:[^{}]|\{[^{}]*\})*\}\}[ \n]?(.*)", re.M)


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def uses_of(page):
    """Yields each name that a page uses, with its line."""
    for number, line in enumerate(text_of(page).split("\n"), 1):
        for name in PLACE.findall(line):
            yield name.removesuffix(".bound"), number
        for word, _, name, _ in DIRECTIVE.findall(line):
            if word in USES or word == "hint" and not re.match(r"[\d.]+(/|$)", name):
                yield name, number


def sources_of(folder):
    return [path for path in glob.glob(os.path.join(folder, "*.cpp"))
            + glob.glob(os.path.join(folder, "*.hpp"))]


def without_sentences_for_users(source):
    """Returns the source without the texts for users: require(), exceptions, settings."""
    for begin in (r"\brequire\w*\(", r"\bUsageError\(", r"\w*settings = \{",
                  r"settings\.push_back\(\s*\{"):
        while match := re.search(begin, source):
            depth, at = 1, match.end()
            while depth:
                depth += (source[at] in "({") - (source[at] in ")}")
                at += 1
            source = source[:match.start()] + source[at:]
    return source


def most_checks_told(step):
    """Returns how many checks of the step have a sentence, in the branch with most such checks."""
    open_blocks = [[0]]  # the counts of the branches of each open {{if}} or {{predict}}
    for line in STEP_LINE.finditer(step):
        word, sentence = line[1], line[2].strip()
        if word in ("if", "predict"):
            open_blocks.append([0])
        elif word == "else":
            open_blocks[-1].append(0)
        elif word == "end":
            branches = open_blocks.pop()
            open_blocks[-1][-1] += max(branches)
        elif sentence:
            open_blocks[-1][-1] += 1
    return open_blocks[0][0]


class Translations(unittest.TestCase):
    def test_a_translation_has_the_same_names_and_steps(self):
        for page in PAGES:
            if not page.endswith(".zh.md"):
                continue
            original = page.removesuffix(".zh.md") + ".md"
            parts = r"\{#\w+\}|\{\{(?:check|picture|predict|code|output|option|hint|if|each) [^:}]+"
            with self.subTest(page=page):
                self.assertEqual(re.findall(parts, text_of(page)),
                                 re.findall(parts, text_of(original)))
                self.assertEqual({name for name, _ in uses_of(page)},
                                 {name for name, _ in uses_of(original)})


class Text(unittest.TestCase):
    def test_no_prose_is_in_experiments(self):
        for folder in FOLDERS:
            for path in sources_of(folder):
                source = re.sub(r"//[^\n]*|#include[^\n]*", "", text_of(path))
                source = re.sub(r'"\s+"', "", source)
                for literal in LITERAL.findall(without_sentences_for_users(source)):
                    with self.subTest(path=path):
                        words = [word for word in literal.split() if re.search("[A-Za-z]{2}", word)]
                        self.assertLess(len(words), 4,
                                        f"{path}: prose belongs into lesson.md: {literal!r}")

    def test_a_step_has_few_checks_in_sight(self):
        for page in PAGES:
            for step in re.split(r"^## ", text_of(page), flags=re.M)[1:]:
                with self.subTest(page=page, step=step.split("\n")[0]):
                    self.assertLessEqual(most_checks_told(step), MOST_SENTENCES)

    def test_facts_are_told(self):
        slugs = [os.path.basename(folder)[3:].replace("_", "-") for folder in FOLDERS]
        assignments = {name.replace("_", "-") for name in os.listdir(os.path.join(LESSONS, "assignments"))}
        for page in PAGES:
            facts = dict(re.findall(r"^(\w+): (.*)$", text_of(page).split("---")[1], re.M))
            with self.subTest(page=page):
                self.assertTrue(10 <= int(facts["minutes"]) <= 120)
                for slug in facts["after"].split(", "):
                    self.assertIn(slug, ["none", *slugs])
                self.assertIn(facts["assignment"], {"none", *assignments})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
