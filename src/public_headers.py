"""Copies headers to a folder where programs outside of this tree find them, as <lockstep/…>.

usage: public_headers.py ROOT THERE HEADER…

In the tree a header is included by its path, "src/core/shape.hpp". Another program may have a
folder src, too. So outside of the tree the header, and every include of it, is
<lockstep/core/shape.hpp>; "sim/cluster.hpp" is <lockstep/sim/cluster.hpp>. The headers are written
to THERE/lockstep, whose old contents are removed. A header of the list that includes a
header outside of the list is an error, because programs could not use it.
"""

import os
import re
import shutil
import sys

INCLUDE = re.compile(r'^(\s*#\s*include\s*)"((?:src|sim|gpu|program)/[^"]+)"', re.M)
# The header for programs has the name of the library.
NAMED = {"program/lockstep.hpp": "lockstep/lockstep.hpp"}


def public_name(path):
    """Returns the name of a header outside of the tree: "lockstep/core/shape.hpp"."""
    return NAMED.get(path) or "lockstep/" + path.removeprefix("src/")


def rewritten(text):
    """Returns the text of a source or header, with its includes as they are outside of the tree."""
    return INCLUDE.sub(lambda match: f"{match[1]}<{public_name(match[2])}>", text)


def included(text):
    """Returns the paths of the tree's headers that a text includes."""
    return [match[2] for match in INCLUDE.finditer(text)]


def put(root, there, headers, known=frozenset()):
    """Writes the headers. They may include each other, and headers in `known`."""
    for path in headers:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        for name in included(text):
            if name not in headers and name not in known:
                sys.exit(f"{path} is a header for programs, but {name}, which it includes, is not")
        target = os.path.join(there, public_name(path))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(rewritten(text))


def main():
    root, there, *headers = sys.argv[1:]
    # Meson says where to install.
    there = os.path.join(os.environ.get("MESON_INSTALL_DESTDIR_PREFIX", ""), there)
    shutil.rmtree(os.path.join(there, "lockstep"), ignore_errors=True)
    put(root, there, {os.path.relpath(path, root) for path in headers})


if __name__ == "__main__":
    main()
