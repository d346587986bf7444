#!/usr/bin/env python3
"""Runs the script ./lockstep in a world of stubs. The stubs decide which packages and builds
exist, and whether the user is root.

Arguments: the script.  In each world PATH has only stubs and the few commands of a Debian
base system that the script uses. Each stub appends its command line to `calls`.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPT = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "lockstep")
BASE = ("awk bash cat chmod cp dirname env find flock grep head mkdir nproc realpath rm sleep tail"
        " tee touch").split()
ROOMS = "src sim gpu program lessons".split()
LIBRARIES = ("libeigen3-dev libfmt-dev libboost-context-dev libcli11-dev nlohmann-json3-dev"
             " libcmark-gfm-dev libcmark-gfm-extensions-dev libmd-dev catch2 libbenchmark-dev").split()
TOOLS = {"g++": "", "pkg-config": "", "meson": """
case $1 in
    --version) echo "${MESON_VERSION:-1.0.1}" ;;
    setup) build=${*: -2:1}
           [[ -e $build/meson-private/coredata.dat && $* != *--reconfigure* ]] && exit 0
           [[ $* == *--reconfigure* && $(<"$build/meson-private/coredata.dat") == broken ]] && exit 1
           mkdir -p "$build"/meson-{private,info}
           echo '[{"suite": ["l:unit"], "depends": ["1"]},
                  {"suite": ["l:house", "l:rare", "l:bundle"], "depends": ["2"]}]' \\
               >"$build/meson-info/intro-tests.json"
           echo '[{"id": "1", "filename": ["'"$build"'/usual"]},
                  {"id": "2", "filename": ["'"$build"'/rare"]}]' \\
               >"$build/meson-info/intro-targets.json"
           echo whole | tee "$build/meson-private/coredata.dat" >"$build/build.ninja" ;;
    test) mkdir -p "$3/meson-logs"
          cp "$WORLD/testlog.json" "$3/meson-logs/testlog-$6.json" ;;   # --setup's
esac""", "ninja": """
echo '[1/2] Compiling a'
if [[ -e $WORLD/fault ]]; then
    printf 'FAILED: a.o \\nc++ -long -command -line a.cpp\\na.cpp:1:2: error: no semicolon\\n'
    echo 'ninja: build stopped: subcommand failed.'
    exit 1
fi
[[ $(<"$2/build.ninja") == whole ]] || { echo 'ninja: error: bad build.ninja'; exit 1; }
mkdir -p "$2/lessons"
for program in lockstep first-lesson; do
    [[ $* == *lessons/$program* ]] || continue
    printf '#!/bin/bash\\necho "in $PWD:" "${@@Q}"\\nexit "${PROGRAM_STATUS:-0}"\\n' >"$2/lessons/$program"
    chmod +x "$2/lessons/$program"
done
"""}
INSTALLED = """
for package in "${@:3}"; do
    [[ " $MISSING " == *" $package "* ]] || echo "$package install ok installed"
done"""
APT = """
[[ $* == *install* ]] || exit 0
[[ -e $WORLD/no-network ]] && { echo 'E: Unable to locate package'; exit 100; }
touch "$WORLD/apt-installed\""""


def quoted(words):
    return " ".join(f"'{word}'" for word in words)


class World:
    """A folder with stubs, the user's folder, and a place for a build folder."""

    def __init__(self, uid=1000, without=(), missing=(), commands=()):
        self.folder = tempfile.mkdtemp(prefix="lockstep-")
        self.missing = " ".join(missing)
        self.script = self.copy(SCRIPT, "lockstep")
        for name in ("gpu/find_cuda.py", "tests/house/choose.py", "tests/house/lint.py",
                     "tests/house/summary.py"):
            self.copy(os.path.join(os.path.dirname(SCRIPT), name), name)
        for room in ROOMS:
            os.makedirs(self.path("tree", room), exist_ok=True)
        for name in ("meson.build", "meson_options.txt"):
            self.write("tree/" + name)
        os.makedirs(self.path("bin"))
        os.makedirs(self.path("user"))
        for name in BASE:
            os.symlink(shutil.which(name), self.path("bin", name))
        if "python3" not in dict(commands):
            os.symlink(sys.executable, self.path("bin", "python3"))
        stubs = TOOLS | {"dpkg-query": INSTALLED, "id": f"echo {uid}"} | dict(commands)
        for name, body in stubs.items():
            if name not in without:
                self.stub(name, body)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def copy(self, file, name):
        """Copies a file of the project into the world's tree, which may have a bundle."""
        path = self.path("tree", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return shutil.copy(file, path)

    def stub(self, name, body):
        with open(self.path("bin", name), "w", encoding="utf-8") as file:
            file.write(f'#!/bin/bash\necho "{name} $*" >>"$WORLD/calls"\n{body}\n')
        os.chmod(self.path("bin", name), 0o755)

    def write(self, name, text=""):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def environment(self):
        return {"PATH": self.path("bin"), "WORLD": self.folder, "MISSING": self.missing,
                "LOCKSTEP_BUILD": self.path("build")}

    def run(self, *arguments, **environment):
        self.write("calls")
        return subprocess.run(
            [self.script, *arguments], cwd=self.path("user"), capture_output=True, text=True,
            stdin=subprocess.DEVNULL, check=False,
            env=self.environment() | {"LOCKSTEP_BUILD": "../build"} | environment)

    def calls(self, name):
        with open(self.path("calls"), encoding="utf-8") as file:
            return [line.rstrip() for line in file if line.split()[0] == name]


class Script(unittest.TestCase):
    def world(self, **kinds):
        world = World(**kinds)
        self.addCleanup(shutil.rmtree, world.folder)
        return world

    def check(self, run, status, stdout=None, stderr=None):
        self.assertEqual(run.returncode, status, run)
        if stdout is not None:
            self.assertEqual(run.stdout, stdout)
        if stderr is not None:
            self.assertEqual(run.stderr, stderr)

    def test_bash_can_read_it(self):
        subprocess.run(["bash", "-n", SCRIPT], check=True)


class Installing(Script):
    def test_without_sudo_it_says_what_root_must_run(self):
        world = self.world(without=["g++", "ninja"], missing=["libeigen3-dev", "catch2"],
                           commands={"apt-get": APT})
        run = world.run("lessons")
        self.check(run, 3, "", "lockstep: packages are missing and there is no sudo; as root, run: "
                   "apt-get update && apt-get install -y g++ ninja-build libeigen3-dev catch2\n")
        self.assertEqual(world.calls("apt-get"), [])

    def test_where_everything_is_missing_everything_is_named(self):
        world = self.world(without=TOOLS, missing=LIBRARIES, commands={"apt-get": APT})
        run = world.run("lessons")
        self.check(run, 3)
        self.assertIn("install -y g++ meson ninja-build pkg-config " + " ".join(LIBRARIES) + "\n",
                      run.stderr)

    def test_without_apt_it_names_the_packages(self):
        run = self.world(without=["g++"]).run("lessons")
        self.check(run, 3, "")
        self.assertRegex(run.stderr, "^lockstep: this system has no apt; install .*g.*libbenchmark-dev")

    def test_sudo_that_wants_a_password_is_not_waited_for(self):
        world = self.world(missing=["catch2"], commands={
            "apt-get": APT, "sudo": "echo 'sudo: a password is required' >&2; exit 1"})
        run = world.run("lessons")
        self.check(run, 3, "")
        self.assertTrue(run.stderr.endswith(
            "run: sudo apt-get update && sudo apt-get install -y catch2\n"), run.stderr)
        self.assertTrue(all(call.startswith("sudo -n ") for call in world.calls("sudo")))

    def test_without_network_it_says_what_apt_said(self):
        world = self.world(uid=0, missing=["catch2"], commands={"apt-get": APT})
        world.write("no-network")
        run = world.run("lessons")
        self.check(run, 3, "")
        self.assertIn("E: Unable to locate package\n", run.stderr)
        self.assertTrue(run.stderr.endswith("run: apt-get update && apt-get install -y catch2\n"))

    def test_root_installs_what_is_missing_and_no_more(self):
        world = self.world(uid=0, missing=["libfmt-dev", "catch2"], commands={"apt-get": APT})
        run = world.run("lessons")
        self.check(run, 0, f"in {world.path('user')}: 'lessons'\n",
                   "lockstep: installing with apt: libfmt-dev catch2\n")
        update, install = world.calls("apt-get")
        self.assertTrue(update.endswith(" update"))
        self.assertTrue(install.endswith(" install -y --no-install-recommends libfmt-dev catch2"))

    def test_the_book_needs_emscripten_and_nothing_else_does(self):
        world = self.world(uid=0, commands={"apt-get": APT}, without=["em++"])
        self.check(world.run("lessons"), 0)
        self.assertEqual(world.calls("apt-get"), [])
        run = world.run("book", "folder")
        self.assertIn("lockstep: installing with apt: emscripten\n", run.stderr)
        # After emscripten is installed, the build is configured with it exactly once.
        world.stub("em++", "")
        world.run("lessons")
        world.run("lessons")
        self.assertEqual([call for call in world.calls("meson") if "setup" in call], [])

    def test_an_old_meson_is_refused(self):
        run = self.world().run("lessons", MESON_VERSION="0.61.2")
        self.check(run, 3, "")
        self.assertIn("meson is 0.61.2, but 1.0 or later is needed", run.stderr)


class Bundles(Script):
    def test_in_a_bundle_nothing_is_asked_of_the_system(self):
        world = self.world(without=["pkg-config", "dpkg-query"], missing=LIBRARIES,
                           commands={"apt-get": APT})
        os.mkdir(world.path("tree", "bundled"))
        run = world.run("lessons")
        self.check(run, 0, f"in {world.path('user')}: 'lessons'\n", "")
        self.assertEqual(world.calls("apt-get"), [])

    def test_in_a_bundle_missing_tools_are_named_and_apt_is_not_called(self):
        world = self.world(uid=0, without=["meson", "ninja"], commands={"apt-get": APT})
        os.mkdir(world.path("tree", "bundled"))
        run = world.run("lessons")
        self.check(run, 3, "", "lockstep: missing here: meson ninja-build; Meson and Ninja come "
                   "without root by: pip install --user meson ninja\n")
        self.assertEqual(world.calls("apt-get"), [])

    def test_a_bundle_is_packed_by_python_where_the_user_is(self):
        world = self.world()
        world.write("tree/gpu/bundle.py", "import os, sys; print(os.getcwd(), *sys.argv[1:])")
        run = world.run("bundle", "a b.tar.gz", CXX="ccache g++")
        self.check(run, 0, f"{world.path('user')} {world.path('tree')} a b.tar.gz ccache g++\n", "")
        self.assertEqual(world.calls("meson") + world.calls("ninja"), [])

    def test_what_a_bundle_needs_is_installed_first(self):
        world = self.world(uid=0, missing=["libeigen3-dev"], commands={"apt-get": APT})
        world.write("tree/gpu/bundle.py")
        self.check(world.run("bundle", "x.tar.gz"), 0, "",
                   "lockstep: installing with apt: libeigen3-dev\n")

    def test_a_bundle_without_a_file_is_refused(self):
        for arguments in ((), ("a", "b"), ("--help",)):
            run = self.world().run("bundle", *arguments)
            self.check(run, 2, "",
                       "lockstep: one file is expected: ./lockstep bundle [--built [--gpu-arch "
                       "LIST]] FILE.tar.gz\n")
        for arguments in (("--gpu-arch", "90"), ("--built", "--gpu-arch", "sm_90"),
                          ("--built", "--gpu-arch", "")):
            run = self.world().run("bundle", *arguments, "x.tar.gz")
            self.check(run, 2, "", "lockstep: --gpu-arch goes with --built and takes compute "
                       "capabilities, as in 80,90\n")

    def test_binaries_for_other_machines_are_built_in_a_folder_of_their_own(self):
        world = self.world()
        world.write("tree/gpu/bundle.py", "import sys\n"
                    "print('one\\nother' if sys.argv[1:] == ['--targets'] else sys.argv[1:])")
        world.write("tree/gpu/find_cuda.py", "print('nvcc=there')")
        run = world.run("bundle", "--built", "--gpu-arch", "80,90", "x.tar.gz")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        build = os.path.realpath(world.path("build-for-gpu-80-90"))
        root = os.path.realpath(world.path("tree"))
        self.assertEqual(run.stdout, f"{['--tree', root, build + '/tree', 'g++']}\n"
                                     f"{['--built', build, root, 'x.tar.gz', 'g++']}\n")
        [setup] = [call for call in world.calls("meson") if "setup" in call]
        for word in ("-Dnative=false", "-Dgpu=enabled", "-Dgpu_arch=80,90",
                     "-Wl,-rpath,$ORIGIN/../../../bundled/lib", build + "/tree"):
            self.assertIn(word, setup)
        self.assertTrue(world.calls("ninja")[-1].endswith("one other"))

    def test_without_cuda_no_binaries_for_gpus_are_built(self):
        world = self.world()
        world.write("tree/gpu/find_cuda.py", "print('missing=nvcc was not found')")
        self.check(world.run("bundle", "--built", "x.tar.gz"), 3, "",
                   "lockstep: GPU binaries cannot be built here, because nvcc was not found\n")
        self.assertEqual(world.calls("meson"), [])


class Packages(Script):
    def test_a_package_is_built_for_other_processors_in_a_folder_of_its_own(self):
        world = self.world(commands={"dpkg-deb": "", "dpkg-shlibdeps": ""})
        world.write("tree/lessons/runner/make_package.py",
                    "import sys; print('said', file=sys.stderr); print('/'.join(sys.argv[2:]))")
        run = world.run("package")
        self.check(run, 0, "")
        folder = world.path("build-package")
        self.assertIn(f"made {folder}/{world.path('user')}; install it", run.stderr)
        self.assertNotIn("said", run.stderr)
        [setup] = [call for call in world.calls("meson") if " setup " in call]
        for word in ("-Dnative=false", "-Dtests=false", "-Dprefix=/usr", folder):
            self.assertIn(f" {word} ", setup)
        self.assertTrue(world.calls("ninja")[0].endswith(f" -C {folder} all"))
        self.assertFalse(os.path.exists(world.path("build")))

    def test_what_packing_needs_besides_is_installed(self):
        world = self.world(uid=0, commands={"dpkg-deb": "", "apt-get": APT})
        world.write("tree/lessons/runner/make_package.py")
        run = world.run("package")
        self.assertIn("lockstep: installing with apt: dpkg-dev\n", run.stderr)

    def test_a_package_that_cannot_be_made_is_a_failure(self):
        world = self.world(commands={"dpkg-deb": "", "dpkg-shlibdeps": ""})
        world.write("tree/lessons/runner/make_package.py", "import sys; sys.exit('no strip')")
        run = world.run("package")
        self.check(run, 1, "")
        self.assertIn("no strip\nlockstep: the package could not be made", run.stderr)

    def test_where_there_is_no_dpkg_and_what_is_too_much(self):
        run = self.world().run("package")
        self.check(run, 3, "")
        self.assertIn("this system has no dpkg", run.stderr)
        run = self.world(commands={"dpkg-deb": ""}).run("package", "x.deb")
        self.check(run, 2, "", "lockstep: nothing is expected behind it: ./lockstep package\n")


class Building(Script):
    def test_the_program_gets_the_arguments_the_folder_and_gives_the_status(self):
        run = self.world().run("lesson", "a b", "", "*", PROGRAM_STATUS="2")
        self.assertRegex(run.stdout, r"^in /.*/user: 'lesson' 'a b' '' '\*'\n$")
        self.check(run, 2, stderr="")

    def test_the_second_time_nothing_is_asked_again(self):
        world = self.world()
        world.run("lessons")
        run = world.run("lessons")
        self.check(run, 0, stderr="")
        self.assertEqual(world.calls("dpkg-query") + world.calls("meson") + world.calls("ninja"), [])

    def test_a_source_that_has_changed_is_built(self):
        world = self.world()
        world.run("lessons")
        for name in ("src/new.cpp", "lessons/page/page.md", "meson.build", "lockstep"):
            with self.subTest(name=name):
                if name != "lockstep":
                    world.write("tree/" + name)
                later = time.time() + 1
                os.utime(world.path("tree", name), (later, later))
                world.run("lessons")
                self.assertEqual(len(world.calls("ninja")), 1)
                now = time.time() - 1
                os.utime(world.path("tree", name), (now, now))
        os.unlink(world.path("build/lessons/lockstep"))
        self.check(world.run("lessons"), 0)

    def test_what_is_built_waits_for_nobody(self):
        world = self.world()
        world.run("lessons")
        with open(world.path("build/lockstep.lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.check(world.run("lessons"), 0, stderr="")

    def test_a_lesson_waits_for_the_program_and_not_for_what_else_is_built(self):
        world = self.world(commands={"ninja": """
[[ $* == *grading* ]] && until [[ -e $WORLD/lesson-is-over ]]; do sleep 0.1; done
""" + TOOLS["ninja"]})
        environment = world.environment()
        with subprocess.Popen([world.script, "grade", "x"], env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as grading:
            self.check(world.run("lesson", "x"), 0)   # would wait forever
            world.write("lesson-is-over")
            self.assertEqual(grading.wait(), 0)

    def test_the_first_lesson_is_built_without_the_rest_until_that_is_there(self):
        lesson = ("lesson", "gradient-accumulation", "--step", "1")
        world = self.world(commands={"em++": "", "python3": "exit 0"})
        self.check(world.run(*lesson), 0, f"in {world.path('user')}: {quoted(lesson)}\n")
        self.assertEqual([call.split()[3:] for call in world.calls("ninja")], [["lessons/first-lesson"]])
        for more in ("--backend=cuda", "--html"):
            self.assertNotIn("first-lesson", " ".join(self.built(world, *lesson, more)))
        self.assertEqual(self.built(world, *lesson), [])   # the whole program exists now

    def built(self, world, *arguments, **environment):
        """Returns what ninja was asked to build."""
        self.check(world.run(*arguments, **environment), 0)
        return [" ".join(call.split()[3:]) for call in world.calls("ninja")]

    def test_what_takes_long_to_build_is_built_when_it_is_asked_for(self):
        for arguments, wanted in (
                (("lesson", "x"), []),
                (("lesson", "x", "--ranks", "cuda"), []),
                (("lesson", "x", "--backend", "sim"), []),
                (("lesson", "x", "--backend", "cuda"), ["gpu_twin"]),
                (("lesson", "--backend=nccl", "x"), ["gpu_twin"]),
                (("compare", "x", "--backends", "sim,gpu"), ["gpu_twin"]),
                (("doctor",), ["gpu_twin"]),
                (("assignment", "list"), ["grading"]),
                (("grade", "x", "folder"), ["grading"]),
                (("book", "folder"), ["browser_module"]),
                (("lesson", "x", "--html"), ["browser_module"])):
            with self.subTest(arguments=arguments):
                world = self.world(commands={"em++": "", "python3": "exit 0"})
                self.assertEqual(self.built(world, *arguments), ["lessons/lockstep", *wanted])
                self.assertEqual(self.built(world, "lessons"), [])

    def test_without_a_driver_the_gpu_twin_is_not_built(self):
        world = self.world(commands={"python3": "[[ $* != *find_cuda.py\\ --driver ]]"})
        self.assertEqual(self.built(world, "doctor"), ["lessons/lockstep"])

    def test_a_long_build_says_how_long_and_each_tenth(self):
        world = self.world(commands={
            "nproc": "echo 2",
            "ninja": 'for i in {1..90}; do echo "[$i/90] Compiling"; done\n' + TOOLS["ninja"]})
        run = world.run("lessons")
        self.assertEqual(run.stderr.splitlines(), [
            "lockstep: building: 90 steps, about 2 minutes on 2 processors",
            *[f"lockstep: building: {tenth}0 %" for tenth in range(1, 11)]])

    def test_a_compile_error_is_shown_without_the_command_line(self):
        world = self.world()
        world.write("fault")
        run = world.run("lessons")
        self.check(run, 1, "")
        self.assertTrue(run.stderr.startswith("FAILED: a.o \na.cpp:1:2: error: no semicolon\n"))
        self.assertNotIn("-long", run.stderr)
        self.assertIn("lockstep: the build failed; all it said is in", run.stderr)
        self.assertEqual(len(world.calls("ninja")), 1)

    def test_an_interrupted_setup_heals(self):
        for coredata in (None, "whole", "broken"):
            with self.subTest(coredata=coredata):
                world = self.world()
                world.write("build/meson-private/meson.lock")
                if coredata:
                    world.write("build/meson-private/coredata.dat", coredata)
                self.check(world.run("lessons"), 0, stderr="")

    def test_a_build_file_that_was_cut_off_heals(self):
        world = self.world()
        world.run("lessons")
        world.write("build/build.ninja")
        self.check(world.run("lessons"), 0, stderr="")

    def test_a_package_that_has_gone_is_installed_again(self):
        world = self.world(uid=0, commands={"apt-get": 'rm -f "$WORLD/fault"\n' + APT})
        world.run("lessons")
        world.write("fault")
        os.unlink(world.path("build/lessons/lockstep"))
        world.missing = "libfmt-dev"
        self.check(world.run("lessons"), 0, stderr="lockstep: installing with apt: libfmt-dev\n")

    def test_two_at_once_take_turns(self):
        world = self.world()
        world.stub("meson", "sleep 0.5\n" + TOOLS["meson"])
        environment = world.environment()
        both = [subprocess.Popen([world.script, "x"], env=environment, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL) for _ in range(2)]
        self.assertEqual([run.wait() for run in both], [0, 0])
        self.assertEqual(len([call for call in world.calls("meson") if "setup" in call]), 1)


class SharedBuild(Script):
    """Makes a build folder in which the user cannot write."""

    def built(self, finished=True):
        world = self.world()
        if finished:
            self.check(world.run("lessons"), 0, stderr="")
        return world

    def run_as_user(self, world, *arguments):
        world.write("calls")
        os.chmod(world.folder, 0o755)
        os.chmod(world.path("calls"), 0o666)
        # Root can write everywhere.
        nobody = {"user": 65534, "group": 65534, "extra_groups": []}
        return subprocess.run(
            [world.script, *arguments], cwd=world.path("user"), capture_output=True, text=True,
            check=False, **(nobody if os.geteuid() == 0 else {}),
            env=world.environment())

    def test_a_finished_build_runs_where_it_cannot_be_written(self):
        world = self.built()
        os.chmod(world.path("build"), 0o555)
        self.addCleanup(os.chmod, world.path("build"), 0o755)
        self.check(self.run_as_user(world, "lessons"), 0,
                   f"in {world.path('user')}: 'lessons'\n", "")
        self.assertEqual(world.calls("ninja") + world.calls("meson"), [])

    def test_notes_that_root_left_in_the_folder_are_no_obstacle(self):
        world = self.built()
        os.chmod(world.path("build"), 0o777)
        os.chmod(world.path("build", "lockstep.lock"), 0o444)
        self.check(self.run_as_user(world, "lessons"), 0, stderr="")
        self.assertEqual(world.calls("ninja"), [])

    def test_a_build_that_is_not_finished_is_refused(self):
        for leave in ((), ("lockstep.stamp",), ("lessons/lockstep",)):
            with self.subTest(leave=leave):
                world = self.built(bool(leave))
                os.makedirs(world.path("build"), exist_ok=True)
                for name in leave:
                    os.unlink(world.path("build", name))
                os.chmod(world.path("build"), 0o555)
                self.addCleanup(os.chmod, world.path("build"), 0o755)
                run = self.run_as_user(world, "lessons")
                self.check(run, 3, "")
                self.assertIn(f"cannot write in {world.path('build')}", run.stderr)

    def test_tests_are_not_run_where_their_log_cannot_be_written(self):
        world = self.built()
        os.chmod(world.path("build"), 0o555)
        self.addCleanup(os.chmod, world.path("build"), 0o755)
        run = self.run_as_user(world, "test")
        self.check(run, 3, "0 passed, 1 failed, 0 skipped\n")
        self.assertIn("cannot write in", run.stderr)


class Testing(Script):
    def test_the_last_line_counts(self):
        world = self.world()
        world.write("testlog.json", '{"result": "OK"}\n{"result": "SKIP"}\n')
        self.check(world.run("test", "--suite", "x"), 0, "1 passed, 0 failed, 1 skipped\n", "")
        self.assertRegex(world.calls("meson")[-1], "test -C .* --setup all .* --suite x$")
        self.assertRegex(world.calls("ninja")[-1], " all meson-test-prereq$")
        world.write("testlog.json", '{"result": "FAIL"}\n')
        self.check(world.run("test"), 1, "0 passed, 1 failed, 0 skipped\n")

    def test_what_is_rare_runs_when_it_is_asked_for(self):
        world = self.world()
        world.write("testlog.json", '{"result": "OK"}\n')
        run = world.run("test")
        self.check(run, 0, "1 passed, 0 failed, 0 skipped\n")
        self.assertIn("left out, unless you say ./lockstep test --all: each header alone;", run.stderr)
        self.assertIn(" --no-suite bundle ", world.calls("meson")[-1])
        self.assertRegex(world.calls("ninja")[-1], " usual$")
        # Without git it is unknown what has changed.
        for mode in ("--all", "--changed"):
            self.check(world.run("test", mode), 0, "1 passed, 0 failed, 0 skipped\n", "")
            self.assertRegex(world.calls("meson")[-1], "--setup all --print-errorlogs$")
        self.assertRegex(world.calls("ninja")[-1], " rare usual$")

    def test_a_build_that_fails_is_a_failure(self):
        world = self.world()
        world.write("fault")
        self.check(world.run("test"), 1, "0 passed, 1 failed, 0 skipped\n")

    def test_a_machine_that_lacks_something_is_no_success(self):
        self.check(self.world(without=["g++"]).run("test"), 3, "0 passed, 1 failed, 0 skipped\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
