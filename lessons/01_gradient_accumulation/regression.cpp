#include "lessons/01_gradient_accumulation/regression.hpp"

#include <fmt/format.h>

#include "lessons/runner/load_csv.hpp"
#include "src/comm/chunks.hpp"
#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/nn/linear.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kFeatures = 10;
constexpr std::int64_t kOutputs = 5;
constexpr double kNoise = 0.1;

double true_weight(std::int64_t output, std::int64_t feature,
                   std::uint64_t seed) {
    return RandomStream(seed, "regression/true weight")
        .normal(static_cast<std::uint64_t>(output * kFeatures + feature));
}

}  // namespace

Regression generate_regression(std::int64_t rows, DType dtype,
                               std::uint64_t seed) {
    Regression data{HostTensor({rows, kFeatures}, dtype),
                    HostTensor({rows, kOutputs}, dtype)};
    const RandomStream inputs(seed, "regression/inputs");
    const RandomStream noise(seed, "regression/noise");
    for (std::int64_t i = 0; i < rows * kFeatures; ++i)
        data.inputs.set(i, inputs.normal(static_cast<std::uint64_t>(i)));
    for (std::int64_t i = 0; i < rows * kOutputs; ++i) {
        double target =
            kNoise * noise.normal(static_cast<std::uint64_t>(i));
        for (std::int64_t f = 0; f < kFeatures; ++f)
            target += true_weight(i % kOutputs, f, seed) *
                      data.inputs.at(i / kOutputs * kFeatures + f);
        data.targets.set(i, target);
    }
    return data;
}

Regression load_regression(const std::filesystem::path& path,
                           std::int64_t targets, DType dtype) {
    const NumberTable table = load_csv(path);
    const std::int64_t rows = table.values.shape()[0];
    const std::int64_t columns = table.values.shape()[1];
    require(targets < columns,
            "{} has {} columns; with targets={} none is left for the "
            "inputs",
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
    const std::int64_t targets =
        options.integer("targets", 1, 1, 1'000'000);
    if (!options.data)
        return generate_regression(rows, options.dtype, options.seed);
    return load_regression(*options.data, targets, options.dtype);
}

std::vector<Share> even_shares(std::int64_t rows, int parts,
                               double total_weight) {
    std::vector<Share> shares;
    for (int part = 0; part < parts; ++part) {
        const Chunk rows_of_part = chunk(rows, parts, part);
        shares.push_back(
            {rows_of_part.begin, rows_of_part.count,
             total_weight * static_cast<double>(rows_of_part.count) /
                 static_cast<double>(rows)});
    }
    return shares;
}

Training linear_training(
    const Regression& data, const LinearSettings& settings,
    std::function<std::vector<Share>(int rank)> shares_of) {
    Training training;
    training.make_model =
        [features = data.inputs.shape()[1],
         outputs = data.targets.shape()[1]](const ParameterInit& init) {
            auto model = std::make_unique<Linear>(init.child("linear"),
                                                  features, outputs);
            model->set_input_gradient(false);
            return model;
        };
    training.make_optimizer = [rate = settings.learning_rate](
                                  std::vector<Parameter*> parameters) {
        return std::make_unique<Sgd>(std::move(parameters),
                                     SgdOptions{rate, 0, 0});
    };
    training.loss = mean_squared_error;
    training.batches = [data, shares_of = std::move(shares_of)](int rank,
                                                                int) {
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

}  // namespace lockstep::lessons
