#!/usr/bin/env python3
"""Installs the kit: all but its libraries, which the build installs, and where it was made.

usage: install_kit.py KIT FOLDER
"""

import os
import shutil
import sys

kit, folder = sys.argv[1:]
there = os.path.join(os.environ["MESON_INSTALL_DESTDIR_PREFIX"], folder)
for part in ["include", "more", "pkgconfig", "assignments"]:
    shutil.rmtree(os.path.join(there, part), ignore_errors=True)
    shutil.copytree(os.path.join(kit, part), os.path.join(there, part))
shutil.copy(os.path.join(kit, "unpack.py"), there)
