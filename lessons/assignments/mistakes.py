#!/usr/bin/env python3
"""The solutions of an assignment: its reference, and a changed copy for each mistake.

usage: mistakes.py OUTPUT.cpp OUTPUT.json FOLDER DEPFILE

Writes the solutions as one C++ source. Writes the solutions' files that are not C++ as JSON: for
each solution, the texts by name.

A mistake is a patch of the reference with a sentence. FOLDER's mistakes.txt has the mistakes:

    # a title
    says: the sentence for a student whose program has the same results or costs
    loses: a1.1-values, a1.3-values
    --- ring.cpp
     a line that stays
    -a line that goes
    +a line that comes
    @@
    -a line of the same file, anywhere
    +another one

Lines that stay and lines that go must occur together, as whole lines, exactly once.
`expects` replaces `says` if other code of the grader makes the sentence; `...` in `expects` stands
for any text. If a program fits several mistakes, the student reads the sentence of the first one;
mistakes whose `loses` begins with the criterion that is being judged are tried before all others.
A mistake with `confined: yes` is tested as a student's program, and is not compiled into the
grader: it never ends, or reads something that no rank may read.

A solution of few lines is also a patch: reference/changes.txt has the same form, without titles.
"""

import dataclasses
import json
import os
import re
import sys

CHANGES = "changes.txt"
# Sources that call a student's functions are compiled after them.
LAST_SOURCES = ("adapters.cpp", "tasks.cpp")
NO_SOLUTION = ("run.cpp", "test.cpp")


class PatchError(ValueError):
    """An error whose text names the place and the problem in a patch."""


@dataclasses.dataclass
class Change:
    """Lines of a file, and the lines that replace them."""
    file: str
    before: list
    after: list


@dataclasses.dataclass
class Mistake:
    title: str
    says: str = ""
    expects: str = ""
    loses: tuple = ()
    confined: bool = False
    changes: list = dataclasses.field(default_factory=list)


def read_changes(lines, where):
    """Reads changes of files. The changes of a file begin with "--- FILE"."""
    changes = []
    file, before, after = None, [], []

    def end():
        if before or after:
            if not before:
                raise PatchError(f"{where}: a change of {file} has only new lines, so "
                                 "its place is unknown")
            changes.append(Change(file, before[:], after[:]))
            before.clear()
            after.clear()

    for line in lines:
        kind, text = line[:1], line[1:]
        if line.startswith("--- "):
            end()
            file = line[4:].strip()
        elif line.startswith("@@"):
            end()
        elif kind in (" ", "-", "+"):
            if file is None:
                raise PatchError(f"{where}: a change before the name of its file, --- FILE")
            if kind != "+":
                before.append(text)
            if kind != "-":
                after.append(text)
        elif line.strip():
            raise PatchError(f"{where}: {line.strip()!r}: expected a line that begins with "
                             "a blank, -, +, @@ or ---")
    end()
    return changes


def read_mistake(block, where):
    """Reads a title, the mistake's entries, and its changes."""
    head, *lines = block.splitlines()
    mistake = Mistake(head[2:].strip())
    where = f"{where}: {mistake.title}"
    while lines and (found := re.match(r"(\w+):(.*)", lines[0])):
        key, text = found.group(1), found.group(2).strip()
        if key not in ("says", "expects", "loses", "confined"):
            raise PatchError(f"{where}: {key!r}: expected says, expects, loses or confined")
        if key == "confined" and text != "yes":
            raise PatchError(f"{where}: confined: {text}: expected yes, or no such line")
        setattr(mistake, key, tuple(re.split(r",\s*", text)) if key == "loses" else text)
        lines.pop(0)
    if not any(mistake.loses):
        raise PatchError(f"{where}: expected a line that says which criteria it loses: "
                         "\"loses: a1.1-values\"")
    mistake.changes = read_changes(lines, where)
    if not mistake.changes:
        raise PatchError(f"{where}: it changes nothing; a patch is expected, from --- FILE on")
    return mistake


def read_mistakes(path):
    with open(path, encoding="utf-8") as file:
        before, *blocks = re.split(r"^(?=# )", file.read(), flags=re.MULTILINE)
    if before.strip():
        raise PatchError(f"{path}: {before.strip().splitlines()[0]!r}: expected the title of a "
                         "mistake, which begins with \"# \"")
    return [read_mistake(block, path) for block in blocks]


def places_of(part, lines):
    """Returns the indices at which `part` is found in `lines`."""
    return [at for at in range(len(lines) - len(part) + 1) if lines[at:at + len(part)] == part]


def changed(texts, changes, where):
    """Returns files' texts, by name, with the changes. Each change must fit once."""
    texts = dict(texts)
    for change in changes:
        if change.file not in texts:
            raise PatchError(f"{where}: it changes {change.file}, and there is no such file; "
                             f"there are {', '.join(sorted(texts))}")
        lines = texts[change.file].splitlines()
        places = places_of(change.before, lines)
        if len(places) != 1:
            raise PatchError(f"{where}: these lines occur {len(places)} times in {change.file}, "
                             "expected once:\n" + "\n".join(change.before))
        end = places[0] + len(change.before)
        lines[places[0]:end] = change.after
        texts[change.file] = "".join(line + "\n" for line in lines)
    return texts


def read_folder(folder):
    """Returns the texts of a folder's files, by name, without an editor's hidden files."""
    texts = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.startswith("."):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                texts[name] = file.read()
        except UnicodeError as error:
            raise PatchError(f"{path} is no text in UTF-8: {error}") from error
    return texts


def reference(folder):
    """Returns the solved files of an assignment, by name. `folder` is the assignment's."""
    texts = read_folder(os.path.join(folder, "handout"))
    solved = read_folder(os.path.join(folder, "reference"))
    changes = solved.pop(CHANGES, "")
    texts.update(solved)
    where = os.path.join(folder, "reference", CHANGES)
    return changed(texts, read_changes(changes.splitlines(), where), where)


INCLUDE = re.compile(r'^#include (<[^>]+>|"[^"]+")\n', re.MULTILINE)


class Unit:
    """Solutions as one C++ source: shared files, then each solution in its own namespace."""

    def __init__(self, shared):
        self.includes = {}
        self.adapters = re.search(r"^namespace adapters \{.*?^\}", shared["adapters.hpp"],
                                  re.DOTALL | re.MULTILINE).group(0)
        self.known = set()
        self.text = self.source(shared, "adapters.hpp", self.known)
        self.text += "".join(self.source(shared, name, self.known) for name in shared
                             if name not in self.known and f'"{name}"' in shared["tasks.cpp"])

    def add(self, name, texts):
        """Adds one solution's files, and the tasks that call them."""
        own = [file for file in texts if file.endswith(".cpp")
               and file not in LAST_SOURCES + NO_SOLUTION]
        included = set(self.known)
        text = "".join(self.source(texts, file, included) for file in (*own, *LAST_SOURCES))
        text = re.sub(r"(?<![\w>:])::(?=\w)", name + "::", text)
        self.text += f"namespace {name} {{\n{self.adapters}\n{text}}}  // namespace {name}\n"

    def source(self, texts, name, included):
        """Returns a file's text, and in it, once, the text of each included file of its folder."""
        included.add(name)
        text = texts[name].replace("#pragma once\n", "\n")
        parts = [f'#line 1 "{name}"\n']
        place = 0
        for found in INCLUDE.finditer(text):
            parts.append(text[place:found.start()])
            beside = found.group(1).strip('"').split("/handout/")[-1]
            if beside not in texts:
                self.includes[found.group(1)] = None
            elif beside not in included:
                parts.append(self.source(texts, beside, included))
            line = text.count("\n", 0, found.end()) + 1
            parts.append(f'#line {line} "{name}"\n')
            place = found.end()
        text = "".join([*parts, text[place:]])
        # Code of namespace lockstep goes into the copy's own namespace.
        text = text.replace("namespace lockstep {", "inline namespace of_tasks {")
        return text.replace("namespace lockstep::", "namespace ")


def quoted(text):
    return f'R"__({text})__"'


def write_solutions(output, data, folder):
    """Writes both files. Returns the names of the files that were read."""
    slug = os.path.basename(folder)
    texts = reference(folder)
    for name, text in read_folder(os.path.join(folder, "grading")).items():
        if name == "tasks.cpp":
            texts[name] = text
        elif name.endswith(".hpp"):
            texts[f"lessons/assignments/{slug}/grading/{name}"] = text
    mistakes = [mistake for mistake in read_mistakes(os.path.join(folder, "mistakes.txt"))
                if not mistake.confined]
    unit = Unit(texts)
    rows = []
    files = []
    for number, mistake in enumerate([Mistake("the reference"), *mistakes]):
        name = f"copy_{number}"
        sources = changed(texts, mistake.changes, mistake.title)
        unit.add(name, sources)
        files.append({file: text for file, text in sources.items() if file.endswith(".json")})
        loses = ", ".join(map(quoted, mistake.loses))
        rows.append(f"{{{quoted(mistake.title)}, {quoted(mistake.says)}, "
                    f"{quoted(mistake.expects)}, {{{loses}}}, {name}::tasks()}},\n")
    with open(output, "w", encoding="utf-8") as file:
        file.write('#include "lessons/grader/solution.hpp"\n')
        file.write("".join(f"#include {each}\n" for each in sorted(unit.includes)))
        file.write(f"namespace lockstep {{\nnamespace {{\n{unit.text}}}\n}}\n"
                   f'#line 1 "{slug}"\nnamespace lockstep::lessons {{\n'
                   f"std::vector<Solution> {slug}_solutions() {{\n"
                   f"return {{{''.join(rows)}}};\n}}\n}}\n")
    with open(data, "w", encoding="utf-8") as file:
        json.dump(files, file)
    parts = [os.path.join(folder, part) for part in ("grading", "handout", "reference")]
    # The folders are listed, too, because a file may be added.
    return [os.path.join(folder, "mistakes.txt"), *parts,
            *(os.path.join(part, name) for part in parts for name in os.listdir(part))]


def main():
    if len(sys.argv) != 5:
        sys.exit("usage: mistakes.py OUTPUT.cpp OUTPUT.json FOLDER DEPFILE")
    output, data, folder, depfile = sys.argv[1:]
    try:
        read = write_solutions(output, data, folder.rstrip("/"))
    except (OSError, PatchError) as error:
        sys.exit(f"{folder}: {error}")
    with open(depfile, "w", encoding="utf-8") as file:
        file.write(f"{output}: {' '.join(read)}\n")


if __name__ == "__main__":
    main()
