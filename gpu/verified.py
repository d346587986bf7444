#!/usr/bin/env python3
"""Puts the table of gpu/verify.sh's results into gpu/VERIFIED.md, between its two markers.

usage: gpu/verified.py RESULTS.json… [FILE]

Several results make one table if they come from one commit and one machine. If several of them have
the same step, the first result is used.
"""

import json
import os
import re
import shlex
import sys

BEGIN = "<!-- gpu/verified.py writes what follows -->"
END = "<!-- gpu/verified.py writes what precedes -->"
HERE = os.path.dirname(os.path.realpath(__file__))


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def command(argv):
    """Returns the command as typed, without the folders of this machine."""
    words = [re.sub(r"^/\S*/(build|built)/", r"\1/", word) for word in argv]
    return cell(shlex.join(re.sub(r"^/\S*/", "", word) for word in words))


def row(step):
    result = step["status"] if step["status"] != "running" else "cut off"
    if step["need"] == "may" and step["status"] != "passed":
        result += " (optional)"
    figure = [f"{step['seconds']:.0f} s"] if step["seconds"] else []
    figure += [text for text in (step["said"], step["reason"]) if text]
    return f"| {cell(step['name'])} | `{command(step['argv'])}` | {result} | " \
        f"{cell('; '.join(figure))} |"


def verdict(results):
    must = [step for step in results["steps"] if step["need"] == "must"]
    passed = sum(step["status"] == "passed" for step in must)
    counted = (f"{passed} of the {len(must)} steps that must pass have passed, "
               f"in {results['seconds']:.0f} s.")
    reason = results["reason"]
    return f"{counted} The run ended early: {reason or 'it was cut off'}." \
        if reason or not results["ended"] else counted


def table(results):
    versions = ", ".join(f"{name} {version or 'unknown'}"
                         for name, version in results["versions"].items())
    return "\n".join([
        f"- date: {results['date']}",
        f"- commit: {results['commit']}, built {results['built']}",
        f"- GPU: {results['gpu'] or 'none'}",
        f"- versions: {versions}",
        "",
        "| what | command | result | figure |",
        "| --- | --- | --- | --- |",
        *(row(step) for step in results["steps"]),
        "",
        verdict(results),
        ""])


def read_results(path):
    with open(path, encoding="utf-8") as file:
        results = json.load(file)
    if not results["gpu"]:
        sys.exit(f"verified: {path} is from a machine without a GPU, so it has no results "
                 f"to record")
    return results


def joined(all_results):
    first, *others = all_results
    for other in others:
        for key in ("commit", "built", "gpu", "versions"):
            if first[key] != other[key]:
                sys.exit(f"verified: all results must be from one commit and one machine, but "
                         f"{key} is {first[key]} in the first and {other[key]} in another")
    steps = {}
    for results in all_results:
        for step in results["steps"]:
            steps.setdefault(step["name"], step)
    reasons = [results["reason"] or "it was cut off" for results in all_results
               if results["reason"] or not results["ended"]]
    return first | {"steps": list(steps.values()), "reason": "; ".join(reasons), "ended": True,
                    "seconds": sum(results["seconds"] for results in all_results)}


def main():
    paths = sys.argv[1:]
    path = paths.pop() if len(paths) > 1 and not paths[-1].endswith(".json") else \
        os.path.join(HERE, "VERIFIED.md")
    if not paths:
        sys.exit("usage: gpu/verified.py RESULTS.json… [FILE]")
    results = joined([read_results(name) for name in paths])
    with open(path, encoding="utf-8") as file:
        text = file.read()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"verified: {path} lacks the lines {BEGIN} and {END}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{begin}\n\n{table(results)}\n{end}{after}")


if __name__ == "__main__":
    main()
