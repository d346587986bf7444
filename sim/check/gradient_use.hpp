#pragma once

#include "sim/check/tracker.hpp"

namespace lockstep::sim {

/// What a gradient has been used for since it was last set.
struct GradientUse {
    const char* update;
    SourceLine used_at;
    const char* added_by = nullptr;  ///< by backward, since
    SourceLine added_at;
};

/// Finds gradients that backward adds to after an update has used them, and that are used
/// again: they were not set to zero (F27). Sums of a program's own, momentum by hand,
/// say, are its own affair: only what backward adds counts, and scaling makes something
/// else of a gradient.
class GradientUseWatcher final : public Tracker<GradientUse> {
  public:
    using Tracker::Tracker;

    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void message_begins(Posted& send, Posted& recv) override;

  private:
    void use(int rank, const DeviceOperation& operation);
};

}  // namespace lockstep::sim
