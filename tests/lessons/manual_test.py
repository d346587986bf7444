#!/usr/bin/env python3
"""The man page and the completion of bash must have all commands, options and settings.

Arguments: the program, the man page, the completion, the folder of the manual's sources.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest

PROGRAM, PAGE, COMPLETION, SOURCES = sys.argv[1:]


def output_of(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True,
                          env={**os.environ, "LC_ALL": "C.UTF-8"}).stdout


DESCRIPTION = json.loads(output_of(PROGRAM, "--describe"))


def plain(text):
    """Returns the text without white space, because lines may break anywhere."""
    return re.sub(r"\s+", "", text)


class Description(unittest.TestCase):
    def test_it_suggests_the_assignments_that_there_are(self):
        listed = re.findall(r"(?m)^(\S+)  \(", output_of(PROGRAM, "assignment", "list"))
        self.assertGreater(len(listed), 5)
        for command in DESCRIPTION["commands"]:
            for taken in command["positionals"]:
                if taken["meaning"] == "which assignment":
                    self.assertEqual(taken["suggested"], listed, command["name"])


class ManPage(unittest.TestCase):
    def setUp(self):
        if not shutil.which("groff"):
            self.skipTest("there is no groff")
        done = subprocess.run(["groff", "-K", "utf8", "-T", "utf8", "-man", "-ww", "-P", "-cbou",
                               PAGE], capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")
        self.page = plain(done.stdout)

    def test_it_has_every_command_and_all_that_help_says(self):
        self.assertGreater(len(DESCRIPTION["commands"]), 10)
        for command in DESCRIPTION["commands"]:
            self.assertIn(plain("lockstep" + command["name"]), self.page)
            self.assertIn(plain(command["purpose"]), self.page)
            for taken in command["positionals"] + command["options"]:
                text = taken["name"] + taken["value"] + taken["meaning"].replace("`", "")
                self.assertIn(plain(text), self.page)

    def test_help_has_no_option_that_the_description_lacks(self):
        for command in DESCRIPTION["commands"]:
            helped = output_of(PROGRAM, *command["name"].split(), "--help")
            options = set(re.findall(r"^  (--[a-z-]+)", helped, re.M)) - {"--help"}
            described = {option["name"] for each in DESCRIPTION["commands"]
                         if each["name"] == command["name"] for option in each["options"]}
            self.assertEqual(options, described, command["name"])
        listed = re.findall(r"^  ([a-z][a-z-]*)(?: ([a-z]+))?", output_of(PROGRAM, "--help"), re.M)
        names = {command["name"] for command in DESCRIPTION["commands"]}
        self.assertEqual({" ".join(filter(None, name)) for name in listed}, names)

    def test_it_has_every_page_to_its_last_sentence(self):
        pages = [name for name in os.listdir(SOURCES) if name.endswith(".md")]
        self.assertGreater(len(pages), 3)
        for name in pages:
            with open(os.path.join(SOURCES, name), encoding="utf-8") as file:
                text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", file.read())
            text = re.sub(r"^(#.*|\| [^|]*\| \|\n\|.*|\| file.*\n\|.*|\| variable.*\n\|.*|```)$", "",
                          text, flags=re.M)
            for line in text.splitlines():
                self.assertIn(plain(re.sub(r"[`*|]", "", line)), plain(self.page.replace("|", "")))

    def test_settings_of_all_lessons_are_there(self):
        for part in DESCRIPTION["settings"]:
            for setting in part["settings"]:
                self.assertIn(plain(setting["key"] + setting["meaning"]), self.page)


class Completion(unittest.TestCase):
    def completed(self, *words):
        """Returns bash's suggestions for the last word."""
        script = ('. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockstep; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        return output_of("bash", "-c", script, "bash", COMPLETION, "lockstep", *words).split()

    def test_bash_uses_it(self):
        said = output_of("bash", "-c", '. "$1"; complete -p lockstep', "bash", COMPLETION)
        self.assertEqual(said, "complete -o default -F _lockstep lockstep\n")

    def test_commands(self):
        self.assertEqual(self.completed("les"), ["lessons", "lesson"])
        self.assertEqual(self.completed("assignment", "g"), ["gradescope"])
        self.assertEqual(self.completed("--v"), ["--version"])

    def test_names(self):
        self.assertEqual(self.completed("lesson", "grad"), ["gradient-accumulation"])
        self.assertEqual(self.completed("assignment", "new", "ring"),
                         ["ring-all-reduce", "ring-attention"])
        self.assertEqual(self.completed("fault", "F3"), ["F30", "F31"])
        self.assertEqual(self.completed("word", "all-"), ["all-reduce", "all-gather", "all-to-all"])
        self.assertEqual(self.completed("word", "in-f"), ["in-flight"])
        self.assertEqual(self.completed("schedule", "--stages", "4", "zb-h"), ["zb-h1", "zb-h2"])

    def test_options_and_their_values(self):
        lesson = ("lesson", "gradient-accumulation")
        self.assertEqual(self.completed(*lesson, "--ba"), ["--backend"])
        self.assertEqual(self.completed(*lesson, "--backend", "c"), ["cuda"])
        self.assertEqual(self.completed(*lesson, "--backend", "=", "c"), ["cuda"])
        self.assertEqual(self.completed(*lesson, "--json", "--dtype", "b"), ["bf16"])
        self.assertEqual(self.completed("grade", "a", "b", "--format", "j"), ["json", "junit"])
        self.assertEqual(self.completed("serve", "--ex"), ["--example"])
        self.assertEqual(self.completed("serve", "a", "--model", "ll"), ["llama2-13b"])

    def test_settings_are_those_of_the_lesson(self):
        self.assertEqual(self.completed("lesson", "pipeline-1f1b", "--set", "tie"), ["tied="])
        self.assertEqual(self.completed("lesson", "column-linear", "--set", "tie"), [])
        self.assertEqual(self.completed("lesson", "--set", "ex"), ["executor="])

    def test_all_that_the_command_line_has(self):
        for command in DESCRIPTION["commands"]:
            for option in command["options"]:
                self.assertIn(option["name"], self.completed(*command["name"].split(), "--"))

    def test_files_are_left_to_bash(self):
        self.assertEqual(self.completed("lesson", "--text", "R"), [])
        self.assertEqual(self.completed("schedule", "mine."), [])
        self.assertEqual(self.completed("serve", "mine."), [])


if __name__ == "__main__":
    done = unittest.main(argv=sys.argv[:1], exit=False).result
    sys.exit(77 if done.wasSuccessful() and done.skipped else not done.wasSuccessful())
