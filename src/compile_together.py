"""Writes one source that includes others, so that they are compiled together.

usage: compile_together.py OUTPUT ROOT SOURCE…

For each source a compiler spends most of its time on the same headers and the same templates as
for the source before it. If sources are compiled together, the compiler does this work once.

Meson's own unity joins N neighbours of a list. With N = 4, six of the nine units of tests/parallel
have names that clash; with N = 20, two of the ten units of src. So Lockstep's build says which
sources are compiled together.
"""

import os
import sys


def main():
    output, root, *sources = sys.argv[1:]
    with open(output, "w", encoding="utf-8") as unit:
        for source in sources:
            unit.write(f'#include "{os.path.relpath(source, root)}"\n')


if __name__ == "__main__":
    main()
