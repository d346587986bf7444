#pragma once

#include <string>
#include <vector>

#include "src/pipeline/holdings.hpp"
#include "src/pipeline/timer.hpp"
#include "src/report/text_cells.hpp"

namespace lockstep {

/// What a stage holds from a time on, in the unit of `KeptMemory`.
struct HeldLevel {
    Picoseconds time;
    double activations;
    double for_weights;

    double total() const { return activations + for_weights; }
};

/// What a stage holds over time. Memory is taken when a forward begins and
/// given back when a half of backward ends.
struct HeldMemory {
    std::vector<HeldLevel> levels;  ///< each lasts until the next
    double peak = 0;
    Picoseconds peak_at = 0;  ///< when it is reached first
};

HeldMemory held_memory(const Schedule& schedule, const Timing& timing,
                       int stage, const KeptMemory& kept);

/// "24", "1.5": at most six digits.
std::string held_text(double held);
/// "held, in micro-batches": the unit, where it is one.
std::string held_words(const Schedule& schedule, const KeptMemory& kept);

/// Levels as text, a digit each: "." for nothing, then 1 to 9 and "a" to
/// "z", where whole numbers of at most 35 are held; otherwise in ninths of
/// the most that any stage holds, rounded up.
class HeldDigits {
  public:
    explicit HeldDigits(const std::vector<HeldMemory>& stages);

    /// "; f is 15"; empty where digits mean themselves.
    std::string words() const;

    /// In each column the highest level that begins in it, or the one that
    /// goes on; the last ends at `end`.
    std::string columns(const HeldMemory& held, const CellGrid& grid,
                        Picoseconds end) const;

  private:
    char digit(double held) const;

    double most_ = 0;
    bool exact_ = true;
};

}  // namespace lockstep
