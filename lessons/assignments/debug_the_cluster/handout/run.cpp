// Runs one of the programs on four virtual devices, and shows its timeline or the
// simulator's diagnosis. Then compares its results with those of one device.
//
//     ./build/run pipeline
//     LOCKSTEP_CHECK=full ./build/run pipeline
//     ./build/run pipeline 3 8                  three ranks, 8 micro-batches

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "data.hpp"
#include "sim/cluster.hpp"
#include "src/course/show_run.hpp"

using namespace lockstep;

namespace {

constexpr int kMostRanks = 16;
constexpr int kLargest = 100;

/// A cluster that keeps the report of its last run.
class Reported : public Cluster {
  public:
    explicit Reported(Cluster& cluster) : cluster_(cluster) {}
    int size() const override { return cluster_.size(); }
    RunReport run(const Program& program) override {
        return report = cluster_.run(program);
    }

    RunReport report;

  private:
    Cluster& cluster_;
};

/// Shows, for each tensor, the element with the largest error.
void show_values(const RunReport& report, const ProgramCase& shown) {
    constexpr double kRight = 1e-10;
    fmt::print(
        "\nThe result of each rank, and the result of one device with all data:\n");
    for (std::size_t rank = 0; rank < report.ranks.size(); ++rank)
        for (const auto& [name, expected] : shown.expected[rank]) {
            const HostTensor& got = report.ranks[rank].kept.at(name);
            const auto off = [&](std::int64_t i) {
                return std::abs(got.at(i) - expected.at(i));
            };
            std::int64_t furthest = 0;
            for (std::int64_t i = 0; i < got.elements() && off(furthest) >= 0; ++i)
                if (!(off(i) <= off(furthest))) furthest = i;  // NaN, too
            const double value = expected.at(furthest);
            const bool right = off(furthest) <= kRight * (1 + std::abs(value));
            fmt::print("rank {}: {} is {}: element {} is {:.9f}, on one device {:.9f}\n",
                       rank, name, right ? "right" : "wrong", furthest, got.at(furthest),
                       value);
        }
}

int run(const ProgramCase& shown, int ranks) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.trace = true;
    const auto cluster = sim::make_cluster(options);
    Reported reported(*cluster);
    const int status = show_run(reported, shown.program, shown.name);
    if (status == 0) show_values(reported.report, shown);
    return status;
}

int usage() {
    fmt::print(stderr,
               "which program, on how many ranks (1 to {}), and how large (1 to {})?\n",
               kMostRanks, kLargest);
    for (const ProgramData& known : program_data())
        fmt::print(stderr, "    ./build/run {} {} {}    ({})\n", known.name, kRanks,
                   known.size, known.counted);
    return 2;
}

/// Returns the word as a number from 1 to `most`, or 0 if it is no such number.
int number(const char* word, int most) {
    char* end = nullptr;
    const long value = std::strtol(word, &end, 10);
    return *end == '\0' && value >= 1 && value <= most ? static_cast<int>(value) : 0;
}

}  // namespace

int main(int count, char** words) {
    const std::string name = count > 1 ? words[1] : "";
    for (const ProgramData& data : program_data()) {
        if (data.name != name || count > 4) continue;
        const int ranks = count > 2 ? number(words[2], kMostRanks) : kRanks;
        const int size = count > 3 ? number(words[3], kLargest) : data.size;
        if (ranks > 0 && size > 0) return run(data.made(ranks, size), ranks);
    }
    return usage();
}
