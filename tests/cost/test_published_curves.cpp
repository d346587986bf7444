// Published tables of nccl-tests against the presets.

#include <cmath>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "src/cost/collectives.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

/// Each line: machine | source | preset | ports of a node x Gbit/s | verb | ranks | ranks
/// on a node | allowed mean error in % from 1 MiB on | allowed mean factor below | the
/// printed sizes and out-of-place times: bytes:us. Ports and rates that a source does not
/// print are those of the machine's data sheet.
constexpr const char* kTables =
#include "tests/cost/nccl_tests.txt"
    ;

std::vector<std::string> cells_of(const std::string& line) {
    std::vector<std::string> cells;
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 3) {
        end = line.find(" | ", begin);
        cells.push_back(line.substr(begin, end - begin));
    }
    return cells;
}

Verb verb_called(const std::string& name) {
    for (std::size_t i = 0; i < kVerbs; ++i)
        if (name == name_of(static_cast<Verb>(i))) return static_cast<Verb>(i);
    throw UsageError(name + " is no verb");
}

ClusterSpec cluster_of(const std::vector<std::string>& cells) {
    ClusterSpec spec = load_cluster(cells.at(2));
    spec.devices_per_node = std::stoi(cells.at(6));
    if (const std::size_t times = cells.at(3).find('x'); times != std::string::npos) {
        spec.network_ports = std::stoi(cells.at(3));
        spec.between.bytes_per_second =
            std::stod(cells.at(3).substr(times + 1)) * 1e9 / 8;
    }
    return spec;
}

struct MeanErrors {
    double large = 0;  ///< mean of |time / published - 1|
    double small = 1;  ///< exp of the mean of |log(time / published)|
};

MeanErrors errors_of(const std::vector<std::string>& cells) {
    const ClusterSpec spec = cluster_of(cells);
    const int ranks = std::stoi(cells.at(5));
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    std::istringstream points(cells.at(9));
    double large = 0, small = 0;
    int larges = 0, smalls = 0;
    for (std::string point; points >> point;) {
        const std::int64_t bytes = std::stoll(point);
        const double us = std::stod(point.substr(point.find(':') + 1));
        const double time =
            static_cast<double>(collective_time(
                call_of_size(verb_called(cells.at(4)), bytes, ranks), spec, members)) *
            1e-6;
        if (bytes >= 1 << 20) {
            large += std::abs(time / us - 1);
            ++larges;
        } else {
            small += std::abs(std::log(time / us));
            ++smalls;
        }
    }
    return {larges > 0 ? large / larges : 0, smalls > 0 ? std::exp(small / smalls) : 1};
}

}  // namespace

TEST_CASE("presets have the times of published tables of nccl-tests",
          "[cost][published]") {
    std::istringstream lines(kTables);
    int tables = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.empty()) continue;
        const std::vector<std::string> cells = cells_of(line);
        const MeanErrors errors = errors_of(cells);
        INFO(cells.at(0) << ", " << cells.at(4) << ": " << 100 * errors.large
                         << " % from 1 MiB on, factor " << errors.small << " below");
        CHECK(100 * errors.large <= std::stod(cells.at(7)));
        CHECK(errors.small <= std::stod(cells.at(8)));
        ++tables;
    }
    CHECK(tables == 22);
}

}  // namespace lockstep::test
