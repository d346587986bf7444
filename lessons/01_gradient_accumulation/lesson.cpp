#include "lessons/01_gradient_accumulation/lesson.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lessons/01_gradient_accumulation/gradient_accumulation.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

GradientAccumulation::GradientAccumulation(const LessonOptions& options,
                                           Record& record)
    : Lesson(options, record),
      parts_(options.ranks.value_or(4)),
      linear_{
          static_cast<int>(options.integer("epochs", 100, 1, 1'000'000)),
          options.number("learning_rate", 0.01, 0, 1e6), options.seed} {
    require(parts_ <= kMostParts,
            "--ranks {}: this lesson deals a batch out to at most {} ranks",
            parts_, kMostParts);
    data_ = regression_of(options, 25 * parts_);
    language_ = make_language_task(options, parts_);
    // A weight is a sum of a term for each row of each step.
    record.options.sum_length =
        std::max(linear_.epochs * data_.rows(),
                 language_->steps * language_->rows_per_step());
    require(data_.rows() >= parts_,
            "{} rows of data cannot be dealt out to {} ranks: each needs "
            "one",
            data_.rows(), parts_);
}

std::vector<Step> GradientAccumulation::steps() {
    const auto step = [this](void (GradientAccumulation::*run)(Page&)) {
        return [this, run](Page& page) { (this->*run)(page); };
    };
    return {{"Small batches, one step",
             step(&GradientAccumulation::accumulate)},
            {"The same batches on as many devices",
             step(&GradientAccumulation::distribute)},
            {"Sum or mean", step(&GradientAccumulation::average)},
            {"What differs: time and memory",
             step(&GradientAccumulation::measure)},
            {"The ring by hand", step(&GradientAccumulation::ring)},
            {"A real model on real text",
             step(&GradientAccumulation::read_text)},
            {"Predict first", step(&GradientAccumulation::predict)}};
}

LessonEntry gradient_accumulation_lesson() {
    LessonEntry entry;
    entry.slug = "gradient-accumulation";
    entry.title = "Gradient accumulation is data parallelism";
    entry.question =
        "Why do four small batches on one device and one batch on four "
        "devices end in the same weights, and what does each cost?";
    entry.default_ranks = 4;
    entry.settings = {
        {"epochs", "steps of the linear layer", "100"},
        {"learning_rate", "of the linear layer", "0.01"},
        {"targets", "columns of --data that are targets, the last ones",
         "1"},
        {"steps", "of the language model", "400"},
        {"rows", "of a micro-batch of the language model", "64"},
        {"context", "characters that the next one is predicted from", "8"},
        {"width", "numbers that stand for a character", "16"},
        {"hidden", "units of the hidden layer", "128"},
        {"text_learning_rate", "of the language model", "0.2"},
    };
    entry.takes_text = true;
    entry.takes_data = true;
    entry.make = [](const LessonOptions& options, Record& record) {
        return std::make_unique<GradientAccumulation>(options, record);
    };
    return entry;
}

}  // namespace lockstep::lessons
