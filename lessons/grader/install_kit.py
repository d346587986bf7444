#!/usr/bin/env python3
"""Installs the kit, except its libraries (the build installs those) and the path of its sources.

usage: install_kit.py KIT FOLDER DATA

Students' programs may read FOLDER. So the data with which answers are compared is put into
DATA/SLUG instead, and the kit gets a link to it.
"""

import os
import shutil
import sys

kit, folder, data = sys.argv[1:]
prefix = os.environ["MESON_INSTALL_DESTDIR_PREFIX"]
there = os.path.join(prefix, folder)
for part in ["include", "more", "pkgconfig", "assignments"]:
    shutil.rmtree(os.path.join(there, part), ignore_errors=True)
    shutil.copytree(os.path.join(kit, part), os.path.join(there, part))
shutil.copy(os.path.join(kit, "unpack.py"), there)

shutil.rmtree(os.path.join(prefix, data), ignore_errors=True)
os.makedirs(os.path.join(prefix, data))
for slug in os.listdir(os.path.join(there, "assignments")):
    grading = os.path.join(there, "assignments", slug, "grading")
    moved = shutil.move(grading, os.path.join(prefix, data, slug))
    os.symlink(os.path.relpath(moved, os.path.dirname(grading)), grading)
