#!/usr/bin/env python3
"""Runs lint.py on small git trees."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import lint

TIDY = "Checks: '-*,readability-braces-around-statements'\nWarningsAsErrors: '*'\n"


def run(tree, *words, changed=None, environment=None, shallow=False):
    """Returns lint.py's output and status for a commit of the tree. With `changed`, there is a
    second commit. A shallow clone has only the second commit."""
    with tempfile.TemporaryDirectory() as root:
        def write(files):
            for file, text in files.items():
                path = os.path.join(root, file)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as out:
                    out.write(text.replace("ROOT", root))

        def git(*git_words):
            who = ["-c", "user.name=a", "-c", "user.email=a@b"]
            return subprocess.run(["git", "-C", root, *who, *git_words], capture_output=True,
                                  text=True, check=True).stdout.strip()

        write(tree | {".ci/linted-since": "today"})
        git("init", "-q")
        git("add", "-A")
        git("commit", "-qm", "a")
        write(changed or {})
        git("add", "-A")
        git("commit", "-qm", "b", "--allow-empty")
        if shallow:
            write({".git/shallow": git("rev-parse", "HEAD") + "\n"})
        done = subprocess.run([sys.executable, "-B", lint.__file__, root, *words,
                               *([root] if words == ("tidy",) else [])], capture_output=True,
                              text=True, env=os.environ | (environment or {}))
        return done.stdout, done.returncode


def commands(*files):
    return ("[" + ", ".join(f'{{"directory": "ROOT", "file": "{f}", "command": "g++ -c {f}"}}'
                            for f in files) + "]")


@unittest.skipUnless(shutil.which("git") and shutil.which("clang-format") and
                     shutil.which("clang-tidy"), "needs git and clang's tools")
class Lint(unittest.TestCase):
    FORMAT = {".clang-format": "BasedOnStyle: Google\n"}

    def test_a_formatted_tree_passes(self):
        self.assertEqual(run(self.FORMAT | {"src/a.cpp": "int a;\n"}, "format"),
                         ("1 sources, 0 not formatted\n", 0))

    def test_a_source_that_is_not_formatted_is_named(self):
        said, status = run(self.FORMAT | {"src/a.cpp": "int   a;\n"}, "format")
        self.assertEqual(status, 1)
        self.assertIn("clang-format -i src/a.cpp", said)

    def test_only_what_has_changed_is_linted(self):
        bad = "int f(int a) {\n  if (a) return 1;\n  return 2;\n}\n"
        tree = {".clang-tidy": TIDY, "old.cpp": bad, "new.cpp": "int g();\n",
                "compile_commands.json": commands("old.cpp", "new.cpp")}
        self.assertEqual(run(tree, "tidy", environment={"CI": "1"}),
                         ("0 sources changed, 0 with findings\n", 0))
        said, status = run(tree, "tidy", changed={"new.cpp": bad}, environment={"CI": "1"})
        self.assertEqual(status, 1)
        self.assertIn("new.cpp:2", said)
        self.assertNotIn("old.cpp", said)

    def test_a_comment_or_a_sentence_that_has_changed_is_not_linted_again(self):
        bad = 'int f(int a) {\n  // A.\n  if (a) return sizeof("a" "//");\n  return \'"\';\n}\n'
        tree = {".clang-tidy": TIDY, "a.cpp": bad, "compile_commands.json": commands("a.cpp")}
        for changed, count in ((bad.replace("A.", "B, which is longer."), 0),
                               (bad.replace('"a" "//"', '"b"\n"/*"'), 0),
                               (bad.replace("// A.", "// NOLINT"), 1),
                               (bad.replace("\'\"\'", "\'a\'"), 1),
                               (bad.replace("// A.", "++a;"), 1)):
            said, _ = run(tree, "tidy", changed={"a.cpp": changed}, environment={"CI": "1"})
            self.assertIn(f"{count} sources changed", said, changed)

    def test_a_clone_that_lacks_the_commit_lints_everything(self):
        bad = "int f(int a) {\n  if (a) return 1;\n  return 2;\n}\n"
        tree = {".clang-tidy": TIDY, "old.cpp": bad, "compile_commands.json": commands("old.cpp")}
        said, status = run(tree, "tidy", environment={"CI": "1"}, shallow=True)
        self.assertEqual(status, 1)
        self.assertIn("old.cpp:2", said)

    def test_sources_that_are_compiled_together_are_linted_one_by_one(self):
        bad = "int f(int a) {\n  if (a) return 1;\n  return 2;\n}\n"
        tree = {".clang-tidy": TIDY, "src/a.cpp": bad, "src/b.cpp": bad,
                "build/all_unit.cpp": '#include "src/a.cpp"\n#include "src/b.cpp"\n',
                "compile_commands.json": commands("build/all_unit.cpp")}
        said, status = run(tree, "tidy", changed={"src/a.cpp": bad + "int g();\n"},
                           environment={"CI": "1"})
        self.assertEqual(status, 1)
        self.assertIn("a.cpp:2", said)
        self.assertIn("1 sources changed", said)

    def test_sources_that_are_compiled_together_are_linted_as_they_are_compiled(self):
        # If a source has no command, clang-tidy would use a neighbouring source's command.
        listed = commands("src/ab.cpp", "build/all_unit.cpp").replace(
            "-c build", "-DNUMBER=3 -c build")
        tree = {".clang-tidy": TIDY, "src/a.cpp": "", "src/ab.cpp": "",
                "build/all_unit.cpp": '#include "src/a.cpp"\n',
                "compile_commands.json": listed}
        self.assertEqual(run(tree, "tidy", changed={"src/a.cpp": "int f() { return NUMBER; }\n"},
                             environment={"CI": "1"}),
                         ("1 sources changed, 0 with findings\n", 0))

    def test_lint_waits_for_continuous_integration(self):
        self.assertEqual(run({"a.cpp": ""}, "tidy", environment={"CI": ""})[1], lint.SKIPPED)


if __name__ == "__main__":
    unittest.main()
