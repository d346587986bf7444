#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lessons/grader/confine/confined_process.hpp"
#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::lessons {

/// Returns the compiler for students' programs: the environment's CXX, or else the first
/// of g++, c++ and clang++ on the PATH. Throws MissingError if there is none.
std::vector<std::string> student_compiler();

/// The sources to compile, and how to compile them.
struct BuildPlan {
    std::vector<std::string> compiler{
        "c++"};  ///< the driver, then words before all other arguments
    /// Contains the sources; nothing is written outside of it. Absolute, without links.
    /// If this process is root, the folder belongs to `user` during the build
    /// (hand_over(), take_back()).
    std::filesystem::path folder = {};
    std::vector<std::string> sources = {};  ///< "ring.cpp": relative to the folder
    std::vector<std::string> flags = {};    ///< for each source; paths are absolute
    std::vector<std::string> link = {};     ///< after the objects: libraries, flags
    std::string program = "program";        ///< the program to make, in the folder
    /// The folders named in `flags` and `link`, with symbolic links resolved. Apart from
    /// `folder`, the compiler sees only these, the toolchain's and the system's folders.
    std::vector<std::filesystem::path> reads = {};
    unsigned user = kNobody;     ///< runs the compiler, if ClaimedUser::works()
    double cpu_seconds = 120;    ///< processor time of each process
    double wall_seconds = 1200;  ///< for the whole build; only a busy machine needs them
    std::int64_t memory_bytes = 1536LL << 20;  ///< of each process
    int at_once = 2;                           ///< sources to compile at the same time
};

/// Compiles each source separately in the folder, then links. Compiler and linker are
/// confined, because a source can control what they do. Returns nothing on success, even
/// if there are warnings; otherwise returns the first mistake in the first wrong source.
/// If a library's template failed to compile, the mistake has the student's own line.
/// Throws std::system_error if the compiler cannot be started.
std::optional<BuildFailure> build_program(const BuildPlan& plan);

/// Returns the first error in the output of GCC, clang or their linker, which ran in
/// `folder`. An error outside the folder gets the innermost place in the folder that led
/// to the error, if the output names such a place.
std::optional<BuildFailure> first_error(const std::string& output,
                                        const std::filesystem::path& folder);

}  // namespace lockstep::lessons
