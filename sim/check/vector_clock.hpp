#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::sim {

/// A lane of a queue: one entry of a vector clock. Lane 0 has the number of the queue's
/// last launch that is done. Lane p + 1 has the number of a launch whose operation at
/// place p has read its buffer; that launch may not be done yet.
struct Lane {
    int rank = 0;
    int team = 0;
    int lane = 0;

    auto operator<=>(const Lane&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Knowledge of what has happened: for each queue of each rank, the number of its last
/// launch (Lamport, "Time, clocks, and the ordering of events in a distributed system",
/// 1978; Mattern, "Virtual time and global states of distributed systems", 1989). If a
/// queue has no entry, nothing needs to be known of it.
struct VectorClock {
    struct Entry {
        Lane lane;
        std::uint64_t number = 0;
    };
    std::vector<Entry> entries;  ///< by lane
};

/// A clock that no longer changes, shared by all with this knowledge; null if empty.
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

/// Joins several pieces of knowledge.
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
    /// Drops the entries that are no longer needed.
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

    Knowledge only_;  ///< the only knowledge so far; if null, it is in entries_
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
