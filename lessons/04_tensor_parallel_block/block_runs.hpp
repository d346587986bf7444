#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lessons/04_tensor_parallel_block/gpt_training.hpp"
#include "src/core/units.hpp"
#include "src/trial/case.hpp"

namespace lockstep::lessons {

/// A module that maps (s, b, h) to the same shape, on one device and shared out.
struct Twins {
    std::int64_t length = 0;
    std::int64_t batch = 0;
    std::int64_t hidden = 0;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    std::function<std::unique_ptr<Module>(const ParameterInit&)> alone;
    std::function<std::unique_ptr<Module>(const ParameterInit&, TensorParallel&)> shared;
};

/// Both runs take a random input and a random gradient of the output, the same on every
/// device. Every rank keeps "y" and, if both passes run, "dx" and "grad/NAME".
RunReport run_alone(Cluster& cluster, const Twins& twins);
RunReport run_shared(Cluster& cluster, const Twins& twins, Passes passes);

/// Bytes that the forward of a tensor-parallel block leaves on a device for its backward,
/// by the ledger; shapes only, 16 bits a number. Tensors that layers share count once.
struct Activations {
    std::int64_t held = 0;
    /// While backward runs, with what it needs for a moment.
    std::int64_t peak = 0;
    std::int64_t sent = 0;      ///< forward and backward
    std::int64_t scatters = 0;  ///< reduce-scatters of both
    Picoseconds time = 0;       ///< of both, on the classroom cluster
};
Activations measure_activations(const BlockSizes& sizes, std::int64_t length,
                                std::int64_t batch, int ranks, Regions regions);

/// A term of a sum of bytes: what the paper has, and what this project's
/// block has, where they differ (no dropout here).
struct Term {
    std::string name;
    std::int64_t paper = 0;
    std::int64_t ours = 0;
};

/// The terms of s b h (10 + 24/t + 5 a s/(h t)), or with sequence
/// parallelism of s b h/t (34 + 5 a s/h): Korthikanti et al. 2022,
/// 2205.05198, section 4.
std::vector<Term> activation_terms(const BlockSizes& sizes, std::int64_t length,
                                   std::int64_t batch, int ranks, Regions regions);

/// The terms of what a device holds when backward, without sequence parallelism, works
/// out the gradient of attention's scores. That is the peak, unless sequences are short.
std::vector<Term> peak_terms(const BlockSizes& sizes, std::int64_t length,
                             std::int64_t batch, int ranks);

}  // namespace lockstep::lessons
