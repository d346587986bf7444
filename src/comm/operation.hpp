#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/core/source_line.hpp"
#include "src/core/tensor.hpp"
#include "src/device/device.hpp"

namespace lockstep {

enum class Verb : std::uint8_t {
    all_reduce,
    all_gather,
    reduce_scatter,
    broadcast,
    reduce,
    gather,
    scatter,
    all_to_all,
    barrier,
    split,
    send,
    recv,
};
inline constexpr std::size_t kVerbs = 12;

constexpr const char* name_of(Verb verb) {
    constexpr const char* kNames[] = {
        "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
        "scatter",    "all_to_all", "barrier",        "split",     "send",   "recv"};
    return kNames[static_cast<int>(verb)];
}

constexpr bool is_point_to_point(Verb verb) {
    return verb == Verb::send || verb == Verb::recv;
}
constexpr bool has_root(Verb verb) {
    return verb == Verb::broadcast || verb == Verb::reduce || verb == Verb::gather ||
           verb == Verb::scatter;
}
constexpr bool has_reduction(Verb verb) {
    return verb == Verb::all_reduce || verb == Verb::reduce_scatter ||
           verb == Verb::reduce;
}

/// What one rank asks of a communicator.
struct CommOperation {
    Verb verb = Verb::barrier;
    Reduction reduction = Reduction::sum;
    DType dtype = DType::f32;
    /// The root of a rooted collective, the other rank of a send or recv; else -1.
    int peer = -1;
    /// NCCL's count: elements of the smaller buffer for gather-like and scatter-like
    /// verbs, of the whole buffer otherwise. Equal on all ranks.
    std::int64_t count = 0;
    /// A send or recv that is a part of an all_to_all_v.
    bool all_to_all_v = false;
    Tensor output;
    Tensor input;
    SourceLine at;

    /// Of the larger of its buffers.
    std::int64_t bytes() const;
    /// Whether it is a part of an all_to_all_v that the ranks of a communicator do not
    /// exchange: rank `rank`'s with itself, or one of nothing. It takes no time and is
    /// not counted.
    bool is_no_message(int rank) const {
        return all_to_all_v && (count == 0 || peer == rank);
    }
};

/// What a rank asks of a split.
struct SplitRequest {
    int color = 0;
    int key = 0;
    std::string name;
    /// What the rank expects the new communicator to be: ranks of the one that is split,
    /// in order. Where it is empty it expects nothing.
    std::vector<int> members;
    /// Every rank that takes part passes these members, not only they themselves.
    bool same_on_all = false;
};

/// "subgroup(tp, of ranks 0–3)", "split(tp, colour 1)".
std::string text_of(const SplitRequest& request);

/// "ranks 0–3", "ranks 3, 1" in another order than that of their numbers.
std::string member_text(const std::vector<int>& members);

/// "all_reduce(sum, 1000 x f32)", "send(250 x f64, to rank 3)".
std::string text_of(const CommOperation& operation);

/// What operations that were launched together are called: "all_reduce", or "send +
/// recv". Adds one's, unless it is there already.
void add_verb(std::string& name, const CommOperation& operation);

}  // namespace lockstep
