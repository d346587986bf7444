#!/usr/bin/env python3
"""Finds broken links between pages.

usage: links.py ROOT

Follows every relative link of every Markdown page below ROOT. The file must exist. If the link
names a heading of a page, the page must have this heading.
"""

import os
import re
import sys

LEFT_OUT = {".git", "build", "bundled"}
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def pages(root):
    for path, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in LEFT_OUT and not
                      os.path.exists(os.path.join(path, f, "meson-info"))]
        for name in sorted(names):
            if name.endswith(".md"):
                yield os.path.join(path, name)


def read(path):
    with open(path, encoding="utf-8") as text:
        return re.sub(r"^```.*?^```", "", text.read(), flags=re.M | re.S)


def anchors(page):
    """Returns the names that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", read(page), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def broken(page, root):
    for target in LINK.findall(read(page)):
        # "#key=value" is a setting that a reader made on a page of the book.
        if re.match(r"[a-z]+:|#[\w-]+=", target):
            continue
        file, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), file)) if file else page
        if not os.path.exists(path):
            yield f"{os.path.relpath(page, root)}: {target}: there is no such file"
        elif anchor and path.endswith(".md") and anchor not in anchors(path):
            yield f"{os.path.relpath(page, root)}: {target}: there is no such heading"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: links.py ROOT")
    found, looked_at = [], 0
    for page in pages(sys.argv[1]):
        found += broken(page, sys.argv[1])
        looked_at += 1
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{looked_at} pages, {len(found)} broken links")
    sys.exit(1 if found or not looked_at else 0)


if __name__ == "__main__":
    main()
