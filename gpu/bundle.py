#!/usr/bin/env python3
"""Packs Lockstep for machines that have CUDA but neither root, apt nor network.

usage: bundle.py [--built BUILD] ROOT FILE.tar.gz [COMPILER…]
       bundle.py --tree ROOT FOLDER [COMPILER…]
       bundle.py --targets

The archive has the source tree and bundled/. The tree is all files that git tracks or does not
ignore; without git, all files outside build folders. bundled/ has the headers of the libraries that
the build needs, the few libraries that are not only headers, a meson.build through which
dependency() finds them, and `commit`, the name of what was packed. The same tree gives the same
bytes. --tree writes the same files into a folder and does not touch files that are already right.
--built adds built/: the stripped binaries that gpu/verify.sh runs, from a build of such a folder,
and built.json, which says how they were made. --targets prints the targets of that build.
"""

import glob
import gzip
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile

import find_cuda
import verify_plan

# library: the header that identifies it, and the parts of its folder that are packed.
HEADERS = {
    "eigen3": ("Eigen/Core", ["Eigen", "unsupported/Eigen"]),
    "fmt": ("fmt/core.h", ["fmt"]),
    "CLI11": ("CLI/CLI.hpp", ["CLI"]),
    "nlohmann_json": ("nlohmann/json.hpp", ["nlohmann"]),
    "benchmark": ("benchmark/benchmark.h", ["benchmark"]),
    "cmark-gfm": ("cmark-gfm.h", ["cmark-gfm*.h"]),
    "libmd": ("sha2.h", ["sha2*.h"]),
    # Other headers of Boost are packed if these files or our own files include them.
    "boost": ("boost/version.hpp", ["boost/config", "boost/context"]),
}
CATCH2 = {3: ("catch2/catch_all.hpp", ["catch2"]), 2: ("catch2/catch.hpp", ["catch2"])}
MADE = ("bundled/", "built/")     # folders of an unpacked bundle that are not sources
SOURCES = (".hpp", ".cpp", ".cu", ".cuh", ".h")

MESON = """# Made by ./lockstep bundle: what dependency() finds is here, not in the system.
bundled_include = include_directories('include', is_system: true)
bundled_lib = meson.current_source_dir() / 'lib'
bundled_headers = declare_dependency(include_directories: bundled_include)
foreach name : ['eigen3', 'nlohmann_json', 'CLI11']
  meson.override_dependency(name, bundled_headers)
endforeach
meson.override_dependency('fmt', declare_dependency(
  compile_args: '-DFMT_HEADER_ONLY', include_directories: bundled_include))
bundled_boost_dep = declare_dependency(
  link_args: bundled_lib / 'libboost_context.a', include_directories: bundled_include)
bundled_cmark_dep = declare_dependency(
  link_args: [bundled_lib / 'libcmark-gfm-extensions.a', bundled_lib / 'libcmark-gfm.a'],
  include_directories: bundled_include)
bundled_md_dep = declare_dependency(
  link_args: bundled_lib / 'libmd.a', include_directories: bundled_include)
"""
MESON_CATCH2 = {
    2: """meson.override_dependency('catch2', declare_dependency(
  version: '{version}', include_directories: bundled_include))
meson.override_dependency('catch2-with-main', dependency('', required: false))
""",
    3: """meson.override_dependency('catch2-with-main', declare_dependency(
  version: '{version}', include_directories: bundled_include,
  link_args: [bundled_lib / 'libCatch2Main.a', bundled_lib / 'libCatch2.a']))
""",
}
MESON_BENCHMARK = """# Made for one C library, it may not go with another: then no benchmark is built.
bundled_benchmark = [bundled_lib / '{library}', '-Wl,-rpath,' + bundled_lib, '-pthread']
if cpp.links('#include <benchmark/benchmark.h>\\nint main() {{ return benchmark::CPUInfo::Get().num_cpus; }}',
             args: ['-isystem', meson.current_source_dir() / 'include'] + bundled_benchmark,
             name: 'the bundled Google Benchmark links')
  meson.override_dependency('benchmark', declare_dependency(
    link_args: bundled_benchmark, include_directories: bundled_include))
else
  meson.override_dependency('benchmark', dependency('', required: false))
endif
"""


class Lacking(Exception):
    """What this machine lacks for a bundle, in a sentence."""


def output_of(*command):
    """Returns what the command prints; None if it fails or does not exist."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return run.stdout if run.returncode == 0 else None


class Compiler:
    """Finds headers and libraries as the build would find them."""

    def __init__(self, command):
        self.command = command
        found = output_of("pkg-config", "--cflags", "eigen3", "fmt", "nlohmann_json", "CLI11")
        self.flags = (found or "").split() or ["-isystem", "/usr/include/eigen3"]

    def run(self, arguments, source=""):
        return subprocess.run([*self.command, *arguments], input=source, text=True,
                              capture_output=True, check=False)

    def included(self, headers):
        """Returns these headers and all files that they include; nothing if a header is missing."""
        source = "".join(f"#include <{header}>\n" for header in headers)
        run = self.run(["-std=c++20", "-M", *self.flags, "-x", "c++", "-"], source)
        words = run.stdout.replace("\\\n", " ").split()[1:]
        return [os.path.normpath(word) for word in words] if run.returncode == 0 else []

    def folder_of(self, header):
        """Returns the include folder that has the header."""
        for path in self.included([header]):
            if path.endswith("/" + header):
                return path[: -len(header) - 1]
        return None

    def macro(self, header, *names):
        """Returns the values of macros, joined to a version."""
        run = self.run(["-std=c++20", "-E", "-P", *self.flags, "-x", "c++", "-"],
                       f"#include <{header}>\nvalue: " + " . ".join(names) + "\n")
        match = re.search(r"value: (\d+) \. (\d+) \. (\d+)", run.stdout)
        return ".".join(match.groups()) if match else "0"

    def library(self, name):
        path = self.run([f"-print-file-name={name}"]).stdout.strip()
        return os.path.realpath(path) if os.path.isabs(path) else None


def require(value, what):
    if not value:
        raise Lacking(f"{what} was not found; run ./lockstep once, which installs what is missing")
    return value


def source_files(root):
    """Returns the paths in the tree that are packed, and the name of the tree."""
    git = ["git", "-C", root]
    in_git = os.path.exists(os.path.join(root, ".git"))
    commit = output_of(*git, "rev-parse", "--short=12", "HEAD") if in_git else None
    if commit:
        listed = output_of(*git, "ls-files", "-z", "-co", "--exclude-standard")
        changed = output_of(*git, "status", "--porcelain")
        files = {name for name in listed.split("\0") if name and
                 os.path.lexists(os.path.join(root, name))}
        return sorted(name for name in files if not name.startswith(MADE)), \
            commit.strip() + ("+changes" if changed else "")
    return sorted(walk(root)), read_commit(root)


def walk(root):
    for path, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in (".git", "__pycache__") and
                            not os.path.isdir(os.path.join(path, name, "meson-private")))
        if path == root:
            folders[:] = [name for name in folders if name + "/" not in MADE]
        for name in names:
            yield os.path.relpath(os.path.join(path, name), root)


def read_commit(root):
    try:
        with open(os.path.join(root, "bundled", "commit"), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def boost_includes(root, files):
    found = set()
    for name in files:
        if name.endswith(SOURCES):
            with open(os.path.join(root, name), encoding="utf-8", errors="replace") as text:
                found.update(re.findall(r"#include <(boost/[^>]+)>", text.read()))
    return sorted(found)


def files_below(folder, part):
    """Returns the files of one subfolder, or those that match a pattern."""
    if "*" in part:
        yield from sorted(os.path.relpath(path, folder)
                          for path in glob.glob(os.path.join(folder, part)))
    for path, folders, names in os.walk(os.path.join(folder, part)):
        folders.sort()
        for name in sorted(names):
            yield os.path.relpath(os.path.join(path, name), folder)


def packed_headers(compiler, root, files):
    """Returns {path below include/: file}, and Catch2's major version."""
    packed = {}
    catch2 = next((v for v in CATCH2 if compiler.folder_of(CATCH2[v][0])), None)
    require(catch2, "Catch2")
    for library, (header, parts) in {**HEADERS, "catch2": CATCH2[catch2]}.items():
        folder = require(compiler.folder_of(header), f"{library} ({header})")
        for part in parts:
            packed.update((name, os.path.join(folder, name)) for name in files_below(folder, part))
        if library == "boost":
            includes = require(compiler.included(boost_includes(root, files)), "Boost.Context")
            packed.update((os.path.relpath(path, folder), path) for path in includes
                          if path.startswith(folder + "/boost/"))
    return packed, catch2


def soname(library):
    match = re.search(r"\(SONAME\).*\[(.+)\]", output_of("readelf", "-d", library) or "")
    return match[1] if match else os.path.basename(library)


def packed_libraries(compiler, catch2):
    """Returns {name below lib/: file}, and the name of Google Benchmark's file."""
    names = ["libboost_context.a", "libcmark-gfm-extensions.a", "libcmark-gfm.a",
             "libmd.a"] + (["libCatch2Main.a", "libCatch2.a"] if catch2 == 3 else [])
    packed = {name: require(compiler.library(name), name) for name in names}
    benchmark = require(compiler.library("libbenchmark.a") or compiler.library("libbenchmark.so"),
                        "Google Benchmark")
    name = soname(benchmark) if ".so" in benchmark else "libbenchmark.a"
    return packed | {name: benchmark}, name


def meson_text(compiler, catch2, benchmark):
    version = compiler.macro(CATCH2[catch2][0],
                             *(f"CATCH_VERSION_{part}" for part in ("MAJOR", "MINOR", "PATCH")))
    return (MESON + MESON_CATCH2[catch2].format(version=version) +
            MESON_BENCHMARK.format(library=benchmark))


def bundled_files(root, files, compiler, commit):
    """Returns {path in the bundle: file or bytes} below bundled/."""
    if os.path.isdir(os.path.join(root, "bundled")):
        return {f"bundled/{name}": os.path.join(root, "bundled", name)
                for name in files_below(os.path.join(root, "bundled"), ".")}
    headers, catch2 = packed_headers(compiler, root, files)
    libraries, benchmark = packed_libraries(compiler, catch2)
    return ({f"bundled/include/{name}": file for name, file in headers.items()} |
            {f"bundled/lib/{name}": file for name, file in libraries.items()} |
            {"bundled/meson.build": meson_text(compiler, catch2, benchmark).encode(),
             "bundled/commit": f"{commit}\n".encode()})


def stripped(file, folder):
    target = os.path.join(folder, file.replace("/", "-"))
    subprocess.run(["strip", "-o", target, file], check=True)
    return target


def how_built(build, compiler):
    """Returns the content of built.json."""
    with open(os.path.join(build, "meson-info/intro-buildoptions.json"), encoding="utf-8") as file:
        options = {option["name"]: option["value"] for option in json.load(file)}
    found = dict(find_cuda.find(options["nvcc"]))
    arch = options["gpu_arch"]
    major, minor = find_cuda.cuda_version(found["nvcc"])
    return {"gpu_arch": found["arch"] if arch == "auto" else arch, "cuda_major": major,
            "nvcc": f"{major}.{minor}", "g++": compiler.run(["-dumpfullversion"]).stdout.strip()}


def built_files(build, compiler, folder):
    """Returns {path in the bundle: file or bytes} below built/; stripped copies are in `folder`."""
    packed = {f"built/{file}": stripped(os.path.join(build, file), folder)
              for file in verify_plan.TARGETS.values()}
    return packed | {"built/built.json": json.dumps(how_built(build, compiler)).encode()}


def read(content):
    if isinstance(content, bytes):
        return content
    with open(content, "rb") as file:
        return file.read()


TREE_MARK = ".lockstep-tree"   # marks folders that write_tree made


def write_tree(folder, packed):
    """Makes the folder contain exactly these files; a build in it sees only the changes.
    Refuses a folder that contains other files."""
    if os.path.isdir(folder) and os.listdir(folder) and \
            not os.path.isfile(os.path.join(folder, TREE_MARK)):
        raise SystemExit(f"lockstep: {folder} has files and was not made as a bundle's tree; "
                         f"name a new folder")
    packed = packed | {TREE_MARK: b""}
    for name in files_below(folder, ""):
        if name not in packed:
            os.remove(os.path.join(folder, name))
    for name, content in packed.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not isinstance(content, bytes) and not os.path.isfile(content):
            continue   # a link to no file
        if not os.path.isfile(path) or read(path) != read(content):
            with open(path, "wb") as file:
                file.write(read(content))
            if not isinstance(content, bytes):
                shutil.copymode(content, path)


def add(archive, name, content):
    """Adds a file, link or bytes, without its time and owner."""
    member = tarfile.TarInfo(name)
    member.mode = 0o644
    if isinstance(content, bytes):
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    elif os.path.islink(content) and "/bundled/" not in name:
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(content)
        archive.addfile(member)
    else:
        member.mode = 0o755 if os.access(content, os.X_OK) else 0o644
        member.size = os.path.getsize(content)
        with open(content, "rb") as file:
            archive.addfile(member, file)


def packed_files(root, compiler):
    """Returns {path in the bundle: file or bytes}, and the name of the tree."""
    files, commit = source_files(root)
    packed = {name: os.path.join(root, name) for name in files}
    packed |= bundled_files(root, files, compiler, commit)
    return {os.path.normpath(name): content for name, content in packed.items()}, commit


def write(path, root, packed, commit):
    with open(os.path.join(root, "meson.build"), encoding="utf-8") as file:
        version = re.search(r"^  version: '(.*)'", file.read(), re.M)[1]
    folder = f"lockstep-{version}-{commit.replace('+', '-')}"
    target = os.path.abspath(path)
    temporary = f"{target}.{os.getpid()}"
    try:
        with open(temporary, "wb") as raw, \
                gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as packer, \
                tarfile.open(fileobj=packer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name in sorted(packed):
                if os.path.abspath(os.path.join(root, name)) not in (target, temporary):
                    add(archive, f"{folder}/{name}", packed[name])
        os.replace(temporary, target)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    return folder, len(packed), os.path.getsize(target)


def bundle(path, root, compiler, build):
    """Writes the archive, with the binaries of a build if one is given. Prints the next command."""
    packed, commit = packed_files(root, compiler)
    with tempfile.TemporaryDirectory() as copies:
        if build:
            packed |= built_files(build, compiler, copies)
        folder, count, size = write(path, root, packed, commit)
    print(f"{path}: {count} files, {size / 1e6:.1f} MB; there, run: "
          f"tar xf {os.path.basename(path)} && cd {folder} && "
          f"{'gpu/verify.sh' if build else './lockstep test'}")


def main():
    words = sys.argv[1:]
    if words == ["--targets"]:
        print("\n".join(verify_plan.TARGETS))
        return
    option = words.pop(0) if words and words[0] in ("--tree", "--built") else None
    build = words.pop(0) if option == "--built" and words else None
    if len(words) < 2:
        sys.exit(__doc__.split("\n\n")[1])
    root, path = os.path.realpath(words[0]), words[1]
    compiler = Compiler(words[2:] or shlex.split(os.environ.get("CXX", "g++")))
    try:
        if option == "--tree":
            write_tree(path, packed_files(root, compiler)[0])
        else:
            bundle(path, root, compiler, build)
    except (Lacking, find_cuda.Missing) as lacking:
        print(f"lockstep: {lacking}", file=sys.stderr)
        sys.exit(3)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"lockstep: the bundle cannot be written: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
