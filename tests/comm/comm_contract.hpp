#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/comm/rank.hpp"

namespace lockstep::test {

/// The rules for the communicators of every world. `make(n)` returns a cluster of n
/// ranks.
using MakeCluster = std::function<std::unique_ptr<Cluster>(int ranks)>;

/// Each checks some verbs, with one number of ranks, against a plain computation on the
/// host. Each buffer has `count` elements; if it has blocks, each block has `count`.
void check_all_reduce(const MakeCluster& make, int ranks, std::int64_t count,
                      DType dtype);
void check_all_gather(const MakeCluster& make, int ranks, std::int64_t count,
                      DType dtype);
void check_reduce_scatter(const MakeCluster& make, int ranks, std::int64_t count,
                          DType dtype);
void check_rooted(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);
void check_all_to_all(const MakeCluster& make, int ranks, std::int64_t count,
                      DType dtype);
/// Parts in rows, with unequal sizes; some are empty.
void check_all_to_all_v(const MakeCluster& make, int ranks, std::int64_t count,
                        DType dtype);
void check_messages(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);
void check_groups(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);
/// Messages from all other ranks, received in the order of their arrival.
void check_wait_any(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);
/// Groups by lists of members, and a mesh.
void check_subgroups(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);
void check_split(const MakeCluster& make, int ranks, std::int64_t count, DType dtype);

}  // namespace lockstep::test
