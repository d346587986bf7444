#!/usr/bin/env python3
"""The pages of lessons/faults quote programs of the corpus and the checker's messages about them.
The quotes must equal the programs and messages.

    pages_test.py SHOW_FAULT ROOT

A page has these parts, each between `<!-- KIND: NAME -->` and `<!-- end -->`:

    program     the program, without the lines that only the build needs
    printed     its diagnosis
    cure        the line that the correct twin has instead
    programs    all programs of the class
    classes     all classes, with links; "classes: zh" in Chinese

NAME is a program of the corpus, or a class, which means the first program of that class. If the
diagnosis names a line, the page shows the line's number. With LOCKSTEP_UPDATE=1 the test writes the
parts instead of comparing them.
"""

import difflib
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

TOOL, ROOT = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
PAGES = ROOT / "lessons" / "faults"
MARK = re.compile(r"(<!-- (program|printed|cure|programs|classes)(?:: ([\w-]+))? -->\n)"
                  r"(.*?)(<!-- end -->)", re.S)


def tool(*words):
    done = subprocess.run([TOOL, *words], capture_output=True, text=True, check=False,
                          env={**os.environ, "LOCKSTEP_CHECK": ""})
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


PROGRAMS = [line.split() for line in tool().splitlines()]
CLASSES = dict(line.split(" ", 1) for line in tool("--classes").splitlines())


def program_named(name):
    for program, fault, _ in PROGRAMS:
        if name in (program, fault):
            return program
    raise AssertionError(f"there is no program {name} in tests/faults")


def lines_of(program):
    path = ROOT / "tests" / "faults" / f"{program}.cpp"
    return path.read_text(encoding="utf-8").split("\n")


def without_twin(line):
    return re.sub(r"\s*// twin:.*", "", line)


def shown(number, line):
    """Returns a line of the program as the page has it; None if only the build needs it."""
    if line.startswith("#include"):
        return None
    bare = without_twin(line)
    if bare != line and not bare.strip():
        return None
    if re.search(r"// line: [\w-]+", bare):
        code = re.sub(r"\s*// line: [\w-]+\s*$", "", bare)
        return f"{code}  // line {number}"
    return bare


def program_text(name):
    program = program_named(name)
    lines = lines_of(program)
    start = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    code = [shown(i + 1, line) for i, line in enumerate(lines) if i >= start]
    text = "\n".join(line for line in code if line is not None).strip("\n")
    return (f"[tests/faults/{program}.cpp](../../tests/faults/{program}.cpp)\n\n"
            f"```cpp\n{text}\n```\n")


def cure_text(name):
    program = program_named(name)
    for number, line in enumerate(lines_of(program), 1):
        found = re.match(r"(\s*)(.*?)\s*// twin: ?(.*)", line)
        if not found:
            continue
        indent, wrong, right = found.groups()
        wrong = re.sub(r"\s*// line: [\w-]+\s*$", "", wrong)
        minus = f"-{indent}{wrong}\n" if wrong else ""
        plus = f"+{indent}{right}\n" if right else ""
        return f"Line {number}:\n\n```diff\n{minus}{plus}```\n"
    raise AssertionError(f"{program} has no twin")


def programs_text(name):
    lines = [f"- [{program}](../../tests/faults/{program}.cpp)"
             for program, fault, _ in PROGRAMS if fault == name]
    return "\n".join(lines) + "\n"


def classes_text(language):
    levels = {fault: level for _, fault, level in PROGRAMS}
    titles, head = CLASSES, "| class | what happened | found by |"
    if language:
        translation = (PAGES / f"{language}.md").read_text(encoding="utf-8")
        titles = dict(re.findall(r"^## (F\d+): (.*)$", translation, re.M))
        head = "| 类别 | 发生了什么 | 在哪一级发现 |"
    rows = [f"| [{fault}]({fault}.md) | {titles[fault]} | {levels.get(fault, '')} |"
            for fault in CLASSES]
    return "\n".join([head, "|---|---|---|", *rows]) + "\n"


def printed_text(name):
    return f"```\n{tool(program_named(name))}```\n"


TEXTS = {"program": program_text, "printed": printed_text, "cure": cure_text,
         "programs": programs_text, "classes": classes_text}


def renewed(text):
    return MARK.sub(lambda mark: mark[1] + TEXTS[mark[2]](mark[3]) + mark[5], text)


def pages():
    return sorted(PAGES.glob("*.md"))


class Pages(unittest.TestCase):
    maxDiff = None

    def test_what_pages_quote_is_what_is_there(self):
        for page in pages():
            with self.subTest(page=page.name):
                text = page.read_text(encoding="utf-8")
                now = renewed(text)
                difference = "".join(difflib.unified_diff(
                    text.splitlines(True), now.splitlines(True), page.name, "is", n=1))
                self.assertEqual(difference, "")

    def test_each_class_has_a_page_with_its_title(self):
        for fault, title in CLASSES.items():
            with self.subTest(fault=fault):
                text = (PAGES / f"{fault}.md").read_text(encoding="utf-8")
                self.assertEqual(text.split("\n")[0], f"# {fault}: {title}")
                for kind in ("program", "printed", "cure"):
                    self.assertRegex(text, f"<!-- {kind}: {fault}")

    def test_links_lead_somewhere(self):
        for page in pages():
            text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
            for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
                if "://" not in link:
                    with self.subTest(page=page.name, link=link):
                        self.assertTrue((PAGES / link).exists())


def update():
    for page in pages():
        text = page.read_text(encoding="utf-8")
        title = CLASSES.get(page.stem)
        if title:
            text = re.sub(r"\A# .*", f"# {page.stem}: {title}", text)
        try:
            page.write_text(renewed(text), encoding="utf-8")
        except AssertionError as missing:
            print(f"{page.name}: {missing}")


if __name__ == "__main__":
    if os.environ.get("LOCKSTEP_UPDATE"):
        update()
    else:
        unittest.main(argv=sys.argv[:1])
