#!/usr/bin/env python3
"""Packs an autograder for Gradescope: setup.sh, run_autograder and Lockstep's sources.

usage: pack.py ROOT SLUG FILE.zip

Tests are left out. The reference and its mistakes are compiled into the grader from their sources;
setup.sh then removes these sources.
"""

import os
import sys
import zipfile

FILES = ["LICENSE", "lockstep", "meson.build", "meson_options.txt"]
FOLDERS = ["src", "sim", "gpu", "program", "lessons"]
HERE = os.path.dirname(os.path.abspath(__file__))


def left_out(path):
    parts = path.split(os.sep)
    return "__pycache__" in parts or (
        parts[:2] == ["lessons", "assignments"] and len(parts) > 3
        and parts[3] not in ["handout", "grading", "reference", "mistakes.txt"])


def sources(root):
    yield from FILES
    for folder in FOLDERS:
        for path, names, files in os.walk(os.path.join(root, folder)):
            names.sort()
            for name in sorted(files):
                source = os.path.relpath(os.path.join(path, name), root)
                if not left_out(source):
                    yield source


def add(archive, source, name, executable=False):
    """Gives the entry a fixed time, so that the same bytes give the same archive."""
    entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    archive.writestr(entry, source)


def main():
    root, slug, file = sys.argv[1:]
    temporary = file + ".new"
    with zipfile.ZipFile(temporary, "w") as archive:
        for name in ["setup.sh", "run_autograder"]:
            with open(os.path.join(HERE, name), "rb") as script:
                add(archive, script.read(), name, executable=True)
        add(archive, slug + "\n", "assignment")
        for name in sources(root):
            with open(os.path.join(root, name), "rb") as source:
                add(archive, source.read(), "lockstep/" + name,
                    os.access(os.path.join(root, name), os.X_OK))
    os.replace(temporary, file)


if __name__ == "__main__":
    main()
