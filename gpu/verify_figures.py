"""Reads figures from the output of the steps of gpu/verify.py.

A reader takes the output of a step and returns a Reading. It raises KeyError, ValueError or
IndexError if the text is not the output of a step that went well.
"""

import json
import re
from dataclasses import dataclass, field

MOST_OVER_CUBLAS = 1.05
ATTENTION_FIGURES = ("time_over_products", "tflops", "rate_over_matmul")


@dataclass
class Reading:
    said: str = ""                                 # one line for people
    figures: dict = field(default_factory=dict)    # for programs
    failed: str = ""                               # why the step failed although it ended well
    absent: str = ""                               # why there was nothing to try


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return Reading(lines[-1].strip()[:200] if lines else "")


def gpus(text):
    """Reads nvidia-smi's list: name, memory and driver version, one GPU per line."""
    listed = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line]
    listed = [cells for cells in listed if len(cells) == 3]
    return Reading("; ".join(", ".join(cells[:2]) for cells in listed),
                   {"gpus": [{"name": name, "memory": memory} for name, memory, _ in listed],
                    "driver": listed[0][2] if listed else ""},
                   "" if listed else "nvidia-smi lists no GPU")


def doctor(text):
    """Reads `lockstep doctor --json`."""
    found = json.loads(text)
    missing = [finding["found"] for finding in found["findings"]
               if not finding["there"] and "backend cuda" in finding["gives"]]
    without = "" if "cuda" in found["backends"] else "; ".join(missing) or "no backend cuda"
    return Reading("backends " + ", ".join(found["backends"]),
                   {"backends": found["backends"], "gpus": len(found["gpus"]),
                    **{key: found[key] for key in ("cuda", "driver", "nccl")}}, without)


def cases(text):
    """Reads Catch2's last line: how many cases passed, failed and were skipped."""
    passed = re.search(r"^All tests passed \((\d+) assertions? in (\d+) test cases?\)", text, re.M)
    if passed:
        skipped = len(re.findall(r"^\s*skipped: ", text, re.M))   # Catch2 2 does not count them
        return Reading(passed[0] + (f"; {skipped} skipped" if skipped else ""),
                       {"assertions": int(passed[1]), "passed": int(passed[2]),
                        "skipped": skipped})
    counted = re.search(r"^test cases:.*$", text, re.M)
    if not counted:
        if re.search(r"^No test cases matched|^No tests ran", text, re.M):
            return Reading(absent="no test has the tag")
        raise ValueError("no summary of Catch2")
    figures = {word: int(number) for number, word in
               re.findall(r"(\d+) (passed|failed|skipped)", counted[0])}
    return Reading(" ".join(counted[0].split()), figures)


def compared(text):
    """Reads `lockstep compare --json`."""
    tensors = json.loads(text)["comparison"]["tensors"]
    failed = sum(not tensor["passed"] for tensor in tensors)
    largest = max(tensors, key=lambda tensor: tensor["largest_relative"])
    figures = {"tensors": len(tensors), "failed": failed,
               "largest_relative": largest["largest_relative"], "bound": largest["bound"]}
    return Reading(f"{len(tensors)} tensors, largest relative difference "
                   f"{largest['largest_relative']:.1e}, bound {largest['bound']:.1e}", figures,
                   f"{failed} of {len(tensors)} tensors differ" if failed else "")


def sanitized(text):
    """Reads compute-sanitizer's summary, and the output of the tests under it."""
    summary = re.search(r"(ERROR|RACECHECK) SUMMARY: (\d+).*$", text, re.M)
    if not summary:
        raise ValueError("no summary of compute-sanitizer")
    tests = cases(text)
    said = "; ".join(text for text in (summary[0], tests.said) if text)
    return Reading(said, {"errors": int(summary[2]), **tests.figures}, absent=tests.absent)


def benchmarks(text):
    return json.loads(text)["benchmarks"]


def speed(text):
    return Reading(f"{len(benchmarks(text))} benchmarks")


def matmul(text):
    [run] = [run for run in benchmarks(text) if "time_over_cublas" in run]
    ratio = run["time_over_cublas"]
    said = f"{ratio:.3f} of its time, {run['tflops']:.1f} TFLOP/s"
    return Reading(said, {"time_over_cublas": ratio, "tflops": run["tflops"]},
                   "" if ratio <= MOST_OVER_CUBLAS else f"above the goal: {ratio:.3f}")


def attention(text):
    """Has no goal: the speed of the kernels relative to cuBLAS has not been measured."""
    runs = {run["name"].split("/iterations")[0]: {key: run[key] for key in ATTENTION_FIGURES}
            for run in benchmarks(text) if "time_over_products" in run}
    said = "; ".join(f"{name} {run['time_over_products']:.2f}, {run['tflops']:.1f} TFLOP/s, "
                     f"{run['rate_over_matmul']:.2f} of a product's"
                     for name, run in runs.items())
    return Reading(said, runs, "" if runs else "no benchmark of attention")


def kernels(text):
    """Reads each kernel's share of the best speed, and its goal; gpu_bench prints both."""
    shares = {run["name"].split("/")[0]: (run["of_best"], run["goal"])
              for run in benchmarks(text) if "of_best" in run}
    by_share = sorted(shares, key=shares.get)
    below = [f"{name} {shares[name][0]:.2f} of {shares[name][1]:.2f}" for name in by_share
             if not shares[name][0] >= shares[name][1]]
    lowest = by_share[0]
    return Reading(f"{len(shares)} kernels, the lowest {lowest} {shares[lowest][0]:.2f}",
                   {"of_best": {name: share for name, (share, _) in shares.items()}},
                   f"below the goal: {', '.join(below)}" if below else "")


def suite(text):
    """Reads the last line of ./lockstep test."""
    counts = re.findall(r"(\d+) (passed|failed|skipped)", last_line(text).said)
    if not counts:
        raise ValueError("no summary of the tests")
    return Reading(last_line(text).said, {word: int(number) for number, word in counts})
