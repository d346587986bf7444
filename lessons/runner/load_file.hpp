#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace lockstep::lessons {

inline constexpr std::size_t kLargestInputBytes = std::size_t{64} << 20;

/// All bytes of a file that a learner brings. Throws std::system_error with the path
/// where it cannot be read, UsageError where it is larger than 64 MiB; pipes and devices
/// end there too.
std::string load_file(const std::filesystem::path& path);

}  // namespace lockstep::lessons
