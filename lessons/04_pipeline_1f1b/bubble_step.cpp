#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lessons/04_pipeline_1f1b/pipeline_lesson.hpp"

namespace lockstep::lessons {

namespace {

Timing timing_of(int stages, int micro_batches) {
    return time_schedule(make_schedule("1f1b", {stages, micro_batches, 1}),
                         {{}});
}

/// Of several numbers of stages and micro-batches, by both denominators.
void show_bubbles(Page& page) {
    Table table{
        {"stages", "m = 1", "m = 4", "m = 8", "m = 16", "m = 64", "of the"},
        {}};
    double widest = 0;
    for (const int stages : {2, 4, 8, 16}) {
        std::vector<std::string> total{std::to_string(stages)};
        std::vector<std::string> ideal{""};
        for (const int m : {1, 4, 8, 16, 64}) {
            const Timing timing = timing_of(stages, m);
            total.push_back(
                fmt::format("{:.1f} %", 100 * timing.bubble_over_total()));
            ideal.push_back(
                fmt::format("{:.1f} %", 100 * timing.bubble_over_ideal()));
            const double expected =
                static_cast<double>(stages - 1) / (m + stages - 1);
            widest = std::max(
                widest, std::abs(timing.bubble_over_total() - expected));
        }
        total.emplace_back("whole");
        ideal.emplace_back("ideal");
        table.rows.push_back(std::move(total));
        table.rows.push_back(std::move(ideal));
    }
    page.table(table);
    page.check(Check::equal(
        "largest difference of the timer's from (p - 1)/(m + p - 1)",
        widest, 0));
}

}  // namespace

void PipelineLesson::bubble(Page& page) {
    page.text(
        "The bubble is (p - 1)(t_f + t_b), however many micro-batches "
        "there are: so it weighs less, the more there are. Two numbers "
        "are in use for it. GPipe, Chimera and Zero Bubble divide by the "
        "whole time, and get (p - 1)/(m + p - 1): the part of the time "
        "that is lost. Narayanan et al. 2021 (Megatron-LM, SC21) divide "
        "by the ideal time, and get (p - 1)/m: how much longer it takes "
        "than without a bubble. Of p = 8 and m = 8 one paper says 47 %, "
        "the other 88 %, and they mean the same pipeline. Always say "
        "which.");
    show_bubbles(page);
    constexpr int kStages = 8;
    constexpr int kEnough = 9 * (kStages - 1);
    page.predict(
        fmt::format("How many micro-batches do {} stages need, so that at "
                    "most a tenth of the whole time is lost?",
                    kStages),
        kEnough, "",
        fmt::format("(p - 1)/(m + p - 1) <= 1/10: m >= 9 (p - 1) = 9 * {}",
                    kStages - 1));
    page.check(Check::at_most(
        fmt::format("lost part with m = {}, by the timer", kEnough),
        timing_of(kStages, kEnough).bubble_over_total(), 0.1));
    page.text(
        "Micro-batches cannot be cut at will: each is a matrix product, "
        "and a small one keeps a GPU no busier than a large bubble does; "
        "and the batch itself is bounded by what training bears. So the "
        "bubble is worth attacking as such. (lockstep schedule 1f1b "
        "--stages 8 --micro-batches 24 tries others.)");
}

}  // namespace lockstep::lessons
