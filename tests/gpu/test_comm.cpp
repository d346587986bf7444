#include <cstdint>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/comm/comm_contract.hpp"
#include "tests/gpu/forked_cluster.hpp"

namespace lockstep::test {

namespace {

std::unique_ptr<Cluster> make(int ranks) {
    return make_forked_cluster(ranks);
}

/// Runs with every number of ranks that has enough GPUs. The ranks do not divide the
/// sizes. With many ranks it tries only some types, because processes need time.
template <typename Contract>
void for_all_sizes(Contract contract) {
    const std::vector<std::pair<std::int64_t, DType>> buffers{{13, DType::f32},
                                                              {1, DType::f64},
                                                              {0, DType::f32},
                                                              {13, DType::i32},
                                                              {13, DType::bf16}};
    for (const int ranks : {1, 2, 3, 4, 7}) {
        if (!has_gpus_for(ranks)) {
            WARN("skipped: " << lacking_gpus(ranks));
            continue;
        }
        for (const auto& [count, dtype] : buffers)
            if (ranks <= 3 || dtype == DType::f32) contract(make, ranks, count, dtype);
    }
}

}  // namespace

TEST_CASE("NCCL's all-reduce leaves the reduction on every rank", "[gpu][comm]") {
    for_all_sizes(check_all_reduce);
}
TEST_CASE("NCCL's all-gather leaves every rank's block on every rank", "[gpu][comm]") {
    for_all_sizes(check_all_gather);
}
TEST_CASE("NCCL's reduce-scatter leaves each rank its block of the sum", "[gpu][comm]") {
    for_all_sizes(check_reduce_scatter);
}
TEST_CASE("NCCL's rooted collectives move to and from any root", "[gpu][comm]") {
    for_all_sizes(check_rooted);
}
TEST_CASE("NCCL's all-to-all transposes blocks and ranks", "[gpu][comm]") {
    for_all_sizes(check_all_to_all);
}
TEST_CASE("An all-to-all of unequal parts over NCCL transposes them", "[gpu][comm]") {
    for_all_sizes(check_all_to_all_v);
}
TEST_CASE("Subgroups and meshes over NCCL have the members that were asked for",
          "[gpu][comm]") {
    for_all_sizes(check_subgroups);
}
TEST_CASE("NCCL's sends and recvs meet, in groups and one by one", "[gpu][comm]") {
    for_all_sizes(check_messages);
}
TEST_CASE("A group of NCCL's operations progresses together, in order", "[gpu][comm]") {
    for_all_sizes(check_groups);
}
TEST_CASE("NCCL's works can be waited for as they end", "[gpu][comm]") {
    for_all_sizes(check_wait_any);
}
TEST_CASE("A split of NCCL's makes communicators by colour and key", "[gpu][comm]") {
    for_all_sizes(check_split);
}

}  // namespace lockstep::test
