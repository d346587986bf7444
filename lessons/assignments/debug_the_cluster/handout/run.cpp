// One of the programs on four virtual devices: its timeline, or what the simulator says
// of its mistake; and what it left, beside what one device with all data would have.
//
//     ./build/run pipeline
//     LOCKSTEP_CHECK=full ./build/run pipeline

#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "four_ranks.hpp"
#include "sim/cluster.hpp"
#include "src/course/show_run.hpp"

using namespace lockstep;

namespace {

/// Keeps the report of its last run.
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

/// Of each tensor the element that is furthest off.
void show_values(const RunReport& report, const ProgramCase& shown) {
    fmt::print("\nWhat each rank left, and what one device with all data would have:\n");
    for (std::size_t rank = 0; rank < report.ranks.size(); ++rank)
        for (const auto& [name, expected] : shown.expected[rank]) {
            const HostTensor& got = report.ranks[rank].kept.at(name);
            std::int64_t furthest = 0;
            for (std::int64_t i = 0; i < got.elements(); ++i)
                if (std::abs(got.at(i) - expected.at(i)) >
                    std::abs(got.at(furthest) - expected.at(furthest)))
                    furthest = i;
            fmt::print("rank {}: {}: element {} is {:.9f}, on one device {:.9f}\n", rank,
                       name, furthest, got.at(furthest), expected.at(furthest));
        }
}

int run(const ProgramCase& shown) {
    sim::ClusterOptions options;
    options.ranks = kRanks;
    options.spec = load_cluster("classroom");
    options.trace = true;
    const auto cluster = sim::make_cluster(options);
    Reported reported(*cluster);
    const int status = show_run(reported, shown.program, shown.name);
    if (status == 0) show_values(reported.report, shown);
    return status;
}

}  // namespace

int main(int arguments, char** argument) {
    std::string names;
    for (const ProgramCase& known : program_cases()) {
        if (arguments == 2 && known.name == argument[1]) return run(known);
        names += " " + known.name;
    }
    fmt::print(stderr, "which program? One of:{}\n", names);
    return 2;
}
