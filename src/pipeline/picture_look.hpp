#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/pipeline/schedule.hpp"
#include "src/report/timeline_look.hpp"

namespace lockstep {

constexpr bool is_computation(InstructionKind kind) {
    return has_micro_batch(kind) && !is_message(kind);
}

/// How a schedule's computations are drawn: as the phases of timelines are,
/// and chunks told apart. Where a schedule has whole backwards beside
/// halves of others, the whole ones are purple.
class ScheduleLook {
  public:
    explicit ScheduleLook(const Schedule& schedule);

    /// What the schedule computes, in the order of the enum.
    const std::vector<InstructionKind>& kinds() const { return kinds_; }

    /// On a terminal, odd chunks have small letters and bright colours.
    SpanLook of(InstructionKind kind, int chunk) const;

    /// In an SVG, "#56B4E9"; the later the chunk, the lighter.
    std::string colour(InstructionKind kind, int chunk) const;

  private:
    int chunks_;
    std::vector<InstructionKind> kinds_;
    std::array<SpanLook, kInstructionKinds> looks_{};
};

}  // namespace lockstep
