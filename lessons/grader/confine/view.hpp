#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::lessons {

/// The files that a confined program has: what is not in it, and not below it, is not
/// there, as far as the system can keep it away (Fence, Room).
struct View {
    std::vector<std::filesystem::path> reads;   ///< files and folders; can be run, too
    std::vector<std::filesystem::path> writes;  ///< folders; can be read, too
};

/// Returns whether a path lies below one of these.
bool is_below(const std::filesystem::path& path,
              const std::vector<std::filesystem::path>& folders);

/// Returns what any program needs to start: the system's libraries and the loader's
/// index.
std::vector<std::filesystem::path> system_libraries();

/// Returns what a compiler needs besides: programs, headers and libraries of the system,
/// in /usr and /usr/local, and those of its own folder if that is neither, such as
/// /opt/gcc. Not what else is there, such as share and src.
std::vector<std::filesystem::path> toolchain_files(const std::string& compiler);

}  // namespace lockstep::lessons
