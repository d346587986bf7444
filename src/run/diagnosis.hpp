#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/core/source_line.hpp"
#include "src/core/units.hpp"

namespace lockstep {

struct RunReport;

/// A mistake in a distributed program, explained: its class, which rank did what at which
/// line, and what the other ranks were doing.
struct Diagnosis {
    /// The part of one rank, or of several ranks that did the same.
    struct Party {
        std::vector<int> ranks;
        std::string operation;             ///< "all_reduce(sum, 1000 x f32)", "has ended"
        std::string differs;               ///< the field that differs, if one does
        SourceLine at;                     ///< the program's own line
        std::vector<std::string> history;  ///< the first rank's last calls, oldest first
        SourceLine inside{};  ///< the library's line, if the program called a strategy
    };

    /// Ranks that wait in the same call for the same other ranks.
    struct Wait {
        std::vector<int> from;
        std::vector<int> to;
        std::string operation;  ///< the first rank's operation
        SourceLine at;
    };

    std::string fault;         ///< "F02"
    std::string title;         ///< "counts differ"
    std::string sentence;      ///< what happened, in one sentence with ranks and lines
    std::string cause;         ///< the likely cause and what to change
    std::string page;          ///< the page that explains the class; empty if none
    std::string communicator;  ///< empty if none is involved
    std::vector<int> members;  ///< the communicator's ranks
    std::int64_t sequence = -1;
    Picoseconds time = -1;  ///< virtual time; negative if there is none
    std::vector<Party> parties;
    std::vector<Party> others;         ///< the activity of every other rank
    std::vector<std::string> details;  ///< lines of figures that show the mistake
    /// If no rank could continue: all waits, in the order of their first ranks.
    std::vector<Wait> waits;

    /// Returns the text to print. Lines have at most `width` columns, if possible.
    std::string text(int width = 100) const;
};

/// "train.cpp:12", or "train.cpp:12 (src/parallel/zero_1.cpp:60)" if the program called a
/// strategy.
std::string place_text(SourceLine at, SourceLine inside);

/// "rank 2", "ranks 1–3, 5".
std::string ranks_text(const std::vector<int>& ranks);

/// Returns a circle of waits, as indices in `waits`: the ranks of each wait wait for
/// ranks of the next wait, and those of the last wait for ranks of the first. A wait for
/// several ranks leads to the first of these ranks if all of them wait, else to no wait.
/// Prefers a circle in which each wait has a single rank. Otherwise returns the circle to
/// which the first wait leads, if there is one.
std::vector<std::size_t> circle_of(const std::vector<Diagnosis::Wait>& waits);

/// Ends a run that made a mistake.
class FaultError : public std::runtime_error {
  public:
    explicit FaultError(Diagnosis diagnosis);
    const Diagnosis& diagnosis() const { return diagnosis_; }
    /// For code that adds facts that the throwing code could not know, such as the other
    /// ranks' activity.
    Diagnosis& diagnosis() { return diagnosis_; }

    /// Returns the report of a simulated run up to this error, with the trace if the run
    /// has one; null if the error ended no simulated run.
    const std::shared_ptr<const RunReport>& report() const { return report_; }
    void set_report(std::shared_ptr<const RunReport> report) {
        report_ = std::move(report);
    }

  private:
    Diagnosis diagnosis_;
    std::shared_ptr<const RunReport> report_;
};

}  // namespace lockstep
