#include "lessons/01_gradient_accumulation/language_model.hpp"

#include <fmt/format.h>

#include "lessons/runner/lesson_text.hpp"
#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kMostRows = 50'000'000;

/// Rows of ids: the characters before each position, and the one at it.
HostBatch batch_at(const LanguageTask& task, const std::int32_t* positions,
                   double weight) {
    const std::int64_t rows = task.micro_batch_rows;
    const std::int64_t context = task.sizes.context;
    HostBatch batch{HostTensor({rows, context}, DType::i32),
                    HostTensor({rows}, DType::i32), weight};
    const auto inputs = batch.input.values<std::int32_t>();
    const auto targets = batch.target.values<std::int32_t>();
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t position = positions[row];
        for (std::int64_t c = 0; c < context; ++c)
            inputs[row * context + c] =
                task.text.ids[position - context + c];
        targets[row] = task.text.ids[position];
    }
    return batch;
}

}  // namespace

std::shared_ptr<const LanguageTask> make_language_task(
    const LessonOptions& options, int micro_batches) {
    const auto made = std::make_shared<LanguageTask>();
    LanguageTask& task = *made;
    task.sizes.context = options.integer("context", 8, 1, 1024);
    task.sizes.width = options.integer("width", 16, 1, 4096);
    task.sizes.hidden = options.integer("hidden", 128, 1, 16384);
    task.text = options.text
                    ? load_text(*options.text, task.sizes.context + 1)
                    : read_text(lesson_text(), "the lesson's text");
    task.sizes.vocabulary =
        static_cast<std::int64_t>(task.text.vocabulary.size());
    task.steps =
        static_cast<int>(options.integer("steps", 400, 1, 1'000'000));
    task.micro_batch_rows = options.integer("rows", 64, 1, 65536);
    task.micro_batches = micro_batches;
    task.learning_rate = options.number("text_learning_rate", 0.2, 0, 1e6);

    const auto choices = static_cast<std::uint64_t>(
        static_cast<std::int64_t>(task.text.ids.size()) -
        task.sizes.context);
    const RandomStream stream(options.seed, "language model/positions");
    const std::int64_t count = task.steps * task.rows_per_step();
    require(count <= kMostRows,
            "{} steps of {} rows are {} rows; at most {} can be recorded",
            task.steps, task.rows_per_step(), count, kMostRows);
    for (std::int64_t i = 0; i < count; ++i)
        task.positions.push_back(static_cast<std::int32_t>(
            task.sizes.context +
            static_cast<std::int64_t>(
                stream.bits(static_cast<std::uint64_t>(i)) % choices)));
    return made;
}

Training language_training(std::shared_ptr<const LanguageTask> task,
                           const LessonOptions& options,
                           std::function<int(int rank)> first, int count) {
    Training training;
    training.steps = task->steps;
    training.make_model = [sizes = task->sizes](const ParameterInit& init) {
        return make_char_model(init, sizes);
    };
    training.make_optimizer =
        [rate = task->learning_rate](std::vector<Parameter*> parameters) {
            return std::make_unique<Sgd>(std::move(parameters),
                                         SgdOptions{rate, 0.9, 0});
        };
    training.loss = cross_entropy_loss;
    training.batches = [task = std::move(task), first = std::move(first),
                        count](int rank, int step) {
        std::vector<HostBatch> batches;
        for (int i = 0; i < count; ++i) {
            const std::int64_t row =
                step * task->rows_per_step() +
                (first(rank) + i) * task->micro_batch_rows;
            batches.push_back(
                batch_at(*task, task->positions.data() + row,
                         1.0 / static_cast<double>(task->micro_batches)));
        }
        return batches;
    };
    training.dtype = options.dtype;
    training.seed = options.seed;
    return training;
}

void record_language_inputs(Record& record, const LanguageTask& task) {
    const auto vector_of = [](const auto& values) {
        return std::vector<std::int32_t>(values.begin(), values.end());
    };
    const auto keep = [&](const char* name, Shape shape,
                          const std::vector<std::int32_t>& values) {
        record.inputs.insert_or_assign(name, HostTensor::of(shape, values));
    };
    keep("language_model/ids",
         Shape::flat(static_cast<std::int64_t>(task.text.ids.size())),
         task.text.ids);
    keep("language_model/vocabulary", Shape::flat(task.sizes.vocabulary),
         vector_of(task.text.vocabulary));
    keep("language_model/positions",
         Shape{task.steps, task.rows_per_step()}, task.positions);
}

}  // namespace lockstep::lessons
