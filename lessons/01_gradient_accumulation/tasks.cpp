#include "lessons/01_gradient_accumulation/tasks.hpp"

#include "lessons/runner/input_files.hpp"
#include "src/comm/chunks.hpp"
#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "src/report/describe.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kFeatures = 10;
constexpr std::int64_t kOutputs = 5;
constexpr double kNoise = 0.1;

double true_weight(std::int64_t output, std::int64_t feature, std::uint64_t seed) {
    return RandomStream(seed, "regression/true weight")
        .normal(static_cast<std::uint64_t>(output * kFeatures + feature));
}

}  // namespace

Regression generate_regression(std::int64_t rows, DType dtype, std::uint64_t seed) {
    Regression data{HostTensor({rows, kFeatures}, dtype),
                    HostTensor({rows, kOutputs}, dtype)};
    const RandomStream inputs(seed, "regression/inputs");
    const RandomStream noise(seed, "regression/noise");
    for (std::int64_t i = 0; i < rows * kFeatures; ++i)
        data.inputs.set(i, inputs.normal(static_cast<std::uint64_t>(i)));
    for (std::int64_t i = 0; i < rows * kOutputs; ++i) {
        double target = kNoise * noise.normal(static_cast<std::uint64_t>(i));
        for (std::int64_t f = 0; f < kFeatures; ++f)
            target += true_weight(i % kOutputs, f, seed) *
                      data.inputs.at(i / kOutputs * kFeatures + f);
        data.targets.set(i, target);
    }
    return data;
}

Regression load_regression(const std::filesystem::path& path, std::int64_t targets,
                           DType dtype) {
    const NumberTable table = load_csv(path);
    const std::int64_t rows = table.values.shape()[0];
    const std::int64_t columns = table.values.shape()[1];
    require(targets < columns,
            "{} has {} columns; with targets={} none is left for the inputs",
            path.string(), columns, targets);
    const std::int64_t features = columns - targets;
    Regression data{HostTensor({rows, features}, dtype),
                    HostTensor({rows, targets}, dtype)};
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
            const double value = table.values.at(row * columns + column);
            if (column < features)
                data.inputs.set(row * features + column, value);
            else
                data.targets.set(row * targets + column - features, value);
        }
    }
    return data;
}

Regression regression_of(const LessonOptions& options, std::int64_t rows) {
    if (!options.data) return generate_regression(rows, options.dtype, options.seed);
    return load_regression(*options.data, options.values.integer("targets"),
                           options.dtype);
}

std::vector<Share> even_shares(std::int64_t rows, int parts, double total_weight) {
    std::vector<Share> shares;
    for (int part = 0; part < parts; ++part) {
        const Chunk rows_of_part = chunk(rows, parts, part);
        shares.push_back({rows_of_part.begin, rows_of_part.count,
                          total_weight * static_cast<double>(rows_of_part.count) /
                              static_cast<double>(rows)});
    }
    return shares;
}

Training linear_training(const Regression& data, const LinearSettings& settings,
                         std::function<std::vector<Share>(int rank)> shares_of) {
    Training training;
    training.make_model = [features = data.inputs.shape()[1],
                           outputs = data.targets.shape()[1]](const ParameterInit& init) {
        auto model = std::make_unique<Linear>(init.child("linear"), features, outputs);
        model->set_input_gradient(false);
        return model;
    };
    training.make_optimizer =
        [sgd = settings.optimizer()](std::vector<Parameter*> parameters) {
            return make_optimizer<Sgd>(std::move(parameters), sgd);
        };
    training.loss = mean_squared_error;
    training.batches = [data, shares_of = std::move(shares_of)](int rank, int) {
        std::vector<HostBatch> batches;
        for (const Share& share : shares_of(rank))
            batches.push_back({data.inputs.rows(share.begin, share.count),
                               data.targets.rows(share.begin, share.count),
                               share.weight});
        return batches;
    };
    training.same_batches = true;
    training.steps = settings.epochs;
    training.dtype = data.inputs.dtype();
    training.seed = settings.seed;
    return training;
}

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

}  // namespace lockstep::lessons
