#include "lessons/book/schedule_formulas.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep::lessons {

namespace {

/// p stages, m micro-batches, v chunks on each stage, and the times of a chunk, in ticks.
struct Sizes {
    Picoseconds p, m, v, t_f, t_i, t_w;
    Picoseconds s = 0;  ///< the stage, if a formula is about one

    Picoseconds both_ways() const { return t_f + t_i + t_w; }
    /// A factor of the bubble if units of p micro-batches follow each other.
    Picoseconds by_units() const { return t_i + t_w + (m / p - 1) * (t_i + t_w - t_f); }
    /// The time of a forward and two backwards, minus three weight halves.
    Picoseconds by_pairs() const { return t_f + 2 * t_i - t_w; }
};

enum class Quantity { makespan, bubble, in_flight, between_halves };

struct Condition {
    const char* text = nullptr;
    bool (*is_met)(const Sizes&) = nullptr;
};

struct Formula {
    const char* generator;
    Quantity quantity;
    const char* text;
    Picoseconds (*value)(const Sizes&);
    std::array<Condition, 3> conditions = {};
};

constexpr std::array<Condition, 3> kInUnits{
    {{"p divides m", [](const Sizes& sizes) { return sizes.m % sizes.p == 0; }},
     {"t_f ≤ t_b",
      [](const Sizes& sizes) { return sizes.t_f <= sizes.t_i + sizes.t_w; }}}};
constexpr std::array<Condition, 3> kForPairs{{{"t_f = t_i ≥ t_w", [](const Sizes& sizes) {
                                                   return sizes.t_f == sizes.t_i &&
                                                          sizes.t_w <= sizes.t_f;
                                               }}}};
constexpr Condition kAtLeastStages{"m ≥ p",
                                   [](const Sizes& sizes) { return sizes.m >= sizes.p; }};
constexpr Condition kAllAlike{"t_f = t_i = t_w", [](const Sizes& sizes) {
                                  return sizes.t_f == sizes.t_i && sizes.t_i == sizes.t_w;
                              }};

// Times are those of a chunk: a stage needs v such times for a micro-batch.
constexpr std::array kFormulas{
    Formula{"naive", Quantity::makespan, "m p (t_f + t_b)",
            [](const Sizes& sizes) { return sizes.m * sizes.p * sizes.both_ways(); }},
    Formula{"naive", Quantity::in_flight, "1",
            [](const Sizes&) { return Picoseconds{1}; }},
    Formula{
        "gpipe", Quantity::makespan, "(m + p − 1)(t_f + t_b)",
        [](const Sizes& sizes) { return (sizes.m + sizes.p - 1) * sizes.both_ways(); }},
    Formula{"gpipe", Quantity::in_flight, "m",
            [](const Sizes& sizes) { return sizes.m; }},
    Formula{
        "1f1b", Quantity::makespan, "(m + p − 1)(t_f + t_b)",
        [](const Sizes& sizes) { return (sizes.m + sizes.p - 1) * sizes.both_ways(); }},
    Formula{"1f1b", Quantity::in_flight, "min(p − s, m)",
            [](const Sizes& sizes) { return std::min(sizes.p - sizes.s, sizes.m); }},
    Formula{"interleaved",
            Quantity::makespan,
            "(m + (p − 1) / v)(t_f + t_b)",
            [](const Sizes& sizes) {
                return (sizes.m * sizes.v + sizes.p - 1) * sizes.both_ways();
            },
            {{kAtLeastStages}}},
    Formula{"interleaved", Quantity::in_flight,
            "min(2 (p − s − 1) + (v − 1) ⌈m / ⌊m / p⌋⌉ + 1, m v)",
            [](const Sizes& sizes) {
                const Picoseconds rounds = std::max<Picoseconds>(sizes.m / sizes.p, 1);
                const Picoseconds round = (sizes.m + rounds - 1) / rounds;
                return std::min(2 * (sizes.p - sizes.s - 1) + (sizes.v - 1) * round + 1,
                                sizes.m * sizes.v);
            }},
    Formula{"looped-bfs",
            Quantity::makespan,
            "(m + (p − 1) / v)(t_f + t_b)",
            [](const Sizes& sizes) {
                return (sizes.m * sizes.v + sizes.p - 1) * sizes.both_ways();
            },
            {{kAtLeastStages}}},
    Formula{"looped-bfs", Quantity::in_flight, "m v",
            [](const Sizes& sizes) { return sizes.m * sizes.v; }},
    Formula{"hanayo", Quantity::bubble, "2 (p − 1) / v (t_b + (m / p − 1)(t_b − t_f))",
            [](const Sizes& sizes) { return 2 * (sizes.p - 1) * sizes.by_units(); },
            kInUnits},
    Formula{"hanayo",
            Quantity::in_flight,
            "(v − 1) p + s + 1",
            [](const Sizes& sizes) { return (sizes.v - 1) * sizes.p + sizes.s + 1; },
            {{kAtLeastStages}}},
    Formula{"zb-v",
            Quantity::bubble,
            "0",
            [](const Sizes&) { return Picoseconds{0}; },
            {{{"m ≥ 2 p", [](const Sizes& sizes) { return sizes.m >= 2 * sizes.p; }},
              kAllAlike}}},
    Formula{"chimera", Quantity::bubble, "(p − 2)(t_b + (m / p − 1)(t_b − t_f))",
            [](const Sizes& sizes) { return (sizes.p - 2) * sizes.by_units(); },
            kInUnits},
    Formula{"chimera",
            Quantity::in_flight,
            "p / 2 + 1 + min(s, p − 1 − s)",
            [](const Sizes& sizes) {
                return sizes.p / 2 + 1 + std::min(sizes.s, sizes.p - 1 - sizes.s);
            },
            {{kAtLeastStages}}},
    Formula{"dualpipe", Quantity::bubble, "(p / 2 − 1)(t_f + 2 t_b − 3 t_w)",
            [](const Sizes& sizes) { return (sizes.p / 2 - 1) * sizes.by_pairs(); },
            kForPairs},
    Formula{"dualpipe", Quantity::in_flight, "p + 1",
            [](const Sizes& sizes) { return sizes.p + 1; }},
    Formula{"dualpipe-v", Quantity::bubble, "(p − 1)(t_f + 2 t_b − 3 t_w)",
            [](const Sizes& sizes) { return (sizes.p - 1) * sizes.by_pairs(); },
            kForPairs},
    Formula{"dualpipe-v", Quantity::in_flight, "2 p + 1",
            [](const Sizes& sizes) { return 2 * sizes.p + 1; }},
    Formula{"zb-h1",
            Quantity::bubble,
            "(p − 1)(t_f + t_i − t_w)",
            [](const Sizes& sizes) {
                return (sizes.p - 1) * (sizes.t_f + sizes.t_i - sizes.t_w);
            },
            {{kAtLeastStages,
              {"t_w ≤ t_f", [](const Sizes& sizes) { return sizes.t_w <= sizes.t_f; }}}}},
    Formula{"zb-h1", Quantity::in_flight, "min(p − s, m)",
            [](const Sizes& sizes) { return std::min(sizes.p - sizes.s, sizes.m); }},
    Formula{"zb-h1", Quantity::between_halves, "min(s + 1, m)",
            [](const Sizes& sizes) { return std::min(sizes.s + 1, sizes.m); }},
    Formula{
        "zb-h2",
        Quantity::bubble,
        "(p − 1)(t_f + t_i − 2 t_w)",
        [](const Sizes& sizes) {
            return (sizes.p - 1) * (sizes.t_f + sizes.t_i - 2 * sizes.t_w);
        },
        {{{"m ≥ 2 p − 1", [](const Sizes& sizes) { return sizes.m >= 2 * sizes.p - 1; }},
          {"t_w ≤ t_f", [](const Sizes& sizes) { return sizes.t_w <= sizes.t_f; }},
          {"2 t_w ≤ t_f + t_i",
           [](const Sizes& sizes) { return 2 * sizes.t_w <= sizes.t_f + sizes.t_i; }}}}},
    Formula{"zb-h2", Quantity::in_flight, "min(2 (p − s) − 1, m)",
            [](const Sizes& sizes) {
                return std::min(2 * (sizes.p - sizes.s) - 1, sizes.m);
            }},
    Formula{"zb-h2", Quantity::between_halves, "min(2 s + 1, m)",
            [](const Sizes& sizes) { return std::min(2 * sizes.s + 1, sizes.m); }},
};

void add_conditions(ScheduleFormula& shown, const Formula& formula, const Sizes& sizes) {
    for (const Condition& condition : formula.conditions) {
        if (condition.text == nullptr) continue;
        shown.condition += (shown.condition.empty() ? "" : ", ");
        shown.condition += condition.text;
        shown.applies = shown.applies && condition.is_met(sizes);
    }
}

/// Returns a formula of the whole schedule, with the measured value.
ScheduleFormula of_schedule(const Formula& formula, const Sizes& sizes,
                            bool messages_are_free, const ExaminedSchedule& examined) {
    const auto time = [&](Picoseconds ticks) {
        return fmt::format("{:.7g}", static_cast<double>(ticks) / examined.shown.ticks);
    };
    ScheduleFormula shown;
    const bool is_bubble = formula.quantity == Quantity::bubble;
    shown.what = is_bubble ? "bubble" : "makespan";
    shown.value = time(formula.value(sizes));
    shown.measured =
        time(is_bubble ? examined.timing.bubble() : examined.timing.makespan);
    add_conditions(shown, formula, sizes);
    shown.condition += (shown.condition.empty() ? "" : ", ");
    shown.condition += "messages are free";
    shown.applies = shown.applies && messages_are_free;
    return shown;
}

/// Returns a formula of each stage, with what the schedule's stages hold.
ScheduleFormula of_stages(const Formula& formula, Sizes sizes,
                          const std::vector<Holdings>& peaks) {
    const bool in_flight = formula.quantity == Quantity::in_flight;
    ScheduleFormula shown;
    add_conditions(shown, formula, sizes);
    shown.what = in_flight ? "in flight" : "between halves";
    for (const Holdings& peak : peaks) {
        const char* gap = sizes.s == 0 ? "" : ", ";
        shown.value += gap + std::to_string(formula.value(sizes));
        shown.measured += gap + std::to_string(in_flight ? peak.in_flight : peak.between);
        ++sizes.s;
    }
    return shown;
}

}  // namespace

std::vector<ScheduleFormula> schedule_formulas(const ScheduleSettings& settings,
                                               const ExaminedSchedule& examined) {
    if (examined.problem || examined.shown.times.each.size() != 1) return {};
    const Schedule& schedule = examined.schedule;
    const Durations& times = examined.shown.times.each.front();
    const Sizes sizes{schedule.stages, schedule.micro_batches, schedule.chunks,
                      times.forward,   times.backward_input,   times.backward_weight};
    const bool messages_are_free =
        times.message == 0 && settings.messages == MessagesAs::none;
    const std::vector<Holdings> peaks = peak_holdings(schedule);
    std::vector<ScheduleFormula> found;
    for (const Formula& formula : kFormulas) {
        if (settings.name != formula.generator) continue;
        const bool is_time = formula.quantity == Quantity::makespan ||
                             formula.quantity == Quantity::bubble;
        found.push_back(is_time ? of_schedule(formula, sizes, messages_are_free, examined)
                                : of_stages(formula, sizes, peaks));
        found.back().text = formula.text;
    }
    return found;
}

}  // namespace lockstep::lessons
