#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/parameter.hpp"
#include "src/report/safetensors.hpp"

namespace lockstep {

/// The parameters that a rank has between steps, and the parameters that have the batch's
/// gradients after a step. If parameters are sharded, `gradients` has the rank's shards.
struct Trained {
    Trained(std::vector<Parameter*> parameters)
        : values(parameters), gradients(std::move(parameters)) {}
    Trained(std::vector<Parameter*> whole, std::vector<Parameter*> shards)
        : values(std::move(whole)), gradients(std::move(shards)) {}

    std::vector<Parameter*> values;
    std::vector<Parameter*> gradients;
};

/// Runs a training step. Returns this rank's term of the loss, (1), or none.
using Step = std::function<Tensor(int step)>;
/// Rank 0 calls this function with the number of finished steps.
using Advance = std::function<void(int steps)>;

/// Trains on one rank. Keeps the final parameters under their names, the initial
/// parameters under "initial/NAME", the first step's gradients under "grad/NAME", and the
/// losses in the series "loss".
void train(Rank& rank, const Trained& trained, int steps, const Step& step,
           const Advance& advance = {});

/// Keeps one tensor of each parameter under `prefix` and the parameter's name, with the
/// parameter's part of the whole. Skips parameters without the tensor. A run without
/// numbers keeps nothing.
void keep_parameters(Rank& rank, const std::vector<Parameter*>& parameters,
                     const std::string& prefix, Tensor Parameter::*tensor);

/// Sets parameters, or shards of them, to the values of `wholes`, by name. A parameter
/// that is not in `wholes` is not changed.
void load_parameters(const std::vector<Parameter*>& parameters,
                     const NamedTensors& wholes);

}  // namespace lockstep
