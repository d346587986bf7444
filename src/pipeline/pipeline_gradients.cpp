// What a stage does with its gradients: shares them, and steps with them.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "src/comm/expect.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/pipeline.hpp"
#include "src/pipeline/reductions.hpp"

namespace lockstep {

void Pipeline::reduce_over(Communicator& replicas) {
    replicas_ = &replicas;
    for (Module* chunk : chunks_)
        for (const Parameter* parameter : chunk->parameters())
            declare_replicas(replicas, parameter->value, parameter->name());
}

void Pipeline::tie(Parameter& parameter, Communicator& sharers) {
    require(chunk_of(parameter) >= 0,
            "{} was tied on stage {}, which has no parameter of that name "
            "in its chunks",
            parameter.name(), line_.rank());
    ties_.emplace_back(&parameter, &sharers);
    declare_replicas(sharers, parameter.value, parameter.name());
}

/// The chunk that holds the parameter; -1 where none does.
int Pipeline::chunk_of(const Parameter& parameter) const {
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
        const auto held = chunks_[chunk]->parameters();
        if (std::ranges::find(held, &parameter) != held.end())
            return static_cast<int>(chunk);
    }
    return -1;
}

/// Everything that other devices contribute to is summed, once and in time.
void Pipeline::require_shared_gradients() const {
    const Schedule& schedule = plan_.schedule();
    const int stage = line_.rank();
    if (replicas_ || !ties_.empty())
        require_reductions(schedule, stage, !optimizers_.empty());
    for (int chunk = 0; chunk < schedule.chunks; ++chunk)
        if (schedule.holders(schedule.part(stage, chunk)) > 1)
            require_tied(chunk);
}

/// A part that another stage holds too has its gradients summed with it.
void Pipeline::require_tied(int chunk) const {
    const Schedule& schedule = plan_.schedule();
    for (const Parameter* parameter : chunks_[chunk]->parameters()) {
        const bool tied = std::ranges::any_of(
            ties_, [&](const auto& tie) { return tie.first == parameter; });
        require(tied,
                "schedule '{}' has part {} on several stages, so {} on "
                "stage {} must be tied to the other copy; see "
                "Pipeline::tie",
                schedule.name, schedule.part(line_.rank(), chunk),
                parameter->name(), line_.rank());
    }
}

void Pipeline::update_by(std::vector<Optimizer*> optimizers,
                         SourceLine at) {
    require(optimizers.size() == chunks_.size(), at,
            "{} optimizers for {} chunks; one for each is expected",
            optimizers.size(), chunks_.size());
    const Schedule& schedule = plan_.schedule();
    for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
        require(optimizers[chunk] != nullptr, at,
                "the optimizer of chunk {} is null; one is expected",
                chunk);
        const bool steps = std::ranges::any_of(
            schedule.of(line_.rank()), [&](const Instruction& each) {
                return each.kind == InstructionKind::optimizer_step &&
                       each.chunk == chunk;
            });
        require(steps, at,
                "schedule '{}' never updates chunk {} of stage {}: add an "
                "optimizer step (U), or step after run() instead of "
                "update_by()",
                schedule.name, chunk, line_.rank());
    }
    optimizers_ = std::move(optimizers);
}

void Pipeline::reduce_gradients(int chunk) {
    clear_used_up(static_cast<std::size_t>(chunk));
    std::vector<Work> works;
    const auto parameters = chunks_[chunk]->parameters();
    if (replicas_)
        for (const Parameter* parameter : parameters)
            works.push_back(replicas_->all_reduce(parameter->gradient));
    for (Work& work : works)
        work.wait();
    for (const auto& [parameter, sharers] : ties_)
        if (std::ranges::find(parameters, parameter) != parameters.end())
            sharers->all_reduce(parameter->gradient).wait();
}

void Pipeline::update(Place place) {
    const auto chunk = static_cast<std::size_t>(at(place).chunk);
    if (optimizers_.empty()) return;
    clear_used_up(chunk);
    stash_.before_update(place, *chunks_[chunk]);
    const PhaseScope phase(device_, Phase::update);
    optimizers_[chunk]->step();
    used_up_[chunk] = 1;
}

/// The first contribution after an update, or in a run, finds zeros. A
/// chunk may contribute to another's, so all are looked at.
void Pipeline::begin_gradients() {
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk)
        clear_used_up(chunk);
}

void Pipeline::clear_used_up(std::size_t chunk) {
    if (std::exchange(used_up_[chunk], char{0}))
        zero_gradients(*chunks_[chunk]);
}

}  // namespace lockstep
