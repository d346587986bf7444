#include "src/pipeline/timer.hpp"

#include <algorithm>

#include "src/core/require.hpp"
#include "src/pipeline/validate.hpp"
#include "src/pipeline/walk.hpp"

namespace lockstep {

using enum InstructionKind;

Picoseconds StageDurations::of(InstructionKind kind) const {
    if (kind == InstructionKind::forward) return forward;
    if (kind == backward) return backward_input + backward_weight;
    if (kind == InstructionKind::backward_input) return backward_input;
    if (kind == InstructionKind::backward_weight) return backward_weight;
    return is_message(kind) ? message : 0;
}

namespace {

double ratio(Picoseconds part, Picoseconds whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// When something may begin, and the instruction that it last waited for.
struct Earliest {
    Picoseconds time = 0;
    Place cause;

    void after(Picoseconds end, Place place) {
        if (end <= time) return;
        time = end;
        cause = place;
    }
};

class Timer final : public WalkVisitor {
  public:
    Timer(const Schedule& schedule, const std::vector<StageDurations>& durations)
        : schedule_(schedule),
          durations_(durations),
          messages_(schedule.has_messages()),
          lanes_(static_cast<std::size_t>(schedule.stages)) {
        for (const auto& list : schedule.work) {
            timing_.spans.emplace_back(list.size());
            timing_.causes.emplace_back(list.size());
        }
    }

    void computed(Place place, Place need) override {
        Lane& mine = lane(place.stage);
        Earliest start = mine.computing;
        if (need) {
            const bool crosses = !messages_ && need.stage != place.stage;
            const Picoseconds way = crosses ? durations(need.stage).message : 0;
            start.after(span(need).end + way, need);
        }
        const InstructionKind kind = schedule_.at(place).kind;
        const Picoseconds duration = durations(place.stage).of(kind);
        enter(place, start, duration);
        mine.computing = {start.time + duration, place};
        mine.busy += duration;
        if (!mine.started && has_micro_batch(kind)) mine.started = start.time;
    }

    void posted(Place place) override {
        // Kept in its span until it is delivered.
        span(place).start = lane(place.stage).computing.time;
        cause(place) = lane(place.stage).computing.cause;
    }

    void delivered(Place send, Place recv) override {
        Earliest start{span(send).start, cause(send)};
        start.after(span(recv).start, cause(recv));
        for (const Place end : {send, recv})
            start.after(lane(end.stage).queue.time, lane(end.stage).queue.cause);
        const Picoseconds duration = durations(send.stage).message;
        for (const Place end : {send, recv}) {
            enter(end, start, duration);
            lane(end.stage).queue = {start.time + duration, end};
        }
    }

    Timing finish();

  private:
    struct Lane {
        Earliest computing;  ///< the stage's next computation
        Earliest queue;      ///< its next message
        Picoseconds busy = 0;
        std::optional<Picoseconds> started;
    };

    Lane& lane(int stage) { return lanes_[stage]; }
    const StageDurations& durations(int stage) const {
        return durations_.size() == 1 ? durations_.front() : durations_[stage];
    }
    TimeSpan& span(Place place) { return timing_.spans[place.stage][place.position]; }
    Place& cause(Place place) { return timing_.causes[place.stage][place.position]; }
    void enter(Place place, const Earliest& start, Picoseconds duration) {
        span(place) = {start.time, start.time + duration};
        cause(place) = start.cause;
    }

    const Schedule& schedule_;
    const std::vector<StageDurations>& durations_;
    bool messages_;
    std::vector<Lane> lanes_;
    Timing timing_;
};

Timing Timer::finish() {
    Place last;
    for (Lane& lane : lanes_) {
        StageTiming stage;
        stage.busy = lane.busy;
        stage.span.start = lane.started.value_or(0);
        stage.span.end =
            std::max({stage.span.start, lane.computing.time, lane.queue.time});
        timing_.longest = std::max(timing_.longest, stage.span.end - stage.span.start);
        timing_.ideal = std::max(timing_.ideal, stage.busy);
        if (stage.span.end > timing_.makespan) {
            timing_.makespan = stage.span.end;
            last = lane.queue.time > lane.computing.time ? lane.queue.cause
                                                         : lane.computing.cause;
        }
        timing_.stages.push_back(stage);
    }
    if (last && !timing_.takes_time(last)) last = timing_.begins_after(last);
    for (; last; last = timing_.begins_after(last))
        timing_.critical_path.push_back(last);
    std::ranges::reverse(timing_.critical_path);
    return std::move(timing_);
}

void require_durations(const Schedule& schedule,
                       const std::vector<StageDurations>& durations) {
    const std::size_t stages = static_cast<std::size_t>(schedule.stages);
    require(durations.size() == 1 || durations.size() == stages,
            "durations of {} stages for a schedule of {}; one for all, or "
            "one for each is expected",
            durations.size(), stages);
    constexpr double kMostTime = 4e18;
    double sum = 0;
    for (const StageDurations& each : durations) {
        for (const Picoseconds time :
             {each.forward, each.backward_input, each.backward_weight, each.message}) {
            require(time >= 0, "a duration of {}; none may be negative", time);
            sum += static_cast<double>(time) * schedule.instructions();
        }
    }
    require(sum < kMostTime,
            "{} instructions of such durations may take longer than can "
            "be counted ({:.0e})",
            schedule.instructions(), kMostTime);
}

}  // namespace

Place Timing::begins_after(Place place) const {
    do
        place = causes[place.stage][place.position];
    while (place && !takes_time(place));
    return place;
}

double Timing::bubble_over_total() const {
    return ratio(bubble(), longest);
}

double Timing::bubble_over_ideal() const {
    return ratio(bubble(), ideal);
}

double Timing::utilisation() const {
    Picoseconds busy = 0;
    for (const StageTiming& stage : stages)
        busy += stage.busy;
    return ratio(busy, makespan) / static_cast<double>(stages.size());
}

Timing time_schedule(const Schedule& schedule,
                     const std::vector<StageDurations>& durations) {
    require_durations(schedule, durations);
    require_valid(schedule);
    const WorkIndex index(schedule);
    Timer timer(schedule, durations);
    Walk(schedule, index, timer).run();
    return timer.finish();
}

}  // namespace lockstep
