#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lessons/runner/terminal.hpp"
#include "src/comm/rank.hpp"
#include "src/nn/parameter.hpp"
#include "src/report/safetensors.hpp"

namespace lockstep::lessons {

/// A rank keeps values of these between steps, and after a step the batch's gradients of
/// those: its shards, if ranks share parameters out.
struct Trained {
    std::vector<Parameter*> values;
    std::vector<Parameter*> gradients;
};

/// Trains on one rank: calls `step` for each step, which changes the parameters and gives
/// this rank's share of the loss, (1), or none. Keeps the parameters after the last step
/// under their names, before the first one under "initial/NAME", the first step's
/// gradients under "grad/NAME", and the losses in the series "loss".
void run_training(Rank& rank, const Trained& trained, int steps,
                  const std::function<Tensor(int step)>& step, Progress* progress);
inline void run_training(Rank& rank, const std::vector<Parameter*>& parameters, int steps,
                         const std::function<Tensor(int step)>& step,
                         Progress* progress) {
    run_training(rank, {parameters, parameters}, steps, step, progress);
}

/// Keeps one tensor of each parameter, and which part of the whole it is, under `prefix`
/// and its name, unless it is not there. In a run of shapes only there are no numbers to
/// keep.
void keep_parameters(Rank& rank, const std::vector<Parameter*>& parameters,
                     const std::string& prefix, Tensor Parameter::*tensor);

/// Gives parameters, or shards of them, the values of these wholes, by their names; those
/// that have none stay as they are.
void load_parameters(const std::vector<Parameter*>& parameters,
                     const NamedTensors& wholes);

/// Returns what the ranks kept under prefix + NAME, by NAME: the wholes of which they may
/// have kept parts.
NamedTensors kept_under(const RunReport& report, const std::string& prefix);

/// Returns all that ranks kept: what the first one has of them kept whole, and the wholes
/// of which ranks kept parts.
NamedTensors all_kept(const RunReport& report);

/// Returns which of so many steps, from 0, a curve is shown at.
std::vector<std::size_t> shown_steps(std::size_t steps);

/// Returns the losses of all steps. Each rank that kept any has a share of them.
std::vector<double> losses_of(const RunReport& report);

}  // namespace lockstep::lessons
