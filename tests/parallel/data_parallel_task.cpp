#include "tests/parallel/data_parallel_task.hpp"

#include <cmath>

#include <fmt/format.h>

#include "src/comm/chunks.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

namespace {

constexpr int kVocabulary = 11;
constexpr std::int64_t kTokens = 5;
constexpr std::int64_t kIn = 6;
constexpr std::int64_t kOut = 3;

HostTensor columns_of(const HostTensor& whole, std::int64_t first, std::int64_t count) {
    const std::int64_t rows = whole.shape()[0];
    HostTensor part({rows, count}, whole.dtype());
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = 0; i < count; ++i)
            part.set(row * count + i, whole.at(row * whole.shape()[1] + first + i));
    return part;
}

}  // namespace

Task mlp_task() {
    Task task{[](const ParameterInit& init) {
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
    return task;
}

Task gpt_task() {
    Task task{[](const ParameterInit& init) {
                  GptSizes sizes{kVocabulary, kTokens, 2, {8, 2}};
                  sizes.tied = true;
                  return make_gpt(init, sizes);
              },
              cross_entropy_loss,
              [](int step, int all, int first, int count) {
                  const HostTensor tokens = columns_of(
                      ids_below({kTokens + 1, all}, kVocabulary, fmt::format("{}", step)),
                      first, count);
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

std::vector<MicroBatch> batches_of_worker(Device& device, const Task& task, int step,
                                          int worker, int workers, int micro_batches) {
    const int all = rows_of_all(workers);
    const int first = rows_of_all(worker);
    std::vector<MicroBatch> batches;
    for (int i = 0; i < micro_batches; ++i) {
        const Chunk rows = chunk(rows_of_worker(worker), micro_batches, i);
        const auto [input, target] =
            task.rows(step, all, first + static_cast<int>(rows.begin),
                      static_cast<int>(rows.count));
        batches.push_back({device.upload(input), device.upload(target),
                           static_cast<double>(rows.count) / all});
    }
    return batches;
}

std::unique_ptr<Optimizer> momentum_sgd(const std::vector<Parameter*>& parameters) {
    return std::make_unique<Sgd>(parameters, SgdOptions{0.05, 0.9, 0});
}

std::unique_ptr<Optimizer> adamw(const std::vector<Parameter*>& parameters) {
    // The gradient of keys' biases is zero but for rounding: a larger epsilon keeps the
    // optimizer from making steps of that.
    return make_optimizer<AdamW>(parameters,
                                 AdamWOptions{.learning_rate = 0.01, .epsilon = 1e-5});
}

void keep_updated(Rank& rank, const std::vector<Parameter*>& updated) {
    for (const Parameter* parameter : updated) {
        const auto keep = [&](const char* prefix, const Tensor& tensor) {
            if (holds_all(parameter->part()))
                rank.keep(prefix + parameter->name(), tensor);
            else
                rank.keep(prefix + parameter->name(), tensor, parameter->part());
        };
        keep("value/", parameter->value);
        if (parameter->complete) keep("grad/", parameter->gradient);
    }
}

void collect(Course& course, RunReport report) {
    course.report = std::move(report);
    course.values = wholes(course.report, "value/");
    course.gradients = wholes(course.report, "grad/");
}

Course train_on_one(const Task& task, int workers, int steps,
                    const MakeOptimizer& make_optimizer) {
    Course course;
    RunReport report = sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto model = task.make_model({device, DType::f64, 1, ""});
        AllReduceSync sync(model->parameters());
        const auto optimizer = make_optimizer(model->parameters());
        const int all = rows_of_all(workers);
        for (int step = 0; step < steps; ++step) {
            const auto [input, target] = task.rows(step, all, 0, all);
            const MicroBatch batch{device.upload(input), device.upload(target)};
            const Tensor loss =
                train_step(device, *model, task.loss, {&batch, 1}, sync, *optimizer);
            course.losses.push_back(device.peek(loss).at(0));
        }
        keep_updated(rank, model->parameters());
    });
    collect(course, std::move(report));
    return course;
}

void check_same(const Course& many, const Course& one) {
    REQUIRE(many.losses.size() == one.losses.size());
    for (std::size_t step = 0; step < one.losses.size(); ++step)
        CHECK(std::abs(many.losses[step] - one.losses[step]) <= 1e-12 * one.losses[step]);
    for (const auto& [all, expected] : {std::pair{&many.values, &one.values},
                                        std::pair{&many.gradients, &one.gradients}}) {
        REQUIRE(all->size() == expected->size());
        for (const auto& [name, tensor] : *expected) {
            CAPTURE(name);
            CHECK(relative_difference(all->at(name), tensor) <= 1e-12);
        }
    }
}

}  // namespace lockstep::test
