#!/usr/bin/env python3
"""Finds the tools and libraries for building the GPU twin; prints them as lines "key=value".

usage: find_cuda.py [nvcc]
       find_cuda.py --driver

With --driver it prints nothing. The exit status is 0 if this machine has an NVIDIA driver, else 1.
Without an argument, nvcc comes from CUDA_HOME, CUDA_PATH, the PATH, the usual folders or Python's
nvidia packages. The headers and libraries of CUDA and NCCL come from the same place, from
NCCL_HOME, from the system's folders, or from Python's nvidia packages, which need no root.
Keys: nvcc, include (repeated), cudart, cublas, nccl (library files), arch (compute
capabilities to compile for, "80,90"), missing (one sentence; then nothing can be built).
"""

import ctypes
import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig

USUAL_TOOLKITS = ["/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda"]
SYSTEM = ["/usr", "/usr/local"]
LIBRARY_FOLDERS = ["lib64", "lib", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"]
OLDEST_CUDA = 12   # the first version with an nvcc that compiles C++20
OLDEST_NCCL = (2, 18)
ANY_GPU = 80       # if this machine has no GPU: code for all GPUs since Ampere


class Missing(Exception):
    """What is missing, as a part of a sentence."""


def python_packages():
    """Returns the folders of Python's nvidia packages, for every Python on the PATH."""
    folders = {sysconfig.get_paths()[key] for key in ("purelib", "platlib")}
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for packages in ("site-packages", "dist-packages"):
            folders.update(glob.glob(os.path.join(os.path.dirname(folder), "lib", "python3*",
                                                  packages)))
    return [package for folder in sorted(folders)
            for package in sorted(glob.glob(os.path.join(folder, "nvidia", "*")), reverse=True)]


def nvcc_candidates():
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield os.path.join(os.environ[variable], "bin", "nvcc")
    yield shutil.which("nvcc") or ""
    for folder in program_folders():
        yield os.path.join(folder, "nvcc")


def find_nvcc(given):
    candidates = [given] if given else nvcc_candidates()
    for path in candidates:
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.realpath(path)
    if given:
        raise Missing(f"{given} is not a program, though the option nvcc names it")
    raise Missing("nvcc was not found")


def cuda_version(nvcc):
    """Returns (major, minor)."""
    run = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"release (\d+)\.(\d+)", run.stdout)
    if not version:
        raise Missing(f"the version of {nvcc} is unknown")
    if int(version[1]) < OLDEST_CUDA:
        raise Missing(f"{nvcc} is of CUDA {version[1]}.{version[2]} and C++20 needs "
                      f"{OLDEST_CUDA}.0 or later")
    return int(version[1]), int(version[2])


def said_by(*command):
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout if run.returncode == 0 else ""


def compute_capabilities(nvcc):
    """Returns for each GPU of this machine the highest capability that it and nvcc support."""
    smi = said_by("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    gpus = {int(major + minor) for major, minor in re.findall(r"^(\d+)\.(\d)$", smi, re.M)}
    known = {int(arch) for arch in re.findall(r"compute_(\d+)\b",
                                              said_by(nvcc, "--list-gpu-arch"))}
    best = {max((arch for arch in known if arch <= gpu), default=0) for gpu in gpus} - {0}
    return sorted(best) or [ANY_GPU]


def roots(nvcc):
    """Returns folders that may have include/ and lib/, the best first."""
    toolkit = os.path.dirname(os.path.dirname(nvcc))
    return [root for root in
            [toolkit, *sorted(glob.glob(os.path.join(toolkit, "targets", "*-linux"))),
             os.environ.get("NCCL_HOME", ""), *SYSTEM, *python_packages()] if root]


def toolkits():
    return [folder for pattern in USUAL_TOOLKITS
            for folder in sorted(glob.glob(pattern), reverse=True)]


def libraries(major):
    """Returns the libraries that a program built with CUDA `major` loads here: {name: file}."""
    places = [root for root in [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"),
                                os.environ.get("NCCL_HOME")] if root]
    places += toolkits() + SYSTEM + python_packages()
    found = {name: next(filter(None, (library_file(root, name, version) for root in places)), None)
             for name, version in (("cudart", major), ("cublas", major), ("nccl", 2))}
    return {name: file for name, file in found.items() if file}


def program_folders():
    """Returns folders, besides those of the PATH, that may have CUDA's programs."""
    return [os.path.join(root, "bin") for root in toolkits() + python_packages()]


def header_folder(root, header):
    folder = os.path.join(root, "include")
    return folder if os.path.isfile(os.path.join(folder, header)) else None


def library_file(root, name, major):
    """Returns the library's file of that major version, preferably the .so for linking."""
    for place in LIBRARY_FOLDERS:
        for file in (f"lib{name}.so", f"lib{name}.so.{major}"):
            path = os.path.join(root, place, file)
            if os.path.isfile(path) and f".so.{major}" in os.path.realpath(path):
                return path
    return None


def find_part(places, header, name, major):
    """Returns a header folder and a library file, from the same place if one has both."""
    folders = [header_folder(root, header) for root in places]
    files = [library_file(root, name, major) for root in places]
    for pair in zip(folders, files):
        if all(pair):
            return pair
    folder, file = next(filter(None, folders), None), next(filter(None, files), None)
    if not folder:
        raise Missing(f"{header} was not found")
    if not file:
        raise Missing(f"lib{name}.so.{major} was not found")
    return folder, file


def check_nccl(folder):
    with open(os.path.join(folder, "nccl.h"), encoding="utf-8", errors="replace") as header:
        text = header.read()
    version = tuple(int(match[1]) if match else 0 for match in
                    (re.search(rf"#define\s+NCCL_{part}\s+(\d+)", text)
                     for part in ("MAJOR", "MINOR")))
    if version < OLDEST_NCCL:
        raise Missing(f"NCCL in {folder} is {version[0]}.{version[1]} and 2.18 or later is "
                      f"needed")


def find(given):
    nvcc = find_nvcc(given)
    major = cuda_version(nvcc)[0]
    places = roots(nvcc)
    found, includes = [("nvcc", nvcc)], []
    for header, name, version in (("cuda_runtime.h", "cudart", major),
                                  ("cublas_v2.h", "cublas", major), ("nccl.h", "nccl", 2)):
        folder, file = find_part(places, header, name, version)
        found.append((name, file))
        if folder not in includes and folder != "/usr/include":
            includes.append(folder)
        if name == "nccl":
            check_nccl(folder)
    arch = ",".join(map(str, compute_capabilities(nvcc)))
    return found + [("include", folder) for folder in includes] + [("arch", arch)]


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def main():
    if len(sys.argv) > 2:
        sys.exit("usage: find_cuda.py [nvcc]")
    if sys.argv[1:] == ["--driver"]:
        sys.exit(not has_driver())
    try:
        found = find(sys.argv[1] if len(sys.argv) > 1 else "")
    except Missing as missing:
        found = [("missing", missing)]
    for key, value in found:
        print(f"{key}={value}")


if __name__ == "__main__":
    main()
