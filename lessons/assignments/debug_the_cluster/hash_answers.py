#!/usr/bin/env python3
"""Prints grading/answers.json: what the right answers hash to, since what is built and installed
has no answers in it. right_answers.json has them, with the text of each line, which the program
has once; where several answers are right, all of them:

- prefetch: who gathers the first layer may wait for it, too;
- clip: one rank may count what all hold, or none, and each adds it afterwards.

usage: hash_answers.py > grading/answers.json
"""

import hashlib
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def number_of(text, program):
    """The number of the line, in the program as it is handed out."""
    with open(os.path.join(HERE, "handout", program + ".cpp"), encoding="utf-8") as file:
        numbers = [number for number, line in enumerate(file, 1) if line.strip() == text]
    if len(numbers) != 1:
        sys.exit(f"{program}.cpp has {len(numbers)} times, expected once: {text}")
    return numbers[0]


def texts_of(program, part, answers):
    """The answers in the words in which the grader compares them."""
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
