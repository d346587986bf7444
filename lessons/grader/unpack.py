#!/usr/bin/env python3
"""Unpacks a student's files from a .zip, from any folder in it.

usage: unpack.py FILE.zip FOLDER NAME…

The files come from the folder of the archive that has most of the requested files; if several have
the same number, from the outermost one. Nothing else is unpacked: no links, no other names, no file
of more than a megabyte. If the archive is wrong, one sentence on standard error says
why, and the exit status is 1. Any exit status except 0 and 1 is a problem of the machine.
"""

import io
import os
import posixpath
import resource
import stat
import sys
import zipfile

MOST_ARCHIVE_BYTES = 8 << 20
MOST_FILE_BYTES = 1 << 20
MOST_MEMORY_BYTES = 1 << 30


def folders_of(archive, names):
    """Returns for each folder the requested entries, by name."""
    folders = {}
    for entry in archive.infolist():
        folder, name = posixpath.split(entry.filename.replace("\\", "/"))
        if name in names and not folder.startswith("__MACOSX"):
            folders.setdefault(folder, {})[name] = entry
    return folders


def contents(path, names):
    """Yields the names and bytes of the requested files."""
    with open(path, "rb") as file:
        data = file.read(MOST_ARCHIVE_BYTES + 1)
    if len(data) > MOST_ARCHIVE_BYTES:
        raise ValueError(f"it has more than {MOST_ARCHIVE_BYTES >> 20} MiB")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        folders = folders_of(archive, names)
        if not folders:
            raise ValueError(f"none of {', '.join(names)} is in it")
        chosen = min(folders, key=lambda folder: (-len(folders[folder]), folder.count("/"),
                                                  folder))
        for name, entry in folders[chosen].items():
            yield name, content(archive, entry, name)


def content(archive, entry, name):
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise ValueError(f"{name} is a link")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is compressed in a way that is not read here")
    with archive.open(entry) as file:
        data = file.read(MOST_FILE_BYTES + 1)
    if len(data) > MOST_FILE_BYTES:
        raise ValueError(f"{name} has more than {MOST_FILE_BYTES >> 20} MiB")
    return data


def main():
    path, there, *names = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    try:
        files = list(contents(path, names))
    except zipfile.BadZipFile:
        sys.exit("it is no zip file, or a damaged one")
    except OSError:
        raise
    except MemoryError:
        sys.exit(f"to read it takes more than {MOST_MEMORY_BYTES >> 30} GiB of memory")
    except Exception as error:  # pylint: disable=broad-except  # an archive can contain anything
        sys.exit((str(error).splitlines() or [type(error).__name__])[0])
    for name, data in files:
        with open(os.path.join(there, name), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    main()
