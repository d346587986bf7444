#pragma once

#include <optional>
#include <utility>

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// Where each piece of a schedule's work stands, and what it waits for.
///
/// An instruction waits for those before it on its stage, and for the data
/// it needs: a forward of part k for that of part k - 1, a backward of part
/// k for that of part k + 1, of the same micro-batch; or, where the
/// schedule has messages and the two are on different stages, for its
/// receive.
class WorkIndex {
  public:
    /// The schedule must stay. Micro-batches and chunks must be in range.
    explicit WorkIndex(const Schedule& schedule);

    /// None where it is nowhere. A backward in two halves is found as its
    /// first, whichever of the two kinds is asked for.
    Place find(InstructionKind kind, int part, int micro_batch) const;
    /// Two places of the same work, where there are any.
    const std::optional<std::pair<Place, Place>>& twice() const {
        return twice_;
    }

    /// What a computation waits for beside its stage's program; none where
    /// nothing.
    Place need(Place place) const;
    /// The other end of a message; none where there is none.
    Place partner(Place place) const;
    /// The stage at a message's other end, by who computes there; -1 where
    /// nobody does.
    int peer(Place place) const;
    /// Whether what `place` needs comes from another stage.
    bool crosses(Place place) const;

  private:
    std::size_t slot(InstructionKind kind, int part, int micro_batch) const;
    Place source(Place place) const;
    Place other_end(Place place, bool computing) const;

    const Schedule& schedule_;
    bool messages_;
    int parts_;
    std::vector<Place> places_;
    std::optional<std::pair<Place, Place>> twice_;
};

/// Which version of its chunk's weights each computation reads: versions
/// are counted in optimizer steps of the chunk, from 0 at the schedule's
/// start.
class WeightVersions {
  public:
    /// The schedule must stay; its chunks must be in range.
    explicit WeightVersions(const Schedule& schedule);

    /// Optimizer steps of the instruction's chunk before it.
    int newest(Place place) const {
        return newest_[place.stage][place.position];
    }
    /// What it says, or the newest where it says nothing.
    int read(Place place) const {
        const int said = schedule_.at(place).weight_version;
        return said >= 0 ? said : newest(place);
    }

  private:
    const Schedule& schedule_;
    std::vector<std::vector<int>> newest_;
};

}  // namespace lockstep
