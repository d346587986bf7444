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
    /// Folders that flags and link name, without links. Apart from these the compiler
    /// sees only its own folders and the system's.
    std::vector<std::filesystem::path> reads = {};
    unsigned user = kNobody;    ///< the compiler's, if this process is root
    double wall_seconds = 120;  ///< for the whole build
    std::int64_t memory_bytes = 1536LL << 20;  ///< of each process
    int at_once = 2;                           ///< sources compiled at the same time
};

/// Compiles each source separately in the folder, then links. Both are confined, because
/// a source can control what the compiler does. Returns nothing on success, with or
/// without warnings. Otherwise returns the first mistake in the first wrong source. If a
/// library's template failed to compile, the mistake has the student's own line. Throws
/// std::system_error if the compiler cannot be started.
std::optional<BuildFailure> build_program(const BuildPlan& plan);

/// Returns the first error in the output of GCC, clang or their linker, which ran in
/// `folder`. An error outside the folder gets the innermost place in the folder that led
/// to the error, if the output names such a place.
std::optional<BuildFailure> first_error(const std::string& output,
                                        const std::filesystem::path& folder);

}  // namespace lockstep::lessons
