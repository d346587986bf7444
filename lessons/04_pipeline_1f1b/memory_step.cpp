#include <algorithm>

#include <fmt/format.h>

#include "lessons/04_pipeline_1f1b/pipeline_lesson.hpp"
#include "src/core/units.hpp"
#include "src/pipeline/holdings.hpp"

namespace lockstep::lessons {

namespace {

std::int64_t activations(const RunReport& report, int stage) {
    return report.ranks[stage]
        .memory.category_peak[MemoryCategory::activations];
}

}  // namespace

/// Peaks of each stage, against those of one micro-batch and of two.
void PipelineLesson::show_ledger(Page& page, const Schedule& turns) {
    const RunReport& one = run(schedule("gpipe", 1, 1), "gpipe_one");
    const RunReport& two = run(schedule("gpipe", 1, 2), "gpipe_two");
    const RunReport& gpipe = run(schedule("gpipe"), "gpipe");
    const RunReport& report = run(turns, "1f1b");
    if (!options().has_virtual_time()) {
        page.text(
            "(On GPUs memory is freed when the device gets to it, so that "
            "peaks vary; on virtual devices they are exact.)");
        return;
    }
    const int m = micro_batches_;
    Table table{{"stage", "a micro-batch", "GPipe holds", "activations",
                 "1F1B holds", "activations"},
                {}};
    const std::vector<Holdings> held = peak_holdings(turns);
    const std::int64_t boundary = stack_boundary_bytes(options().dtype);
    std::int64_t gpipe_off = 0;
    std::int64_t off = 0;
    for (int stage = 0; stage < ranks_; ++stage) {
        const std::int64_t first = activations(one, stage);
        const std::int64_t each = activations(two, stage) - first;
        const int count = held[stage].in_flight;
        const bool next_is_there = stage > 0 && m > count;
        gpipe_off +=
            std::abs(activations(gpipe, stage) - first - (m - 1) * each);
        off +=
            std::abs(activations(report, stage) - first -
                     (count - 1) * each - (next_is_there ? boundary : 0));
        table.rows.push_back(
            {std::to_string(stage), bytes_text(each), std::to_string(m),
             bytes_text(activations(gpipe, stage)), std::to_string(count),
             bytes_text(activations(report, stage))});
    }
    page.text(
        "The ledger counts every byte. A stage's activations with one "
        "micro-batch and with two differ by what each micro-batch costs; "
        "what the first one costs beyond that is on its way, or needed "
        "while backward runs. All else follows.");
    page.table(table);
    page.check(Check::equal(
        "bytes by which GPipe's peaks differ from the first micro-batch's "
        "and m - 1 more",
        static_cast<double>(gpipe_off), 0));
    page.check(Check::equal(
        "bytes by which 1F1B's peaks differ from those of min(p - s, m) "
        "micro-batches and, behind stage 0, the next one's input",
        static_cast<double>(off), 0));
}

void PipelineLesson::memory(Page& page) {
    const int p = ranks_;
    const int m = micro_batches_;
    page.text(fmt::format(
        "In GPipe every stage has run all {} forwards before its first "
        "backward, and keeps what each of them saved. But the last stage "
        "could turn back at once: it needs nobody. 1F1B (one forward, one "
        "backward) does so. A stage runs ahead by one forward for each "
        "stage behind it, then alternates, so that it never holds more "
        "than that.",
        m));
    page.quote("1f1b-schedule");
    page.predict(
        fmt::format(
            "How many micro-batches does stage 0 hold at most, with p = "
            "{} and m = {}?",
            p, m),
        std::min(p, m), "",
        fmt::format("min(p - s, m) = min({} - 0, {})", p, m));
    const Schedule turns = schedule("1f1b");
    const RunReport& report = run(turns, "1f1b");
    show(page, turns);

    show_ledger(page, turns);
    page.text(fmt::format(
        "On every stage but the first, {} more are held where another "
        "micro-batch is still to come: its input arrives while the stage "
        "still computes, which is what hides the message.",
        bytes_text(stack_boundary_bytes(options().dtype))));
    page.text(
        "And the time? It is often said that 1F1B is faster. Look at the "
        "first stage: it still waits for its first backward until p - 1 "
        "forwards and p - 1 backwards are done elsewhere. The idle time "
        "has moved to the middle, no more.");
    check_clock(page, report, "GPipe's (m + p - 1)(t_f + t_b)",
                (m + p - 1) * 3.0);
}

}  // namespace lockstep::lessons
