#include "src/pipeline/messages.hpp"

#include <algorithm>
#include <tuple>

#include "src/core/require.hpp"
#include "src/pipeline/validate.hpp"
#include "src/pipeline/work_index.hpp"

namespace lockstep {

namespace {

using enum InstructionKind;

/// Data that one stage makes and another one uses.
struct Passage {
    Picoseconds made = 0;  ///< the planned time
    Place maker;
    Place user;
};

std::vector<Passage> passages_of(const Schedule& schedule, const WorkIndex& index) {
    std::vector<Passage> passages;
    for (int stage = 0; stage < schedule.stages; ++stage)
        for (const Place user : schedule.places(stage))
            if (index.crosses(user)) passages.push_back({0, index.need(user), user});
    return passages;
}

/// The stages' lists, with messages added in front of instructions.
class Lists {
  public:
    explicit Lists(const Schedule& schedule) : schedule_(schedule) {
        for (const auto& list : schedule.work)
            before_.emplace_back(list.size() + 1);
    }

    /// Adds a message in front of `position`; the work at `end` makes or uses its data.
    void add(Place end, int position, InstructionKind kind) {
        const Instruction& work = schedule_.at(end);
        before_[end.stage][position].push_back({kind, work.micro_batch, work.chunk});
    }
    void add_send(const Passage& passage) {
        const bool activation = schedule_.at(passage.user).kind == forward;
        add(passage.maker, schedule_.together(passage.maker).last,
            activation ? send_activation : send_gradient);
    }
    void add_recv(const Passage& passage, int position) {
        const bool activation = schedule_.at(passage.user).kind == forward;
        add(passage.user, position, activation ? recv_activation : recv_gradient);
    }

    Schedule merged() const {
        Schedule merged = schedule_;
        merged.period.reset();  // its positions have changed
        for (std::size_t stage = 0; stage < before_.size(); ++stage) {
            std::vector<Instruction>& list = merged.work[stage];
            list.clear();
            for (std::size_t i = 0; i < before_[stage].size(); ++i) {
                const auto& messages = before_[stage][i];
                list.insert(list.end(), messages.begin(), messages.end());
                if (i < schedule_.work[stage].size())
                    list.push_back(schedule_.work[stage][i]);
            }
        }
        return merged;
    }

  private:
    const Schedule& schedule_;
    std::vector<std::vector<std::vector<Instruction>>> before_;
};

void require_none(const Schedule& schedule) {
    require(!schedule.has_messages(),
            [&] { return "schedule '" + schedule.name + "' has messages already"; });
}

/// Gives a short time to computations that take none, and to reductions in which stages
/// meet. So it is clear which of them comes first.
ScheduleTimes planned(const Schedule& schedule, ScheduleTimes times) {
    const bool meetings = schedule.part_count() < schedule.stages * schedule.chunks;
    for (Durations& each : times.each) {
        for (Picoseconds* time :
             {&each.forward, &each.backward_input, &each.backward_weight})
            if (*time == 0) *time = 1;
        if (each.overlapped == 0) each.overlapped = 1;
        if (meetings && each.reduce == 0) each.reduce = 1;
    }
    return times;
}

/// The planned ends of a stage's computations, reductions and updates.
struct Ends {
    std::vector<Picoseconds> times;
    std::vector<int> positions;

    /// Returns the position right behind the last instruction that has ended by `time`.
    int place_at(Picoseconds time) const {
        const auto later = std::ranges::upper_bound(times, time);
        return later == times.begin() ? 0 : positions[later - times.begin() - 1] + 1;
    }
};

std::vector<Ends> ends_of(const Schedule& schedule, const Timing& timing) {
    std::vector<Ends> all(static_cast<std::size_t>(schedule.stages));
    for (std::size_t stage = 0; stage < all.size(); ++stage)
        for (std::size_t i = 0; i < schedule.work[stage].size(); ++i) {
            const TimeSpan& span = timing.spans[stage][i];
            // A reduction or update that takes no time is left out.
            const bool counts =
                is_computation(schedule.work[stage][i].kind) || span.end > span.start;
            if (!counts) continue;
            all[stage].times.push_back(span.end);
            all[stage].positions.push_back(static_cast<int>(i));
        }
    return all;
}

}  // namespace

Schedule with_messages(const Schedule& schedule, const ScheduleTimes& times) {
    require_none(schedule);
    const Timing timing = time_schedule(schedule, planned(schedule, times));
    const WorkIndex index(schedule);
    std::vector<Passage> passages = passages_of(schedule, index);
    const auto end_of = [&](Place place) {
        return timing.spans[place.stage][place.position].end;
    };
    for (Passage& passage : passages)
        passage.made = end_of(passage.maker);
    // All stages use one order.
    std::ranges::sort(passages, {}, [](const Passage& each) {
        return std::tuple(each.made, each.maker.stage, each.maker.position);
    });

    const std::vector<Ends> ends = ends_of(schedule, timing);
    Lists lists(schedule);
    for (const Passage& passage : passages) {
        lists.add_send(passage);
        const Ends& receiver = ends[passage.user.stage];
        lists.add_recv(passage, receiver.place_at(passage.made));
    }
    return lists.merged();
}

Schedule with_messages_in_place(const Schedule& schedule) {
    require_none(schedule);
    require_valid(schedule);
    const WorkIndex index(schedule);
    Lists lists(schedule);
    const std::vector<Passage> passages = passages_of(schedule, index);
    for (const Passage& passage : passages)
        lists.add_send(passage);
    for (const Passage& passage : passages)
        lists.add_recv(passage, schedule.together(passage.user).first);
    return lists.merged();
}

Schedule with_grouped_messages(const Schedule& schedule) {
    Schedule grouped = with_messages_in_place(schedule);
    for (std::vector<Instruction>& list : grouped.work)
        for (std::size_t i = 1; i < list.size(); ++i)
            list[i].together |= is_message(list[i].kind) && is_message(list[i - 1].kind);
    return grouped;
}

}  // namespace lockstep
