#pragma once

#include <string>

namespace lockstep {

/// A place in the source: the caller's line. Public operations take a SourceLine as their
/// last, defaulted argument, so that every message can name the caller's line:
///
///     Work all_reduce(const Tensor& buffer, SourceLine at = SourceLine::here());
///
/// The builtins replace <source_location>, which clang 14 does not have.
struct SourceLine {
    const char* file = "";
    int line = 0;

    static constexpr SourceLine here(const char* file = __builtin_FILE(),
                                     int line = __builtin_LINE()) {
        return {file, line};
    }

    /// Returns a line that another process named. The file's name is kept until the
    /// program ends.
    static SourceLine of(const std::string& file, int line);

    bool operator==(const SourceLine& other) const;

    /// "src/parallel/data_parallel.cpp:31", relative to the project's root; without the
    /// line number if that is 0.
    std::string text() const;
};

}  // namespace lockstep
