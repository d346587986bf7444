#include "src/pipeline/work_index.hpp"

#include <algorithm>
#include <iterator>

namespace lockstep {

namespace {

using enum InstructionKind;

/// The table has a row for each kind; a whole backward and a first half share a row.
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
    places_.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(parts_) *
                   static_cast<std::size_t>(schedule.micro_batches));
    find_shared_parts();
    for (int stage = 0; stage < schedule.stages; ++stage) {
        for (const Place place : schedule.places(stage)) {
            const Instruction& work = schedule.at(place);
            if (work.kind == reduce_gradients) add_reduction(place);
            if (!has_micro_batch(work.kind)) continue;
            Place& known =
                places_[slot(work.kind, schedule.part(place), work.micro_batch)];
            if (known && !twice_) twice_ = {known, place};
            if (!known) known = place;
        }
    }
}

/// Keeps only parts that several stages hold; few schedules have any.
void WorkIndex::find_shared_parts() {
    std::vector<int> holders(static_cast<std::size_t>(parts_), 0);
    for (const std::vector<int>& held : schedule_.parts)
        for (const int part : held)
            if (++holders[part] == 2) shared_[part];
    for (int stage = 0; stage < schedule_.stages; ++stage)
        for (const int part : schedule_.parts[stage])
            if (const auto found = shared_.find(part); found != shared_.end())
                found->second.push_back({stage, {}});
}

void WorkIndex::add_reduction(Place place) {
    const auto found = shared_.find(schedule_.part(place));
    if (found == shared_.end()) return;
    const auto holder = std::ranges::find(found->second, place.stage, &Holder::stage);
    holder->reductions.push_back(place.position);
}

std::vector<Place> WorkIndex::meeting(Place place) const {
    const auto found = shared_.find(schedule_.part(place));
    if (found == shared_.end()) return {place};
    const auto mine = std::ranges::find(found->second, place.stage, &Holder::stage);
    const auto number = std::lower_bound(mine->reductions.begin(), mine->reductions.end(),
                                         place.position) -
                        mine->reductions.begin();
    std::vector<Place> ends;
    for (const Holder& holder : found->second) {
        const bool comes = number < std::ssize(holder.reductions);
        ends.push_back({holder.stage, comes ? holder.reductions[number] : -1});
    }
    return ends;
}

std::size_t WorkIndex::slot(InstructionKind kind, int part, int micro_batch) const {
    const std::size_t row = static_cast<std::size_t>(row_of(kind));
    return (row * static_cast<std::size_t>(parts_) + static_cast<std::size_t>(part)) *
               static_cast<std::size_t>(schedule_.micro_batches) +
           static_cast<std::size_t>(micro_batch);
}

Place WorkIndex::find(InstructionKind kind, int part, int micro_batch) const {
    if (part < 0 || part >= parts_) return {};
    if (!messages_ && row_of(kind) >= kRowsWithoutMessages) return {};
    return places_[slot(kind, part, micro_batch)];
}

/// Returns the computation whose result `place` reads, on any stage.
Place WorkIndex::source(Place place) const {
    const Instruction& work = schedule_.at(place);
    const int part = schedule_.part(place);
    switch (work.kind) {
        case forward:
            return find(forward, part - 1, work.micro_batch);
        case backward:
        case backward_input:
            return part == parts_ - 1 ? find(forward, part, work.micro_batch)
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

/// Returns what is at a message's other end: the other message, or, if `computing`, the
/// computation there that makes or uses the data.
Place WorkIndex::other_end(Place place, bool computing) const {
    const Instruction& work = schedule_.at(place);
    const int part = schedule_.part(place);
    const auto look = [&](InstructionKind message, InstructionKind computation, int at) {
        return find(computing ? computation : message, at, work.micro_batch);
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

}  // namespace lockstep
