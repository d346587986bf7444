#include "src/pipeline/search.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"
#include "src/pipeline/work_index.hpp"

namespace lockstep {

namespace {

/// Returns how many computations a stage has before its first reduction or update.
int work_count(const std::vector<Instruction>& list) {
    const auto end = std::ranges::find_if(
        list, [](const Instruction& each) { return !is_computation(each.kind); });
    return static_cast<int>(end - list.begin());
}

/// Returns whether the two schedules do the same work, each stage in any order.
bool is_same_work(const Schedule& one, const Schedule& other) {
    if (one.stages != other.stages || one.chunks != other.chunks ||
        one.parts != other.parts)
        return false;
    for (int stage = 0; stage < one.stages; ++stage) {
        const auto counted = [&](const Schedule& schedule) {
            std::map<std::tuple<InstructionKind, int, int>, int> counts;
            for (const Instruction& each : schedule.of_stage(stage))
                if (is_computation(each.kind))
                    ++counts[{each.kind, each.micro_batch, each.chunk}];
            return counts;
        };
        if (counted(one) != counted(other)) return false;
    }
    return true;
}

/// Returns whether instruction `later` must stay behind `earlier` on its stage.
bool follows(const Instruction& earlier, const Instruction& later) {
    if (earlier.chunk != later.chunk) return false;
    return earlier.kind == later.kind || earlier.micro_batch == later.micro_batch;
}

/// An order's cost: the time of the stage that takes longest, then the makespan.
struct Cost {
    Picoseconds longest = 0;
    Picoseconds makespan = 0;
    Picoseconds all_stages = 0;  ///< the sum of the stages' times

    bool operator<(const Cost& other) const {
        return std::tie(longest, makespan, all_stages) <
               std::tie(other.longest, other.makespan, other.all_stages);
    }
    /// Annealing compares this. It includes all stages, because most moves do not change
    /// the longest stage.
    double energy(int stages) const {
        return static_cast<double>(longest) + static_cast<double>(makespan) / 16 +
               static_cast<double>(all_stages) / (4.0 * stages);
    }
};

Cost cost_of(const Timing& timing) {
    Cost cost{timing.longest, timing.makespan, 0};
    for (const StageTiming& stage : timing.stages)
        cost.all_stages += stage.span.end - stage.span.start;
    return cost;
}

class OrderSearch {
  public:
    OrderSearch(Schedule start, const ScheduleTimes& times, const ScheduleMemory& memory,
                double limit)
        : times_(times), memory_(memory), limit_(limit), now_(std::move(start)) {
        cost_ = *cost_of_valid(now_);
        best_ = now_;
        best_cost_ = cost_;
    }

    Schedule run() {
        const int trials = std::clamp(40'000'000 / now_.instructions(), 400, 100'000);
        // In each round the heat falls from the time of one pass to 2 % of that time.
        const double pass = std::max(
            1.0, static_cast<double>(cost_.longest) / work_count(now_.of_stage(0)));
        for (int round = 0; round < kRounds; ++round) {
            now_ = best_;
            cost_ = best_cost_;
            for (int trial = 0; trial < trials / kRounds; ++trial) {
                heat_ = pass * std::pow(0.02, kRounds * trial / (trials + 1.0));
                try_one();
            }
        }
        return best_;
    }

  private:
    std::optional<Cost> cost_of_valid(const Schedule& schedule) const {
        const Examination found = examine_schedule(schedule, times_);
        if (found.problem) return std::nullopt;
        return cost_of(found.timing);
    }

    int below(int count) {
        return static_cast<int>(random_() % static_cast<std::uint64_t>(count));
    }

    bool fits(int stage) const {
        HeldByStage held(now_, stage, memory_);
        for (int i = 0; i < static_cast<int>(now_.of_stage(stage).size()); ++i)
            if (held.run({i, i + 1}).memory > limit_) return false;
        return true;
    }

    void try_one() {
        const int stage = below(now_.stages);
        std::vector<Instruction>& list = now_.work[stage];
        const int from = below(work_count(list));
        const int to = from + (below(2) == 0 ? -1 : 1) * (1 + below(kFar));
        if (!move(list, from, to)) return;
        const std::optional<Cost> cost = fits(stage) ? cost_of_valid(now_) : std::nullopt;
        if (!cost || !is_taken(*cost)) {
            move(list, to, from);
            return;
        }
        cost_ = *cost;
        if (!(cost_ < best_cost_)) return;
        best_ = now_;
        best_cost_ = cost_;
    }

    /// Takes a better order always, a worse one with a probability that falls with the
    /// heat.
    bool is_taken(const Cost& cost) {
        const double worse = cost.energy(now_.stages) - cost_.energy(now_.stages);
        if (worse <= 0) return true;
        const double chance = std::ldexp(static_cast<double>(random_() >> 11), -53);
        return chance < std::exp(-worse / heat_);
    }

    /// Returns false if `to` is not a place for work, or if two instructions must keep
    /// their order.
    static bool move(std::vector<Instruction>& list, int from, int to) {
        if (to < 0 || to >= work_count(list)) return false;
        const auto begin = list.begin();
        const Instruction moved = list[from];
        if (to > from) {
            const bool free = std::none_of(
                begin + from + 1, begin + to + 1,
                [&](const Instruction& each) { return follows(moved, each); });
            if (free) std::rotate(begin + from, begin + from + 1, begin + to + 1);
            return free;
        }
        const bool free =
            std::none_of(begin + to, begin + from,
                         [&](const Instruction& each) { return follows(each, moved); });
        if (free) std::rotate(begin + to, begin + from, begin + from + 1);
        return free;
    }

    static constexpr int kFar = 8;  ///< an instruction moves by at most this many places
    static constexpr int kRounds = 4;

    const ScheduleTimes& times_;
    const ScheduleMemory& memory_;
    double limit_;
    Schedule now_;
    Cost cost_;
    Schedule best_;
    Cost best_cost_;
    double heat_ = 0;
    std::mt19937_64 random_{1};
};

double most_memory(const Schedule& schedule, const ScheduleMemory& memory) {
    double most = 0;
    for (const Holdings& peak : peak_holdings(schedule, memory))
        most = std::max(most, peak.memory);
    return most;
}

/// Lets each stage run the work that can start first. At equal times, a backward or its
/// first half comes before a forward, and a weight half comes last.
class GreedyOrder {
  public:
    /// `ahead`: a forward of any chunk but the last leaves at least this much memory
    /// free.
    GreedyOrder(const Schedule& work, const ScheduleTimes& times,
                const ScheduleMemory& memory, double limit, double ahead)
        : work_(work),
          times_(times),
          memory_(memory),
          limit_(limit),
          ahead_(ahead),
          index_(work),
          stages_(work.work.size()) {
        for (int stage = 0; stage < work.stages; ++stage) {
            ends_.emplace_back(work.of_stage(stage).size());
            for (const Place place : work.places(stage)) {
                const Instruction& each = work.at(place);
                if (is_computation(each.kind))
                    stages_[stage].todo[{each.chunk, each.kind}].push_back(place);
            }
        }
    }

    /// Returns none if no work can start: forwards hold the memory that other forwards
    /// wait for.
    std::optional<Schedule> run() {
        Schedule made = work_;
        for (std::vector<Instruction>& list : made.work)
            list.erase(list.begin(), list.begin() + work_count(list));
        std::vector<std::vector<Instruction>> lists(work_.work.size());
        while (const std::optional<Choice> choice = earliest()) {
            lists[choice->place.stage].push_back(work_.at(choice->place));
            take(*choice);
        }
        for (int stage = 0; stage < work_.stages; ++stage) {
            if (lists[stage].size() + made.work[stage].size() !=
                work_.of_stage(stage).size())
                return std::nullopt;
            made.work[stage].insert(made.work[stage].begin(), lists[stage].begin(),
                                    lists[stage].end());
        }
        return made;
    }

  private:
    struct Stage {
        std::map<std::pair<int, InstructionKind>, std::deque<Place>> todo;
        Picoseconds free = 0;
        double held = 0;
    };
    struct Choice {
        Picoseconds start;
        int turn;  ///< at equal times the lower turn starts first
        Place place;

        bool operator<(const Choice& other) const {
            return std::tie(start, turn, place.stage) <
                   std::tie(other.start, other.turn, other.place.stage);
        }
    };
    std::optional<Choice> earliest() const {
        std::optional<Choice> best;
        for (const Stage& stage : stages_)
            for (const auto& [key, places] : stage.todo) {
                if (places.empty()) continue;
                const std::optional<Picoseconds> ready = ready_at(places.front());
                if (!ready || !has_room(stage, places.front())) continue;
                const Choice choice{std::max(*ready, stage.free), turn_of(key),
                                    places.front()};
                if (!best || choice < *best) best = choice;
            }
        return best;
    }

    int turn_of(const std::pair<int, InstructionKind>& key) const {
        const auto [chunk, kind] = key;
        if (kind == InstructionKind::backward_weight) return 2 * work_.chunks + chunk;
        if (kind == InstructionKind::forward) return 2 * work_.chunks - 1 - chunk;
        return chunk;
    }

    bool has_room(const Stage& stage, Place place) const {
        const Instruction& each = work_.at(place);
        if (each.kind != InstructionKind::forward) return true;
        const double kept = memory_.of_part(work_.part(place)).activations;
        const bool last = each.chunk + 1 == work_.chunks;
        return stage.held + kept <= limit_ - (last ? 0 : ahead_);
    }

    /// Returns when the work's data is made; none if its maker is not scheduled yet.
    std::optional<Picoseconds> ready_at(Place place) const {
        const Instruction& each = work_.at(place);
        std::optional<Picoseconds> ready = 0;
        const auto need = [&](Place needed) {
            if (!needed || !ready) return;
            const std::optional<Picoseconds>& end = ends_[needed.stage][needed.position];
            ready = end ? std::optional(std::max(*ready, *end)) : std::nullopt;
        };
        need(index_.need(place));
        if (each.kind == InstructionKind::backward ||
            each.kind == InstructionKind::backward_input)
            need(index_.find(InstructionKind::forward, work_.part(place),
                             each.micro_batch));
        return ready;
    }

    void take(const Choice& choice) {
        const Instruction& each = work_.at(choice.place);
        const int part = work_.part(choice.place);
        Stage& stage = stages_[choice.place.stage];
        stage.todo[{each.chunk, each.kind}].pop_front();
        stage.free =
            choice.start + times_.of_place(work_, choice.place).of_kind(each.kind);
        ends_[choice.place.stage][choice.place.position] = stage.free;
        const KeptMemory& kept = memory_.of_part(part);
        if (each.kind == InstructionKind::forward) stage.held += kept.activations;
        if (each.kind == InstructionKind::backward) stage.held -= kept.activations;
        if (each.kind == InstructionKind::backward_input)
            stage.held += kept.for_weights - kept.activations;
        if (each.kind == InstructionKind::backward_weight) stage.held -= kept.for_weights;
    }

    const Schedule& work_;
    const ScheduleTimes& times_;
    const ScheduleMemory& memory_;
    double limit_;
    double ahead_;
    WorkIndex index_;
    std::vector<Stage> stages_;
    std::vector<std::vector<std::optional<Picoseconds>>> ends_;  ///< by stage, position
};

/// Returns the same work, one micro-batch at a time. No order holds less memory.
Schedule one_by_one(Schedule schedule) {
    const auto key = [&](int stage) {
        return [&schedule, stage](const Instruction& each) {
            const int part = schedule.part(stage, each.chunk);
            const bool forward = each.kind == InstructionKind::forward;
            const bool weight = each.kind == InstructionKind::backward_weight;
            return std::tuple(!is_computation(each.kind), each.micro_batch, !forward,
                              forward ? part : -part, weight);
        };
    };
    for (int stage = 0; stage < schedule.stages; ++stage) {
        std::vector<Instruction>& list = schedule.work[stage];
        const auto end = list.begin() + work_count(list);
        std::stable_sort(list.begin(), end, [&](const auto& one, const auto& other) {
            return key(stage)(one) < key(stage)(other);
        });
    }
    return schedule;
}

/// Returns the same work in the order of each generator that has this work. Reductions
/// and updates are those of `work`.
std::vector<Schedule> candidates(const Schedule& work) {
    std::vector<Schedule> found;
    for (const std::string& name : schedule_names()) {
        if (!flushes(name)) continue;
        try {
            const Schedule made =
                make_schedule(name, {work.stages, work.micro_batches, work.chunks});
            if (!is_same_work(made, work)) continue;
            Schedule schedule = work;
            schedule.name = name;
            for (int stage = 0; stage < work.stages; ++stage) {
                std::vector<Instruction>& list = schedule.work[stage];
                list.erase(list.begin(), list.begin() + work_count(list));
                std::vector<Instruction> order = made.of_stage(stage);
                std::erase_if(order, [](const Instruction& each) {
                    return !is_computation(each.kind);
                });
                list.insert(list.begin(), order.begin(), order.end());
            }
            if (!find_problem(schedule)) found.push_back(std::move(schedule));
        } catch (const UsageError&) {
            // The generator has no schedule of this shape.
        }
    }
    return found;
}

/// Returns the reason not to search orders with this instruction; null if there is none.
const char* reason_not_searched(const Instruction& each) {
    if (is_message(each.kind)) return "the order of work is searched, without messages";
    if (each.together) return "pairs that overlap are not searched";
    if (each.weight_version >= 0 || each.estimated || each.mixes_weights)
        return "weights of other versions are not searched";
    return nullptr;
}

void require_searchable(const Schedule& work) {
    require_valid(work);
    constexpr int kMostInstructions = 30'000;
    require(
        work.instructions() <= kMostInstructions,
        "a schedule of {} instructions is too long to search; at most {} are possible",
        work.instructions(), kMostInstructions);
    for (int stage = 0; stage < work.stages; ++stage) {
        const std::vector<Instruction>& list = work.of_stage(stage);
        const int end = work_count(list);
        for (const Place place : work.places(stage)) {
            const Instruction& each = work.at(place);
            const char* const reason = reason_not_searched(each);
            require(reason == nullptr, [&] { return work.where(place) + ": " + reason; });
            require(place.position < end || !is_computation(each.kind), [&] {
                return work.where({stage, end}) +
                       ": more work follows it; only the order of one step can be "
                       "searched, with R and U at its end";
            });
        }
    }
}

}  // namespace

std::vector<KnownOrder> known_orders(const Schedule& work, const ScheduleTimes& times,
                                     const ScheduleMemory& memory) {
    std::vector<KnownOrder> known;
    for (const Schedule& schedule : candidates(work))
        known.push_back({schedule.name, time_schedule(schedule, times).bubble(),
                         most_memory(schedule, memory)});
    std::stable_sort(known.begin(), known.end(), [](const auto& one, const auto& other) {
        return one.bubble < other.bubble;
    });
    return known;
}

FoundOrder search_order(const Schedule& work, const ScheduleTimes& times,
                        const ScheduleMemory& memory, double limit) {
    require_searchable(work);
    times.require_fit(work);
    std::vector<Schedule> starts = candidates(work);
    starts.push_back(work);
    starts.push_back(one_by_one(work));
    const double least = most_memory(starts.back(), memory);
    for (const double part : {0.0, 0.25, 0.5})
        if (auto greedy = GreedyOrder(work, times, memory, limit, part * limit).run())
            starts.push_back(std::move(*greedy));
    require(least <= limit,
            "no order fits into {:g}: one micro-batch at a time already needs {:g}",
            limit, least);
    std::erase_if(starts, [&](const Schedule& start) {
        return most_memory(start, memory) > limit;
    });
    const auto start = std::min_element(starts.begin(), starts.end(),
                                        [&](const auto& one, const auto& other) {
                                            return cost_of(time_schedule(one, times)) <
                                                   cost_of(time_schedule(other, times));
                                        });
    FoundOrder found{OrderSearch(*start, times, memory, limit).run(),
                     known_orders(work, times, memory)};
    found.schedule.name = fmt::format("{} within {:g}", work.name, limit);
    found.schedule.period.reset();  // no middle repeats any more
    return found;
}

}  // namespace lockstep
