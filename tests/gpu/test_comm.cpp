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

/// Checks the rule with every number of ranks for which there are enough GPUs. No number
/// above 1 divides 13. More than 3 ranks try only f32, because processes need time.
void check_all_sizes(const CommRule& rule) {
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
            if (ranks <= 3 || dtype == DType::f32) rule.check(make, ranks, count, dtype);
    }
}

}  // namespace

TEST_CASE("communicators over NCCL follow the rules", "[gpu][comm]") {
    for (const CommRule& rule : comm_rules())
        DYNAMIC_SECTION(rule.text) {
            check_all_sizes(rule);
        }
}

}  // namespace lockstep::test
