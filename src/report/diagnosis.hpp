#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/core/source_line.hpp"
#include "src/core/units.hpp"

namespace lockstep {

/// A mistake in a distributed program, explained: which class, who did what where, and
/// what the other ranks were doing.
struct Diagnosis {
    /// One rank's, or several equal ranks', part in it.
    struct Party {
        std::vector<int> ranks;
        std::string operation;  ///< "all_reduce(sum, 1000 x f32)", "has ended"
        std::string differs;    ///< the field that differs, where one does
        SourceLine at;
        std::vector<std::string> history;  ///< its last operations, oldest first
    };

    std::string fault;         ///< "F02"
    std::string title;         ///< "counts differ"
    std::string sentence;      ///< what happened, in one sentence with ranks and lines
    std::string cause;         ///< the likely cause and what to change
    std::string communicator;  ///< empty where none is involved
    std::vector<int> members;  ///< its ranks
    std::int64_t sequence = -1;
    Picoseconds time = 0;  ///< virtual; negative where there is none
    std::vector<Party> parties;
    std::vector<Party> others;  ///< what every other rank is doing

    /// The printed form, lines of at most `width` columns where they can be broken.
    std::string text(int width = 100) const;
};

/// "rank 2", "ranks 1–3, 5".
std::string ranks_text(const std::vector<int>& ranks);

/// Ends a run that made a mistake.
class FaultError : public std::runtime_error {
  public:
    explicit FaultError(Diagnosis diagnosis);
    const Diagnosis& diagnosis() const { return diagnosis_; }

  private:
    Diagnosis diagnosis_;
};

}  // namespace lockstep
