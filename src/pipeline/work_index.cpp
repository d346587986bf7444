#include "src/pipeline/work_index.hpp"

#include <algorithm>

namespace lockstep {

namespace {

using enum InstructionKind;

/// A row of the table for each kind; a whole backward shares its first
/// half's.
constexpr int kRows = 7;
constexpr int kRowsWithoutMessages = 3;

int row_of(InstructionKind kind) {
    if (kind == forward) return 0;
    if (kind == backward || kind == backward_input) return 1;
    if (kind == backward_weight) return 2;
    return kRowsWithoutMessages + static_cast<int>(kind) -
           static_cast<int>(send_activation);
}

}  // namespace

WorkIndex::WorkIndex(const Schedule& schedule)
    : schedule_(schedule),
      messages_(schedule.has_messages()),
      parts_(schedule.part_count()) {
    const int rows = messages_ ? kRows : kRowsWithoutMessages;
    places_.resize(static_cast<std::size_t>(rows) *
                   static_cast<std::size_t>(parts_) *
                   static_cast<std::size_t>(schedule.micro_batches));
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const int count = static_cast<int>(schedule.of(stage).size());
        for (int position = 0; position < count; ++position) {
            const Place place{stage, position};
            const Instruction& work = schedule.at(place);
            if (!has_micro_batch(work.kind)) continue;
            Place& known = places_[slot(work.kind, schedule.part(place),
                                        work.micro_batch)];
            if (known && !twice_) twice_ = {known, place};
            if (!known) known = place;
        }
    }
}

std::size_t WorkIndex::slot(InstructionKind kind, int part,
                            int micro_batch) const {
    const std::size_t row = static_cast<std::size_t>(row_of(kind));
    return (row * static_cast<std::size_t>(parts_) +
            static_cast<std::size_t>(part)) *
               static_cast<std::size_t>(schedule_.micro_batches) +
           static_cast<std::size_t>(micro_batch);
}

Place WorkIndex::find(InstructionKind kind, int part,
                      int micro_batch) const {
    if (part < 0 || part >= parts_) return {};
    if (!messages_ && row_of(kind) >= kRowsWithoutMessages) return {};
    return places_[slot(kind, part, micro_batch)];
}

/// The computation whose result `place` reads, wherever it is.
Place WorkIndex::source(Place place) const {
    const Instruction& work = schedule_.at(place);
    const int part = schedule_.part(place);
    switch (work.kind) {
        case forward:
            return find(forward, part - 1, work.micro_batch);
        case backward:
        case backward_input:
            return part == parts_ - 1
                       ? find(forward, part, work.micro_batch)
                       : find(backward, part + 1, work.micro_batch);
        case backward_weight:
            return find(backward_input, part, work.micro_batch);
        default:
            return {};
    }
}

bool WorkIndex::crosses(Place place) const {
    const Place from = source(place);
    return from && from.stage != place.stage;
}

Place WorkIndex::need(Place place) const {
    const Place from = source(place);
    if (!messages_ || !from || from.stage == place.stage) return from;
    const Instruction& work = schedule_.at(place);
    return find(work.kind == forward ? recv_activation : recv_gradient,
                schedule_.part(place), work.micro_batch);
}

/// At the other end of a message: its instruction, or who computes with it.
Place WorkIndex::other_end(Place place, bool computing) const {
    const Instruction& work = schedule_.at(place);
    const int part = schedule_.part(place);
    const auto look = [&](InstructionKind message,
                          InstructionKind computation, int at) {
        return find(computing ? computation : message, at,
                    work.micro_batch);
    };
    switch (work.kind) {
        case send_activation:
            return look(recv_activation, forward, part + 1);
        case recv_activation:
            return look(send_activation, forward, part - 1);
        case send_gradient:
            return look(recv_gradient, backward, part - 1);
        case recv_gradient:
            return look(send_gradient, backward, part + 1);
        default:
            return {};
    }
}

Place WorkIndex::partner(Place place) const {
    return other_end(place, /*computing=*/false);
}

int WorkIndex::peer(Place place) const {
    return other_end(place, /*computing=*/true).stage;
}

WeightVersions::WeightVersions(const Schedule& schedule)
    : schedule_(schedule) {
    for (const std::vector<Instruction>& list : schedule.work) {
        std::vector<int> steps(static_cast<std::size_t>(schedule.chunks),
                               0);
        std::vector<int>& newest = newest_.emplace_back();
        for (const Instruction& each : list) {
            int& chunk = steps[each.chunk];
            newest.push_back(chunk);
            if (each.kind == InstructionKind::optimizer_step) ++chunk;
        }
    }
}

}  // namespace lockstep
