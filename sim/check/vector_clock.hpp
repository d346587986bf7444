#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::sim {

/// A lane of a queue: one entry of a vector clock. Lane 0 counts a queue's launches that
/// are done, in order; lane p + 1 names the launch whose operation at place p has read
/// its buffer, though the launch may not be done.
struct Lane {
    int rank = 0;
    int team = 0;
    int lane = 0;

    auto operator<=>(const Lane&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The knowledge of what has happened: for each queue of each rank, the number of its
/// last launch (Lamport, "Time, clocks, and the ordering of events in a distributed
/// system", 1978; Mattern, "Virtual time and global states of distributed systems",
/// 1989). A queue that is not named is one of which nothing needs to be known.
struct VectorClock {
    struct Entry {
        Lane lane;
        std::uint64_t number = 0;
    };
    std::vector<Entry> entries;  ///< by lane
};

/// A clock that no longer changes, shared by all that know the same; null knows nothing.
using Knowledge = std::shared_ptr<const VectorClock>;

/// Returns whether `more` knows all that `less` does.
inline bool covers(const Knowledge& more, const Knowledge& less) {
    if (less == nullptr || less == more) return true;
    if (more == nullptr) return false;
    auto place = more->entries.begin();
    for (const VectorClock::Entry& entry : less->entries) {
        while (place != more->entries.end() && place->lane < entry.lane)
            ++place;
        if (place == more->entries.end() || !(place->lane == entry.lane) ||
            place->number < entry.number)
            return false;
    }
    return true;
}

/// Adds up what several know.
class KnowledgeSum {
  public:
    void add(const Knowledge& knowledge) {
        if (knowledge == nullptr || knowledge == last_) return;
        last_ = knowledge;
        if (only_ == nullptr && entries_.empty()) {
            only_ = knowledge;
            return;
        }
        spread();
        entries_.insert(entries_.end(), knowledge->entries.begin(),
                        knowledge->entries.end());
    }
    void add(Lane lane, std::uint64_t number) {
        spread();
        entries_.push_back({lane, number});
    }
    /// Drops the entries that nobody needs any more.
    template <typename IsOld>
    void forget(IsOld is_old) {
        if (only_ != nullptr &&
            std::none_of(only_->entries.begin(), only_->entries.end(), is_old))
            return;
        spread();
        std::erase_if(entries_, is_old);
    }

    Knowledge take() {
        if (entries_.empty()) return only_;
        std::sort(entries_.begin(), entries_.end(),
                  [](const VectorClock::Entry& a, const VectorClock::Entry& b) {
                      return a.lane == b.lane ? a.number > b.number : a.lane < b.lane;
                  });
        entries_.erase(
            std::unique(entries_.begin(), entries_.end(),
                        [](const VectorClock::Entry& a, const VectorClock::Entry& b) {
                            return a.lane == b.lane;
                        }),
            entries_.end());
        return std::make_shared<const VectorClock>(VectorClock{std::move(entries_)});
    }

  private:
    void spread() {
        if (only_ == nullptr) return;
        entries_ = only_->entries;
        only_ = nullptr;
    }

    Knowledge only_;  ///< all there is so far; else it lies in entries_
    Knowledge last_;  ///< what was added last: members of a group often know the same
    std::vector<VectorClock::Entry> entries_;
};

inline Knowledge joined(const Knowledge& a, const Knowledge& b) {
    if (covers(a, b)) return a;
    if (covers(b, a)) return b;
    KnowledgeSum sum;
    sum.add(a);
    sum.add(b);
    return sum.take();
}

}  // namespace lockstep::sim
