#!/usr/bin/env python3
"""Writes which number each step of each lesson has, as a C++ table.

usage: lesson_steps.py OUTPUT.cpp LESSON.md…

A step is a section with a name, "## Title {#name}"; the lesson is called as its folder.
"""

import os
import re
import sys

STEP = re.compile(r"^## .*\{#(\w+)\}$", re.M)
CODE = """#include "lessons/assignments/lesson_step.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep::lessons {{

std::string lesson_step(const std::string& lesson, const std::string& name) {{
    static const std::map<std::string, std::vector<std::string>> kSteps{{
{rows}}};
    const auto& steps = kSteps.at(lesson);
    const auto found = std::find(steps.begin(), steps.end(), name);
    require(found != steps.end(), "the lesson {{}} has no step {{}}", lesson, name);
    return fmt::format("{{}}, step {{}}", lesson, found - steps.begin() + 1);
}}

}}  // namespace lockstep::lessons
"""


def row(path):
    lesson = os.path.basename(os.path.dirname(path)).split("_", 1)[1].replace("_", "-")
    with open(path, encoding="utf-8") as file:
        steps = ", ".join(f'"{name}"' for name in STEP.findall(file.read()))
    return f'        {{"{lesson}", {{{steps}}}}},\n'


def main():
    output, *pages = sys.argv[1:]
    with open(output, "w", encoding="utf-8") as file:
        file.write(CODE.format(rows="".join(map(row, pages))))


if __name__ == "__main__":
    main()
