#!/usr/bin/env python3
"""Checks a Debian package of this build. It must have all that users need, without errors of
lintian.

Arguments: the project's root, the build folder.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = sys.argv[1:]
NEEDED = ["dpkg-deb", "dpkg-shlibdeps", "dpkg-parsechangelog", "strip"]
if not all(map(shutil.which, NEEDED)) or os.path.isdir(os.path.join(ROOT, "bundled")):
    print("skipped: a package needs Debian's tools and no bundled libraries; the tools are "
          + ", ".join(NEEDED))
    sys.exit(77)
MESON = shlex.split(os.environ.get("MESON", "meson"))
# Packs fast rather than small. The bytes are the same each time.
QUICKLY = {**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1",
           "SOURCE_DATE_EPOCH": "1700000000"}
FILES = ["bin/lockstep", "include/lockstep/sim/cluster.hpp", "include/lockstep/comm/rank.hpp",
         "share/man/man1/lockstep.1.gz", "share/bash-completion/completions/lockstep",
         "share/doc/lockstep/copyright", "share/doc/lockstep/changelog.gz"]
LIBRARY_FILES = ["lockstep/lockstep-grader", "liblockstep.a", "liblockstep.so", "pkgconfig/lockstep.pc",
                 "lockstep/kit/lib/liblockstep_rank.a", "lockstep/kit/lib/liblockstep_course.a",
                 "lockstep/kit/include/lockstep/device/device.hpp",
                 "lockstep/kit/assignments/ring-all-reduce/handout/ring.cpp"]


def output_of(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="lockstep-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.package = output_of(sys.executable, "-B",
                                os.path.join(ROOT, "lessons/runner/make_package.py"), ROOT, BUILD,
                                cls.folder, env=QUICKLY, stderr=subprocess.STDOUT).splitlines()[-1]
        cls.tree = os.path.join(cls.folder, "tree")
        subprocess.run(["dpkg-deb", "-x", cls.package, cls.tree], check=True)
        cls.control = output_of("dpkg-deb", "-f", cls.package)
        cls.version = json.loads(output_of(*MESON, "introspect", "--projectinfo", BUILD))["version"]

    def field(self, name):
        return re.search(rf"^{name}: (.*)$", self.control, re.M)[1]

    def path(self, *names):
        return os.path.join(self.tree, "usr", *names)

    def libraries(self):
        [found] = [path for path, _, names in os.walk(self.path("lib")) if "liblockstep.a" in names]
        return found

    def test_its_version_is_that_of_meson_build_everywhere(self):
        self.assertEqual(self.field("Version"), self.version)
        self.assertEqual(os.path.basename(self.package),
                         f"lockstep_{self.version}_{self.field('Architecture')}.deb")
        self.assertEqual(output_of(self.path("bin/lockstep"), "--version"),
                         f"lockstep {self.version}\n")
        for name in ("pkgconfig/lockstep.pc", "lockstep/kit/pkgconfig/lockstep-course.pc"):
            with open(os.path.join(self.libraries(), name), encoding="utf-8") as file:
                self.assertIn(f"\nVersion: {self.version}\n", file.read())
        changes = subprocess.run(["gzip", "-dc", self.path("share/doc/lockstep/changelog.gz")],
                                 check=True, capture_output=True).stdout
        log = subprocess.run(["dpkg-parsechangelog", "-l", "-"], input=changes, check=True,
                             capture_output=True)
        self.assertEqual(log.stderr, b"")
        self.assertIn(f"\nVersion: {self.version}\n", log.stdout.decode())

    def test_lessons_need_libraries_and_no_compiler(self):
        depends = self.field("Depends")
        for library in ("libc6", "libfmt", "libboost-context", "libstdc++6"):
            self.assertIn(library, depends)
        self.assertNotRegex(depends, r"-dev|g\+\+")
        self.assertRegex(self.field("Suggests"), r"g\+\+.*libfmt-dev")

    def test_all_that_is_promised_is_there_and_lies_in_usr(self):
        for name in FILES:
            self.assertTrue(os.path.isfile(self.path(name)), name)
        for name in LIBRARY_FILES:
            self.assertTrue(os.path.isfile(os.path.join(self.libraries(), name)), name)
        self.assertEqual(os.listdir(self.tree), ["usr"])
        built = os.path.exists(os.path.join(BUILD, "gpu/liblockstep_gpu.so"))
        module = os.path.join(self.libraries(), "lockstep/liblockstep_gpu.so")
        self.assertEqual(os.path.exists(module), built)
        for line in output_of("dpkg-deb", "-c", self.package).splitlines():
            modes = "-rwx--x--x" if line.endswith("/lockstep-grader") else \
                "drwxr-xr-x|-rwxr-xr-x|-rw-r--r--|lrwxrwxrwx"
            self.assertRegex(line, f"^({modes}) root/root ")
            self.assertNotRegex(line, "reference|mistakes|/usr/local")
        # Students' programs can read the folder of libraries, so this folder has only a link
        # to the grading.
        grading = os.path.join(self.libraries(),
                               "lockstep/kit/assignments/debug-the-cluster/grading")
        self.assertEqual(os.path.realpath(grading),
                         self.path("share/lockstep/grading/debug-the-cluster"))
        self.assertTrue(os.path.isfile(os.path.join(grading, "answers.json")))
        config = os.path.join(self.libraries(), "pkgconfig/lockstep.pc")
        with open(config, encoding="utf-8") as file:
            self.assertIn("prefix=/usr\n", file.read())

    def test_the_sums_are_right(self):
        sums = output_of("dpkg-deb", "-I", self.package, "md5sums")
        self.assertIn("usr/bin/lockstep\n", sums)
        subprocess.run(["md5sum", "--quiet", "-c"], input=sums, text=True, check=True,
                       cwd=self.tree)

    def test_the_program_runs_where_it_is_unpacked_and_finds_its_kit(self):
        program = self.path("bin/lockstep")
        self.assertIn("Step 1 of 7", output_of(program, "lesson", "gradient-accumulation",
                                               "--step", "1"))
        work = os.path.join(self.folder, "work")
        said = output_of(program, "assignment", "new", "ring-all-reduce", work)
        self.assertIn(os.path.join(self.libraries(), "lockstep/kit/pkgconfig"), said)

    @unittest.skipUnless(shutil.which("lintian"), "there is no lintian")
    def test_lintian_finds_no_error(self):
        done = subprocess.run(["lintian", "--fail-on", "error", "--allow-root",
                               "--tag-display-limit", "0", self.package], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
