#!/usr/bin/env python3
"""Builds files into the program without a compiler: writes a block of data, and assembler lines
that include it.

usage: embed_files.py OUTPUT.bin OUTPUT.S ROOT FILE…

For each file the data has a line with its path below ROOT, a line with its size in bytes, and its
content. The program finds the data between lockstep_files and lockstep_files_end.
"""

import os
import sys


def main():
    data, assembler, root, *files = sys.argv[1:]
    with open(data, "wb") as output:
        for path in files:
            with open(path, "rb") as file:
                text = file.read()
            name = os.path.relpath(path, root).replace(os.sep, "/")
            output.write(f"{name}\n{len(text)}\n".encode() + text)
    with open(assembler, "w", encoding="utf-8") as output:
        output.write(f"""\
    .section .rodata
    .global lockstep_files
    .global lockstep_files_end
lockstep_files:
    .incbin "{data}"
lockstep_files_end:
    .byte 0
    .section .note.GNU-stack,"",%progbits
""")


if __name__ == "__main__":
    main()
