#include <cmath>

#include <fmt/format.h>

#include "lessons/03_tensor_parallel_block/tensor_parallel_lesson.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"
#include "src/nn/losses.hpp"
#include "src/parallel/vocabulary_parallel.hpp"

namespace lockstep::lessons {

namespace {

/// Columns of the logits that each of `ranks` devices has.
std::int64_t own_columns_of(std::int64_t vocabulary, int ranks) {
    return (vocabulary + ranks - 1) / ranks;
}

/// The text's first characters.
Tensor targets_of(const GptTask& task, Device& device) {
    HostTensor targets({task.tokens()}, DType::i32);
    for (std::int64_t i = 0; i < targets.elements(); ++i)
        targets.set(i, task.text.ids[i % static_cast<std::int64_t>(
                                             task.text.ids.size())]);
    return device.upload(targets);
}

/// The loss of random logits, by way of shards; each rank keeps it.
Program shared_loss(const GptTask& task, const LessonOptions& options) {
    return [&task, dtype = options.dtype, seed = options.seed](Rank& rank) {
        Device& device = rank.device();
        TensorParallel tp(device, rank.world());
        const std::int64_t rows = task.tokens();
        const std::int64_t whole = task.sizes.vocabulary;
        const std::int64_t columns = own_columns_of(whole, rank.size());
        const Tensor logits = device.empty({rows, columns}, dtype);
        device.random_normal(
            logits, {seed, "vocabulary/logits"}, 0, 1,
            {rank.index() * columns, columns * rank.size()});
        const Tensor targets = targets_of(task, device);
        const LossResult result =
            vocabulary_parallel_cross_entropy(tp, logits, targets, whole);
        rank.keep("loss", result.loss);
    };
}

/// The same of whole rows on one device, which leaves out the padding.
Program whole_loss(const GptTask& task, const LessonOptions& options,
                   int ranks) {
    return [&task, ranks, dtype = options.dtype,
            seed = options.seed](Rank& rank) {
        Device& device = rank.device();
        const std::int64_t rows = task.tokens();
        const std::int64_t whole = task.sizes.vocabulary;
        const std::int64_t padded = own_columns_of(whole, ranks) * ranks;
        const Tensor logits = device.empty({rows, whole}, dtype);
        device.random_normal(logits, {seed, "vocabulary/logits"}, 0, 1,
                             {0, padded});
        const Tensor targets = targets_of(task, device);
        rank.keep("loss", cross_entropy_loss(device, logits, targets).loss);
    };
}

std::string padding_text(std::int64_t rows) {
    if (rows == 0) return "";
    if (rows == 1)
        return ", of which the last is padding that counts nowhere";
    return fmt::format(
        ", of which the last {} are padding that counts nowhere", rows);
}

}  // namespace

void TensorParallelLesson::vocabulary(Page& page) {
    const std::int64_t whole = task_->sizes.vocabulary;
    const std::int64_t columns = own_columns_of(whole, ranks_);
    page.text(fmt::format(
        "The first table and the last layer are the largest of a small "
        "model. Share both out by the vocabulary: {} characters over {} "
        "devices, {} rows each{}. The embedding finds zeros for the "
        "characters of others, and g adds up. The logits stay shared out: "
        "softmax needs of the other devices only the largest logit of a "
        "row, the sum of exponentials, and the target's logit.",
        whole, ranks_, columns, padding_text(columns * ranks_ - whole)));
    page.quote("vocabulary-parallel");
    const RunReport shared = make_cluster(options(), ranks_)
                                 ->run(shared_loss(*task_, options()));
    show_loss_bytes(page, shared, columns);
    const RunReport alone =
        make_cluster(options(), 1)
            ->run(whole_loss(*task_, options(), ranks_));
    const double one = alone.ranks.front().kept.at("loss").at(0);
    const double many = shared.ranks.front().kept.at("loss").at(0);
    check_values(page,
                 "loss of shared logits against whole ones, relative "
                 "difference",
                 std::abs(many - one) / std::abs(one), bound());
}

void TensorParallelLesson::show_loss_bytes(Page& page,
                                           const RunReport& shared,
                                           std::int64_t columns) {
    const std::int64_t rows = task_->tokens();
    const std::int64_t size = bytes_of(options().dtype);
    page.predict(
        fmt::format("How many bytes does a device send for the loss of {} "
                    "tokens, {} bytes a number?",
                    rows, size),
        std::round(6.0 * static_cast<double>(rows * size) * (ranks_ - 1) /
                   ranks_),
        "bytes",
        fmt::format("2(t-1)/t * (N + 2N) = 6 * {} * {}/{} * {}; the "
                    "vocabulary is not in it",
                    rows, ranks_ - 1, ranks_, size));
    const auto sent = [&](std::int64_t elements, Verb verb) {
        return collective_traffic({verb, elements, size, ranks_}, 0)
            .bytes_sent;
    };
    page.check(Check::equal(
        "bytes that device 0 sent for the loss",
        static_cast<double>(shared.ranks.front().bytes_sent()),
        static_cast<double>(sent(rows, Verb::all_reduce) +
                            sent(2 * rows, Verb::all_reduce))));
    if (ranks_ > 1)
        page.text(fmt::format(
            "Gathering the logits instead would take {} a device here. "
            "With a vocabulary of 50,000 it would take V/6, 8,333 times as "
            "much "
            "as the loss does now.",
            bytes_text(sent(rows * columns, Verb::all_gather))));
}

}  // namespace lockstep::lessons
