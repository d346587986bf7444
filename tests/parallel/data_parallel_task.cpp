#include "tests/parallel/data_parallel_task.hpp"

#include <fmt/format.h>

#include "src/nn/activation.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep::test {

namespace {

constexpr int kVocabulary = 11;
constexpr std::int64_t kTokens = 5;
constexpr std::int64_t kIn = 6;
constexpr std::int64_t kOut = 3;

}  // namespace

RowTask mlp_task() {
    return {[](const ParameterInit& init) {
                auto model = std::make_unique<Sequential>();
                model->add<Linear>(init.child("0"), kIn, 7);
                model->add<Tanh>(init.device);
                model->add<Linear>(init.child("2"), 7, kOut);
                model->set_input_gradient(false);
                return model;
            },
            mean_squared_error,
            [](int step, int all, int first, int count) {
                const std::string name = fmt::format("{}", step);
                return std::pair{
                    normal_values({all, kIn}, "x" + name).rows(first, count),
                    normal_values({all, kOut}, "y" + name).rows(first, count)};
            }};
}

RowTask gpt_task() {
    RowTask task{
        [](const ParameterInit& init) {
            GptSizes sizes{kVocabulary, kTokens, 2, {8, 2}};
            sizes.tied = true;
            return make_gpt(init, sizes);
        },
        cross_entropy_loss,
        [](int step, int all, int first, int count) {
            const HostTensor tokens = shard_of(
                ids_below({kTokens + 1, all}, kVocabulary, fmt::format("{}", step)),
                column_part({kTokens + 1, all}, first, count));
            return std::pair{tokens.rows(0, kTokens), tokens.rows(1, kTokens)};
        }};
    task.batch_dimension = 1;
    return task;
}

int rows_of_worker(int worker) {
    return 3 + worker % 3;
}

int rows_of_all(int workers) {
    int rows = 0;
    for (int worker = 0; worker < workers; ++worker)
        rows += rows_of_worker(worker);
    return rows;
}

OwnRows rows_of_worker(int worker, int workers, int micro_batches) {
    return {rows_of_all(workers),
            {rows_of_all(worker), rows_of_worker(worker)},
            micro_batches};
}

OwnRows all_rows(int workers) {
    return {rows_of_all(workers), {0, rows_of_all(workers)}};
}

std::vector<MicroBatch> batches_of(Device& device, const RowTask& task, int step,
                                   const OwnRows& own) {
    std::vector<MicroBatch> batches;
    for (int i = 0; i < own.micro_batches; ++i) {
        const Chunk part = chunk(own.rows.count, own.micro_batches, i);
        const auto [input, target] =
            task.rows(step, own.all, static_cast<int>(own.rows.begin + part.begin),
                      static_cast<int>(part.count));
        batches.push_back({device.upload(input), device.upload(target),
                           static_cast<double>(part.count) / own.all});
    }
    return batches;
}

std::vector<MicroBatch> batches_of_worker(Device& device, const RowTask& task, int step,
                                          int worker, int workers, int micro_batches) {
    return batches_of(device, task, step, rows_of_worker(worker, workers, micro_batches));
}

std::unique_ptr<Optimizer> momentum_sgd(const std::vector<Parameter*>& parameters) {
    return std::make_unique<Sgd>(parameters, SgdOptions{0.05, 0.9, 0});
}

std::unique_ptr<Optimizer> adamw(const std::vector<Parameter*>& parameters) {
    // The gradient of the keys' biases is zero except for rounding. A larger epsilon
    // keeps AdamW from stepping by the rounding errors.
    return make_optimizer<AdamW>(parameters,
                                 AdamWOptions{.learning_rate = 0.01, .epsilon = 1e-5});
}

void keep_loss(Rank& rank, const Tensor& loss) {
    rank.keep_value("loss", rank.device().peek(loss).at(0));
}

void keep_updated(Rank& rank, const std::vector<Parameter*>& updated) {
    keep_parameters(rank, updated, "value/", &Parameter::value);
    for (Parameter* parameter : updated)
        if (parameter->complete)
            keep_parameters(rank, {parameter}, "grad/", &Parameter::gradient);
}

Outcome train_on_one(const RowTask& task, int workers, int steps,
                     const MakeOptimizer& make_optimizer) {
    return outcome_of(*sim::make_cluster(1), [&](Rank& rank) {
        Device& device = rank.device();
        const auto model = task.make_model({device, DType::f64, 1, ""});
        AllReduceSync sync(model->parameters());
        const auto optimizer = make_optimizer(model->parameters());
        for (int step = 0; step < steps; ++step)
            keep_loss(rank, train_step(device, *model, task.loss,
                                       batches_of(device, task, step, all_rows(workers)),
                                       sync, *optimizer));
        keep_updated(rank, model->parameters());
    });
}

}  // namespace lockstep::test
