#include "src/pipeline/walk.hpp"

#include <utility>

namespace lockstep {

Walk::Walk(const Schedule& schedule, const WorkIndex& index,
           WalkVisitor& visitor)
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
    const bool ended =
        lane.next == static_cast<int>(schedule_.of(stage).size());
    return ended ? Place{} : Place{stage, lane.next};
}

Place Walk::queued(int stage) const {
    const Lane& lane = lanes_[stage];
    return lane.served == lane.queue.size()
               ? Place{}
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
