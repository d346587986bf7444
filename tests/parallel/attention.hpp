// Attention with sharded tokens, and attention on one device.
#pragma once

#include <functional>
#include <memory>

#include "src/parallel/context_parallel.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

/// An attention problem.
struct Problem {
    std::int64_t tokens = 0;
    std::int64_t batch = 0;
    AttentionSizes sizes{};
    std::int64_t width = 0;
    DType dtype = DType::f64;
    double scale = 1;  ///< factor for x's normal values

    HostTensor x() const;
    /// Returns normal x and dy, whose tokens are sharded in this order.
    Case dealt(TokenOrder order) const;
    std::int64_t key_columns() const { return sizes.key_heads() * width; }
    std::int64_t columns() const { return sizes.heads * width + 2 * key_columns(); }
};

using MakeAttending = std::function<std::unique_ptr<Module>(Device&, Communicator&)>;

/// Runs CoreAttention on one device.
Outcome attend_alone(const Problem& problem);
Outcome attend_shared(const Problem& problem, int ranks, ContextMethod method,
                      TokenOrder order, sim::CheckLevel check = sim::check_level_asked());
/// Runs any module on the ranks. Without backward there is no dy.
Outcome attend_by(const Problem& problem, int ranks, TokenOrder order,
                  const MakeAttending& make,
                  sim::CheckLevel check = sim::check_level_asked(),
                  Passes passes = Passes::both);

/// Returns options for virtual devices of the classroom cluster that compute only shapes.
sim::ClusterOptions shapes_only(int ranks);
/// Runs attention with x and dy of zeros, for tests of times and bytes.
RunReport attend_zeros(const Problem& problem, ContextMethod method, TokenOrder order,
                       Passes passes, sim::ClusterOptions options);

}  // namespace lockstep::test
