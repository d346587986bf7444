#!/usr/bin/env python3
"""Runs headers_alone.py on a header that needs another header.  Arguments: the compiler."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import headers_alone

COMPILER = sys.argv[1:] or ["g++"]


def check(tree, build=()):
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(os.path.join(root, "build"))
        for file, text in dict(build).items():
            with open(os.path.join(root, "build", file), "w", encoding="utf-8") as out:
                out.write(text)
        for file, text in tree.items():
            os.makedirs(os.path.dirname(os.path.join(root, file)), exist_ok=True)
            with open(os.path.join(root, file), "w", encoding="utf-8") as out:
                out.write("#pragma once\n" + text)
        return subprocess.run([sys.executable, "-B", headers_alone.__file__, root,
                               os.path.join(root, "build"), "src", "sim", "--", *COMPILER],
                              capture_output=True, text=True, check=False)


class HeadersAlone(unittest.TestCase):
    def test_a_header_that_brings_what_it_needs_passes(self):
        run = check({"src/a.hpp": "struct A {};\n",
                     "sim/b.hpp": '#include "src/a.hpp"\nstruct B : A {};\n'})
        self.assertEqual((run.stdout, run.returncode),
                         ("2 headers, 0 do not compile alone\n", 0))

    def test_a_header_that_needs_another_first_is_named_with_its_line(self):
        run = check({"src/a.hpp": "struct A {};\n", "sim/b.hpp": "struct B : A {};\n"})
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stdout, r"^sim/b\.hpp does not compile without another include before it: "
                                     r".*sim/b\.hpp:2:.*error:")

    def test_two_headers_of_src_that_define_the_same_do_not_pass(self):
        run = check({"src/a.hpp": "struct A {};\n", "src/b.hpp": "class A {};\n"})
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stdout, r"the 2 headers of the library do not compile together: .*src/b\.hpp:2")

    def test_libraries_are_found_where_the_build_has_them(self):
        tree = {"src/a.hpp": "#include <one.h>\n#include <two.h>\n"}
        self.assertEqual(check(tree).returncode, 1)
        commands = [{"directory": "/", "command": "g++ -isystem{0}/x -c a.cpp", "file": ""},
                    {"directory": "{0}", "command": "g++ -isystem y -c b.cpp", "file": ""}]
        with tempfile.TemporaryDirectory() as folder:
            for file in ("x/one.h", "y/two.h"):
                os.makedirs(os.path.dirname(os.path.join(folder, file)))
                with open(os.path.join(folder, file), "w", encoding="utf-8"):
                    pass
            text = json.dumps(commands).replace("{0}", folder)
            run = check(tree, {"compile_commands.json": text})
        self.assertEqual(run.stdout, "1 headers, 0 do not compile alone\n")

    def test_behind_a_precompiled_header_no_more_is_there_than_without(self):
        users = headers_alone.LEAST_USERS
        tree = {"src/base.hpp": "#include <string>\nstruct Base {};\n",
                "src/other.hpp": "struct Other {};\n",
                **{f"src/user{i}.hpp": f'#include "src/base.hpp"\nstruct User{i} : Base {{}};\n'
                   for i in range(users)}}
        found = headers_alone.Includes
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(os.path.join(root, "src"))
            for file, text in tree.items():
                with open(os.path.join(root, file), "w", encoding="utf-8") as out:
                    out.write(text)
            self.assertEqual(found(root, list(tree)).bases(), ["src/base.hpp"])
        self.assertEqual(check(tree).returncode, 0)
        run = check({**tree, "src/worse.hpp": '#include "src/base.hpp"\nstruct Worse : Other {};\n'})
        self.assertRegex(run.stdout, r"^src/worse\.hpp does not compile without another include before it: "
                                     r".*worse\.hpp:3:")
        self.assertIn(f"{users + 3} headers, 1 do not compile alone", run.stdout)

    def test_no_header_is_no_success(self):
        self.assertEqual(check({"src/a.cpp": ""}).returncode, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
