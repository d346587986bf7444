#pragma once

#include <stdexcept>
#include <string>

#include "src/core/source_line.hpp"

namespace lockstep {

/// The caller's mistake: a shape, rank, size or option that cannot be. The sentence says
/// what was wrong and what was expected; `at` is the caller's line where one is known.
class UsageError : public std::runtime_error {
  public:
    explicit UsageError(const std::string& sentence) : std::runtime_error(sentence) {}
    UsageError(const std::string& sentence, SourceLine at)
        : std::runtime_error(at.text() + ": " + sentence) {}
};

/// This machine, or this build, lacks what was asked for. The sentence says what is
/// missing and what would help.
class MissingError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Throws UsageError with `sentence()` unless `condition` holds; in every build. The
/// sentence is made only when it is needed:
///
///     require(k == b.shape()[0], at, [&] { return fmt::format("matmul: …", …); });
template <typename Sentence>
void require(bool condition, SourceLine at, Sentence&& sentence) {
    if (!condition) [[unlikely]]
        throw UsageError(sentence(), at);
}

template <typename Sentence>
void require(bool condition, Sentence&& sentence) {
    if (!condition) [[unlikely]]
        throw UsageError(sentence());
}

}  // namespace lockstep
