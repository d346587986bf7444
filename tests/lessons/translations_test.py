#!/usr/bin/env python3
"""Each translation must name the version of its original, so that outdated ones are found.

Arguments: the folder of the lessons.

Below each heading of a translation is `<!-- of 1a2b3c4d -->`: the first digits of the SHA-256 of
the original's section. A section begins with a heading. Programs and printed text do not count,
because the test fault_pages keeps them equal. With LOCKSTEP_UPDATE=1 the test writes the digits
instead of comparing them. Use this after you update the translation.
"""

import difflib
import glob
import hashlib
import os
import re
import sys
import unittest

LESSONS = os.path.normpath(sys.argv[1])
CURE = ("Bring the translation up to date; then note the new text by\n"
        "LOCKSTEP_UPDATE=1 python3 tests/lessons/translations_test.py lessons")
NOTE = re.compile(r"^<!-- of ([0-9a-f]+) -->\n", re.M)
FAULTS = os.path.join(LESSONS, "faults")


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def facts_of(text):
    """Returns the front matter of a page, between lines `---`."""
    return re.match(r"(---\n.*?\n---\n)?", text, re.S)[0]


class Section:
    """A heading and the text below it."""

    def __init__(self, line, lines):
        self.line, self.title = line, lines[0].lstrip("# ").rstrip()
        text = "\n".join(lines) + "\n"
        noted = NOTE.search(text)
        self.noted = noted[1] if noted else ""
        own = re.sub(r"<!-- \w+(: [\w-]+)? -->\n.*?<!-- end -->", "", NOTE.sub("", text),
                     flags=re.S)
        own = "\n".join(line.rstrip() for line in own.strip().split("\n"))
        self.is_empty = own.startswith("#") and "\n" not in own
        self.digits = hashlib.sha256(own.encode()).hexdigest()[:8]


def sections_of(text, levels="##?", first_line=1):
    """Cuts a page into sections, at each heading of these levels. Leaves out empty sections."""
    sections, begin, in_code = [], None, False
    lines = text.split("\n")
    for number, line in enumerate([*lines, "# "]):
        in_code ^= line.startswith("```") and number < len(lines)
        if not in_code and re.match(f"{levels} ", line) or number == len(lines):
            if begin is not None:
                sections.append(Section(first_line + begin, lines[begin:number]))
            begin = number
    return [section for section in sections if not section.is_empty]


def lags(translation, original):
    """Yields pairs of sections, of translation and original, that do not match; None if missing."""
    noted = [section.noted for section in translation]
    digits = [section.digits for section in original]
    for kind, i, i_end, j, j_end in difflib.SequenceMatcher(None, noted, digits,
                                                            False).get_opcodes():
        if kind == "equal":
            continue
        both = min(i_end - i, j_end - j)
        for ours, theirs in zip(translation[i:i + both], original[j:j + both]):
            yield ours, theirs
        for ours in translation[i + both:i_end]:
            yield ours, None
        for theirs in original[j + both:j_end]:
            yield None, theirs


def sentence(ours, theirs, path, original):
    path, original = (os.path.relpath(each, os.path.dirname(LESSONS)) for each in (path, original))
    if not ours:
        return f"{path}: section '{theirs.title}' of {original}:{theirs.line} is not translated"
    if not theirs:
        return f"{path}:{ours.line}: {original} no longer has section '{ours.title}'"
    return (f"{path}:{ours.line}: section '{ours.title}' translates an older text of "
            f"{original}:{theirs.line}, '{theirs.title}'")


def faults_in_chinese():
    """Returns the sections of zh.md, grouped by the page, such as "F16", that they translate."""
    path = os.path.join(FAULTS, "zh.md")
    pages, sections = {}, sections_of(text_of(path), "###?")
    for section in sections:
        if re.match(r"F\d\d: ", section.title):
            pages[section.title[:3]] = []
        pages[list(pages)[-1]].append(section)
    return path, pages


def translations():
    """Yields each translation and its original, with the sections of both."""
    for path in sorted(glob.glob(os.path.join(LESSONS, "**", "*.zh.md"), recursive=True)):
        original = path.removesuffix(".zh.md") + ".md"
        yield path, original, sections_of(text_of(path)), sections_of(text_of(original))
    path, pages = faults_in_chinese()
    for page in sorted(glob.glob(os.path.join(FAULTS, "F*.md"))):
        name = os.path.basename(page).removesuffix(".md")
        yield path, page, pages.get(name, []), sections_of(text_of(page))


class Translations(unittest.TestCase):
    maxDiff = None

    def test_lessons_and_handouts_are_translated(self):
        for pattern in ("[0-9]*_*/lesson.md", "assignments/*/handout/README.md",
                        "faults/README.md"):
            originals = glob.glob(os.path.join(LESSONS, pattern))
            self.assertTrue(originals)
            for original in originals:
                with self.subTest(original=original):
                    self.assertTrue(os.path.exists(original.removesuffix(".md") + ".zh.md"))

    def test_no_section_lags_behind(self):
        for path, original, ours, theirs in translations():
            wrong = [sentence(*each, path, original) for each in lags(ours, theirs)]
            with self.subTest(path=path, original=original):
                if wrong:
                    self.fail("\n".join(["", *wrong, CURE]))

    def test_facts_are_those_of_the_original(self):
        for path in glob.glob(os.path.join(LESSONS, "*", "lesson.zh.md")):
            with self.subTest(path=path):
                self.assertEqual(facts_of(text_of(path)),
                                 facts_of(text_of(path.removesuffix(".zh.md") + ".md")))

    def test_what_all_pages_on_mistakes_have_is_translated(self):
        text = text_of(faults_in_chinese()[0])
        table = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text, re.M))
        for page in glob.glob(os.path.join(FAULTS, "F*.md")):
            # The text as a page shows it: links only as their words, and no marks of Markdown.
            text = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", text_of(page)).replace("`", "")
            with self.subTest(page=page):
                for english in list(table)[1:]:
                    pattern = re.escape(english).replace(r"\{\}", r"\d+")
                    self.assertTrue(re.search(pattern, text), f"'{english}' is not on it")
                for heading in re.findall("^## (.*)$", text, re.M):
                    self.assertIn(heading, table)


ORIGINAL = """# Title

A question?

## One {#one}

```
## no heading
```

## Two {#two}

Text.

## Three

<!-- program: F01 -->
quoted
<!-- end -->
"""


def noted_in(text, original):
    """Returns the text with the digits of the sections of the original, in this order."""
    lines = NOTE.sub("", text).split("\n")
    for ours, theirs in reversed(list(zip(sections_of(NOTE.sub("", text)), original))):
        lines.insert(ours.line, f"<!-- of {theirs.digits} -->")
    return "\n".join(lines)


class Mutations(unittest.TestCase):
    """Tests that lags() finds mistakes in translations."""

    def found(self, ours, original):
        return [(each and each.title, theirs and theirs.title)
                for each, theirs in lags(sections_of(ours), sections_of(original))]

    def setUp(self):
        self.chinese = noted_in(ORIGINAL.replace("Text", "文字"), sections_of(ORIGINAL))

    def test_a_translation_that_is_up_to_date_is_left_alone(self):
        self.assertEqual(self.found(self.chinese, ORIGINAL), [])
        self.assertEqual(self.found(self.chinese, ORIGINAL.replace("quoted", "another")), [])

    def test_a_changed_sentence_is_found(self):
        self.assertEqual(self.found(self.chinese, ORIGINAL.replace("Text.", "Other text.")),
                         [("Two {#two}", "Two {#two}")])

    def test_a_new_section_is_found(self):
        new = ORIGINAL.replace("## Two", "## New\n\nMore.\n\n## Two")
        self.assertEqual(self.found(self.chinese, new), [(None, "New")])

    def test_a_section_that_is_gone_is_found(self):
        gone = ORIGINAL.replace("## Two {#two}\n\nText.\n", "")
        self.assertEqual(self.found(self.chinese, gone), [("Two {#two}", None)])

    def test_a_translation_without_digits_is_found(self):
        self.assertEqual(len(self.found(NOTE.sub("", self.chinese), ORIGINAL)), 3)


def update():
    files = {}
    for path, original, ours, theirs in translations():
        if len(ours) != len(theirs):
            sys.exit(f"{path} has {len(ours)} sections, but {original} has {len(theirs)}; "
                     "run the test to see which are missing")
        files.setdefault(path, []).extend(zip(ours, theirs))
    for path, pairs in files.items():
        lines = text_of(path).split("\n")
        for ours, theirs in reversed(pairs):
            note = f"<!-- of {theirs.digits} -->"
            if ours.noted:
                place = next(i for i in range(ours.line, len(lines)) if NOTE.match(lines[i] + "\n"))
                lines[place] = note
            else:
                lines.insert(ours.line, note)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))


if __name__ == "__main__":
    if os.environ.get("LOCKSTEP_UPDATE"):
        update()
    else:
        unittest.main(argv=sys.argv[:1])
