#include "lessons/01_gradient_accumulation/language_lesson.hpp"

#include "lessons/runner/rounding.hpp"
#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/report/describe.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kMostRows = 50'000'000;

/// Returns one row for each position: the ids before it, with the id at it as the target.
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
            inputs[row * context + c] = task.text.ids[position - context + c];
        targets[row] = task.text.ids[position];
    }
    return batch;
}

}  // namespace

std::shared_ptr<const LanguageTask> make_language_task(const LessonOptions& options,
                                                       int micro_batches) {
    const auto made = std::make_shared<LanguageTask>();
    LanguageTask& task = *made;
    task.sizes.context = options.values.integer("context");
    task.sizes.width = options.values.integer("width");
    task.sizes.hidden = options.values.integer("hidden");
    task.text = options.text ? load_text(*options.text, task.sizes.context + 1)
                             : read_text(lesson_text(), "the lesson's text");
    task.sizes.vocabulary = static_cast<std::int64_t>(task.text.vocabulary.size());
    task.steps = static_cast<int>(options.values.integer("steps"));
    task.micro_batch_rows = options.values.integer("rows");
    task.micro_batches = micro_batches;
    task.learning_rate = options.values.number("text_learning_rate");

    const auto choices = static_cast<std::uint64_t>(
        static_cast<std::int64_t>(task.text.ids.size()) - task.sizes.context);
    const RandomStream stream(options.seed, "language model/positions");
    const std::int64_t count = task.steps * task.rows_per_step();
    require(count <= kMostRows,
            "{} steps of {} rows are {} rows; at most {} can be recorded", task.steps,
            task.rows_per_step(), count, kMostRows);
    for (std::int64_t i = 0; i < count; ++i)
        task.positions.push_back(static_cast<std::int32_t>(
            task.sizes.context +
            static_cast<std::int64_t>(stream.bits(static_cast<std::uint64_t>(i)) %
                                      choices)));
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
        [sgd = task->optimizer()](std::vector<Parameter*> parameters) {
            return make_optimizer<Sgd>(std::move(parameters), sgd);
        };
    training.loss = cross_entropy_loss;
    training.batches = [task = std::move(task), first = std::move(first), count](
                           int rank, int step) {
        std::vector<HostBatch> batches;
        for (int i = 0; i < count; ++i) {
            const std::int64_t row =
                step * task->rows_per_step() + (first(rank) + i) * task->micro_batch_rows;
            batches.push_back(batch_at(*task, task->positions.data() + row,
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
         Shape::flat(static_cast<std::int64_t>(task.text.ids.size())), task.text.ids);
    keep("language_model/vocabulary", Shape::flat(task.sizes.vocabulary),
         vector_of(task.text.vocabulary));
    keep("language_model/positions", Shape{task.steps, task.rows_per_step()},
         task.positions);
    record.models["language_model"] =
        trained(describe(task.sizes), describe(task.optimizer(), record.options.dtype),
                "cross_entropy", 1, task.steps);
}

LanguageLesson::LanguageLesson(const LessonOptions& options, Record& record)
    : Lesson(options, record),
      parts_(options.ranks.value_or(4)),
      language_(make_language_task(options, parts_)) {
    record.options.sum_length = language_->steps * language_->rows_per_step();
}

const RunReport& LanguageLesson::alone() {
    if (alone_) return *alone_;
    alone_ = train(*make_cluster(options(), 1),
                   language_training(
                       language_, options(), [](int) { return 0; }, parts_));
    record_language_inputs(record(), *language_);
    record_initial(record(), "language_model", *alone_);
    record_variant(record(), "accumulation", *alone_);
    return *alone_;
}

void LanguageLesson::check_against_one(Findings& found, const std::string& variant,
                                       const RunReport& report) {
    // How many results are stored, and so rounded, one after another: in forward and
    // backward of three layers, in the sum of devices' gradients, and in the parameter.
    const int stores = 12 + parts_;
    values_at_most(found, variant, parameter_difference(alone(), report),
                   RoundingBound{1e-3, 1e-10}.value(options().dtype, stores));
    record_variant(record(), variant, report);
}

void LanguageLesson::train_and_check(Findings& found, const std::string& variant,
                                     const MakeStrategy& strategy) {
    Training training = language_training(
        language_, options(), [](int rank) { return rank; }, 1);
    training.strategy = strategy;
    check_against_one(found, variant, train(*make_cluster(options(), parts_), training));
}

std::vector<Setting> language_settings(const LanguageDefaults& defaults) {
    std::vector<Setting> settings = {
        {"steps", "of the language model", Whole{1, 1'000'000, defaults.steps}},
        {"rows", "of a micro-batch of the language model",
         Whole{1, 65536, defaults.rows}},
        {"context", "number of characters from which the next one is predicted",
         Whole{1, 1024, 8}},
        {"width", "width of a character's embedding", Whole{1, 4096, defaults.width}},
        {"hidden", "units of the hidden layer", Whole{1, 16384, defaults.hidden}},
        {"text_learning_rate", "of the language model", Real{0, 1e6, 0.2}},
    };
    return settings;
}

}  // namespace lockstep::lessons
