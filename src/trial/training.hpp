#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/parameter.hpp"
#include "src/report/safetensors.hpp"

namespace lockstep {

/// The parameters that a rank has between steps, and those that have the batch's
/// gradients after a step. The latter are its shards if parameters are sharded.
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
/// Rank 0 calls it with the number of steps that are done.
using Advance = std::function<void(int steps)>;

/// Trains on one rank. Keeps the parameters after the last step under their names, before
/// the first one under "initial/NAME", the first step's gradients under "grad/NAME", and
/// the losses in the series "loss".
void train(Rank& rank, const Trained& trained, int steps, const Step& step,
           const Advance& advance = {});

/// Keeps one tensor of each parameter that has it, with its part of the whole, under
/// `prefix` and the parameter's name. A run without numbers keeps nothing.
void keep_parameters(Rank& rank, const std::vector<Parameter*>& parameters,
                     const std::string& prefix, Tensor Parameter::*tensor);

/// Sets parameters, or shards of them, to the values of `wholes`, by name. Parameters
/// without one stay as they are.
void load_parameters(const std::vector<Parameter*>& parameters,
                     const NamedTensors& wholes);

}  // namespace lockstep
