#!/usr/bin/env python3
"""Takes a student's files out of a .zip, wherever in it they lie.

usage: unpack.py FILE.zip FOLDER NAME…

Of the folders in the archive it is the one that has most of the files that are asked for; the
outermost, if several have as many. Nothing else is taken out: no links, no other names, no file
of more than a megabyte. One sentence on standard error says what is wrong with the archive, with
exit status 1; any other end is the machine's trouble.
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
    """For each folder, the entries that are asked for, by name."""
    folders = {}
    for entry in archive.infolist():
        folder, name = posixpath.split(entry.filename.replace("\\", "/"))
        if name in names and not folder.startswith("__MACOSX"):
            folders.setdefault(folder, {})[name] = entry
    return folders


def contents(path, names):
    """The names and bytes of the files that are asked for."""
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
    except Exception as error:  # pylint: disable=broad-except  # an archive can hold anything
        sys.exit((str(error).splitlines() or [type(error).__name__])[0])
    for name, data in files:
        with open(os.path.join(there, name), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    main()
