#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

/// A student's answer about a program's mistake.
struct FoundMistake {
    std::set<int> ranks;    ///< on which it goes wrong
    std::int64_t line = 0;  ///< that is wrong
    std::string cause;      ///< a word

    bool operator==(const FoundMistake&) const = default;
};

/// Reads it from a JSON document, an object with one entry a program:
///
///     {"ring": {"ranks": [0, 2], "line": 17, "cause": "wrong_peer"}}
///
/// "ranks" may be "all". Nothing if one of the three is null. UsageError says what is
/// expected where, for any text at all; `name` is the document's.
std::optional<FoundMistake> read_found_mistake(const std::string& text,
                                               const std::string& name,
                                               const std::string& program, int ranks,
                                               const std::vector<std::string>& causes);

}  // namespace lockstep
