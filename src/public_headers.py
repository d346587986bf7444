"""Puts headers where programs outside of this tree find them, as <lockstep/…>.

usage: public_headers.py ROOT THERE HEADER…

In the tree a header is called by its path, "src/core/shape.hpp". A program of one's own may
have a folder src, too, so outside it is <lockstep/core/shape.hpp>, and so is every include of
it; "sim/cluster.hpp" is <lockstep/sim/cluster.hpp>. The headers go below THERE, and what lay in
THERE/lockstep before is removed. A header that includes one that is not in the list could not
be used: that is an error.
"""

import os
import re
import shutil
import sys

INCLUDE = re.compile(r'^(\s*#\s*include\s*)"((?:src|sim|gpu|program)/[^"]+)"', re.M)
# The one header for programs is named after the library.
NAMED = {"program/lockstep.hpp": "lockstep/lockstep.hpp"}


def public_name(path):
    """What a header of the tree is called outside: "lockstep/core/shape.hpp"."""
    return NAMED.get(path) or "lockstep/" + path.removeprefix("src/")


def rewritten(text):
    """A source or header of the tree with the includes that it has outside."""
    return INCLUDE.sub(lambda match: f"{match[1]}<{public_name(match[2])}>", text)


def included(text):
    """The headers of the tree that a text includes, by their paths in it."""
    return [match[2] for match in INCLUDE.finditer(text)]


def put(root, there, headers, known=frozenset()):
    """They may include each other, and those that are known."""
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
    # Meson says where an installation goes to.
    there = os.path.join(os.environ.get("MESON_INSTALL_DESTDIR_PREFIX", ""), there)
    shutil.rmtree(os.path.join(there, "lockstep"), ignore_errors=True)
    put(root, there, {os.path.relpath(path, root) for path in headers})


if __name__ == "__main__":
    main()
