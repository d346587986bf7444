#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/comm/rank.hpp"

namespace lockstep::test {

/// What must hold for the communicators of every world. `make(n)` gives a cluster of n
/// ranks.
using MakeCluster = std::function<std::unique_ptr<Cluster>(int ranks)>;

/// Every verb, for one number of ranks, on buffers of `count` elements (a block's, where
/// ranks have blocks): values against a plain computation on the host.
void check_all_reduce(const MakeCluster& make, int ranks, std::int64_t count,
                      DType dtype);
void check_all_gather(const MakeCluster& make, int ranks, std::int64_t count,
                      DType dtype);
void check_reduce_scatter(const MakeCluster& make, int ranks, std::int64_t count,
                          DType dtype);
void check_rooted(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);
void check_all_to_all(const MakeCluster& make, int ranks, std::int64_t count,
                      DType dtype);
/// Parts of unequal sizes, some of nothing, in rows.
void check_all_to_all_v(const MakeCluster& make, int ranks, std::int64_t count,
                        DType dtype);
void check_messages(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);
void check_groups(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);
/// Messages from all other ranks, taken as they come.
void check_wait_any(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);
/// Groups by lists of members, and a mesh.
void check_subgroups(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);
void check_split(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);

}  // namespace lockstep::test
