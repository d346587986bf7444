#!/usr/bin/env python3
"""Prints grading/answers.json: the hashes of the answers in right_answers.json, a file that builds
and installations must not have. For a line, right_answers.json has the line's text, which is unique
in the program. Some mistakes have two cures, and so several right answers:

- prefetch: wait for every layer, or wait in the line that gathers the first layer;
- clip: count the replicated gradients on one rank only, or on each rank after the all-reduce.

usage: hash_answers.py > grading/answers.json
"""

import hashlib
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def number_of(text, program):
    """Returns the number of the line in the program that students get."""
    with open(os.path.join(HERE, "handout", program + ".cpp"), encoding="utf-8") as file:
        numbers = [number for number, line in enumerate(file, 1) if line.strip() == text]
    if len(numbers) != 1:
        sys.exit(f"{program}.cpp has {len(numbers)} times, expected once: {text}")
    return numbers[0]


def texts_of(program, part, answers):
    """Returns the answers as the texts that the grader compares."""
    if part == "ranks":
        return [" ".join(map(str, ranks)) for ranks in answers]
    return [str(number_of(text, program)) for text in answers] if part == "line" else answers


def main():
    with open(os.path.join(HERE, "right_answers.json"), encoding="utf-8") as file:
        right = json.load(file)
    hashed = [hashlib.sha256(f"{program}: {part}: {text}".encode()).hexdigest()
              for program, parts in right.items()
              for part, answers in parts.items()
              for text in texts_of(program, part, answers)]
    print(json.dumps(hashed, indent=2))


if __name__ == "__main__":
    main()
