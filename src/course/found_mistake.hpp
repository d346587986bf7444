#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/text/json.hpp"

namespace lockstep {

/// A student's answer about a program's mistake, in three parts; each is read separately.
/// A part that is null in the document is not answered yet, and is read as nullopt. For
/// wrong text, throws UsageError, which says what is expected, and where.
class FoundMistake {
  public:
    /// Reads a JSON document, an object with one entry for each program. `name` is the
    /// document's name. Example:
    ///
    ///     {"ring": {"ranks": [0, 2], "line": 17, "cause": "wrong_peer"}}
    FoundMistake(const std::string& text, const std::string& name,
                 const std::string& program);

    /// The ranks on which the program goes wrong; "all" stands for all `count` ranks.
    std::optional<std::set<int>> ranks(int count) const;
    /// The number of the wrong line.
    std::optional<std::int64_t> line() const;
    /// One of `causes`.
    std::optional<std::string> cause(const std::vector<std::string>& causes) const;

  private:
    /// Returns false if the part is null.
    bool has(const char* part) const;
    void expect(bool holds, const std::string& expected) const;

    std::string where_;
    Json entry_;
};

}  // namespace lockstep
