#!/usr/bin/env python3
"""Builds projects outside of this tree with the installed library, by pkg-config and by CMake, and
runs them in several worlds. Each project has its own src/core/shape.hpp, as any program may.

Arguments: the project's root, the build folder, a GPU twin over the emulator, the compiler's
command.
"""

import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

from installed import Installed, skip_without

ROOT, BUILD, TWIN = (os.path.abspath(path) for path in sys.argv[1:4])
COMPILER = sys.argv[4:]
skip_without("pkg-config", "cmake", root=ROOT)

# Our headers must not include this file in place of ours. They would not compile.
SHAPE = "#pragma once\nstruct Shape { int corners = 4; };\n"

# A program that reads options, has a setting, and makes mistakes on request.
PROGRAM = """\
#include <lockstep/lockstep.hpp>

#include <cstdio>
#include <stdexcept>

#include "src/core/shape.hpp"

struct Mine {};

void program(lockstep::Rank& rank, const lockstep::Launch& launch) {
    const lockstep::Tensor sum = rank.device().zeros({Shape().corners}, launch.dtype());
    rank.device().fill(sum, rank.index() + 1 + static_cast<double>(launch.seed()) / 3);
    rank.keep("mine", sum);
    rank.world().all_reduce(sum).wait();
    rank.keep("sum", sum);
    const auto& settings = launch.settings();
    if (rank.index() + 1 < rank.size()) return;
    if (settings.word("mistake") == "shape") (void)sum.rows(0, 9);
    if (settings.word("mistake") == "thrown") throw std::invalid_argument("no such thing");
    if (settings.word("mistake") == "own") throw Mine();
    if (settings.word("mistake") == "hang") rank.world().barrier().wait();
}

void show(const lockstep::RunReport& report) {
    std::printf("%zu ranks\\n", report.ranks.size());
}

const lockstep::ProgramInfo kInfo{
    .purpose = "Adds up.",
    .default_ranks = 2,
    .settings = {{"mistake", "what it does wrong",
                  lockstep::programs::Choice{{"none", "shape", "thrown", "own", "hang"}, "none"}}},
};
"""
ONE_STEP = PROGRAM + """
int main(int count, char** words) {
    return lockstep::run(count, words, program, show, kInfo);
}
"""
TWO_STEPS = PROGRAM + """
int main(int count, char** words) {
    lockstep::Launch launch(count, words, kInfo);
    for (int i = 1; i < count; ++i) std::printf("own: %s\\n", words[i]);
    const int status = launch.run([&](lockstep::Rank& rank) { program(rank, launch); }, show);
    if (status != 0) return status;
    return launch.run([](lockstep::Rank& rank) {
        const auto x = rank.device().zeros({2}, lockstep::DType::i32);
        rank.keep("sum", x, lockstep::row_part({2 * rank.size()}, 2 * rank.index(), 2));
    }, {}, "again");
}
"""
CMAKE = """\
cmake_minimum_required(VERSION 3.16)
project(own CXX)
find_package(lockstep 0.1 REQUIRED)
foreach(kind lockstep static)
  add_executable(sum_${kind} main.cpp)
  target_include_directories(sum_${kind} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(sum_${kind} PRIVATE -Wall -Wextra -Werror)
  target_link_libraries(sum_${kind} PRIVATE lockstep::${kind})
endforeach()
"""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class OwnPrograms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = holder.name
        cls.installed = Installed(BUILD, f"{cls.folder}/installed")

    def must(self, *words):
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def run_in(self, backend, program, *words, **environment):
        """Runs on two virtual ranks, or on two ranks with emulated GPUs."""
        twin = {} if backend == "sim" else {"LOCKSTEP_GPU_MODULE": TWIN, "EMULATED_GPUS": "2"}
        return subprocess.run([program, "--backend", backend, *words], capture_output=True,
                              text=True, check=False, cwd=self.folder,
                              stdin=subprocess.DEVNULL, env={**os.environ, **twin, **environment})

    def assert_same_everywhere(self, program, names, shown):
        """Checks that the records of all worlds are equal, tensor by tensor."""
        for backend in "sim", "cuda", "nccl":
            out = f"{os.path.basename(program)}-{backend}"
            done = self.run_in(backend, program, "--dtype", "f64", "--seed", "7", "--out", out)
            self.assertEqual((done.returncode, done.stdout), (0, shown), done.stderr)
            with open(f"{self.folder}/{out}/run.json", encoding="utf-8") as file:
                record = json.load(file)
            self.assertEqual((record["lesson"], record["backend"], record["ranks"],
                              record["seed"], record["settings"]["mistake"]),
                             (os.path.basename(program), backend, 2, 7, "none"))
            compared = self.must(self.installed.program, "compare",
                                 f"{os.path.basename(program)}-sim", out, "--json")
            self.assertEqual({each["name"] for each in json.loads(compared.stdout)["tensors"]},
                             names)

    def assert_ends(self, done, status, *sentences):
        self.assertEqual(done.returncode, status, done.stderr)
        for sentence in sentences:
            self.assertIn(sentence, done.stderr)

    def test_with_pkg_config(self):
        for wanted in [["--cflags"], ["--libs"], ["--static", "--libs"]]:
            words = self.installed.flags(*wanted)
            self.assertEqual([word for word in words if word.startswith("/")], [])
            self.assertEqual(len(words), len(set(words)), words)
        project = f"{self.folder}/one"
        write(f"{project}/src/core/shape.hpp", SHAPE)
        write(f"{project}/main.cpp", ONE_STEP)
        program = f"{project}/own"
        self.must(*COMPILER, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-I", project,
                  f"{project}/main.cpp", *self.installed.flags("--cflags", "--libs"), "-o", program)
        self.assert_same_everywhere(program, {"rank_0/mine", "rank_1/mine", "sum"}, "2 ranks\n")

        self.assert_ends(self.run_in("sim", program, "--rank", "3"), 2,
                         "own: unknown option --rank; did you mean --ranks?\n")
        self.assert_ends(self.run_in("sim", program, LOCKSTEP_CHECK="Full"), 2,
                         "own: LOCKSTEP_CHECK is 'Full'; it may be full or cheap, or full "
                         "without classes from F21 to F29, as in full,-F21\n")
        done = self.run_in("sim", program, "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for part in "Usage: own [options]", "Adds up.", "--trace", "Settings of own:", "mistake ":
            self.assertIn(part, done.stdout)

        for backend in "sim", "nccl":
            def wrong(mistake, *words, backend=backend):
                return self.run_in(backend, program, "--set", f"mistake={mistake}", *words)
            self.assert_ends(wrong("shape"), 2, "own: rank 1: ", "main.cpp:18: a tensor of shape (4) has no 9 rows")
            self.assert_ends(wrong("thrown"), 1, "own: rank 1: no such thing\n")
            self.assert_ends(wrong("own"), 1, "own: rank 1: something was thrown that is no")
        self.assert_ends(self.run_in("sim", program, "--set", "mistake=hang"), 1, "F07: ",
                         "stopped run are in own.stopped, with the pictures wait_for_graph.svg\n")
        self.assertTrue(os.path.exists(f"{self.folder}/own.stopped/diagnosis.txt"))
        done = self.run_in("sim", program, "--set", "mistake=hang", "--out", "hung", "--trace")
        self.assert_ends(done, 1, "are in hung, with the pictures wait_for_graph.svg and timeline")
        self.assertTrue(os.path.exists(f"{self.folder}/hung/timeline.svg"))

    def test_with_cmake(self):
        project = f"{self.folder}/two"
        write(f"{project}/src/core/shape.hpp", SHAPE)
        write(f"{project}/main.cpp", TWO_STEPS)
        write(f"{project}/CMakeLists.txt", CMAKE)
        launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={COMPILER[0]}"] if COMPILER[1:] else []
        self.must("cmake", "-S", project, "-B", f"{project}/build",
                  f"-DCMAKE_PREFIX_PATH={self.installed.prefix}",
                  f"-DCMAKE_CXX_COMPILER={COMPILER[-1]}", *launcher)
        self.must("cmake", "--build", f"{project}/build", "--parallel", "2")
        program = f"{project}/build/sum_lockstep"
        self.assert_same_everywhere(program, {"rank_0/mine", "rank_1/mine", "sum", "again/sum"},
                                    "2 ranks\n")
        static = self.run_in("sim", f"{project}/build/sum_static", "--layers", "8", "--ranks=3",
                             "words")
        self.assertEqual((static.returncode, static.stdout),
                         (0, "own: --layers\nown: 8\nown: words\n3 ranks\n"), static.stderr)

    def test_all_headers_go_together(self):
        """All headers must compile together, even if the user has files of the same names."""
        headers = sorted(glob.glob(f"{self.installed.prefix}/include/lockstep/**/*.hpp",
                                   recursive=True))
        self.assertGreater(len(headers), 100)
        include = f"{self.installed.prefix}/include/"
        unit = "".join(f"#include <{header.removeprefix(include)}>\n" for header in headers)
        write(f"{self.folder}/all/src/core/shape.hpp", "#error this is another's\n")
        write(f"{self.folder}/all/unit.cpp", unit)
        self.must(*COMPILER, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I",
                  f"{self.folder}/all", f"{self.folder}/all/unit.cpp",
                  *self.installed.flags("--cflags"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
