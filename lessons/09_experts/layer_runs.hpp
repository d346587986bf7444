#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lessons/runner/lesson.hpp"
#include "src/nn/mixture_of_experts.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep::lessons {

// A layer of experts by itself, on ranks that share out its experts.

/// Each of `ranks` devices has `tokens` of its own.
struct LayerRun {
    MixtureOfExperts::Sizes sizes{};
    int ranks = 1;
    std::int64_t tokens = 0;
    bool trains = false;  ///< else forward alone
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
};

/// Returns the sizes of a layer of E experts of `inner` columns, of which a token chooses
/// k.
MixtureOfExperts::Sizes layer_of(std::int64_t hidden, std::int64_t experts,
                                 std::int64_t inner, std::int64_t chosen);

/// Runs it once. The tokens are random, token t of all the same on however many ranks.
/// Each rank keeps "y" if there are numbers, and the series "load", copies by expert, if
/// it trains.
RunReport run_layer(Cluster& cluster, const LayerRun& of);

/// Runs a plain MLP, (tokens, hidden), its layers shared out by the ranks, each of which
/// has all tokens; forward and backward.
RunReport run_shared_mlp(Cluster& cluster, std::int64_t tokens, std::int64_t hidden,
                         std::int64_t inner, DType dtype);

/// So much leaves its node, of the copies that a gate of random tokens makes.
struct Crossings {
    std::int64_t copies = 0;  ///< to other nodes
    std::int64_t tokens = 0;  ///< the same, if a token goes to a node once
};
/// Counts what leaves its node, if experts are dealt evenly to `nodes`, and so are
/// tokens; a token chooses `chosen` of `experts`, on at most `most` nodes.
Crossings count_crossings(Device& device, std::int64_t tokens, std::int64_t experts,
                          std::int64_t chosen, std::int64_t nodes, std::int64_t most);

}  // namespace lockstep::lessons
