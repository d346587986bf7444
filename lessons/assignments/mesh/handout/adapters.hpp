#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/mesh.hpp"
#include "src/comm/rank.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/nn/gpt_kit.hpp"
#include "src/nn/optimizer.hpp"

// Tests and the grader call only these functions, with these types. Your own functions
// may have any signature: adapters.cpp calls them.

/// The axes "dp", "cp" and "tp", each once, in any order. As in Mesh, the slowest is the
/// first. A size may be 1.
using Axes = std::vector<lockstep::Mesh::Axis>;

/// s tokens, and the token after each of them: (s, 1), i32, on the host.
struct Sequence {
    lockstep::HostTensor tokens;
    lockstep::HostTensor next;
};

/// The training of a GPT. Every rank is given the same job.
struct Job {
    lockstep::GptSizes sizes;
    lockstep::GptKit kit;    ///< makes the GPT's parts; you replace some
    lockstep::DType dtype;   ///< of values and gradients
    std::uint64_t seed = 0;  ///< for the initial values
    /// The batch of each step: sequences of equal length, at least one for each rank
    /// along "dp". The loss is the mean over all of their tokens.
    std::vector<std::vector<Sequence>> batches;
    /// The norm to which gradients are clipped; 0: they are not clipped.
    double most_norm = 0;
    /// Makes the optimizer for the parameters that a rank updates.
    std::function<std::unique_ptr<lockstep::Optimizer>(std::vector<lockstep::Parameter*>)>
        optimizer;
};

/// The results of train() on each rank.
struct Trained {
    /// For each step, (1), equal on every rank: the batch's loss before the update and,
    /// if gradients are clipped, the sum of squares of the whole unclipped gradient.
    std::vector<lockstep::Tensor> losses;
    std::vector<lockstep::Tensor> squares;
    /// This rank's part of each parameter at the end, by the parameter's name.
    std::map<std::string, lockstep::Tensor> weights;
};

/// The setting for which you choose a mesh. A step has `sequences` sequences, each as
/// long as the context, and trains in bf16, with AdamW and f32 masters.
struct Setting {
    lockstep::GptSizes sizes;
    int sequences = 1;
    int devices = 1;
    lockstep::ClusterSpec cluster;  ///< memory_bytes, devices_per_node, links, rates
};

namespace adapters {

Trained train(lockstep::Rank& rank, const Job& job, const Axes& axes);
Axes choose(const Setting& setting);

}  // namespace adapters
