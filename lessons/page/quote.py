#!/usr/bin/env python3
"""Collects the code that lessons quote, as a C++ table.

usage: quote.py OUTPUT.cpp ROOT SOURCE…

A region is between a line `// lesson: NAME` and a line `// lesson: end`. Regions may be nested; the
outer one then contains the inner one's code without its marks. Names are unique over all sources.
Ends with status 1 and a message if a region is not closed, closed without being open, or empty, or
if two regions have the same name.
"""

import os
import re
import sys
import textwrap
from typing import NamedTuple

MARK = re.compile(r"^\s*// lesson: (\S+)\s*$")


class Quote(NamedTuple):
    name: str
    file: str
    line: int
    code: str


class BadMark(Exception):
    pass


def quotes_of(text, file):
    """Returns the regions of one source."""
    found, open_regions = [], []
    for number, line in enumerate(text.splitlines(), 1):
        mark = MARK.match(line)
        if not mark:
            for _, _, lines in open_regions:
                lines.append((number, line))
        elif mark[1] != "end":
            open_regions.append((mark[1], number, []))
        elif open_regions:
            found.append(quote(file, *open_regions.pop()))
        else:
            raise BadMark(f"{file}:{number}: `// lesson: end` closes nothing")
    for name, number, _ in open_regions:
        raise BadMark(f"{file}:{number}: `// lesson: {name}` is not closed")
    return found


def quote(file, name, number, lines):
    while lines and not lines[0][1].strip():
        lines = lines[1:]
    while lines and not lines[-1][1].strip():
        lines = lines[:-1]
    if not lines:
        raise BadMark(f"{file}:{number}: `// lesson: {name}` holds no code")
    code = textwrap.dedent("\n".join(line.rstrip() for _, line in lines))
    return Quote(name, file, lines[0][0], code)


def quotes_in(root, sources):
    """Returns the regions of all sources, by name."""
    found = {}
    for source in sources:
        file = os.path.relpath(source, root).replace(os.sep, "/")
        with open(source, encoding="utf-8") as text:
            for one in quotes_of(text.read(), file):
                if one.name in found:
                    other = found[one.name]
                    raise BadMark(f"{file}:{one.line}: `// lesson: {one.name}` is also in"
                                  f" {other.file}:{other.line}")
                found[one.name] = one
    return [found[name] for name in sorted(found)]


def literal(text):
    """Returns a C++ string literal, with octal escapes: hexadecimal ones would include the digits
    after them."""
    def escaped(byte):
        plain = 0x20 <= byte < 0x7f and chr(byte) not in '"\\?'
        return chr(byte) if plain else f"\\{byte:03o}"
    return '"' + "".join(escaped(byte) for byte in text.encode()) + '"'


def table(quotes):
    rows = []
    for one in quotes:
        lines = [literal(line + "\n") for line in one.code.split("\n")]
        lines[-1] = literal(one.code.split("\n")[-1])
        code = "\n     ".join(lines)
        rows.append(f"    {{{literal(one.name)}, {literal(one.file)}, {one.line},\n     {code}}},")
    body = "\n".join(rows)
    return f"""#include <array>

#include "lessons/page/quote.hpp"

namespace lockstep::lessons {{

std::span<const Quote> quotes() {{
    static constexpr std::array<Quote, {len(quotes)}> kQuotes{{{{
{body}
    }}}};
    return kQuotes;
}}

}}  // namespace lockstep::lessons
"""


def main(output, root, *sources):
    try:
        text = table(quotes_in(root, sources))
    except (BadMark, UnicodeDecodeError, OSError) as error:
        print(f"quote.py: {error}", file=sys.stderr)
        return 1
    with open(output, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
