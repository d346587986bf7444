#pragma once

#include <string>

#include "sim/cluster.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep::test {

/// Runs a program without a mistake under full checking, in several worlds. The checker
/// must find nothing.
void must_stay_silent(int ranks, const Program& program);

constexpr int kSteps = 3;

/// A step of the optimizer, in the update phase.
void step(Device& device, Optimizer& optimizer);

/// Two linear layers, (6) to (8) to (4), the same on every rank.
std::unique_ptr<Sequential> make_mlp(Device& device, std::uint64_t seed = 7);

/// Returns rows [first, first + rows) of a larger whole, each with `columns` numbers.
Tensor random_rows(Device& device, const std::string& name, std::int64_t first,
                   std::int64_t rows, std::int64_t columns);

}  // namespace lockstep::test
