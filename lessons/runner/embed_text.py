#!/usr/bin/env python3
"""Makes a C++ source of a text: a function that gives it as a string_view.

usage: embed_text.py TEXT OUTPUT.cpp FUNCTION
"""

import sys


def main():
    source, output, function = sys.argv[1:]
    with open(source, "rb") as file:
        data = file.read()
    rows = [data[i : i + 20] for i in range(0, len(data), 20)]
    with open(output, "w", encoding="utf-8") as file:
        file.write("#include <string_view>\n\nnamespace lockstep::lessons {\n\nnamespace {\n")
        file.write("constexpr unsigned char kText[] = {\n")
        file.writelines("    " + ", ".join(map(str, row)) + ",\n" for row in rows)
        file.write("};\n}  // namespace\n\n")
        file.write(f"std::string_view {function}();\n")
        file.write(f"std::string_view {function}() {{\n")
        file.write("    return {reinterpret_cast<const char*>(kText), sizeof kText};\n}\n\n")
        file.write("}  // namespace lockstep::lessons\n")


if __name__ == "__main__":
    main()
