#include "lessons/04_pipeline_1f1b/lesson.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lessons/04_pipeline_1f1b/gpt_pipeline.hpp"
#include "lessons/04_pipeline_1f1b/pipeline_lesson.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/picture.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kLeastRanks = 2;
constexpr int kMostRanks = 16;
constexpr int kMostMicroBatches = 256;

}  // namespace

PipelineLesson::PipelineLesson(const LessonOptions& options, Record& record)
    : Lesson(options, record), ranks_(options.ranks.value_or(4)) {
    require(ranks_ >= kLeastRanks && ranks_ <= kMostRanks,
            "--ranks {}: this lesson's pipelines have {} to {} stages{}",
            ranks_, kLeastRanks, kMostRanks, options.gpus_hint());
    micro_batches_ = static_cast<int>(
        options.integer("micro_batches", 2 * ranks_, 1, kMostMicroBatches));
    require(micro_batches_ % ranks_ == 0,
            "--set micro_batches={}: interleaved schedules take them in "
            "rounds of the stages, so that it must be a multiple of {}",
            micro_batches_, ranks_);
    task_ = make_pipeline_gpt_task(options, ranks_, micro_batches_);
    const auto note = [&](const char* key, std::int64_t value) {
        record.options.settings[key] = std::to_string(value);
    };
    note("micro_batches", micro_batches_);
    note("layers", task_->sizes.layers);
    note("batch", task_->batch);
    // A weight is a sum of a term for each token of each step.
    record.options.sum_length = task_->tokens() * task_->steps;
}

std::vector<Step> PipelineLesson::steps() {
    const auto step = [this](void (PipelineLesson::*method)(Page&)) {
        return [this, method](Page& page) { (this->*method)(page); };
    };
    return {
        {"Layers on devices", step(&PipelineLesson::staircase)},
        {"Micro-batches: GPipe", step(&PipelineLesson::gpipe)},
        {"What a stage has to hold: 1F1B", step(&PipelineLesson::memory)},
        {"The steady state, line by line",
         step(&PipelineLesson::steady_state)},
        {"The bubble, and its two denominators",
         step(&PipelineLesson::bubble)},
        {"Smaller bubbles, and what they cost",
         step(&PipelineLesson::split)},
        {"A schedule that hangs", step(&PipelineLesson::deadlock)},
        {"A GPT on real text, by every schedule",
         step(&PipelineLesson::train)}};
}

Schedule PipelineLesson::schedule(const std::string& name, int chunks,
                                  int micro_batches) const {
    return make_schedule(
        name,
        {ranks_, micro_batches ? micro_batches : micro_batches_, chunks});
}

const RunReport& PipelineLesson::run(const Schedule& schedule,
                                     const std::string& name) {
    const auto known = runs_.find(name);
    if (known != runs_.end()) return known->second;
    LessonOptions unit = options();
    if (unit.has_virtual_time()) unit.cluster = "unit";
    const bool drawn = name == "gpipe" || name == "1f1b" || name == "zb-h1";
    const PipelinePlan plan(schedule);
    RunReport report =
        make_cluster(unit, ranks_, /*trace=*/drawn)
            ->run(stack_program(plan, {options().dtype, options().seed}));
    record().runs.emplace_back("stack_" + name, report);
    return runs_.emplace(name, std::move(report)).first->second;
}

void PipelineLesson::show(Page& page, const Schedule& schedule) {
    constexpr int kColumns = 76;
    SchedulePictureOptions picture;
    picture.width = kColumns;
    page.verbatim(
        schedule_text(schedule, time_schedule(schedule, {{}}), picture));
}

void PipelineLesson::check_clock(Page& page, const RunReport& report,
                                 const std::string& formula,
                                 double seconds) {
    if (!options().has_virtual_time()) {
        page.text("(On GPUs times are measured, and equal no formula.)");
        return;
    }
    page.check(Check::equal(
        fmt::format("seconds on the virtual clock, against {}", formula),
        static_cast<double>(report.makespan()) /
            static_cast<double>(kSecond),
        seconds));
}

LessonEntry pipeline_1f1b_lesson() {
    LessonEntry entry;
    entry.slug = "pipeline-1f1b";
    entry.title = "A pipeline of devices, and the bubble in it";
    entry.question =
        "When a model's layers lie on several devices, in which order "
        "should these work, what does each have to hold, and why do some "
        "orders hang?";
    entry.default_ranks = 4;
    entry.settings = {
        {"micro_batches", "of a step; a multiple of the ranks",
         "twice the ranks"},
        {"layers", "transformer blocks of the GPT",
         "as many as the ranks, or what two chunks a stage need"},
        {"heads", "of attention", "4"},
        {"hidden", "columns between layers; 16 a head", "64"},
        {"context", "tokens of a sequence", "32"},
        {"batch", "sequences of a step; a multiple of the micro-batches",
         "one a micro-batch"},
        {"steps", "of training", "40"},
        {"learning_rate", "of SGD with momentum 0.9", "0.2"},
        {"tied", "1: the GPT's head reads its table of characters", "0"},
    };
    entry.takes_text = true;
    entry.make = [](const LessonOptions& options, Record& record) {
        return std::make_unique<PipelineLesson>(options, record);
    };
    return entry;
}

}  // namespace lockstep::lessons
