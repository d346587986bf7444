#include <fmt/format.h>

#include "lessons/04_pipeline_1f1b/pipeline_lesson.hpp"

namespace lockstep::lessons {

namespace {

constexpr double kForward =
    1;  ///< seconds of a stage, in the cluster `unit`
constexpr double kBackward = 2;  ///< both halves

}  // namespace

void PipelineLesson::staircase(Page& page) {
    page.text(fmt::format(
        "A model that is too large for one device can be cut between its "
        "layers: the first device computes the first layers and sends "
        "what comes out to the second, and so on to the last of p = {}, "
        "which knows the loss. Then gradients travel back the same way. "
        "Each device is a stage. To see the time by itself, let every "
        "stage have as many equal layers as the others, let forward take "
        "1 s, backward 2 s (half of it for the gradient of its input, "
        "half for that of its weights), and let messages be free: the "
        "cluster called unit.",
        ranks_));
    page.predict(
        fmt::format("One batch goes through {} stages, forward and back. "
                    "What part of the time does each device work?",
                    ranks_),
        100.0 / ranks_, "%",
        fmt::format("it works 3 s of p (1 s + 2 s) = {} s: 1/p = 1/{}",
                    3 * ranks_, ranks_));
    const Schedule naive = schedule("naive", 1, 1);
    const RunReport& report = run(naive, "naive");
    show(page, naive);
    check_clock(page, report, "p (t_f + t_b)",
                ranks_ * (kForward + kBackward));
    page.check(Check::equal(
        "part of the time that devices work, by the timer, against 1/p",
        time_schedule(naive, {{}}).utilisation(), 1.0 / ranks_));
    page.text(
        "A staircase up and a staircase down, and nobody works beside "
        "anybody else: p devices, and the speed of one. What they gained "
        "is memory. This is how a model runs that somebody has merely put "
        "on several devices, layer by layer. As a schedule, which says in "
        "which order each stage works:");
    page.quote("naive-schedule");
}

void PipelineLesson::gpipe(Page& page) {
    const int p = ranks_;
    const int m = micro_batches_;
    page.text(fmt::format(
        "Cut the batch into m micro-batches, as gradient accumulation "
        "does. Now stage 0 can begin the second while stage 1 has the "
        "first. GPipe (Huang et al. 2019) runs all forwards, then all "
        "backwards, and steps once at the end: the gradients are those of "
        "the whole batch. (A second is now the time of one "
        "micro-batch.)"));
    page.quote("gpipe-schedule");
    page.predict(
        fmt::format(
            "{} micro-batches through {} stages. Each stage has m (1 s + "
            "2 s) of work, but the last one's first forward begins after "
            "p - 1 others, and at the end it waits as long for backwards. "
            "What part of the time is idle?",
            m, p),
        100.0 * (p - 1) / (m + p - 1), "%",
        fmt::format("(p - 1)/(m + p - 1) = {}/{}", p - 1, m + p - 1));
    const Schedule all_forwards = schedule("gpipe");
    const RunReport& report = run(all_forwards, "gpipe");
    show(page, all_forwards);
    check_clock(page, report, "(m + p - 1)(t_f + t_b)",
                (m + p - 1) * (kForward + kBackward));
    page.check(Check::equal(
        "idle part of the time, by the timer, against (p - 1)/(m + p - 1)",
        time_schedule(all_forwards, {{}}).bubble_over_total(),
        static_cast<double>(p - 1) / (m + p - 1)));
    page.text(
        "The empty corners are the bubble. The times are derived, not "
        "declared: each instruction begins when its stage is free and its "
        "data is there, and the same program that gave the numbers ran on "
        "the virtual clock. This is what each device runs; in which "
        "order, the plan says:");
    page.quote("pipeline-program");
}

}  // namespace lockstep::lessons
