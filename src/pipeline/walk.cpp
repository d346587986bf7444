#include "src/pipeline/walk.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

using enum InstructionKind;

Walk::Walk(const Schedule& schedule, const WorkIndex& index, const ScheduleTimes& times)
    : schedule_(schedule),
      index_(index),
      times_(times),
      messages_(schedule.has_messages()),
      lanes_(static_cast<std::size_t>(schedule.stages)) {
    for (const std::vector<Instruction>& list : schedule.work) {
        states_.emplace_back(list.size(), State::waits);
        timing_.spans.emplace_back(list.size());
        timing_.causes.emplace_back(list.size());
    }
}

bool Walk::run() {
    for (int stage = schedule_.stages; stage-- > 0;)
        look_again(stage);
    while (!ready_.empty()) {
        const int stage = ready_.back();
        ready_.pop_back();
        lane(stage).ready = false;
        for (Queue& queue : lane(stage).queues)
            serve(stage, queue);
        advance(stage);
    }
    for (int stage = 0; stage < schedule_.stages; ++stage)
        if (at(stage) || stuck_message(stage)) return false;
    return true;
}

Place Walk::at(int stage) const {
    const Lane& lane = lanes_[stage];
    const bool ended = lane.next == static_cast<int>(schedule_.of_stage(stage).size());
    return ended ? Place{} : Place{stage, lane.next};
}

/// Runs the stage's instructions as far as possible.
void Walk::advance(int stage) {
    while (const Place place = at(stage)) {
        const InstructionKind kind = schedule_.at(place).kind;
        const Positions together = schedule_.together(place);
        if (is_message(kind))
            post(together, stage);
        else if (kind == reduce_gradients ? !meet(place) : !compute(together, stage))
            return;
    }
}

/// Runs computations, or an update, if their data has arrived; else returns false.
bool Walk::compute(Positions positions, int stage) {
    Earliest start = lane(stage).computing;
    for (int i = positions.first; i < positions.last; ++i) {
        const Place need = index_.need({stage, i});
        if (!need) continue;
        if (!done(need)) {
            lane(need.stage).waiting.push_back(stage);
            return false;
        }
        const bool crosses = !messages_ && need.stage != stage;
        const Picoseconds way =
            crosses ? times_.of_message(schedule_, need, {stage, i}) : 0;
        after_data(start, need, way);
    }
    Lane& mine = lane(stage);
    const Picoseconds duration = times_.of_work(schedule_, positions, stage);
    for (int i = positions.first; i < positions.last; ++i) {
        enter({stage, i}, start, duration);
        if (!is_computation(schedule_.at({stage, i}).kind)) continue;
        ++computations_;
        if (mine.started < 0) mine.started = start.time;
    }
    mine.computing = {start.time + duration, {stage, positions.last - 1}};
    mine.busy += duration;
    mine.next = positions.last;
    finish(positions, stage);
    return true;
}

/// Runs a reduction if all stages that hold the part have reached it; else returns false.
bool Walk::meet(Place place) {
    const std::vector<Place> ends = index_.meeting(place);
    Earliest start;
    Picoseconds duration = 0;
    for (const Place end : ends) {
        if (at(end.stage) != end) return false;
        start.after(lane(end.stage).computing);
        duration =
            std::max(duration, times_.of_place(schedule_, end).of_kind(reduce_gradients));
    }
    for (const Place end : ends) {
        enter(end, start, duration);
        lane(end.stage).computing = {start.time + duration, end};
        ++lane(end.stage).next;
        finish({end.position, end.position + 1}, end.stage);
        if (end.stage != place.stage) look_again(end.stage);
    }
    return true;
}

/// Data has arrived when the whole group of its message is done.
void Walk::after_data(Earliest& start, Place need, Picoseconds way) const {
    const Positions together = is_message(schedule_.at(need).kind)
                                   ? schedule_.together(need)
                                   : Positions{need.position, need.position + 1};
    for (int i = together.first; i < together.last; ++i)
        start.after(timing_.spans[need.stage][i].end + way, {need.stage, i});
}

// Messages.

void Walk::post(Positions positions, int stage) {
    Lane& mine = lane(stage);
    Queue& queue = queue_of({stage, positions.first});
    queue.posted.push_back({positions, positions.count(), mine.computing, {}});
    mine.next = positions.last;
    serve(stage, queue);
}

/// Returns the queue that a message is in, or will be in.
Walk::Queue& Walk::queue_of(Place message) {
    std::vector<Queue>& queues = lane(message.stage).queues;
    const bool by_direction = schedule_.queues == MessageQueues::by_direction;
    const int peer = by_direction ? index_.peer(message) : -1;
    const bool sends = by_direction && is_send(schedule_.at(message).kind);
    for (Queue& queue : queues)
        if (queue.peer == peer && queue.sends == sends) return queue;
    queues.push_back({peer, sends, {}, 0, {}});
    return queues.back();
}

/// Delivers messages at the queue's front whose other ends are also in front of a queue.
void Walk::serve(int stage, Queue& queue) {
    while (Posted* front = queue.front()) {
        for (int i = front->positions.first; i < front->positions.last; ++i) {
            const Place mine{stage, i};
            const Place other = index_.partner(mine);
            if (!other || state(mine) != State::waits) continue;
            Queue& theirs = queue_of(other);
            Posted* meets = theirs.front();
            if (!meets || other.position < meets->positions.first ||
                other.position >= meets->positions.last)
                continue;
            if (is_send(schedule_.at(mine).kind))
                deliver({mine, queue, *front}, {other, theirs, *meets});
            else
                deliver({other, theirs, *meets}, {mine, queue, *front});
            if (settle(other.stage, theirs)) look_again(other.stage);
        }
        if (!settle(stage, queue)) return;
    }
}

void Walk::deliver(const End& send, const End& recv) {
    Earliest start = send.posted.begin;
    start.after(recv.posted.begin);
    start.after(send.queue.free);
    start.after(recv.queue.free);
    const Picoseconds duration = times_.of_message(schedule_, send.place, recv.place);
    for (const End* end : {&send, &recv}) {
        const Place place = end->place;
        enter(place, start, duration);
        states_[place.stage][place.position] = State::delivered;
        --end->posted.left;
        end->posted.end.after(start.time + duration, place);
    }
}

/// Removes the queue's front if all of it is delivered; else returns false.
bool Walk::settle(int stage, Queue& queue) {
    Posted* front = queue.front();
    if (!front || front->left > 0) return false;
    queue.free.after(front->end);
    finish(front->positions, stage);
    ++queue.served;
    return true;
}

Place Walk::stuck_message(int stage) const {
    for (const Queue& queue : lanes_[stage].queues)
        if (const Posted* front = queue.front())
            for (int i = front->positions.first; i < front->positions.last; ++i)
                if (state({stage, i}) == State::waits) return {stage, i};
    return {};
}

Place Walk::in_front_of(Place message) const {
    for (const Queue& queue : lanes_[message.stage].queues) {
        const auto holds = [&](const Posted& posted) {
            return posted.positions.first <= message.position &&
                   message.position < posted.positions.last;
        };
        const auto waiting =
            queue.posted.begin() + static_cast<std::ptrdiff_t>(queue.served);
        if (std::find_if(waiting, queue.posted.end(), holds) == queue.posted.end())
            continue;
        const Positions front = waiting->positions;
        for (int i = front.first; i < front.last; ++i)
            if (state({message.stage, i}) == State::waits) return {message.stage, i};
    }
    return message;
}

// Records.

void Walk::enter(Place place, const Earliest& start, Picoseconds duration) {
    span(place) = {start.time, start.time + duration};
    timing_.causes[place.stage][place.position] = start.cause;
}

void Walk::finish(Positions positions, int stage) {
    for (int i = positions.first; i < positions.last; ++i)
        states_[stage][i] = State::done;
    std::vector<int>& waiting = lane(stage).waiting;
    for (const int other : waiting)
        look_again(other);
    waiting.clear();
}

void Walk::look_again(int stage) {
    if (std::exchange(lane(stage).ready, true)) return;
    ready_.push_back(stage);
}

Timing Walk::timing() {
    Place last;
    for (const Lane& lane : lanes_) {
        StageTiming stage;
        stage.busy = lane.busy;
        stage.span.start = std::max<Picoseconds>(lane.started, 0);
        Earliest end = lane.computing;
        for (const Queue& queue : lane.queues)
            end.after(queue.free);
        stage.span.end = std::max(stage.span.start, end.time);
        timing_.longest = std::max(timing_.longest, stage.span.end - stage.span.start);
        timing_.ideal = std::max(timing_.ideal, stage.busy);
        if (stage.span.end > timing_.makespan) {
            timing_.makespan = stage.span.end;
            last = end.cause;
        }
        timing_.stages.push_back(stage);
    }
    if (last && !timing_.takes_time(last)) last = timing_.begins_after(last);
    for (; last; last = timing_.begins_after(last))
        timing_.critical_path.push_back(last);
    std::ranges::reverse(timing_.critical_path);
    return std::move(timing_);
}

}  // namespace lockstep
