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

// All that tests and the grader call, and what they give. How your own functions are
// called is up to you: adapters.cpp calls them.

/// The axes "dp", "cp" and "tp", each once, in any order: the slowest first, as Mesh has
/// them. A size may be 1.
using Axes = std::vector<lockstep::Mesh::Axis>;

/// s tokens, and of each the one that comes next: (s, 1), i32, on the host.
struct Sequence {
    lockstep::HostTensor tokens;
    lockstep::HostTensor next;
};

/// A GPT is trained. Every rank is given the same.
struct Job {
    lockstep::GptSizes sizes;
    lockstep::GptKit kit;    ///< yours are put around it
    lockstep::DType dtype;   ///< of values and gradients
    std::uint64_t seed = 0;  ///< of the first values
    /// The batch of each step: its sequences, of equal length, at least one for each rank
    /// along "dp". The loss is the mean over all of their tokens.
    std::vector<std::vector<Sequence>> batches;
    /// Gradients are clipped to this norm; 0: they are not.
    double most_norm = 0;
    /// Makes the optimizer of the parameters that a rank updates.
    std::function<std::unique_ptr<lockstep::Optimizer>(std::vector<lockstep::Parameter*>)>
        optimizer;
};

/// What train() leaves on each rank.
struct Trained {
    /// Of each step, (1), on every rank the same: the batch's loss before the update; and
    /// if gradients are clipped, the sum of squares of all of the gradient before that.
    std::vector<lockstep::Tensor> losses;
    std::vector<lockstep::Tensor> squares;
    /// In the end, this rank's part of each parameter, by the parameter's name.
    std::map<std::string, lockstep::Tensor> weights;
};

/// A mesh is chosen for this: steps of so many sequences, as long as the context, in
/// bf16, by AdamW with f32 masters.
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
