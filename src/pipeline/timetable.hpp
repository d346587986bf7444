#pragma once

#include <map>
#include <vector>

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// Which pass each stage runs in which slot; a pass takes one slot. A schedule is made
/// from the order of the passes alone.
class Timetable {
  public:
    /// The schedule gives stages and parts, and must outlive the timetable.
    explicit Timetable(const Schedule& schedule)
        : schedule_(schedule), slots_(static_cast<std::size_t>(schedule.stages)) {}

    /// Adds a micro-batch's passes, forward and back, one slot each, from slot `first`
    /// on. The passes go through one chunk of each stage, or through all chunks.
    void add_round_trip(int micro_batch, int first, int chunk);
    void add_round_trip(int micro_batch, int first) {
        for (int chunk = 0; chunk < schedule_.chunks; ++chunk)
            add_round_trip(micro_batch, first, chunk);
    }
    /// Returns each stage's passes in order.
    std::vector<std::vector<Instruction>> orders() const;

  private:
    const Schedule& schedule_;
    std::vector<std::map<int, Instruction>> slots_;
};

}  // namespace lockstep
