#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sim/watcher.hpp"
#include "src/core/tensor.hpp"

namespace lockstep::sim {

/// The known facts about a rank's memory: for ranges of bytes of a storage, a fact about
/// the values there. Bytes that no range covers are unknown. A fact is about values that
/// were contiguous when the fact was noted. A range remembers where these values began,
/// so that slices of them can be told apart.
template <typename Fact>
class Shadow {
  public:
    struct Range {
        std::int64_t begin;  ///< in bytes of the storage
        std::int64_t end;
        std::int64_t start;  ///< where the fact's values begin; at most `begin`
        Fact fact;

        /// Returns the place of the range in the fact's values, in bytes.
        std::int64_t shift() const { return begin - start; }
    };
    using Ranges = std::vector<Range>;

    /// Returns the known ranges of a tensor, clipped to the tensor and counted from its
    /// first byte.
    Ranges read(const Tensor& tensor) const {
        Ranges found;
        const Ranges* const all = ranges_of(tensor);
        if (all == nullptr) return found;
        const std::int64_t from = tensor.offset_bytes();
        const std::int64_t to = from + tensor.bytes();
        for (auto range = first_after(*all, from);
             range != all->end() && range->begin < to; ++range)
            found.push_back({std::max(range->begin, from) - from,
                             std::min(range->end, to) - from, range->start - from,
                             range->fact});
        return found;
    }

    /// Returns the range that covers all of a tensor, in bytes of the storage; null if
    /// there is none.
    const Range* whole(const Tensor& tensor) const {
        const Ranges* const all = ranges_of(tensor);
        if (all == nullptr) return nullptr;
        const auto range = first_after(*all, tensor.offset_bytes());
        if (range == all->end() || range->begin > tensor.offset_bytes() ||
            range->end < tensor.offset_bytes() + tensor.bytes())
            return nullptr;
        return &*range;
    }

    /// Returns whether nothing is known of any byte of the tensor.
    bool knows_nothing_of(const Tensor& tensor) const {
        const Ranges* const all = ranges_of(tensor);
        if (all == nullptr) return true;
        const auto range = first_after(*all, tensor.offset_bytes());
        return range == all->end() ||
               range->begin >= tensor.offset_bytes() + tensor.bytes();
    }

    bool empty() const { return storages_.empty(); }

    void forget(const Tensor& tensor) {
        const auto found = storages_.find(tensor.storage());
        if (found == storages_.end() || tensor.bytes() == 0) return;
        cut(found->second, tensor.offset_bytes(), tensor.offset_bytes() + tensor.bytes());
        if (found->second.empty()) storages_.erase(found);
    }

    /// Notes that the tensor has new values, with this fact about them.
    void set(const Tensor& tensor, Fact fact) {
        put(tensor, {{0, tensor.bytes(), 0, std::move(fact)}});
    }

    /// Sets ranges, which are in order and count from the tensor's first byte. The rest
    /// of the tensor becomes unknown.
    void put(const Tensor& tensor, Ranges ranges) {
        if (tensor.bytes() == 0) return;
        if (ranges.empty()) return forget(tensor);
        Ranges& all = storages_[tensor.storage()];
        const std::int64_t from = tensor.offset_bytes();
        cut(all, from, from + tensor.bytes());
        for (Range& range : ranges) {
            range.begin += from;
            range.end += from;
            range.start += from;
        }
        all.insert(first_after(all, from), std::make_move_iterator(ranges.begin()),
                   std::make_move_iterator(ranges.end()));
    }

    /// Calls `change` for each fact about a tensor. If `change` returns false, the fact's
    /// range becomes unknown.
    template <typename Change>
    void change(const Tensor& tensor, Change change) {
        if (knows_nothing_of(tensor)) return;
        Ranges kept;
        for (Range& range : read(tensor))
            if (change(range.fact)) kept.push_back(std::move(range));
        put(tensor, std::move(kept));
    }

    void free(const Storage& storage) noexcept { storages_.erase(&storage); }

  private:
    const Ranges* ranges_of(const Tensor& tensor) const {
        const auto found = storages_.find(tensor.storage());
        return found == storages_.end() ? nullptr : &found->second;
    }

    /// Returns the first range that ends after a byte.
    template <typename All>
    static auto first_after(All& all, std::int64_t byte) {
        return std::upper_bound(
            all.begin(), all.end(), byte,
            [](std::int64_t place, const Range& range) { return place < range.end; });
    }

    static void cut(Ranges& all, std::int64_t from, std::int64_t to) {
        auto first = first_after(all, from);
        if (first == all.end() || first->begin >= to) return;
        if (first->begin < from) {
            Range left = *first;
            left.end = from;
            first->begin = from;
            first = all.insert(first, std::move(left)) + 1;
        }
        auto last = first;
        while (last != all.end() && last->end <= to)
            ++last;
        if (last != all.end() && last->begin < to) last->begin = to;
        all.erase(first, last);
    }

    std::unordered_map<const Storage*, Ranges> storages_;
};

/// A watcher that follows values through the memory of all ranks. Values that it cannot
/// follow become unknown.
template <typename Fact>
class Tracker : public Watcher {
  public:
    using Known = Shadow<Fact>;
    using Ranges = typename Known::Ranges;

    explicit Tracker(std::size_t ranks) : ranks_(ranks) {}

    void copied(int rank, CopyDirection direction, const Tensor& tensor,
                SourceLine /*at*/) override {
        if (direction == CopyDirection::to_device) known(rank).forget(tensor);
    }
    void freed(int rank, const Storage& storage) noexcept override {
        known(rank).free(storage);
    }

    void collective_begins(const Team& /*team*/, const Meeting& meeting) override {
        for (const Posted* side : meeting.arrived)
            if (side->operation.output)
                known(side->launch->rank).forget(side->operation.output);
    }
    void message_begins(Posted& /*send*/, Posted& recv) override {
        known(recv.launch->rank).forget(recv.operation.output);
    }

    Known& known(int rank) { return ranks_[rank]; }
    const Known& known(int rank) const { return ranks_[rank]; }

  protected:
    void forget_results(int rank, const DeviceOperation& operation) {
        for (const Tensor* result : operation.writes)
            known(rank).forget(*result);
    }
    /// The result of a copy gets the facts of its source.
    void copy_facts(int rank, const DeviceOperation& copy) {
        known(rank).put(*copy.writes[0], known(rank).read(*copy.reads[0]));
    }
    /// A received tensor gets the facts of the sent tensor.
    void copy_facts(const Posted& send, const Posted& recv) {
        known(recv.launch->rank)
            .put(recv.operation.output,
                 known(send.launch->rank).read(send.operation.input));
    }

    /// For a collective that only moves values: returns the known ranges of these values,
    /// in the order in which all receivers get them (the root's values, or the members'
    /// values one after the other). Adjacent parts of one whole become one range;
    /// otherwise n parts on n ranks would need n^2 ranges.
    Ranges moved(const Meeting& meeting) const {
        const CommOperation& first = meeting.first->operation;
        const VerbFacts verb = facts_of(first.verb);
        const std::int64_t bytes =
            verb.gathers() ? first.count * bytes_of(first.dtype) : 0;
        Ranges whole;
        for (const Posted* side : meeting.arrived) {
            const int member = side->launch->member;
            if (!verb.reads(member == first.peer)) continue;
            for (auto& range : known(side->launch->rank).read(side->operation.input)) {
                range.begin += member * bytes;
                range.end += member * bytes;
                range.start += member * bytes;
                if (!whole.empty() && whole.back().end == range.begin &&
                    whole.back().start == range.start && whole.back().fact == range.fact)
                    whole.back().end = range.end;
                else
                    whole.push_back(std::move(range));
            }
        }
        return whole;
    }

  private:
    std::vector<Known> ranks_;
};

/// Returns the members of a collective that have its result in their outputs.
inline std::vector<const Posted*> holders_of(const Meeting& meeting) {
    std::vector<const Posted*> holders;
    for (const Posted* side : meeting.arrived)
        if (side->operation.output && side->operation.leaves_result(side->launch->member))
            holders.push_back(side);
    return holders;
}

/// Returns whether backward adds to a gradient with this operation: a sum of products,
/// rows, lookups or norms that has another shape than its operands. Two tensors of one
/// shape may be added for other reasons: momentum, residuals, the difference of versions.
inline bool is_backward_sum(const DeviceOperation& operation) {
    return operation.derivation.adds && operation.derivation.linear != 0 &&
           (operation.reads.size() > 2 ||
            operation.reads.back()->elements() > operation.writes[0]->elements());
}

/// Returns whether ranges cover `bytes` bytes without a gap.
template <typename Ranges>
bool cover(const Ranges& ranges, std::int64_t bytes) {
    std::int64_t end = 0;
    for (const auto& range : ranges) {
        if (range.begin != end) return false;
        end = range.end;
    }
    return end == bytes;
}

}  // namespace lockstep::sim
