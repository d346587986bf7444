#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lessons/grader/confine/confined_process.hpp"
#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::lessons {

/// Returns the compiler of students' programs: the one in the environment's CXX, else the
/// first of g++, c++ and clang++ that is on the PATH. Throws MissingError if there is
/// none.
std::vector<std::string> student_compiler();

/// The sources to compile, and how to compile them.
struct BuildPlan {
    std::vector<std::string> compiler{
        "c++"};  ///< the driver, and words before all others
    /// Has the sources; nothing else is written to. Absolute, without links. If this
    /// process is root, the folder belongs to `user` meanwhile (hand_over(),
    /// take_back()).
    std::filesystem::path folder = {};
    std::vector<std::string> sources = {};  ///< "ring.cpp": relative to the folder
    std::vector<std::string> flags = {};    ///< for each source; paths are absolute
    std::vector<std::string> link = {};     ///< after the objects: libraries, flags
    std::string program = "program";        ///< to make, in the folder
    /// Folders that flags and link name, without links; the compiler sees nothing else
    /// but its own and the system's.
    std::vector<std::filesystem::path> reads = {};
    unsigned user = kNobody;                   ///< of the compiler, if root starts it
    double wall_seconds = 120;                 ///< for all of it
    std::int64_t memory_bytes = 1536LL << 20;  ///< of each process
    int at_once = 2;                           ///< sources that are compiled at a time
};

/// Compiles each source by itself in the folder, then links; confined all the while,
/// since what the compiler does is up to the source. Nothing if that succeeds, with
/// warnings or without; else the first mistake of the first source that has one, at the
/// student's own line where a library's template failed. Throws std::system_error if the
/// compiler cannot be started.
std::optional<BuildFailure> build_program(const BuildPlan& plan);

/// The first error in what GCC or clang printed, or the linker that they called, run in a
/// folder. If it stands in a file that is not in the folder, file and line are the
/// innermost ones there that led to it, if any is named.
std::optional<BuildFailure> first_error(const std::string& output,
                                        const std::filesystem::path& folder);

}  // namespace lockstep::lessons
