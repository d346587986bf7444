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

/// Returns what any program needs to start: the system's libraries and the loader's
/// index.
std::vector<std::filesystem::path> system_libraries();

/// Returns what a compiler needs besides: the system's programs and headers, but neither
/// /usr/share nor /usr/local/share, and those of its own folder if that is not the
/// system's, such as /opt/gcc.
std::vector<std::filesystem::path> toolchain_files(const std::string& compiler);

}  // namespace lockstep::lessons
