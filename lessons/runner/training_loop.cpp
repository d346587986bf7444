#include "lessons/runner/training_loop.hpp"

#include <algorithm>

namespace lockstep::lessons {

// lesson: training-loop
void run_training(Rank& rank, const Trained& trained, int steps,
                  const std::function<Tensor(int step)>& step, Progress* progress) {
    keep_parameters(rank, trained.values, "initial/", &Parameter::value);
    for (int i = 0; i < steps; ++i) {
        const Tensor loss = step(i);
        if (loss) rank.keep_value("loss", rank.device().peek(loss).at(0));
        if (i == 0)
            keep_parameters(rank, trained.gradients, "grad/", &Parameter::gradient);
        if (progress && rank.index() == 0) progress->advance(i + 1);
    }
    keep_parameters(rank, trained.values, "", &Parameter::value);
}
// lesson: end

void keep_parameters(Rank& rank, const std::vector<Parameter*>& parameters,
                     const std::string& prefix, Tensor Parameter::*tensor) {
    if (!rank.device().has_numbers()) return;
    for (const Parameter* parameter : parameters)
        if (parameter->*tensor)
            rank.keep(prefix + parameter->name(), parameter->*tensor, parameter->part());
}

void load_parameters(const std::vector<Parameter*>& parameters,
                     const NamedTensors& wholes) {
    for (const Parameter* parameter : parameters) {
        const auto whole = wholes.find(parameter->name());
        if (whole == wholes.end()) continue;
        parameter->value.device()->upload_into(
            parameter->value, shard_of(whole->second, parameter->part()));
    }
}

std::vector<std::size_t> shown_steps(std::size_t steps) {
    constexpr std::size_t kRows = 8;
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i <= kRows; ++i) {
        const std::size_t step = (steps - 1) * i / kRows;
        if (shown.empty() || shown.back() != step) shown.push_back(step);
    }
    return shown;
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

NamedTensors all_kept(const RunReport& report) {
    NamedTensors all;
    for (const RankReport& rank : report.ranks)
        for (const auto& [name, tensor] : rank.kept)
            if (!all.contains(name))
                all.emplace(name,
                            holds_all(rank.part_of(name)) ? tensor : report.whole(name));
    return all;
}

}  // namespace lockstep::lessons
