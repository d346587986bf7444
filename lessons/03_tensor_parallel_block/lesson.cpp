#include "lessons/03_tensor_parallel_block/lesson.hpp"

#include <fmt/format.h>

#include "lessons/03_tensor_parallel_block/tensor_parallel_lesson.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kMostRanks = 64;

}  // namespace

TensorParallelLesson::TensorParallelLesson(const LessonOptions& options,
                                           Record& record)
    : Lesson(options, record), ranks_(options.ranks.value_or(4)) {
    require(ranks_ <= kMostRanks,
            "--ranks {}: this lesson shares a layer out to at most {} "
            "ranks",
            ranks_, kMostRanks);
    task_ = make_shared_gpt_task(options, ranks_);
    const auto note = [&](const char* key, std::int64_t value) {
        record.options.settings[key] = std::to_string(value);
    };
    note("heads", task_->sizes.block.heads);
    note("hidden", task_->sizes.block.hidden);
    note("context", task_->sizes.context);
    // A weight is a sum of a term for each token of each step.
    record.options.sum_length = task_->tokens() * task_->steps;
}

std::vector<Step> TensorParallelLesson::steps() {
    const auto step = [this](void (TensorParallelLesson::*run)(Page&)) {
        return [this, run](Page& page) { (this->*run)(page); };
    };
    return {
        {"Attention, head by head", step(&TensorParallelLesson::attention)},
        {"A whole block, and its messages",
         step(&TensorParallelLesson::block)},
        {"Where activations are duplicated",
         step(&TensorParallelLesson::memory)},
        {"Sequence parallelism", step(&TensorParallelLesson::sequence)},
        {"A vocabulary that no device holds",
         step(&TensorParallelLesson::vocabulary)},
        {"A GPT on real text", step(&TensorParallelLesson::train)},
        {"A hidden size of 20,480", step(&TensorParallelLesson::size)}};
}

LessonEntry tensor_parallel_block_lesson() {
    LessonEntry entry;
    entry.slug = "tensor-parallel-block";
    entry.title = "A transformer block whose weights are shared out";
    entry.question =
        "How do several devices compute one transformer together, what do "
        "they tell each other, and what does each have to hold?";
    entry.default_ranks = 4;
    entry.settings = {
        {"layers", "transformer blocks of the GPT", "2"},
        {"heads", "of attention; the least multiple of the ranks from 4 on",
         "4"},
        {"hidden", "columns between layers; 16 a head", "64"},
        {"context",
         "tokens of a sequence; the least multiple of the ranks from 32 on",
         "32"},
        {"batch", "sequences of a step", "8"},
        {"steps", "of training", "100"},
        {"learning_rate", "of SGD with momentum 0.9", "0.2"},
    };
    entry.takes_text = true;
    entry.make = [](const LessonOptions& options, Record& record) {
        return std::make_unique<TensorParallelLesson>(options, record);
    };
    return entry;
}

}  // namespace lockstep::lessons
