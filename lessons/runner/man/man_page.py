#!/usr/bin/env python3
"""Writes the man page: the output of `lockstep --describe`, then pages of text.

usage: man_page.py PROGRAM OUTPUT PAGE.md…

Each page is a section; its heading is the section's name. It may contain this Markdown: paragraphs,
fenced code, tables of two columns, `code`, **bold** and links.
"""

import json
import re
import subprocess
import sys

ESCAPED = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\`", "^": "\\(ha", "~": "\\(ti"}


def roff(text):
    """Escapes text for troff."""
    escaped = "".join(ESCAPED.get(letter, letter) for letter in text)
    return re.sub(r"^\.", r"\\&.", escaped)


def inline(markdown):
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    pieces = re.split(r"(`[^`]*`|\*\*[^*]*\*\*)", text)
    return "".join(f"\\fB{roff(piece.strip('`*'))}\\fR" if index % 2 else roff(piece)
                   for index, piece in enumerate(pieces))


def entry(name, meaning):
    return [".TP", name, inline(meaning)]


def code(lines):
    return [".PP", ".in +4n", ".nf", *(roff(line) or "\\&" for line in lines), ".fi", ".in"]


def table(rows):
    """Returns the lines of a table of two columns: its rows, without its head, as entries."""
    lines = []
    for row in rows[2:]:
        name, meaning = row.strip("| ").split(" | ", 1)
        lines += entry(inline(name), meaning)
    return lines


def section(page):
    """Returns the lines of a page of Markdown."""
    lines, block = [], []
    fenced = False
    for line in page.splitlines() + [""]:
        if line.startswith("```"):
            lines += code(block) if fenced else []
            fenced, block = not fenced, []
        elif fenced:
            block.append(line)
        elif line.startswith("# "):
            lines.append(".SH " + line[2:].upper())
        elif line.startswith("|"):
            block.append(line)
        else:
            lines += table(block) if block else []
            lines += [".PP", inline(line)] if line else []
            block = []
    return lines


def command_lines(command):
    """Returns the lines of a command: how it is called, what it does, and its arguments."""
    called = f"\\fBlockstep {roff(command['name'])}\\fR"
    for positional in command["positionals"]:
        called += f" \\fI{roff(positional['name'])}\\fR"
    # The option that distinguishes two forms of a command.
    shown = [each for each in command["options"] if command["form"] == each["name"]]
    for option in shown:
        called += f" \\fB{roff(option['name'])}\\fR \\fI{roff(option['value'])}\\fR"
    if len(command["options"]) > len(shown):
        called += " [\\fIoptions\\fR]"
    lines = [f".SS {called}", inline(command["purpose"])]
    for taken in command["positionals"]:
        lines += entry(f"\\fI{roff(taken['name'])}\\fR", taken["meaning"])
    for taken in command["options"]:
        value = f" \\fI{roff(taken['value'])}\\fR" if taken["value"] else ""
        lines += entry(f"\\fB{roff(taken['name'])}\\fR{value}", taken["meaning"])
    return lines


def settings_lines(settings):
    lines = [".SH SETTINGS", "What \\fB\\-\\-set\\fR \\fIKEY\\fR=\\fIVALUE\\fR can set."]
    for part in settings:
        if part["settings"]:
            of = f"of \\fB{roff(part['lesson'])}\\fR" if part["lesson"] else "of every lesson"
            lines.append(f".SS Settings {of}")
        for setting in part["settings"]:
            lines += entry(f"\\fB{roff(setting['key'])}\\fR", setting["meaning"])
    return lines


def man_page(description, pages):
    version = description["version"]
    lines = [
        '.\\" Made by lessons/runner/man/man_page.py.',
        f'.TH LOCKSTEP 1 "" "lockstep {version}" "User Commands"',
        # Lines are not stretched and words are not cut, because names of options are long.
        ".ad l", ".nh",
        ".SH NAME", "lockstep \\- a laboratory for understanding distributed training",
        ".SH SYNOPSIS", ".B lockstep", "\\fICOMMAND\\fR [\\fIoptions\\fR]",
        ".SH DESCRIPTION",
        "Lockstep shows how a model is trained on many devices. Each strategy is one source, "
        "which runs on virtual devices inside one process and on GPUs.",
        ".SH COMMANDS",
    ]
    named = set()
    for command in description["commands"]:
        # The second form of a command is called with the first option that only it has.
        again = command["name"] in named
        named.add(command["name"])
        lines += command_lines({**command, "form": command["options"][0]["name"] if again else ""})
    for name, meaning in (("--help", "Prints what a command takes."),
                          ("--version", "Prints the version.")):
        lines += [f".SS {roff(name)}", meaning]
    lines += settings_lines(description["settings"])
    for page in pages:
        lines += section(page)
    lines += [".SH EXIT STATUS", inline(description["exit_status"]),
              ".SH SEE ALSO", "The pages that Lockstep's sources have: README.md first."]
    return "\n".join(lines) + "\n"


def main():
    program, output, *names = sys.argv[1:]
    described = subprocess.run([program, "--describe"], check=True, capture_output=True).stdout
    pages = []
    for name in names:
        with open(name, encoding="utf-8") as file:
            pages.append(file.read())
    with open(output, "w", encoding="utf-8") as file:
        file.write(man_page(json.loads(described), pages))


if __name__ == "__main__":
    main()
