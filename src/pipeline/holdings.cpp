#include "src/pipeline/holdings.hpp"

#include <algorithm>

#include "src/pipeline/weight_versions.hpp"

namespace lockstep {

using enum InstructionKind;

namespace {

void raise(Holdings& peak, const Holdings& now) {
    peak.in_flight = std::max(peak.in_flight, now.in_flight);
    peak.between = std::max(peak.between, now.between);
    peak.weight_versions = std::max(peak.weight_versions, now.weight_versions);
    for (double Holdings::*amount :
         {&Holdings::activations, &Holdings::for_weights, &Holdings::recomputed,
          &Holdings::weights, &Holdings::memory})
        peak.*amount = std::max(peak.*amount, now.*amount);
}

}  // namespace

HeldByStage::HeldByStage(const Schedule& schedule, int stage,
                         const ScheduleMemory& memory)
    : schedule_(schedule),
      stage_(stage),
      memory_(memory),
      chunks_(static_cast<std::size_t>(schedule.chunks)) {
    std::vector<int> newest(chunks_.size(), 0);
    for (Chunk& chunk : chunks_)
        chunk.last_read.push_back(-1);
    const std::vector<Instruction>& list = schedule.of_stage(stage);
    for (int i = 0; i < static_cast<int>(list.size()); ++i) {
        const Instruction& work = list[i];
        std::vector<int>& last_read = chunks_[work.chunk].last_read;
        const int version =
            work.weight_version < 0 ? newest[work.chunk] : work.weight_version;
        if (is_computation(work.kind) && !work.estimated) last_read[version] = i;
        if (work.kind != optimizer_step) continue;
        ++newest[work.chunk];
        last_read.push_back(-1);
    }
    now_ = sum(0);
}

Holdings HeldByStage::run(Positions together) {
    double recomputed = 0;
    for (int i = together.first; i < together.last; ++i) {
        const Instruction& work = schedule_.at({stage_, i});
        begin(work, i);
        if (work.kind == backward || work.kind == backward_input)
            recomputed += memory_.of_part(schedule_.part(stage_, work.chunk)).recomputed;
    }
    const Holdings meanwhile = sum(recomputed);
    for (int i = together.first; i < together.last; ++i)
        end(schedule_.at({stage_, i}), i);
    now_ = sum(0);
    return meanwhile;
}

void HeldByStage::begin(const Instruction& work, int position) {
    Chunk& chunk = chunks_[work.chunk];
    if (work.kind == forward) add(chunk, 1, 0);
    if (work.kind != optimizer_step) return;
    if (chunk.last_read[chunk.newest] > position) {
        chunk.old.push_back(chunk.newest);
        ++old_;
    }
    ++chunk.newest;
}

void HeldByStage::end(const Instruction& work, int position) {
    Chunk& chunk = chunks_[work.chunk];
    if (work.kind == backward) add(chunk, -1, 0);
    if (work.kind == backward_input) add(chunk, -1, 1);
    if (work.kind == backward_weight) add(chunk, 0, -1);
    old_ -= static_cast<int>(std::erase_if(
        chunk.old, [&](int version) { return chunk.last_read[version] <= position; }));
}

void HeldByStage::add(Chunk& chunk, int in_flight, int between) {
    chunk.in_flight += in_flight;
    in_flight_ += in_flight;
    chunk.between += between;
    between_ += between;
}

Holdings HeldByStage::sum(double recomputed) const {
    Holdings all;
    all.in_flight = in_flight_;
    all.between = between_;
    if (old_ > 0)
        for (const Chunk& chunk : chunks_)
            all.weight_versions =
                std::max(all.weight_versions, 1 + static_cast<int>(chunk.old.size()));
    if (memory_.each.size() == 1) {
        const KeptMemory& kept = memory_.each.front();
        all.activations = in_flight_ * kept.activations;
        all.for_weights = between_ * kept.for_weights;
        all.weights = (schedule_.chunks + old_) * kept.weights;
    } else {
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            const Chunk& chunk = chunks_[c];
            const KeptMemory& kept =
                memory_.of_part(schedule_.part(stage_, static_cast<int>(c)));
            all.activations += chunk.in_flight * kept.activations;
            all.for_weights += chunk.between * kept.for_weights;
            all.weights += (1 + static_cast<int>(chunk.old.size())) * kept.weights;
        }
    }
    all.recomputed = recomputed;
    all.memory = all.activations + all.for_weights + all.recomputed + all.weights;
    return all;
}

std::vector<Holdings> peak_holdings(const Schedule& schedule,
                                    const ScheduleMemory& memory) {
    std::vector<Positions> all;
    for (const std::vector<Instruction>& list : schedule.work)
        all.push_back({0, static_cast<int>(list.size())});
    return peak_holdings(schedule, memory, all);
}

std::vector<Holdings> peak_holdings(const Schedule& schedule,
                                    const ScheduleMemory& memory,
                                    const std::vector<Positions>& within) {
    std::vector<Holdings> peaks;
    for (int stage = 0; stage < schedule.stages; ++stage) {
        HeldByStage held(schedule, stage, memory);
        Holdings peak = held.now();
        for (int position = 0; position < within[stage].last;) {
            const Positions together = schedule.together({stage, position});
            // What is held at the start of the range counts, too.
            if (position <= within[stage].first) peak = held.now();
            raise(peak, held.run(together));
            raise(peak, held.now());
            position = together.last;
        }
        peaks.push_back(peak);
    }
    return peaks;
}

}  // namespace lockstep
