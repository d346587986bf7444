#include "sim/check/own_gradients.hpp"

#include <algorithm>
#include <cstring>

#include "sim/check/contents.hpp"
#include "sim/check/layouts.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

bool is_one_number(const HostTensor& values) {
    const std::int64_t each = bytes_of(values.dtype());
    for (std::int64_t i = 1; i < values.elements(); ++i)
        if (std::memcmp(values.data(), values.data() + i * each,
                        static_cast<std::size_t>(each)) != 0)
            return false;
    return true;
}

}  // namespace

void OwnGradientWatcher::Exchanges::add(const Team* team, const Tensor& buffer) {
    std::vector<Part>& parts = live_[buffer.storage()];
    const Part part{team, ByteRange::of(buffer)};
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
}

void OwnGradientWatcher::Exchanges::erase(const Tensor& gradient) {
    const auto found = live_.find(gradient.storage());
    if (found == live_.end()) return;
    std::erase_if(found->second, [&](const Part& part) {
        return part.second.overlaps(ByteRange::of(gradient));
    });
    if (found->second.empty()) live_.erase(found);
}

void OwnGradientWatcher::Exchanges::freed(const Storage& storage) noexcept {
    const auto found = live_.find(&storage);
    if (found == live_.end()) return;
    for (const auto& [team, range] : found->second)
        gone_.insert(team);
    live_.erase(found);
}

void OwnGradientWatcher::Exchanges::merge(Exchanges& more) {
    for (auto& [storage, parts] : more.live_) {
        std::vector<Part>& all = live_[storage];
        for (const Part& part : parts)
            if (std::find(all.begin(), all.end(), part) == all.end()) all.push_back(part);
    }
    gone_.merge(more.gone_);
    more.clear();
}

void OwnGradientWatcher::Exchanges::add_teams_to(std::set<const Team*>& teams) const {
    for (const auto& [storage, parts] : live_)
        for (const auto& [team, range] : parts)
            teams.insert(team);
    teams.insert(gone_.begin(), gone_.end());
}

void OwnGradientWatcher::Exchanges::clear() {
    live_.clear();
    gone_.clear();
}

OwnGradientWatcher::OwnGradientWatcher(const Engine& engine, const Layouts& layouts)
    : engine_(engine),
      layouts_(layouts),
      ranks_(static_cast<std::size_t>(engine.options().ranks)) {}

void OwnGradientWatcher::launched(Batch& batch) {
    constexpr std::int64_t kFigures = 4;  // elements: a loss, a count
    RankSteps& mine = of(batch.rank);
    for (const Posted& posted : batch.posted) {
        const CommOperation& operation = posted.operation;
        // Gradients are not what a root deals out, or collects as they are.
        const VerbFacts verb = facts_of(operation.verb);
        if (verb.has_root() && !verb.reduces) continue;
        const Tensor& buffer = operation.output ? operation.output : operation.input;
        if (buffer && std::max(buffer.elements(), operation.input.elements()) > kFigures)
            mine.since.add(batch.team, buffer);
    }
}

void OwnGradientWatcher::executing(int rank, const DeviceOperation& operation) {
    if (is_update(operation))
        note_update(rank, operation);
    else
        note_use(rank, operation);
}

void OwnGradientWatcher::note_use(int rank, const DeviceOperation& operation) {
    const bool embeds = std::strcmp(operation.name, "embedding") == 0;
    if (!embeds && std::strncmp(operation.name, "matmul", 6) != 0) return;
    for (const Tensor* read : operation.reads) {
        const std::string& label = read->label();
        if (label.empty()) continue;
        Use& use = of(rank).uses[label];
        (embeds ? use.embeds : use.projects) = true;
    }
}

void OwnGradientWatcher::note_update(int rank, const DeviceOperation& operation) {
    const Tensor& parameter = parameter_of(operation);
    const Tensor& gradient = gradient_of(operation);
    RankSteps& mine = of(rank);
    mine.before.erase(gradient);
    mine.since.erase(gradient);
    const std::string& label = parameter.label();
    if (label.empty() || parameter.bytes() == 0) return;
    Use& use = mine.uses[label];
    if (++use.updates > mine.begun) begin_step(rank);
    mine.before.merge(mine.since);

    const HostTensor values = values_of(parameter);
    const Layout layout = layouts_.of(rank, gradient);
    const Team* const reduced = layout.reduced ? layout.team() : nullptr;
    steps_[use.updates].updates[label].push_back(
        {rank, hash_of_bits(values.data(), values.bytes()), hash_of(gradient),
         is_one_number(values), use.embeds, use.projects, reduced,
         reduced == nullptr ? values_of(gradient) : HostTensor(), operation.name,
         operation.at});
    noted_ = true;
}

/// What was exchanged up to the last update belongs to the step before.
void OwnGradientWatcher::begin_step(int rank) {
    RankSteps& mine = of(rank);
    mine.before.add_teams_to(steps_[mine.begun].exchanged[rank]);
    mine.before.clear();
    ++mine.begun;
}

void OwnGradientWatcher::freed(int rank, const Storage& storage) noexcept {
    of(rank).before.freed(storage);
    of(rank).since.freed(storage);
}

void OwnGradientWatcher::ended(int rank) {
    RankSteps& mine = of(rank);
    mine.ended = true;
    if (mine.begun > 0)
        for (const Exchanges* exchanges : {&mine.before, &mine.since})
            exchanges->add_teams_to(steps_[mine.begun].exchanged[rank]);
    noted_ = true;
}

}  // namespace lockstep::sim
