#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/text/json.hpp"

namespace lockstep {

/// A student's answer about a program's mistake, in three parts, each read by itself. A
/// part that is null is open: nothing. UsageError says what is expected where, for any
/// text at all.
class FoundMistake {
  public:
    /// Reads a JSON document, an object with one entry a program; `name` is the
    /// document's:
    ///
    ///     {"ring": {"ranks": [0, 2], "line": 17, "cause": "wrong_peer"}}
    FoundMistake(const std::string& text, const std::string& name,
                 const std::string& program);

    /// On which of `count` ranks it goes wrong; "all" stands for all of them.
    std::optional<std::set<int>> ranks(int count) const;
    /// The number of the line that is wrong.
    std::optional<std::int64_t> line() const;
    /// One of these words.
    std::optional<std::string> cause(const std::vector<std::string>& causes) const;

  private:
    /// False if the part is still open.
    bool has(const char* part) const;
    void expect(bool holds, const std::string& expected) const;

    std::string where_;
    Json entry_;
};

}  // namespace lockstep
