#!/usr/bin/env python3
"""Makes the kit, with which students' programs are built.

usage: make_kit.py ROOT VERSION KIT STAMP DEPENDENCIES LEFT_OUT MORE LIBRARY…

    include/      headers of the library, as <lockstep/…>, except those of LEFT_OUT
    more/SLUG/    additional headers for the students of one assignment
    lib/          the libraries
    pkgconfig/    lockstep-course.pc, for a student's own build, and lockstep-course-SLUG.pc
    assignments/  each assignment's handout, and what the grader adds to it
    unpack.py     takes a student's files out of a .zip
    sources       the path of Lockstep's own sources

LEFT_OUT has the stems of sources, separated by commas, whose headers students do not get. MORE
("SLUG=STEM,STEM …") has the stems whose headers one assignment's students get anyway; they also get
libmore_NAME.a. The kit can be moved. In its sources and pages, headers have the names of an
installed copy: <lockstep/…>. DEPENDENCIES lists all files that were read, for Ninja.
"""

import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src"))
import public_headers  # pylint: disable=wrong-import-position

FOLDERS = ["chart", "comm", "core", "cost", "course", "device", "device/operations", "nn", "os",
           "pipeline", "report", "run", "text", "trial"]
CONFIG = """\
prefix=${pcfiledir}/..

Name: lockstep-course
Description: A laboratory for distributed training, without what its assignments ask for
Version: {version}
Requires: fmt
Cflags: -I${prefix}/include
Libs: -L${prefix}/lib -llockstep_course -lboost_context -pthread
"""
MORE_CONFIG = """\
prefix=${pcfiledir}/..

Name: lockstep-course-{slug}
Description: What students of the assignment {slug} have besides
Version: {version}
Requires: lockstep-course
Cflags: -I${prefix}/more/{slug}/include
Libs: -L${prefix}/lib -lmore_{name}
"""


# Files that were copied, and folders in which new files may appear.
looked_at = [os.path.abspath(public_headers.__file__)]


def copy(here, there):
    shutil.copy(here, there)
    looked_at.append(here)
    return there


def page_outside_of_tree(text):
    """Returns a page with the header names of a student's copy, without a translation's mark."""
    return re.sub(r"^<!-- of \w+ -->\n", "", text.replace("`src/", "`lockstep/"), flags=re.M)


def copy_of_handout(here, there):
    """Copies a file; in C++ files and pages, headers get the names of an installed copy."""
    if not here.endswith((".hpp", ".cpp", ".md")):
        return copy(here, there)
    with open(here, encoding="utf-8") as file:
        text = file.read()
    changed = page_outside_of_tree(text) if here.endswith(".md") \
        else public_headers.rewritten(text)
    with open(there, "w", encoding="utf-8") as file:
        file.write(changed)
    looked_at.append(here)
    return there


def copy_headers(root, kit, left_out):
    headers = {"sim/cluster.hpp"}
    for folder in FOLDERS:
        here = os.path.join(root, "src", folder)
        looked_at.append(here)
        headers.update(f"src/{folder}/{name}" for name in os.listdir(here)
                       if name.endswith(".hpp") and f"{folder}/{name[:-4]}" not in left_out)
    public_headers.put(root, os.path.join(kit, "include"), headers)
    looked_at.extend(os.path.join(root, header) for header in sorted(headers))
    return headers


def copy_more(root, kit, more, headers):
    """Copies each assignment's own headers; `headers` are those that all students have."""
    for slug, stems in more.items():
        own = {f"src/{stem}.hpp" for stem in stems}
        public_headers.put(root, os.path.join(kit, "more", slug, "include"), own, headers)
        looked_at.extend(os.path.join(root, header) for header in sorted(own))


def write_config(kit, name, text, values):
    for key, value in values.items():
        text = text.replace("{" + key + "}", value)
    with open(os.path.join(kit, "pkgconfig", name + ".pc"), "w", encoding="utf-8") as file:
        file.write(text)


def copy_assignments(root, kit):
    """Copies only what a student or the grader needs, never the reference or its mistakes."""
    here = os.path.join(root, "lessons/assignments")
    for name in sorted(os.listdir(here)):
        if not os.path.isdir(os.path.join(here, name, "handout")):
            continue
        there = os.path.join(kit, "assignments", name.replace("_", "-"))
        for part in ["handout", "grading"]:
            looked_at.append(os.path.join(here, name, part))
            shutil.copytree(os.path.join(here, name, part), os.path.join(there, part),
                            copy_function=copy_of_handout,
                            ignore=shutil.ignore_patterns("*.[ch]pp")
                            if part == "grading" else None)


def main():
    root, version, kit, stamp, dependencies, left_out, more, *libraries = sys.argv[1:]
    more = {slug: stems.split(",")
            for slug, stems in (each.split("=") for each in more.split())}
    fresh = kit + ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    headers = copy_headers(root, fresh, set(left_out.split(",")))
    copy_more(root, fresh, more, headers)
    copy_assignments(root, fresh)
    copy(os.path.join(root, "lessons/grader/unpack.py"), os.path.join(fresh, "unpack.py"))
    os.makedirs(os.path.join(fresh, "lib"))
    for library in libraries:
        copy(library, os.path.join(fresh, "lib"))
    os.makedirs(os.path.join(fresh, "pkgconfig"))
    write_config(fresh, "lockstep-course", CONFIG, {"version": version})
    for slug in more:
        write_config(fresh, "lockstep-course-" + slug, MORE_CONFIG,
                     {"version": version, "slug": slug, "name": slug.replace("-", "_")})
    with open(os.path.join(fresh, "sources"), "w", encoding="utf-8") as file:
        file.write(root)
    shutil.rmtree(kit, ignore_errors=True)
    os.rename(fresh, kit)
    with open(dependencies, "w", encoding="utf-8") as file:
        names = [name.replace(" ", "\\ ") for name in looked_at]
        file.write(f"{stamp}: " + " ".join(names) + "\n")
    with open(stamp, "w", encoding="utf-8"):
        pass


if __name__ == "__main__":
    main()
