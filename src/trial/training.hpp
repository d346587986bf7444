#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/parameter.hpp"
#include "src/report/safetensors.hpp"

namespace lockstep {

/// A rank keeps values of these between steps, and after a step the batch's gradients of
/// those: its shards, if ranks share parameters out.
struct Trained {
    Trained(std::vector<Parameter*> parameters)
        : values(parameters), gradients(std::move(parameters)) {}
    Trained(std::vector<Parameter*> whole, std::vector<Parameter*> shards)
        : values(std::move(whole)), gradients(std::move(shards)) {}

    std::vector<Parameter*> values;
    std::vector<Parameter*> gradients;
};

/// Changes the parameters, and gives this rank's share of the loss, (1), or none.
using Step = std::function<Tensor(int step)>;
/// Is told by rank 0 how many steps are done.
using Advance = std::function<void(int steps)>;

/// Trains on one rank. Keeps the parameters after the last step under their names, before
/// the first one under "initial/NAME", the first step's gradients under "grad/NAME", and
/// the losses in the series "loss".
void train(Rank& rank, const Trained& trained, int steps, const Step& step,
           const Advance& advance = {});

/// Keeps one tensor of each parameter, and which part of the whole it is, under `prefix`
/// and its name, unless it is not there. In a run of shapes only there are no numbers to
/// keep.
void keep_parameters(Rank& rank, const std::vector<Parameter*>& parameters,
                     const std::string& prefix, Tensor Parameter::*tensor);

/// Gives parameters, or shards of them, the values of these wholes, by their names; those
/// that have none stay as they are.
void load_parameters(const std::vector<Parameter*>& parameters,
                     const NamedTensors& wholes);

}  // namespace lockstep
