#include "src/trial/outcome.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {

NamedTensors kept_under(const RunReport& report, const std::string& prefix) {
    NamedTensors all;
    for (const RankReport& rank : report.ranks)
        for (const auto& [name, tensor] : rank.kept) {
            const bool other = prefix.empty() && name.find('/') != std::string::npos;
            if (!name.starts_with(prefix) || other) continue;
            const std::string own = name.substr(prefix.size());
            if (!all.contains(own)) all.emplace(own, report.whole(name));
        }
    return all;
}

NamedTensors all_kept(const RunReport& report, Mistakes mistakes) {
    NamedTensors all;
    for (const RankReport& rank : report.ranks)
        for (const auto& [name, tensor] : rank.kept)
            if (!all.contains(name))
                all.emplace(name,
                            mistakes == Mistakes::kept && holds_all(rank.part_of(name))
                                ? tensor
                                : report.whole(name));
    return all;
}

std::vector<double> losses_of(const RunReport& report) {
    std::vector<double> losses;
    for (const RankReport& rank : report.ranks) {
        const auto found = rank.series.find("loss");
        if (found == rank.series.end()) continue;
        losses.resize(std::max(losses.size(), found->second.size()), 0);
        for (std::size_t i = 0; i < found->second.size(); ++i)
            losses[i] += found->second[i];
    }
    return losses;
}

NamedTensors named_under(const NamedTensors& tensors, const std::string& prefix) {
    NamedTensors some;
    for (const auto& [name, tensor] : tensors)
        if (name.starts_with(prefix)) some.emplace(name.substr(prefix.size()), tensor);
    return some;
}

Outcome outcome_of(Cluster& cluster, const Program& program, Mistakes mistakes) {
    Outcome outcome;
    try {
        outcome.report = cluster.run(program);
    } catch (const FaultError& fault) {
        if (mistakes == Mistakes::thrown) throw;
        if (fault.report()) outcome.report = *fault.report();
        outcome.stopped = fault.diagnosis();
        return outcome;
    }
    outcome.results = all_kept(outcome.report, mistakes);
    const std::vector<double> losses = losses_of(outcome.report);
    for (std::size_t step = 0; step < losses.size(); ++step)
        outcome.results.emplace(fmt::format("loss/{}", step),
                                HostTensor::of<double>({1}, {losses[step]}));
    return outcome;
}

Difference difference(const Outcome& got, const Outcome& expected) {
    for (const Outcome* outcome : {&got, &expected})
        require(!outcome->stopped, "a run that was stopped cannot be compared: {}",
                outcome->stopped ? outcome->stopped->sentence : "");
    return difference(got.results, expected.results);
}

}  // namespace lockstep
