#!/usr/bin/env python3
"""Makes a Debian package of everything that a build folder would install.

usage: make_package.py ROOT BUILD FOLDER

Writes FOLDER/lockstep_VERSION_ARCHITECTURE.deb and prints its path. dpkg-shlibdeps finds the
program's dependencies. The packages for building students' programs are only suggested, so that
the lessons need only a small download.
"""

import datetime
import email.utils
import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap

MESON = shlex.split(os.environ.get("MESON", "meson"))
# The package's maintainer; Debian's tools read the same variables.
MAINTAINER = (f"{os.environ.get('DEBFULLNAME', 'The Lockstep authors')} "
              f"<{os.environ.get('DEBEMAIL', 'lockstep@example.org')}>")
# Among them are the command pkg-config, and a compiler whose command is called g++.
SUGGESTED = ["g++", "libfmt-dev", "libboost-context-dev", "libmd-dev", "libeigen3-dev",
             "nlohmann-json3-dev", "meson", "pkg-config"]
CONTROL = """\
Package: lockstep
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: {depends}
Suggests: {suggests}
Section: science
Priority: optional
Description: laboratory for understanding distributed training
 Lockstep shows how a model is trained on many devices. Its lessons run on
 virtual devices inside one process: the numbers are real, the clock is
 virtual, messages and memory are counted, and mistakes are explained.
 .
 The package contains the program, its manual, a library for your own
 programs, and the parts from which students' assignments are built. The last
 two need a compiler and the headers that the package suggests.
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Lockstep

Files: *
Copyright: {holder}
License: Expat
{text}
"""
# The GPU module looks for CUDA's libraries in the folders in which the build found them.
OVERRIDES = """\
# NVIDIA's libraries lie outside of the system's folders.
lockstep: custom-library-search-path
"""
LONGEST_LINE = 78
PROGRAM = re.compile("/usr/bin/|/lockstep-grader$")
SHARED = re.compile(r"/(lib\w+)\.so(?:\.(\d+)[.\d]*)?$")


def output_of(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def write_compressed(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.encode())


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def files_below(folder):
    """Yields the files in and below the folder, but no symbolic links."""
    for path, _, names in os.walk(folder):
        for name in names:
            if not os.path.islink(os.path.join(path, name)):
                yield os.path.join(path, name)


def install(build, stage):
    """Installs below STAGE/usr, even if the build folder has another prefix."""
    subprocess.run([*MESON, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", stage],
                   check=True, stdout=sys.stderr)
    options = json.loads(output_of(*MESON, "introspect", "--buildoptions", build))
    [prefix] = [option["value"] for option in options if option["name"] == "prefix"]
    if prefix == "/usr":
        return
    installed = os.path.join(stage, prefix.lstrip("/"))
    moved = tempfile.mkdtemp(dir=os.path.dirname(stage))
    os.rename(installed, os.path.join(moved, "usr"))
    shutil.rmtree(stage)
    os.rename(moved, stage)
    os.chmod(stage, 0o755)
    for path in files_below(stage):
        if path.endswith("/lockstep.pc"):
            write(path, re.sub(r"(?m)^prefix=.*", "prefix=/usr", read(path)))


def strip(stage):
    """Strips debug information and sets file modes as in a package of Debian."""
    for path, _, _ in os.walk(stage):
        os.chmod(path, 0o755)
    for path in files_below(stage):
        is_program = bool(PROGRAM.search(path))
        hides_solutions = path.endswith("/lockstep-grader")
        os.chmod(path, 0o711 if hides_solutions else 0o755 if is_program else 0o644)
        if path.endswith(".a"):
            subprocess.run(["strip", "--strip-debug", "--enable-deterministic-archives",
                            "--remove-section=.comment", path], check=True)
        elif is_program or SHARED.search(path):
            subprocess.run(["strip", "--remove-section=.comment", "--strip-unneeded", path],
                           check=True)


def dependencies(stage, scratch):
    """Returns the packages that contain the shared libraries that the programs need."""
    write(os.path.join(scratch, "debian/control"),
          "Source: lockstep\n\nPackage: lockstep\nArchitecture: any\n")
    os.makedirs(os.path.join(stage, "DEBIAN"))
    programs = [path for path in files_below(stage) if PROGRAM.search(path)]
    found = output_of("dpkg-shlibdeps", "-O", *programs, cwd=scratch)
    return found.strip().removeprefix("shlibs:Depends=")


def released(root):
    """Returns SOURCE_DATE_EPOCH, for reproducible builds, or else the time of the last change of
    CHANGELOG.md."""
    said = os.environ.get("SOURCE_DATE_EPOCH")
    return int(said) if said else int(os.path.getmtime(os.path.join(root, "CHANGELOG.md")))


def changelog(root):
    """Returns CHANGELOG.md in the format of Debian's tools."""
    text = ""
    for version, changes in re.findall(r"^## (\d\S*)\n(.*?)(?=^## |\Z)",
                                       read(root, "CHANGELOG.md"), re.S | re.M):
        text += f"lockstep ({version}) unstable; urgency=medium\n\n"
        for change in re.findall(r"^- (.*)$", changes, re.M):
            text += textwrap.fill(change.replace("`", ""), LONGEST_LINE, initial_indent="  * ",
                                  subsequent_indent="    ", break_long_words=False) + "\n"
        when = datetime.datetime.fromtimestamp(released(root), datetime.timezone.utc)
        text += f"\n -- {MAINTAINER}  {email.utils.format_datetime(when)}\n\n"
    return text


def copyright_text(root):
    lines = read(root, "LICENSE").splitlines()
    [holder] = [line.removeprefix("Copyright (c) ") for line in lines
                if line.startswith("Copyright")]
    words = lines[lines.index("Copyright (c) " + holder) + 2:]
    return COPYRIGHT.format(holder=holder, text="\n".join(f" {line}" if line else " ."
                                                          for line in words))


def add_documents(root, stage):
    documents = os.path.join(stage, "usr/share/doc/lockstep")
    write(os.path.join(documents, "copyright"), copyright_text(root))
    write_compressed(os.path.join(documents, "changelog.gz"), changelog(root))
    page = os.path.join(stage, "usr/share/man/man1/lockstep.1")
    write_compressed(page + ".gz", read(page))
    os.remove(page)
    if any(path.endswith("/liblockstep_gpu.so") for path in files_below(stage)):
        write(os.path.join(stage, "usr/share/lintian/overrides/lockstep"), OVERRIDES)


def add_shared_libraries(stage, version):
    """Tells Debian which package has the shared libraries, and to update the loader's cache."""
    for path in files_below(stage):
        name, number = SHARED.search(path).groups() if SHARED.search(path) else ("", None)
        if number:
            write(os.path.join(stage, "DEBIAN/shlibs"),
                  f"{name} {number} lockstep (>= {version})\n")
            write(os.path.join(stage, "DEBIAN/triggers"), "activate-noawait ldconfig\n")


def add_control(stage, version, depends):
    architecture = output_of("dpkg", "--print-architecture").strip()
    paths = sorted(path for path in files_below(stage) if "/DEBIAN/" not in path)
    write(os.path.join(stage, "DEBIAN/control"), CONTROL.format(
        version=version, architecture=architecture, maintainer=MAINTAINER, depends=depends,
        suggests=", ".join(SUGGESTED),
        size=sum(os.path.getsize(path) + 1023 for path in paths) // 1024))
    sums = ""
    for path in paths:
        with open(path, "rb") as file:
            sums += f"{hashlib.md5(file.read()).hexdigest()}  {os.path.relpath(path, stage)}\n"
    write(os.path.join(stage, "DEBIAN/md5sums"), sums)
    return architecture


def main():
    root, build, folder = sys.argv[1:]
    os.umask(0o022)
    project = json.loads(output_of(*MESON, "introspect", "--projectinfo", build))
    with tempfile.TemporaryDirectory() as scratch:
        stage = os.path.join(scratch, "stage")
        install(build, stage)
        strip(stage)
        depends = dependencies(stage, scratch)
        add_documents(root, stage)
        add_shared_libraries(stage, project["version"])
        architecture = add_control(stage, project["version"], depends)
        package = os.path.join(folder, f"lockstep_{project['version']}_{architecture}.deb")
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", stage, package], check=True,
                       stdout=sys.stderr)
    print(package)


if __name__ == "__main__":
    main()
