#pragma once

#include "sim/check/origin.hpp"
#include "sim/check/tracker.hpp"

namespace lockstep::sim {

/// Parts of a whole that were put together in another order than they were dealt out in.
struct Misplaced {
    Origin gathering;
    std::vector<std::int64_t> parts;  ///< by member: which part it brought
    Origin dealing;                   ///< none where random numbers were drawn
    const char* drawn_by = "";
    SourceLine dealt_at;
};

/// A part of a whole: of what a reduce_scatter or scatter dealt out, or of a stream of
/// random numbers.
struct ShardPart {
    std::uint64_t whole;
    std::int64_t offset;  ///< bytes, in the whole
    Origin dealing;
    const char* drawn_by;
    SourceLine at;
    std::shared_ptr<const Misplaced> misplaced;
};

/// Follows which part of which whole a shard is, through copies and updates in place, and
/// finds parts that are gathered in another order than they were dealt out in (F26), once
/// something other than a copy reads across two of them: who gathers in a strange order
/// and sorts the blocks afterwards makes no mistake.
class ShardWatcher final : public Tracker<ShardPart> {
  public:
    using Tracker::Tracker;

    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void message_begins(Posted& send, Posted& recv) override;

  private:
    void check_use(int rank, const DeviceOperation& operation) const;
    void gather(const Team& team, const Meeting& meeting);
    std::shared_ptr<const Misplaced> misplaced_in(const Team& team,
                                                  const Meeting& meeting) const;
};

}  // namespace lockstep::sim
