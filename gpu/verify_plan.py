"""What gpu/verify.py tries, in which order, and how long each step may take.

The steps that tell most come first: the device's contract, then speed, then steps that need a
sanitizer or several processes. Lessons, the suite and all steps that may fail come last.
`typical` is the time of a step on one H200. Builds, the suite and the communicator's contract have
not been timed separately there, so their times are guesses.
"""

from dataclasses import dataclass

import verify_figures as figures
from verify_run import Step

# The binaries that steps run: the build's target, and its file in the build folder.
TARGETS = {
    "lessons/lockstep": "lessons/lockstep",
    "gpu_twin": "gpu/liblockstep_gpu.so",
    "tests/gpu/gpu_device_tests": "tests/gpu/gpu_device_tests",
    "tests/gpu/gpu_comm_tests": "tests/gpu/gpu_comm_tests",
    "tests/bench/gpu_bench": "tests/bench/gpu_bench",
}
PROGRAM = ("lessons/lockstep", "gpu_twin")
DEVICE_TESTS, COMM_TESTS = ("tests/gpu/gpu_device_tests",), ("tests/gpu/gpu_comm_tests",)
BENCH = ("tests/bench/gpu_bench",)

# The parts that can be asked for, and the targets that each needs.
PARTS = {
    "device": ("the device's contract", DEVICE_TESTS),
    "bench": ("speed, and whether it meets the goals", BENCH),
    "memcheck": ("compute-sanitizer on our own kernels", DEVICE_TESTS),
    "nccl": ("the communicator's contract; two processes that share the only GPU",
             COMM_TESTS + PROGRAM),
    "lessons": ("every lesson, compared with the simulator", PROGRAM),
    "suite": ("./lockstep test, which builds the rest", ()),
}

MOST_STEPS = 100       # of training, even if a lesson has more: the backend is tested
FEW_STEPS = 10         # if two processes take turns on a GPU
MOST_SHARED = 2        # lessons tried with two processes; each takes half a minute
WITH_MPS = "gpu/with_mps.sh"
NOT_HERE = "the binaries were built elsewhere; the suite needs a build"


@dataclass
class Lesson:
    slug: str
    ranks: int         # the fewest ranks that it runs on
    steps: int         # of training; 0 if it has no such setting

    def at_most(self, steps):
        return ["--set", f"steps={steps}"] if self.steps > steps else []


@dataclass
class Machine:
    """What the plan depends on."""
    build: str                 # the folder that has the binaries
    gpus: int
    lessons: list              # of type Lesson
    sanitizer: str = ""        # path of compute-sanitizer
    built_elsewhere: bool = False

    def file(self, target):
        return f"{self.build}/{TARGETS[target]}"


def device_steps(machine):
    return [Step("the device's contract on the GPU", [machine.file(DEVICE_TESTS[0])], "must",
                 30, 100, figures.cases, DEVICE_TESTS)]


def bench_steps(machine):
    argv = [machine.file(BENCH[0]), "--benchmark_format=json"]

    def goal(name, need, reader):
        return Step(name, argv, need, 0, 0, reader, BENCH, goal_of="speed")
    return [Step("speed", argv, "must", 15, 90, figures.speed, BENCH),
            goal("4096³ product, at most 1.05 of the time of plain cuBLAS", "must",
                 figures.matmul),
            goal("attention, as a fraction of the time of cuBLAS, softmax and cuBLAS", "may",
                 figures.attention),
            goal("kernels: does each reach its goal", "must", figures.kernels)]


def sanitizer_step(machine, tool, need):
    """Runs some of the device's tests; they use no kernel of cuBLAS. Some tests make CUDA calls
    fail on purpose, so a failing call is no finding."""
    argv = [machine.sanitizer or "compute-sanitizer", "--tool", tool,
            "--launch-timeout", "60", "--kernel-name", "kernel_substring=lockstep",
            "--error-exitcode", "9", *(["--report-api-errors", "no"] if tool == "memcheck" else []),
            machine.file(DEVICE_TESTS[0]), "[sanitizer]"]
    return Step(f"{tool} of our own kernels", argv, need, 30 if need == "must" else 15, 60,
                figures.sanitized, DEVICE_TESTS,
                lacking="" if machine.sanitizer else "compute-sanitizer is not here")


def contract_steps(machine):
    # A rank that hangs on purpose hangs for STALL_SECONDS.
    argv = ["env", "STALL_SECONDS=8", machine.file(COMM_TESTS[0])]
    steps = [Step("the communicator's contract on the GPUs", argv, "must", 70, 150, figures.cases,
                  COMM_TESTS)]
    if machine.gpus == 1:
        steps.append(Step("the communicator's contract, two processes share the GPU",
                          [WITH_MPS, "env", "SHARE_GPU=1", *argv[1:], "NCCL's all-to-all*"],
                          "may", 35, 60,
                          figures.cases, COMM_TESTS, shares_gpu=True))
    return steps


def shared_lesson(machine, lesson):
    argv = [WITH_MPS, machine.file("lessons/lockstep"), "compare", lesson.slug, "--backends",
            "sim,nccl", "--ranks", "2", "--json", "--set", "nccl=shared", "--set", "timeout=20",
            *lesson.at_most(FEW_STEPS)]
    return Step(f"{lesson.slug}, sim against two NCCL ranks that share the GPU", argv, "may", 25,
                60, figures.compared, PROGRAM, shares_gpu=True)


def lesson_steps(machine, lesson):
    program = machine.file("lessons/lockstep")
    settings = lesson.at_most(MOST_STEPS)

    def on(backend, ranks, where):
        return [Step(f"{lesson.slug} {where}", [program, "lesson", lesson.slug, "--backend",
                                                backend, "--ranks", str(ranks), *settings],
                     "must", 4, 60, targets=PROGRAM),
                Step(f"{lesson.slug}, sim against {backend}",
                     [program, "compare", lesson.slug, "--backends", f"sim,{backend}", "--ranks",
                      str(ranks), "--json", *settings], "must", 7, 60, figures.compared, PROGRAM)]
    steps = on("cuda", 4, "on 4 virtual devices, cuda")
    if lesson.ranks <= machine.gpus:
        plural = "" if lesson.ranks == 1 else "s"
        steps += on("nccl", lesson.ranks, f"on {lesson.ranks} rank{plural}, nccl")
    return steps


def no_lessons(machine):
    """Returns a step that says why no lesson is tried."""
    return [Step("the lessons", [machine.file("lessons/lockstep"), "lessons"], "must", 1, 20,
                 targets=PROGRAM)]


def suite_step(machine):
    elsewhere = machine.built_elsewhere
    return Step("the suite", ["./lockstep", "test"], "may" if elsewhere else "must", 100, 240,
                figures.suite, lacking=NOT_HERE if elsewhere else "")


def all_steps(machine, parts):
    """Returns the steps of these parts, in order."""
    shared = [shared_lesson(machine, lesson) for lesson in machine.lessons[:MOST_SHARED]
              if machine.gpus == 1]
    in_order = [
        ("device", device_steps(machine)),
        ("bench", bench_steps(machine)),
        ("memcheck", [sanitizer_step(machine, "memcheck", "must")]),
        ("nccl", contract_steps(machine) + shared[:1]),
        *(("lessons", lesson_steps(machine, lesson)) for lesson in machine.lessons),
        ("lessons", [] if machine.lessons else no_lessons(machine)),
        ("suite", [suite_step(machine)]),
        ("memcheck", [sanitizer_step(machine, tool, "may") for tool in ("racecheck", "synccheck")]),
        ("nccl", shared[1:]),
    ]
    return [step for part, steps in in_order if part in parts for step in steps]


def gpu_step():
    return Step("a GPU", ["nvidia-smi", "--query-gpu=name,memory.total,driver_version",
                          "--format=csv,noheader"], "must", 1, 20, figures.gpus)


def configure_step():
    return Step("configure, and build the program", ["./lockstep", "--version"], "must", 30, 200)


def build_step(build, targets):
    return Step("build what the steps run", ["ninja", "-C", build, "-k", "0", *targets], "must",
                60, 250)


def doctor_step(machine):
    return Step("what this machine can do", [machine.file("lessons/lockstep"), "doctor", "--json"],
                "must", 4, 20, figures.doctor, PROGRAM)
