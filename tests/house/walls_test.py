#!/usr/bin/env python3
"""Runs walls.py on small trees: some that it allows, and some that each break one wall."""

import os
import tempfile
import unittest

import walls

ALLOWED = {
    "src/core/shape.hpp": '#include <vector>\n#include "src/core/require.hpp"\n// Eigen/Core\n',
    "src/core/require.hpp": "#include <string>\n",
    "sim/device.cpp": '#include "src/core/shape.hpp"\n#include <Eigen/Core>\n#include <fmt/core.h>\n',
    "gpu/device.cpp": '#include "gpu/device.hpp"\n#include <cuda_runtime.h>\n#include <nccl.h>\n'
                      "#include <fmt/core.h>\n",
    "gpu/kernels.cu": '#include "src/core/philox.hpp"\n#include <cuda_fp16.h>\n',
    "gpu/kernels/gelu.cu": '#include "gpu/kernels/gelu.hpp"\n#include "gpu/kernels/launch.hpp"\n',
    "src/os/child.cpp": '#include "src/os/child.hpp"\n#include "src/core/require.hpp"\n',
    "src/text/wrap.cpp": '#include "src/text/wrap.hpp"\n#include "src/core/require.hpp"\n',
    "lessons/runner/main.cpp": '#include "sim/cluster.hpp"\n#include "gpu/cluster.hpp"\n',
    "program/run.cpp": '#include "sim/cluster.hpp"\n#include "gpu/launcher/control.hpp"\n',
    "tests/device_contract.hpp": '#include "sim/device.hpp"\n#include <Eigen/Core>\n',
}

BROKEN = [
    ("sim/cluster.cpp", '#include "sim/check/check.hpp"',
     "only sim/check and tests include files of sim/check"),
    ("src/a.hpp", '#include "sim/cluster.hpp"', "src sees no other folder"),
    ("src/nn/a.cpp", '  #  include "gpu/cluster.hpp"', "src sees no other folder"),
    ("src/a.cpp", '#include "../lessons/runner/main.cpp"', "src sees no other folder"),
    ("src/a.cpp", '#include "tests/device_contract.hpp"', "src sees no other folder"),
    ("src/a.cpp", "#include <Eigen/Dense>", "src does not include Eigen"),
    ("src/a.hpp", "#include <cuda_runtime.h>", "src does not include CUDA"),
    ("src/a.hpp", "#include<nccl.h>", "src does not include CUDA"),
    ("src/chart/a.cpp", '#include "src/report/timeline.hpp"', "src/chart sees only src/core and src/text"),
    ("sim/a.cpp", '#include "gpu/device.hpp"', "sim sees only src"),
    ("sim/a.cpp", '#include "lessons/runner/main.cpp"', "sim sees only src"),
    ("sim/a.cpp", '#include "../tests/device_contract.hpp"', "sim sees only src"),
    ("sim/a.hpp", "#include <cublas_v2.h>", "sim does not include CUDA"),
    ("gpu/a.cpp", '#include "sim/device.cpp"', "gpu sees only src"),
    ("sim/a.cpp", '#include "program/run.hpp"', "sim sees only src"),
    ("gpu/a.cpp", '#include "program/run.hpp"', "gpu sees only src"),
    ("program/a.cpp", '#include "lessons/runner/lesson.hpp"', "program sees only src, sim and gpu"),
    ("program/a.cpp", "#include <Eigen/Core>", "program does not include Eigen"),
    ("program/a.cpp", "#include <nccl.h>", "program does not include CUDA"),
    ("gpu/a.cu", '#include "tests/device_contract.hpp"', "gpu sees only src"),
    ("gpu/a.cpp", "#include <unsupported/Eigen/CXX11/Tensor>", "gpu does not include Eigen"),
    ("gpu/a.cu", "#include <fmt/format.h>", "a kernel's file includes no fmt"),
    ("tests/a.cu", "#include <Eigen/Core>", "a kernel's file includes no Eigen"),
    ("src/core/a.cpp", '#include "src/text/wrap.hpp"', "src/core sees no other room"),
    ("src/os/a.cpp", '#include "src/text/wrap.hpp"', "src/os sees no other room but core"),
    ("src/text/a.hpp", '#include "../os/child.cpp"', "src/text sees no other room but core"),
    ("gpu/kernels/a.cu", '#include "gpu/device.hpp"',
     "gpu/kernels sees nothing else of gpu"),
    ("lessons/grader/confine/a.hpp", '#include "gpu/launcher/control.hpp"',
     "lessons/grader does not see gpu"),
    ("lessons/02_data_parallel/a.cpp", '#include "lessons/tools/schedule_page.hpp"',
     "lessons do not see lessons/tools"),
    ("lessons/assignments/zero/grading/a.cpp", '#include "lessons/tools/schedule_page.hpp"',
     "lessons do not see lessons/tools"),
    ("lessons/tools/a.cpp", '#include "lessons/runner/lesson.hpp"',
     "of lessons, tools see only lessons/page"),
]


# Two rooms see each other. Deeper folders belong to a room.
MUTUAL = ALLOWED | {
    "src/nn/deep/gpt.cpp": '#include "src/comm/communicator.hpp"\n',
    "src/comm/mesh.cpp": "\n#include <nn/gpt.hpp>\n#include \"src/nn/gpt.hpp\"\n",
}


def of_tree(tree, question, *arguments):
    with tempfile.TemporaryDirectory() as root:
        for file, text in tree.items():
            path = os.path.join(root, file)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
        return question(root, *arguments)


class Walls(unittest.TestCase):
    def test_what_is_allowed_passes(self):
        found, looked_at = of_tree(ALLOWED, walls.breaches)
        self.assertEqual(found, [])
        self.assertEqual(looked_at, sum(text.count("#include") for text in ALLOWED.values()))

    def test_every_wall_can_be_seen_broken(self):
        for file, line, rule in BROKEN:
            with self.subTest(file=file, line=line):
                found, _ = of_tree(ALLOWED | {file: f"#pragma once\n{line}\n"}, walls.breaches)
                include = line.split("include", 1)[1].strip()
                self.assertIn(f"{file}:2: {include}: {rule}", found)
        self.assertEqual({rule for *_, rule in BROKEN}, {rule for *_, rule in walls.WALLS})

    def test_rooms_that_import_each_other_are_seen(self):
        self.assertEqual(of_tree(ALLOWED, walls.circles), [])
        self.assertEqual(of_tree(MUTUAL, walls.circles),
                         ["src/comm and src/nn import each other: src/comm/mesh.cpp:3, "
                          "src/nn/deep/gpt.cpp:1"])


if __name__ == "__main__":
    unittest.main()
