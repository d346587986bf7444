#include "src/pipeline/walk.hpp"

#include <utility>

namespace lockstep {

namespace {

using enum InstructionKind;

/// A row of the table for each kind; a whole backward shares its first half's.
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
    for (int stage = 0; stage < schedule.stages; ++stage) {
        for (const Place place : schedule.places(stage)) {
            const Instruction& work = schedule.at(place);
            if (!has_micro_batch(work.kind)) continue;
            Place& known =
                places_[slot(work.kind, schedule.part(place), work.micro_batch)];
            if (known && !twice_) twice_ = {known, place};
            if (!known) known = place;
        }
    }
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

/// The computation whose result `place` reads, wherever it is.
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

/// At the other end of a message: its instruction, or who computes with it.
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

WeightVersions::WeightVersions(const Schedule& schedule) : schedule_(schedule) {
    for (const std::vector<Instruction>& list : schedule.work) {
        std::vector<int> steps(static_cast<std::size_t>(schedule.chunks), 0);
        std::vector<int>& newest = newest_.emplace_back();
        for (const Instruction& each : list) {
            int& chunk = steps[each.chunk];
            newest.push_back(chunk);
            if (each.kind == InstructionKind::optimizer_step) ++chunk;
        }
    }
}

Walk::Walk(const Schedule& schedule, const WorkIndex& index, WalkVisitor& visitor)
    : schedule_(schedule),
      index_(index),
      visitor_(visitor),
      lanes_(static_cast<std::size_t>(schedule.stages)) {
    for (int stage = 0; stage < schedule.stages; ++stage)
        done_.emplace_back(schedule.of(stage).size(), char{0});
}

bool Walk::run() {
    for (int stage = schedule_.stages; stage-- > 0;)
        look_again(stage);
    while (!ready_.empty()) {
        const int stage = ready_.back();
        ready_.pop_back();
        lane(stage).ready = false;
        serve(stage);
        advance(stage);
    }
    for (int stage = 0; stage < schedule_.stages; ++stage)
        if (at(stage) || queued(stage)) return false;
    return true;
}

Place Walk::at(int stage) const {
    const Lane& lane = lanes_[stage];
    const bool ended = lane.next == static_cast<int>(schedule_.of(stage).size());
    return ended ? Place{} : Place{stage, lane.next};
}

Place Walk::queued(int stage) const {
    const Lane& lane = lanes_[stage];
    return lane.served == lane.queue.size() ? Place{}
                                            : Place{stage, lane.queue[lane.served]};
}

/// The stage's program, as far as it goes.
void Walk::advance(int stage) {
    while (const Place place = at(stage)) {
        if (is_message(schedule_.at(place).kind)) {
            visitor_.posted(place);
            lane(stage).queue.push_back(place.position);
            ++lane(stage).next;
            serve(stage);
            continue;
        }
        const Place need = index_.need(place);
        if (need && !done(need)) {
            lane(need.stage).waiting.push_back(stage);
            return;
        }
        visitor_.computed(place, need);
        ++lane(stage).next;
        if (has_micro_batch(schedule_.at(place).kind)) ++computations_;
        finish(place);
    }
}

/// The stage's messages, as far as the other ends have come to them.
void Walk::serve(int stage) {
    while (const Place mine = queued(stage)) {
        const Place other = index_.partner(mine);
        if (!other || queued(other.stage) != other) return;
        if (is_send(schedule_.at(mine).kind))
            visitor_.delivered(mine, other);
        else
            visitor_.delivered(other, mine);
        ++lane(stage).served;
        ++lane(other.stage).served;
        finish(mine);
        finish(other);
        look_again(other.stage);
    }
}

void Walk::finish(Place place) {
    done_[place.stage][static_cast<std::size_t>(place.position)] = 1;
    std::vector<int>& waiting = lane(place.stage).waiting;
    for (const int stage : waiting)
        look_again(stage);
    waiting.clear();
}

void Walk::look_again(int stage) {
    if (std::exchange(lane(stage).ready, true)) return;
    ready_.push_back(stage);
}

}  // namespace lockstep
