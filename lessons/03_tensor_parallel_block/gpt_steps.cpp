#include <cmath>

#include <fmt/format.h>

#include "lessons/03_tensor_parallel_block/lesson.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
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
        targets.set(i,
                    task.text.ids[i % static_cast<std::int64_t>(task.text.ids.size())]);
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
        device.random_normal(logits, {seed, "vocabulary/logits"}, 0, 1,
                             {rank.index() * columns, columns * rank.size()});
        const Tensor targets = targets_of(task, device);
        const LossResult result =
            vocabulary_parallel_cross_entropy(tp, logits, targets, whole);
        rank.keep("loss", result.loss);
    };
}

/// The loss of whole rows on one device, without the padding.
Program whole_loss(const GptTask& task, const LessonOptions& options, int ranks) {
    return [&task, ranks, dtype = options.dtype, seed = options.seed](Rank& rank) {
        Device& device = rank.device();
        const std::int64_t rows = task.tokens();
        const std::int64_t whole = task.sizes.vocabulary;
        const std::int64_t padded = own_columns_of(whole, ranks) * ranks;
        const Tensor logits = device.empty({rows, whole}, dtype);
        device.random_normal(logits, {seed, "vocabulary/logits"}, 0, 1, {0, padded});
        const Tensor targets = targets_of(task, device);
        rank.keep("loss", cross_entropy_loss(device, logits, targets).loss);
    };
}

std::string padding_text(std::int64_t rows) {
    if (rows == 0) return "";
    if (rows == 1) return ", of which the last is padding that counts nowhere";
    return fmt::format(", of which the last {} are padding that counts nowhere", rows);
}

}  // namespace

void TensorParallelLesson::vocabulary(Page& page) {
    const std::int64_t whole = task_->sizes.vocabulary;
    const std::int64_t columns = own_columns_of(whole, ranks_);
    page.text(fmt::format(
        "The first table and the last layer are the largest of a small model. Share both "
        "out by the vocabulary: {} characters over {} devices, {} rows each{}. The "
        "embedding finds zeros for the characters of others, and g adds up. The logits "
        "stay shared out: softmax needs of the other devices only the largest logit of a "
        "row, the sum of exponentials, and the target's logit.",
        whole, ranks_, columns, padding_text(columns * ranks_ - whole)));
    page.quote("vocabulary-parallel");
    const RunReport shared =
        make_cluster(options(), ranks_)->run(shared_loss(*task_, options()));
    show_loss_bytes(page, shared, columns);
    const RunReport alone =
        make_cluster(options(), 1)->run(whole_loss(*task_, options(), ranks_));
    const double one = alone.ranks.front().kept.at("loss").at(0);
    const double many = shared.ranks.front().kept.at("loss").at(0);
    check_values(page, "loss of shared logits against whole ones, relative difference",
                 std::abs(many - one) / std::abs(one), bound());
}

void TensorParallelLesson::show_loss_bytes(Page& page, const RunReport& shared,
                                           std::int64_t columns) {
    const std::int64_t rows = task_->tokens();
    const std::int64_t size = bytes_of(computed_in(options().dtype));
    page.predict(
        fmt::format("How many bytes does a device send for the loss of {} tokens, {} "
                    "bytes a number?",
                    rows, size),
        std::round(6.0 * static_cast<double>(rows * size) * (ranks_ - 1) / ranks_),
        "bytes",
        fmt::format(
            "2(t-1)/t * (N + 2N) = 6 * {} * {}/{} * {}; the vocabulary is not in it",
            rows, ranks_ - 1, ranks_, size));
    const auto sent = [&](std::int64_t elements, Verb verb) {
        return collective_traffic({verb, elements, size, ranks_}, 0).bytes_sent;
    };
    page.check(Check::equal("bytes that device 0 sent for the loss",
                            static_cast<double>(shared.ranks.front().bytes_sent()),
                            static_cast<double>(sent(rows, Verb::all_reduce) +
                                                sent(2 * rows, Verb::all_reduce))));
    if (ranks_ > 1)
        page.text(fmt::format(
            "Gathering the logits instead would take {} a device here. With a vocabulary "
            "of 50,000 it would take V/6, 8,333 times as much as the loss does now.",
            bytes_text(sent(rows * columns, Verb::all_gather))));
}

namespace {

std::vector<double> losses(const RunReport& report) {
    return report.ranks.front().series.at("loss");
}

}  // namespace

RunReport TensorParallelLesson::train_on(Page& page, int ranks, Regions regions,
                                         const std::string& variant) {
    RunReport report =
        train_gpt(*make_cluster(options(), ranks), *task_, options().dtype,
                  options().seed, regions, page.progress(variant, task_->steps).get());
    record().runs.emplace_back(variant, report);
    if (!has_numbers()) return report;
    record_training(
        record(), variant, ranks == 1, losses(report),
        [&](const std::string& prefix) { return kept_under(report, prefix); });
    return report;
}

Curves TensorParallelLesson::train_on_all(Page& page) {
    Curves curves;
    const auto on = [&](int ranks, Regions regions, const std::string& name,
                        const std::string& variant) {
        curves.add(name, losses(train_on(page, ranks, regions, variant)));
    };
    const std::string all = fmt::format("gpt_{}", ranks_);
    on(1, Regions::replicated, "1 device", "gpt_1");
    if (ranks_ % 2 == 0 && ranks_ > 2) on(2, Regions::replicated, "2 devices", "gpt_2");
    if (ranks_ == 1) return curves;
    on(ranks_, Regions::replicated, fmt::format("{} devices", ranks_), all);
    on(ranks_, Regions::sequence_parallel, fmt::format("{}, sequence parallel", ranks_),
       all + "_sequence");
    return curves;
}

void TensorParallelLesson::train(Page& page) {
    const GptSizes& sizes = task_->sizes;
    page.text(
        fmt::format("Now all of it: a GPT of {} layers, hidden size {}, {} heads, over "
                    "sequences of {} of the text's {} different characters, {} sequences "
                    "a step, {} steps of SGD with learning rate {} and momentum 0.9. One "
                    "program trains it on one device and on many.",
                    sizes.layers, sizes.block.hidden, sizes.block.heads, sizes.context,
                    sizes.vocabulary, task_->batch, task_->steps, task_->learning_rate));
    page.quote("tensor-parallel-training");
    record_gpt_inputs(record(), *task_);

    const Curves curves = train_on_all(page);
    if (has_numbers()) curves.show(page);
    const std::vector<double>& one = curves.losses.front();
    const int stores = static_cast<int>(sizes.layers) * block_stores(ranks_);
    check_values(page, "largest difference of a loss from one device's, at any step",
                 curves.widest_gap(), loss_bound(options().dtype, stores, one));
    const double entropy = unigram_entropy(task_->text);
    page.text(fmt::format(
        "Drawn by frequency alone, a character of this text carries {:.3f} nats.",
        entropy));
    constexpr int kEnough = 100;
    if (task_->steps >= kEnough)
        check_values(page, "last loss over that", one.back() / entropy, 0.95);
}

namespace {

constexpr std::int64_t kHidden = 20'480;
constexpr std::int64_t kHeads = 160;

std::int64_t of(const RankReport& rank, MemoryCategory category) {
    return rank.memory.category_peak[static_cast<std::size_t>(category)];
}

/// Parameters, gradients and AdamW's state of a block, in 16 bits.
RankReport block_of(int ranks) {
    return make_shapes_only_cluster(ranks)
        ->run([](Rank& rank) {
            TensorParallel tp(rank.device(), rank.world());
            const auto block = make_block({rank.device(), DType::bf16, 1, "h.0"},
                                          {kHidden, kHeads}, tensor_parallel({}, tp));
            const AdamW optimizer(block->parameters());
        })
        .ranks.front();
}

void show_block_sizes(Page& page) {
    page.text(
        "One whole block has 12 h² weights and 13 h numbers beside (biases and norms), "
        "and training holds its gradients and AdamW's two moments as well; all in 16 "
        "bits here (mixed precision holds 16 bytes a weight instead of 8).");
    Table table{{"devices", "parameters", "gradients", "optimizer", "together, each"},
                {}};
    std::vector<Check> checks;
    for (const int ranks : {1, 2, 4, 8, 16}) {
        const RankReport rank = block_of(ranks);
        table.rows.push_back({std::to_string(ranks),
                              bytes_text(of(rank, MemoryCategory::parameters)),
                              bytes_text(of(rank, MemoryCategory::gradients)),
                              bytes_text(of(rank, MemoryCategory::optimizer)),
                              bytes_text(rank.memory.peak)});
        // There are 13 h: two norms (4 h) and the biases after a row split
        // (2 h) are on every device; 7 h are shared out.
        const std::int64_t expected =
            2 * ((12 * kHidden * kHidden + 7 * kHidden) / ranks + 6 * kHidden);
        checks.push_back(Check::equal(
            fmt::format("bytes of parameters on {} device{}, 2 ((12 h² + 7 h)/t + 6 h)",
                        ranks, ranks == 1 ? "" : "s"),
            static_cast<double>(of(rank, MemoryCategory::parameters)),
            static_cast<double>(expected)));
    }
    page.table(table);
    for (const Check& check : checks)
        page.check(check);
}

}  // namespace

void TensorParallelLesson::size(Page& page) {
    page.text(
        fmt::format("Why share weights out at all? Take a hidden size of {}, and an MLP "
                    "four times as wide. Shapes are enough to know what it needs: the "
                    "simulator allocates everything, and computes nothing.",
                    count_text(kHidden)));
    const RankReport up =
        make_shapes_only_cluster(1)
            ->run([](Rank& rank) {
                const Linear layer({rank.device(), DType::bf16, 1, "c_fc"}, kHidden,
                                   4 * kHidden, /*bias=*/false);
            })
            .ranks.front();
    const std::int64_t weights = 4 * kHidden * kHidden;
    page.predict(
        "How many bytes does the weight of its first layer, 20,480 to 81,920, take in 16 "
        "bits?",
        static_cast<double>(2 * weights), "bytes",
        "2 * 4 * 20,480^2: 1.68 billion weights, 3.36 GB");
    page.check(Check::equal("bytes of parameters by the ledger",
                            static_cast<double>(of(up, MemoryCategory::parameters)),
                            static_cast<double>(2 * weights)));

    show_block_sizes(page);
    page.text(
        "One block fits a device of 80 GB; a model has dozens of them. Shared out to 8 "
        "devices, a block's weights are an eighth, and with sequence parallelism its "
        "activations are too. What is left of the model to share out is its depth: "
        "pipelines.");
}

}  // namespace lockstep::lessons
