"""Runs the steps of gpu/verify.py, each under a time limit, and keeps the results.

FOLDER/results.json is rewritten before and after every step, so a run that is interrupted leaves
its results: the current step has the status `running`, later steps `not run`. FOLDER/logs.tar.gz
has the output of the steps; `running.log` and `running.errors` have the current step's output.
"""

import ctypes
import io
import json
import os
import signal
import subprocess
import tarfile
import time
from dataclasses import dataclass

import verify_figures

OPTIONAL_SECONDS = 60      # the longest time of a step that may fail
LEAST_SECONDS = 5          # if less time is left, no step begins
MOST_LOGGED = 1 << 20      # bytes that are kept of a step's output: the last ones
CRASHES = {128 + number for number in
           (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)}
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


@dataclass
class Step:
    name: str
    argv: list
    need: str                      # must or may
    typical: float                 # seconds that the step takes on one H200; some are guesses
    limit: float                   # seconds after which the step is ended
    reader: callable = verify_figures.last_line
    targets: tuple = ()            # targets of the build that it runs
    goal_of: str = ""              # the step whose figures this step judges; this step runs nothing
    shares_gpu: bool = False       # two processes share the GPU, which NCCL does not support
    lacking: str = ""              # why this machine cannot run it


class CutOff(BaseException):
    """A signal asked this program to end."""


def end_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_group(process):
    """Ends the step and its processes: with SIGTERM if it still runs, then with SIGKILL."""
    for number in ([signal.SIGTERM] if process.poll() is None else []) + [signal.SIGKILL]:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        if number == signal.SIGTERM:
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                pass
    process.wait()


def execute(argv, seconds, out, errors, folder, environment):
    """Returns the exit status; None if the program was ended after its limit."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                               cwd=folder, env=environment, start_new_session=True,
                               preexec_fn=end_with_parent)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_group(process)


def said_last(*texts):
    """Returns the last line of the first text that has a line."""
    return next((line for line in (verify_figures.last_line(text).said for text in texts)
                 if line), "")


def status_of(code, limit):
    """Returns a step's status and the reason, from its exit code (None if it was ended)."""
    if code is None:
        return "hung", f"cut after {limit:.0f} s"
    if code == 0:
        return "passed", ""
    if code < 0 or code in CRASHES:
        number = -code if code < 0 else code - 128
        return "crashed", f"signal {number}, {signal.strsignal(number)}"
    return "failed", f"exit status {code}"


def text_of(document):
    """Returns JSON with one line per step."""
    def text(value):
        return json.dumps(value, ensure_ascii=False)
    head = [f"{text(key)}: {text(value)}" for key, value in document.items() if key != "steps"]
    steps = ",\n  ".join(text(step) for step in document["steps"])
    return "{" + ",\n ".join([*head, f'"steps": [\n  {steps}]']) + "}\n"


class Run:
    """The steps of one call of gpu/verify.sh, and its results."""

    def __init__(self, folder, root, environment, seconds, step_seconds=None, *,
                 clock=time.monotonic, execute_step=execute):
        self.folder, self.root, self.environment = folder, root, environment
        self.clock, self.execute = clock, execute_step
        self.began, self.seconds = clock(), seconds
        self.step_seconds = step_seconds or seconds
        self.document = {"ended": False, "exit_status": None, "reason": "", "seconds": 0.0,
                         "steps": []}
        self.not_built = {}      # target: why
        self.printed = {}        # step: its output
        self.logs = []           # (name, bytes)
        self.shared_hang = ""    # the first step that hung while two processes shared the GPU
        os.makedirs(folder, exist_ok=True)
        self.write()

    def elapsed(self):
        return round(self.clock() - self.began, 3)

    def path(self, name):
        return os.path.join(self.folder, name)

    def replace(self, name, content):
        """Writes the file so that a reader finds either the old content or the new one."""
        temporary = self.path(f".{name}")
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, self.path(name))

    def write(self):
        self.document["seconds"] = self.elapsed()
        self.replace("results.json", text_of(self.document).encode())

    def pack_logs(self):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=4) as archive:
            for name, text in self.logs:
                info = tarfile.TarInfo(f"logs/{name}")
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text))
        self.replace("logs.tar.gz", packed.getvalue())

    def plan(self, steps):
        """Appends steps to the results, not run yet, and returns them with their rows."""
        rows = [{"name": step.name, "argv": [os.fspath(word) for word in step.argv],
                 "need": step.need, "status": "not run", "reason": "not reached", "seconds": 0.0,
                 "said": "", "figures": {}} for step in steps]
        self.document["steps"] += rows
        self.write()
        return list(zip(steps, rows))

    def run_all(self, steps):
        for step, row in self.plan(steps):
            self.run(step, row)

    def run_one(self, step):
        self.run_all([step])
        return self.document["steps"][-1]

    def why_not(self, step, seconds):
        """Returns the status and the reason if a step cannot begin; otherwise nothing."""
        for target in step.targets:
            if target in self.not_built:
                return "not built", f"{target}: {self.not_built[target]}"
        if step.lacking:
            return "skipped", step.lacking
        if step.shares_gpu and self.shared_hang:
            return "skipped", ("an earlier step with two processes on the GPU hung: "
                               f"{self.shared_hang}")
        if step.goal_of and step.goal_of not in self.printed:
            return "not run", f"“{step.goal_of}” gave no figures"
        if seconds < LEAST_SECONDS and not step.goal_of:
            return "not run", "no time was left"
        return None

    def run(self, step, row):
        left = self.seconds - self.elapsed()
        most = OPTIONAL_SECONDS if step.need == "may" else step.limit
        refusal = self.why_not(step, left)
        if refusal:
            row["status"], row["reason"] = refusal
        elif step.goal_of:
            row["status"], row["reason"] = "passed", ""
            self.read(step, row, self.printed[step.goal_of])
        else:
            self.run_program(step, row, min(most, self.step_seconds), left)
        self.write()
        self.tell(row)

    def run_program(self, step, row, most, left):
        limit = min(most, left)
        row["status"], row["reason"] = "running", "its end was not recorded"
        self.write()
        began = self.clock()
        with open(self.path("running.log"), "w+b") as out, \
                open(self.path("running.errors"), "w+b") as errors:
            try:
                code = self.execute(step.argv, limit, out, errors, self.root, self.environment)
                row["status"], row["reason"] = status_of(code, limit)
                if code is None and left < most:
                    row["reason"] += ", when no time was left"
            except OSError as error:
                absent = isinstance(error, FileNotFoundError)
                row["status"], row["reason"] = "failed", \
                    f"{error.filename}{' is not here' if absent else ': ' + error.strerror}"
            finally:
                row["seconds"] = round(self.clock() - began, 3)
                texts = self.keep_logs(row["name"], out, errors)
        self.conclude(step, row, *texts)

    def keep_logs(self, name, out, errors):
        texts = []
        base = f"{len(self.logs):02d}-" + "".join(c if c.isalnum() else "-" for c in name)
        for file, ending in ((out, "log"), (errors, "errors")):
            file.seek(0)
            content = file.read()
            texts.append(content.decode(errors="replace"))
            if content or ending == "log":
                self.logs.append((f"{base}.{ending}", content[-MOST_LOGGED:]))
        self.pack_logs()
        for name in ("running.log", "running.errors"):
            os.remove(self.path(name))
        return texts

    def conclude(self, step, row, out, errors):
        """Adds the step's output to the row."""
        if row["status"] == "hung" and step.shares_gpu:
            self.shared_hang = self.shared_hang or row["name"]
        if row["status"] == "hung":
            row["said"] = said_last(errors)
            return
        self.read(step, row, out)
        if row["status"] == "passed":
            self.printed[step.name] = out
        elif not row["said"]:
            row["said"] = said_last(errors, out)
        elif row["status"] in ("failed", "crashed") and errors.strip():
            row["reason"] += f"; {said_last(errors)}"

    @staticmethod
    def read(step, row, text):
        try:
            reading = step.reader(text)
        except (KeyError, ValueError, IndexError, TypeError):
            if row["status"] == "passed":
                row["status"], row["reason"] = "failed", "what it printed could not be read"
            return
        row["said"], row["figures"] = reading.said, reading.figures
        if row["status"] in ("passed", "failed") and reading.absent:
            row["status"], row["reason"] = "not built", reading.absent
        elif row["status"] == "passed" and reading.failed:
            row["status"], row["reason"] = "failed", reading.failed

    @staticmethod
    def tell(row):
        reason = f" ({row['reason']})" if row["reason"] else ""
        print(f"{row['name']}: {row['status']}{reason}, {row['seconds']:.1f} s", flush=True)

    def exit_status(self):
        """Returns 0 if all steps that must pass did, 3 if the rest were skipped, otherwise 1."""
        left = {row["status"] for row in self.document["steps"]
                if row["need"] == "must" and row["status"] != "passed"}
        return 0 if not left else 3 if left == {"skipped"} else 1

    def end(self, exit_status, reason=""):
        self.document |= {"ended": True, "exit_status": exit_status, "reason": reason}
        self.write()
        return exit_status
