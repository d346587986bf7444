#!/usr/bin/env python3
"""Reads figures for gpu/verify.sh from what its steps printed.

usage: verify_figures.py compared|backends|versions|gpus|matmul|attention|kernels FILE

The file holds JSON: of `lockstep compare`, of `lockstep doctor`, or of gpu_bench. Prints one
line; for matmul and kernels the exit status is 1 where the figure misses its goal.
"""

import json
import sys

MOST_OVER_CUBLAS = 1.05
LEAST_OF_COPY = 0.85


def compared(document):
    tensors = document["comparison"]["tensors"]
    failed = sum(not tensor["passed"] for tensor in tensors)
    if failed:
        return f"{failed} of {len(tensors)} tensors differ", 1
    largest = max(tensors, key=lambda tensor: tensor["largest_relative"])
    return (f"{len(tensors)} tensors, largest relative difference "
            f"{largest['largest_relative']:.1e}, bound {largest['bound']:.1e}"), 0


def backends(document):
    missing = [finding["found"] for finding in document["findings"]
               if not finding["there"] and "backend cuda" in finding["gives"]]
    return "; ".join(["backends " + ", ".join(document["backends"]), *missing]), bool(missing)


def versions(document):
    return ", ".join(document[key] or "none" for key in ("cuda", "driver", "nccl")), 0


def gpus(document):
    return len(document["gpus"]), 0


def matmul(document):
    [run] = [run for run in document["benchmarks"] if "time_over_cublas" in run]
    ratio = run["time_over_cublas"]
    return (f"{ratio:.3f} of its time, {run['tflops']:.1f} TFLOP/s",
            not ratio <= MOST_OVER_CUBLAS)


def attention(document):
    """No goal: what the kernels give beside cuBLAS has not been measured."""
    parts = [f"{run['name'].split('/iterations')[0]} {run['time_over_products']:.2f}, "
             f"{run['tflops']:.1f} TFLOP/s"
             for run in document["benchmarks"] if "time_over_products" in run]
    return "; ".join(parts), not parts


def kernels(document):
    shares = {run["name"].split("/")[0]: run["of_copy"] for run in document["benchmarks"]
              if "of_copy" in run}
    below = [f"{name} {share:.2f}" for name, share in sorted(shares.items(), key=lambda s: s[1])
             if not share >= LEAST_OF_COPY]
    lowest = min(shares, key=shares.get)
    text = f"{len(shares)} kernels, the lowest {lowest} {shares[lowest]:.2f}"
    return text + (f"; below the goal: {', '.join(below)}" if below else ""), bool(below)


READERS = {reader.__name__: reader for reader in (compared, backends, versions, gpus, matmul,
                                                  attention, kernels)}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in READERS:
        sys.exit(f"usage: verify_figures.py {'|'.join(READERS)} FILE")
    with open(sys.argv[2], encoding="utf-8") as file:
        text, status = READERS[sys.argv[1]](json.load(file))
    print(text)
    sys.exit(status)


if __name__ == "__main__":
    main()
