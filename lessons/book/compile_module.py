"""Compiles sources for browsers: one JavaScript file that contains the WebAssembly module.

usage: compile_module.py OUTPUT DEPFILE SOURCE ROOT LIBRARIES EM++…

LIBRARIES is the folder with the headers of fmt and nlohmann. It cannot be searched directly,
because it also has the system's headers, which are not emscripten's. em++ may be unable to write
into its own folder, so its temporary files are written into the output's folder.
"""

import os
import subprocess
import sys
import tempfile

OPTIONS = [
    "-std=c++20", "-O2", "-fexceptions", "-DFMT_HEADER_ONLY",
    "-sMODULARIZE=1", "-sEXPORT_NAME=LockstepModule",
    "-sSINGLE_FILE=1",  # a page that was opened as a file cannot load other files
    "-sEXPORTED_FUNCTIONS=_lockstep_call,_malloc,_free", "-sEXPORTED_RUNTIME_METHODS=ccall",
    "-sALLOW_MEMORY_GROWTH=1", "-sENVIRONMENT=web,node", "-sFILESYSTEM=0",
]
# Debian's emscripten needs acorn from here; a node that is not Debian's does not search here.
NODE_MODULES = "/usr/share/nodejs"


def main():
    output, depfile, source, root, libraries, *compiler = sys.argv[1:]
    target, output, depfile = output, os.path.abspath(output), os.path.abspath(depfile)
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory(dir=os.path.dirname(output), prefix="module-") as folder:
        headers = os.path.join(folder, "headers")
        os.mkdir(headers)
        for name in ("fmt", "nlohmann"):
            os.symlink(os.path.join(libraries, name), os.path.join(headers, name))
        modules = [os.environ.get("NODE_PATH"), NODE_MODULES]
        environment = {**os.environ, "NODE_PATH": os.pathsep.join(filter(None, modules)),
                       "TMPDIR": folder, "EM_TEMP_DIR": folder}
        made = os.path.join(folder, os.path.basename(output))
        subprocess.run(
            [*compiler, *OPTIONS, "-include", os.path.join(here, "old_libcxx.hpp"),
             "-I" + root, "-isystem", headers, source, "-o", made,
             "-MD", "-MF", depfile], check=True, env=environment)
        os.replace(made, output)
    with open(depfile, encoding="utf-8") as file:
        needed = file.read().split(":", 1)[1].replace(headers + os.sep, libraries + os.sep)
    with open(depfile, "w", encoding="utf-8") as file:
        file.write(target + ":" + needed)


if __name__ == "__main__":
    main()
