#pragma once

#include <vector>

#include "sim/check/shadow.hpp"
#include "sim/check/watcher.hpp"

namespace lockstep::sim {

/// A watcher that follows values through the memory of all ranks. What it is not told how
/// to follow becomes unknown.
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

    Known& known(int rank) { return ranks_[rank]; }
    const Known& known(int rank) const { return ranks_[rank]; }

  protected:
    void forget_results(int rank, const DeviceOperation& operation) {
        for (const Tensor* result : operation.writes)
            known(rank).forget(*result);
    }
    /// The one result holds what the source did.
    void copy_facts(int to_rank, const Tensor& to, int from_rank, const Tensor& from) {
        known(to_rank).put(to, known(from_rank).read(from));
    }

  private:
    std::vector<Known> ranks_;
};

/// Whether backward adds a contribution to a gradient: a sum of products, rows, lookups
/// or norms, of another shape than its operands. Two tensors of one shape may be added
/// for many reasons: momentum, residuals, the difference of two versions.
inline bool is_backward_sum(const DeviceOperation& operation) {
    return operation.derivation.adds && operation.derivation.linear != 0 &&
           (operation.reads.size() > 2 ||
            operation.reads.back()->elements() > operation.writes[0]->elements());
}

/// Whether ranges cover `bytes` bytes without a gap.
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
