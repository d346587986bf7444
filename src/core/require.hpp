#pragma once

#include <concepts>
#include <stdexcept>
#include <string>

#include <fmt/core.h>

#include "src/core/source_line.hpp"

namespace lockstep {

/// The caller's mistake: an impossible shape, rank, size or option. The sentence says
/// what was wrong and what was expected; `at` is the caller's line if it is known.
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

/// Throws UsageError if `condition` is false, in every build. The sentence is formatted
/// only if it is needed:
///
///     require(k == n, at, "matmul: a has {} columns, but b has {} rows", k, n);
///
/// The arguments are always evaluated, so they should be values that the caller already
/// has. If a sentence needs computation, or makes sense only when the condition has
/// failed, pass a function that returns the sentence.
template <typename... Arguments>
void require(bool condition, SourceLine at, fmt::format_string<Arguments...> sentence,
             Arguments&&... arguments) {
    if (!condition) [[unlikely]]
        throw UsageError(fmt::vformat(sentence, fmt::make_format_args(arguments...)), at);
}

template <typename... Arguments>
void require(bool condition, fmt::format_string<Arguments...> sentence,
             Arguments&&... arguments) {
    if (!condition) [[unlikely]]
        throw UsageError(fmt::vformat(sentence, fmt::make_format_args(arguments...)));
}

template <std::invocable Sentence>
void require(bool condition, SourceLine at, Sentence&& sentence) {
    if (!condition) [[unlikely]]
        throw UsageError(sentence(), at);
}

template <std::invocable Sentence>
void require(bool condition, Sentence&& sentence) {
    if (!condition) [[unlikely]]
        throw UsageError(sentence());
}

}  // namespace lockstep
