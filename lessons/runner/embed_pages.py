#!/usr/bin/env python3
"""Makes a C++ source of pages: a function that gives a page by its name, or nothing.

usage: embed_pages.py OUTPUT.cpp FUNCTION PAGE.md…

F01.md has the name F01.
"""

import os
import sys


def main():
    output, function, *pages = sys.argv[1:]
    with open(output, "w", encoding="utf-8") as file:
        file.write("#include <string_view>\n\nnamespace lockstep::lessons {\n\n")
        file.write(f"std::string_view {function}(std::string_view name);\n")
        file.write(f"std::string_view {function}(std::string_view name) {{\n")
        for page in pages:
            with open(page, encoding="utf-8") as source:
                text = source.read()
            assert ')page"' not in text, page
            name = os.path.splitext(os.path.basename(page))[0]
            file.write(f'    if (name == "{name}")\n        return R"page({text})page";\n')
        file.write("    return {};\n}\n\n}  // namespace lockstep::lessons\n")


if __name__ == "__main__":
    main()
