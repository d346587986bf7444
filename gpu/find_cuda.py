#!/usr/bin/env python3
"""Finds what the GPU twin is built with, and prints it as lines "key=value".

usage: find_cuda.py [nvcc]

nvcc, or else what CUDA_HOME, CUDA_PATH, the PATH and the usual folders have; CUDA's and
NCCL's headers and libraries beside it, in the system's folders, or in Python's nvidia
packages, where machines without root have them. Keys: nvcc, include (repeated), cudart,
cublas, nccl (library files), missing (one sentence; then nothing can be built).
"""

import glob
import os
import shutil
import sys
import sysconfig


def nvcc_candidates(given):
    if given:
        yield given
        return
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield os.path.join(os.environ[variable], "bin", "nvcc")
    yield shutil.which("nvcc") or ""
    yield "/usr/local/cuda/bin/nvcc"
    yield from sorted(glob.glob("/usr/local/cuda-*/bin/nvcc"), reverse=True)


def find_nvcc(given):
    return next((os.path.realpath(path) for path in nvcc_candidates(given)
                 if path and os.access(path, os.X_OK)), None)


def python_packages():
    """Folders of Python's nvidia packages, of every python3 on the PATH too."""
    folders = {sysconfig.get_paths()[key] for key in ("purelib", "platlib")}
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        folders.update(glob.glob(os.path.join(os.path.dirname(folder), "lib", "python3*",
                                              "site-packages")))
        folders.update(glob.glob(os.path.join(os.path.dirname(folder), "lib", "python3*",
                                              "dist-packages")))
    return [package for folder in sorted(folders)
            for package in sorted(glob.glob(os.path.join(folder, "nvidia", "*")))]


def roots(nvcc):
    """Folders that may have include/ and lib/, the best first."""
    toolkit = os.path.dirname(os.path.dirname(nvcc))
    return ([toolkit, os.path.join(toolkit, "targets", "x86_64-linux"),
             os.environ.get("NCCL_HOME", ""), "/usr", "/usr/local"] + python_packages())


def find_header(nvcc, header):
    return next((os.path.join(root, "include") for root in roots(nvcc)
                 if root and os.path.isfile(os.path.join(root, "include", header))), None)


def find_library(nvcc, name):
    """The library's file: the name for linking where there is one, else its version."""
    places = ["lib64", "lib", "lib/x86_64-linux-gnu"]
    for pattern in (f"lib{name}.so", f"lib{name}.so.*"):
        for root in roots(nvcc):
            for place in places:
                found = sorted(glob.glob(os.path.join(root, place, pattern))) if root else []
                if found:
                    return found[0]
    return None


def find(given):
    nvcc = find_nvcc(given)
    if not nvcc:
        return [("missing", "nvcc was not found")]
    found, includes = [("nvcc", nvcc)], []
    for header in ("cuda_runtime.h", "cublas_v2.h", "nccl.h"):
        folder = find_header(nvcc, header)
        if not folder:
            return [("missing", f"{header} was not found")]
        if folder not in includes and folder != "/usr/include":
            includes.append(folder)
    for name in ("cudart", "cublas", "nccl"):
        library = find_library(nvcc, name)
        if not library:
            return [("missing", f"lib{name}.so was not found")]
        found.append((name, library))
    return found + [("include", folder) for folder in includes]


def main():
    if len(sys.argv) > 2:
        sys.exit("usage: find_cuda.py [nvcc]")
    for key, value in find(sys.argv[1] if len(sys.argv) > 1 else ""):
        print(f"{key}={value}")


if __name__ == "__main__":
    main()
