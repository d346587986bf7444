#!/usr/bin/env python3
"""Tests the GPU twin on a machine with CUDA. The most informative steps come first.

usage: gpu/verify.sh [--out FOLDER] [PART…]

{parts}
Without a PART, all parts run, in this order. In a checkout the script builds what the steps need.
In the archive that `./lockstep bundle --built` packs, it builds nothing.

FOLDER (the default is verified/ in the build folder) gets results.json, which is written again
after every step, and logs.tar.gz with the output of the steps. If a step fails, the others still
run. A step that takes too long is cut off; a step that may fail is cut off after {optional} s. The
table for gpu/VERIFIED.md is printed last; `gpu/verified.py FOLDER/results.json` writes it there.

LOCKSTEP_BUILD names another build folder. VERIFY_SECONDS limits the whole run (default: 580).
VERIFY_STEP_SECONDS limits each step.
Exit status: 0 if all steps that must pass did, 1 if one did not, 2 if the arguments are wrong,
3 if this machine has no GPU or lacks something else that is needed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import find_cuda
import verified
import verify_plan
from verify_run import OPTIONAL_SECONDS, CutOff, Run

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
BUILT = os.path.join(ROOT, "built")     # what `./lockstep bundle --built` packed
BUILT_BY = os.path.join(BUILT, "built.json")
CUBLAS_VERSION = """import ctypes, sys
library, parts = ctypes.CDLL(sys.argv[1]), []
for part in range(3):
    value = ctypes.c_int()
    assert library.cublasGetProperty(part, ctypes.byref(value)) == 0
    parts.append(str(value.value))
print('.'.join(parts))
"""


class Refusal(Exception):
    """The arguments are wrong; the text says why."""


def usage():
    def seconds(part):
        machine = verify_plan.Machine("build", 1, [verify_plan.Lesson("", 1, 0)] * 5, "there")
        return sum(step.typical for step in verify_plan.all_steps(machine, [part]))
    parts = "\n".join(f"  {name:9} {what}; about {seconds(name):.0f} s"
                      for name, (what, _) in verify_plan.PARTS.items())
    return __doc__.format(parts=parts + "\n", optional=OPTIONAL_SECONDS)


def read_arguments(words):
    """Returns the folder (None if it is not given) and the parts."""
    folder, parts = None, []
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "--out":
            if not words:
                raise Refusal("--out takes a folder")
            folder = words.pop(0)
        elif word in verify_plan.PARTS:
            parts.append(word)
        else:
            raise Refusal(f"there is no part {word}; the parts are {', '.join(verify_plan.PARTS)}")
    return folder, parts or list(verify_plan.PARTS)


def said_by(*command, seconds=20, environment=None):
    """Returns what the command prints, or "" if it fails or takes too long."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT,
                             timeout=seconds, env=environment, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout if run.returncode == 0 else ""


def commit():
    try:
        with open(os.path.join(ROOT, "bundled/commit"), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return said_by("git", "describe", "--always", "--dirty").strip() or "unknown"


class Verification:
    """One run of the script: finds what the machine has, makes the plan and runs it."""

    def __init__(self, folder, parts):
        given = os.environ.get("LOCKSTEP_BUILD")
        self.elsewhere = not given and os.path.exists(BUILT_BY)
        self.build = BUILT if self.elsewhere else os.path.abspath(
            given or os.path.join(ROOT, "build"))
        self.parts = parts
        self.gpus = 0
        self.cuda = {}     # CUDA's files, as find_cuda.py names them
        self.environment = os.environ | {"LOCKSTEP_BUILD": self.build, "GPU_REQUIRED": "1"}
        limit = os.environ.get("VERIFY_STEP_SECONDS")
        self.run = Run(os.path.abspath(folder or os.path.join(self.build, "verified")), ROOT,
                       self.environment, float(os.environ.get("VERIFY_SECONDS", "580")),
                       float(limit) if limit else None)
        self.run.document = {
            "commit": commit(), "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "gpu": "", "built": "elsewhere" if self.elsewhere else "here", "parts": parts,
            "versions": dict.fromkeys(("driver", "cuda", "nccl", "cublas", "g++", "nvcc"), ""),
            **self.run.document}

    @property
    def versions(self):
        return self.run.document["versions"]

    def targets(self):
        wanted = {target for part in self.parts for target in verify_plan.PARTS[part][1]}
        return [target for target in verify_plan.TARGETS
                if target in wanted | set(verify_plan.PROGRAM)]

    def all(self):
        """Runs everything; returns the exit status."""
        self.run.write()
        lacking = [self.find_gpu(), self.find_tools()]   # both, to know all versions
        if not any(lacking):
            lacking = [self.build_targets() or self.ask_doctor()]
        if any(lacking):
            return self.run.end(3, next(filter(None, lacking)))
        self.run.run_all(verify_plan.all_steps(self.machine(), self.parts))
        return self.run.end(self.run.exit_status())

    def find_gpu(self):
        row = self.run.run_one(verify_plan.gpu_step())
        if row["status"] != "passed":
            return f"no GPU: {row['said'] or row['reason']}"
        self.run.document["gpu"] = row["said"]
        self.gpus = len(row["figures"]["gpus"])
        self.versions["driver"] = row["figures"]["driver"]
        return ""

    def find_tools(self):
        """Finds CUDA: the files for the build, or the libraries that packed binaries load."""
        if self.elsewhere:
            with open(BUILT_BY, encoding="utf-8") as file:
                made_by = json.load(file)
            self.versions.update({name: made_by[name] for name in ("g++", "nvcc")})
            self.cuda = find_cuda.libraries(made_by["cuda_major"])
        else:
            try:
                self.cuda = dict(find_cuda.find(""))
            except find_cuda.Missing as missing:
                return str(missing)
            self.versions["g++"] = said_by("g++", "-dumpfullversion").strip()
            self.versions["nvcc"] = "{}.{}".format(*find_cuda.cuda_version(self.cuda["nvcc"]))
        self.find_libraries()
        return ""

    def find_libraries(self):
        """Tells packed binaries where CUDA's libraries are; asks cuBLAS for its version."""
        folders = dict.fromkeys(os.path.dirname(self.cuda[name])
                                for name in ("cudart", "cublas", "nccl") if name in self.cuda)
        if self.elsewhere:
            given = self.environment.get("LD_LIBRARY_PATH")
            self.environment["LD_LIBRARY_PATH"] = ":".join([*folders, *([given] if given else [])])
        if "cublas" in self.cuda:
            self.versions["cublas"] = said_by(sys.executable, "-c", CUBLAS_VERSION,
                                              self.cuda["cublas"],
                                              environment=self.environment).strip()

    def build_targets(self):
        """Builds what the steps run. Then not_built says which targets cannot run, and why."""
        targets = self.targets()
        if self.elsewhere:
            self.run.not_built = {target: "it was not packed" for target in targets
                                  if not os.path.exists(self.file(target))}
            return ""
        configured = self.run.run_one(verify_plan.configure_step())
        if configured["reason"].split(";")[0] == "exit status 3":
            return configured["said"] or configured["reason"]
        known = {line.split(":")[0] for line in
                 said_by("ninja", "-C", self.build, "-t", "targets", "all").splitlines()}
        there = [target for target in targets if target in known]
        self.run.not_built = {target: "the build has no such target" for target in targets
                              if target not in known}
        if not there:   # without targets Ninja would build everything
            return ""
        built = self.run.run_one(verify_plan.build_step(self.build, there))
        if built["status"] != "passed":
            self.run.not_built |= {target: f"its build {built['status']}" for target in there
                                   if not self.is_built(target)}
        return ""

    def file(self, target):
        return os.path.join(self.build, verify_plan.TARGETS[target])

    def is_built(self, target):
        """Returns whether the binary exists and is up to date."""
        return os.path.exists(self.file(target)) and \
            "no work to do" in said_by("ninja", "-C", self.build, "-n", target)

    def machine(self):
        places = [os.path.dirname(self.cuda["nvcc"])] if "nvcc" in self.cuda else []
        places += find_cuda.program_folders()
        sanitizer = shutil.which("compute-sanitizer") or \
            shutil.which("compute-sanitizer", path=":".join(places)) or ""
        return verify_plan.Machine(self.build, self.gpus, self.lessons(), sanitizer,
                                   self.elsewhere)

    def ask_doctor(self):
        row = self.run.run_one(verify_plan.doctor_step(
            verify_plan.Machine(self.build, self.gpus, [])))
        self.versions.update({key: row["figures"][key] for key in ("cuda", "nccl")
                              if key in row["figures"]})
        if row["figures"] and "cuda" not in row["figures"]["backends"]:
            return row["reason"]
        return ""

    def lessons(self):
        if not {"lessons", "nccl"} & set(self.parts) or "lessons/lockstep" in self.run.not_built:
            return []
        program = self.file("lessons/lockstep")
        listed = said_by(program, "lessons", environment=self.environment)
        return [self.lesson(program, slug) for slug in re.findall(r"^[a-z]\S*", listed, re.M)]

    def lesson(self, program, slug):
        text = said_by(program, "lesson", slug, "--help", environment=self.environment)
        steps = re.search(r"^  steps .*\b(\d+)\)$", text, re.M)
        alone = said_by(program, "lesson", slug, "--ranks", "1", "--step", "1",
                        environment=self.environment)
        return verify_plan.Lesson(slug, 1 if alone else 2, int(steps[1]) if steps else 0)


def cut_off(number, _frame):
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise CutOff(f"signal {number}, {signal.strsignal(number)}")


def main():
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(usage(), end="")
        return 0
    try:
        verification = Verification(*read_arguments(sys.argv[1:]))
    except Refusal as refusal:
        print(f"verify: {refusal}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"verify: {error.filename}: {error.strerror}", file=sys.stderr)
        return 3
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, cut_off)
    run = verification.run
    try:
        status = verification.all()
    except CutOff as cut:
        run.document["reason"] = f"cut off by {cut}"
        run.write()
        status = 1
    print("\n" + verified.table(run.document), end="", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
