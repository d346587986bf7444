#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep::lessons {

/// What the reference solution of an assignment measures, by name: bytes, messages,
/// virtual time. Made by `lockstep assignment targets`, never typed.
struct Targets {
    std::string slug;
    /// Sizes, world sizes and values of the grader's cases are drawn with it.
    std::uint64_t seed = 0;
    std::map<std::string, std::int64_t> values;

    /// As a JSON document, and back. UsageError says what is wrong with the text, which
    /// is called `name`.
    std::string json() const;
    static Targets read(const std::string& text, const std::string& name);
};

}  // namespace lockstep::lessons
