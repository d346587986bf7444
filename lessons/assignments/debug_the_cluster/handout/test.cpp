// These tests are public. They run each program on four ranks, under every check, and
// read answers.json. The grader tests more: whether the answers are right, other numbers
// of ranks, other sizes, and what the programs cost.

#include <fmt/format.h>

#include "causes.hpp"
#include "data.hpp"
#include "sim/cluster.hpp"
#include "src/course/found_mistake.hpp"
#include "src/course/not_written.hpp"
#include "src/course/public_test.hpp"
#include "src/report/files.hpp"

using namespace lockstep;

void test_answer(const std::string& program) {
    constexpr std::uint64_t kLargest = 1 << 20;
    const std::string text = read_text_file(ANSWERS, kLargest);
    const FoundMistake found(text, "answers.json", program);
    if (!found.ranks(kRanks) || !found.line() || !found.cause(kCauses))
        throw NotWritten("its ranks, line and cause, in answers.json");
}

RunReport run(const ProgramCase& tested) {
    sim::ClusterOptions options;
    options.ranks = kRanks;
    options.spec = load_cluster("classroom");
    options.check = sim::CheckLevel::full;
    return sim::make_cluster(options)->run(tested.program);
}

/// Expects that each rank sends the bytes of one all-reduce of the gradients.
void test_sent(const RunReport& report, const ProgramCase& tested) {
    std::int64_t bytes = 0;
    for (const auto& [name, gradient] : tested.expected[0])
        bytes += gradient.bytes();
    for (const RankReport& rank : report.ranks)
        expect_equal(rank.bytes_sent(), 2 * (kRanks - 1) * bytes / kRanks,
                     "bytes that a rank sends");
}

void test_program(const ProgramCase& tested) {
    const RunReport report = run(tested);
    for (std::size_t rank = 0; rank < report.ranks.size(); ++rank)
        for (const auto& [name, expected] : tested.expected[rank])
            expect_close(report.ranks[rank].kept.at(name), expected,
                         fmt::format("{} on rank {}", name, rank));
    if (tested.name == "accumulate") test_sent(report, tested);
}

int main() {
    PublicTest test;
    for (const ProgramData& data : program_data()) {
        test.check(data.name + " in answers.json", [&] { test_answer(data.name); });
        test.check(data.name + ", 4 ranks",
                   [&] { test_program(data.made(kRanks, data.size)); });
    }
    return test.finish();
}
