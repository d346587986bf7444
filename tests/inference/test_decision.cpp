#include <vector>

#include "sim/cluster.hpp"
#include "src/inference/decision.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

TEST_CASE("Others go by what rank 0 decides, without numbers, too", "[inference][sim]") {
    const int ranks = GENERATE(1, 2, 5);
    const bool numbers = GENERATE(true, false);
    const std::vector<bool> decisions =
        GENERATE(std::vector<bool>{}, std::vector<bool>{true},
                 std::vector<bool>{false, false, true, true, false, true});
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.numbers = numbers;
    // Its messages wait beside others without numbers, which no GPU would have to bear.
    if (!numbers) options.check = sim::CheckLevel::cheap;
    options.spec = load_cluster("classroom");
    std::vector<std::vector<bool>> told(static_cast<std::size_t>(ranks));
    const RunReport report = sim::make_cluster(std::move(options))->run([&](Rank& rank) {
        Decision decision(rank.device(), rank.world());
        for (const bool decided : decisions)
            told[static_cast<std::size_t>(rank.index())].push_back(
                decision.decide(rank.index() == 0 && decided));
        decision.end();
    });
    for (const auto& of_rank : told)
        CHECK(of_rank == decisions);
    // A broadcast each; or a message to each other rank, and one more in the end.
    const auto count = static_cast<std::int64_t>(decisions.size());
    const std::int64_t messages = count == 0 ? 0 : (count + 1) * (ranks - 1);
    CHECK(report.ranks[0].bytes_sent() ==
          4 * (numbers ? count * (ranks > 1 ? 1 : 0) : messages));
}

}  // namespace lockstep::test
