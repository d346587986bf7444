#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lessons/03_tensor_parallel_block/gpt_training.hpp"
#include "src/report/safetensors.hpp"

namespace lockstep::lessons {

/// A module that maps (s, b, h) to the same shape, on one device and shared
/// out.
struct Twins {
    std::int64_t length = 0;
    std::int64_t batch = 0;
    std::int64_t hidden = 0;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    std::function<std::unique_ptr<Module>(const ParameterInit&)> alone;
    std::function<std::unique_ptr<Module>(const ParameterInit&,
                                          TensorParallel&)>
        shared;
};

enum class Pass { forward, both };

/// Of random input, and random gradient of the output, the same on every
/// device. Every rank keeps "y" and, of both passes, "dx" and "grad/NAME".
RunReport run_alone(Cluster& cluster, const Twins& twins);
RunReport run_shared(Cluster& cluster, const Twins& twins, Pass pass);

/// The largest relative difference of any tensor of the two runs, of
/// `ranks` devices and of one.
double twin_difference(const Twins& twins, const RunReport& shared,
                       const RunReport& alone);

}  // namespace lockstep::lessons
