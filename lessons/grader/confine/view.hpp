#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::lessons {

/// The files that a confined program sees. Other files do not exist for the program, as
/// far as the system can hide them (Fence, Room).
struct View {
    std::vector<std::filesystem::path> reads;   ///< files and folders, to read and to run
    std::vector<std::filesystem::path> writes;  ///< folders, to write, to read and to run
    /// Files and folders in those above that it does not see; without links.
    std::vector<std::filesystem::path> hides = {};
};

/// Returns whether a path is below one of these folders.
bool is_below(const std::filesystem::path& path,
              const std::vector<std::filesystem::path>& folders);

/// Returns what any program needs to start: the system's libraries and the loader's
/// index.
std::vector<std::filesystem::path> system_libraries();

/// Returns what an installed Lockstep has in the system's folders: its libraries, headers
/// and program. Assignments ask for parts of them, so no student's program may call them.
const std::vector<std::filesystem::path>& installed_lockstep();

/// Returns what a compiler needs in addition: the programs, headers and libraries in /usr
/// and /usr/local, and in the compiler's own folder if that is elsewhere, such as
/// /opt/gcc. Other folders, such as share and src, are not included.
std::vector<std::filesystem::path> toolchain_files(const std::string& compiler);

}  // namespace lockstep::lessons
