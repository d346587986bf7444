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
        std::string operation;  ///< "all_reduce(sum, 1000 x f32)", "has ended"
        std::string differs;    ///< the field that differs, if one does
        SourceLine at;
        std::vector<std::string> history;  ///< its last operations, oldest first
    };

    /// Ranks that wait in the same call for the same other ranks.
    struct Wait {
        std::vector<int> from;
        std::vector<int> to;
        std::string operation;  ///< if operations differ, the first rank's
        SourceLine at;
    };

    std::string fault;         ///< "F02"
    std::string title;         ///< "counts differ"
    std::string sentence;      ///< what happened, in one sentence with ranks and lines
    std::string cause;         ///< the likely cause and what to change
    std::string page;          ///< the page that explains the class; empty if none
    std::string communicator;  ///< empty if none is involved
    std::vector<int> members;  ///< its ranks
    std::int64_t sequence = -1;
    Picoseconds time = -1;  ///< virtual; negative if there is none
    std::vector<Party> parties;
    std::vector<Party> others;         ///< what every other rank is doing
    std::vector<std::string> details;  ///< lines of figures that show the mistake
    /// If no rank could continue: all waits, in the order of their first ranks.
    std::vector<Wait> waits;

    /// Returns the printed form: lines, of at most `width` columns if they can be broken.
    std::string text(int width = 100) const;
};

/// "rank 2", "ranks 1–3, 5".
std::string ranks_text(const std::vector<int>& ranks);

/// Returns a circle of waits, as places in `waits`: each wait waits for ranks of the next
/// wait, and the last wait for ranks of the first. Prefers the first circle in which each
/// wait has only one rank. Otherwise returns the circle that the first wait leads to. A
/// wait for several ranks leads to the first of these ranks. Returns none if a wait leads
/// to a rank that does not wait.
std::vector<std::size_t> circle_of(const std::vector<Diagnosis::Wait>& waits);

/// Ends a run that made a mistake.
class FaultError : public std::runtime_error {
  public:
    explicit FaultError(Diagnosis diagnosis);
    const Diagnosis& diagnosis() const { return diagnosis_; }
    /// For code that can add facts that the throwing code did not know, such as what the
    /// other ranks do.
    Diagnosis& diagnosis() { return diagnosis_; }

    /// Returns the report of the run when it stopped: figures, and the trace if one was
    /// asked for. Null if the code that threw knew of no run.
    const std::shared_ptr<const RunReport>& report() const { return report_; }
    void set_report(std::shared_ptr<const RunReport> report) {
        report_ = std::move(report);
    }

  private:
    Diagnosis diagnosis_;
    std::shared_ptr<const RunReport> report_;
};

}  // namespace lockstep
