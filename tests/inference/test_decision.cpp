#include <vector>

#include "sim/cluster.hpp"
#include "src/inference/decision.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

TEST_CASE("The other ranks follow rank 0's decisions, also with shapes only",
          "[inference][sim]") {
    const int ranks = GENERATE(1, 2, 5);
    const bool numbers = GENERATE(true, false);
    const std::vector<bool> decisions =
        GENERATE(std::vector<bool>{}, std::vector<bool>{true},
                 std::vector<bool>{false, false, true, true, false, true});
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.numbers = numbers;
    options.spec = load_cluster("classroom");
    std::vector<std::vector<bool>> told(static_cast<std::size_t>(ranks));
    const RunReport report = sim::make_cluster(std::move(options))->run([&](Rank& rank) {
        for (const bool decided : decisions)
            told[static_cast<std::size_t>(rank.index())].push_back(decided_by_first(
                rank.device(), rank.world(), rank.index() == 0 ? decided : !decided));
    });
    for (const auto& of_rank : told)
        CHECK(of_rank == decisions);
    // Each decision is a broadcast, for which the first rank sends 4 bytes.
    CHECK(report.ranks[0].bytes_sent() ==
          (ranks > 1 ? 4 * static_cast<std::int64_t>(decisions.size()) : 0));
}

}  // namespace lockstep::test
