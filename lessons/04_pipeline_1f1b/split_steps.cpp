#include <cmath>

#include <fmt/format.h>

#include "lessons/04_pipeline_1f1b/pipeline_lesson.hpp"
#include "src/pipeline/holdings.hpp"

namespace lockstep::lessons {

namespace {

std::int64_t messages_of(const RunReport& report) {
    std::int64_t messages = 0;
    for (const RankReport& rank : report.ranks)
        messages += rank.messages_sent();
    return messages;
}

}  // namespace

void PipelineLesson::show_interleaved(Page& page) {
    const int p = ranks_;
    const int m = micro_batches_;
    constexpr int kChunks = 2;
    page.text(fmt::format(
        "Give each device {} smaller chunks of the model in place of one "
        "large one. Cut into {} parts, device 0 has parts 0 and {}, "
        "device 1 parts 1 and {}, and so on: a micro-batch goes round the "
        "devices {} times. The corners of the picture are as many "
        "forwards and backwards as before, but of chunks, so that they "
        "take 1/v of the time (Narayanan et al. 2021).",
        kChunks, kChunks * p, p, p + 1, kChunks));
    page.quote("interleaved-schedule");
    const Schedule rounds = schedule("interleaved", kChunks);
    const RunReport& report = run(rounds, "interleaved");
    const RunReport& plain = run(schedule("1f1b"), "1f1b");
    show(page, rounds);
    page.text(
        "(A unit of time is a chunk's now, half of a stage's; letters in "
        "lower case are of chunk 1.)");
    check_clock(page, report, "3 (v m + p - 1) chunk's seconds",
                3.0 * (kChunks * m + p - 1));
    page.check(Check::equal(
        "bubble over ideal time, by the timer, against (p - 1)/(v m)",
        time_schedule(rounds, {{}}).bubble_over_ideal(),
        static_cast<double>(p - 1) / (kChunks * m)));
    page.check(Check::equal("messages sent, against 2 m (v p - 1)",
                            static_cast<double>(messages_of(report)),
                            2.0 * m * (kChunks * p - 1)));
    const int held = peak_holdings(rounds).front().in_flight;
    page.text(fmt::format(
        "The price: {} messages instead of {}, and memory. Stage 0 holds "
        "{} chunks, that is {:.4g} micro-batches' worth of a stage, where "
        "1F1B holds {}: 1 + (p - 1)/(p v) times as much where m is large. "
        "Interleaving saves time, not memory.",
        messages_of(report), messages_of(plain), held,
        static_cast<double>(held) / kChunks, std::min(p, m)));
}

void PipelineLesson::show_split_backward(Page& page) {
    const int p = ranks_;
    const int m = micro_batches_;
    page.text(
        "The other way: of backward's two halves, the stage before waits "
        "for the gradient of the input only. The weights' gradient can be "
        "computed at any time until the step, for instance when there is "
        "nothing else to do. Zero Bubble (Qi et al. 2023) splits each "
        "backward (B) into I and W, and lets the Ws fill the corners. Its "
        "first schedule, ZB-H1, holds no more than 1F1B does on stage 0:");
    page.quote("split-backward");
    page.predict(
        fmt::format("With t_f = t_i = t_w = 1 s and p = {}: how long is a "
                    "stage idle with ZB-H1, where 1F1B's is idle for {} s?",
                    p, 3 * (p - 1)),
        p - 1, "s",
        fmt::format("(p - 1)(t_f + t_i - t_w) = {} * (1 + 1 - 1)", p - 1));
    const Schedule halves = schedule("zb-h1");
    const RunReport& report = run(halves, "zb-h1");
    show(page, halves);
    check_clock(page, report, "3 m + (p - 1)(t_f + t_i - t_w)",
                3.0 * m + p - 1);
    const int enough = std::max(m, 2 * p);
    const Timing far = time_schedule(schedule("zb-h2", 1, enough), {{}});
    page.text(
        "ZB-H2 runs twice as far ahead, 2 p - 1 micro-batches on stage 0. "
        "Where all three take the same time, and there are 2 p - 1 "
        "micro-batches or more, it closes the bubble altogether: each "
        "stage works from its first forward to its last W without a "
        "pause. (Its stages begin and end in a slant, so that the next "
        "step's corner fits into this one's; the time counted is each "
        "stage's own.)");
    page.check(Check::equal(
        fmt::format("idle seconds of the stage that takes longest with "
                    "ZB-H2, {} micro-batches",
                    enough),
        static_cast<double>(far.bubble()), 0));
}

void PipelineLesson::show_published(Page& page) {
    // Table of the 1.5 B model, 8 stages and 24 micro-batches, in
    // milliseconds, in thousandths.
    constexpr StageDurations kMeasured{18'522, 18'086, 9'337, 601};
    struct Row {
        const char* name;
        double published;
    };
    page.text(
        "Published figures can be had the same way. Qi et al. give the "
        "times that they measured for a model of 1.5 B parameters on 8 "
        "stages with 24 micro-batches (t_f 18.522, t_i 18.086, t_w 9.337, "
        "a message 0.601 ms), and the idle part of the time that follows "
        "for each schedule, as their planner reckons it. Our timer knows "
        "the same times and nothing else:");
    Table table{{"schedule", "theirs", "ours"}, {}};
    double widest = 0;
    for (const Row& row : {Row{"1f1b", 0.2431}, Row{"zb-h1", 0.1585},
                           Row{"zb-h2", 0.1083}}) {
        const double ours =
            time_schedule(make_schedule(row.name, {8, 24, 1}), {kMeasured})
                .bubble_over_total();
        widest = std::max(widest, std::abs(ours - row.published));
        table.rows.push_back({row.name,
                              fmt::format("{:.4f}", row.published),
                              fmt::format("{:.4f}", ours)});
    }
    page.table(table);
    page.check(Check::at_most(
        "largest difference from the published figures", widest, 5e-5));
}

void PipelineLesson::split(Page& page) {
    show_interleaved(page);
    show_split_backward(page);
    show_published(page);
}

}  // namespace lockstep::lessons
