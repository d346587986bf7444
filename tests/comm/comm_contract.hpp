#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/comm/rank.hpp"

namespace lockstep::test {

/// The rules for the communicators of every world. `make(n)` returns a cluster of n
/// ranks.
using MakeCluster = std::function<std::unique_ptr<Cluster>(int ranks)>;

/// Checks some verbs, with one number of ranks, against a plain computation on the host.
/// Each buffer has `count` elements; if it has blocks, each block has `count`.
struct CommRule {
    const char* text;  ///< the rule that is checked
    void (*check)(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);
};

/// Returns all rules.
const std::vector<CommRule>& comm_rules();

}  // namespace lockstep::test
