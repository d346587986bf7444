#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "lessons/runner/curves.hpp"
#include "lessons/runner/gpt_task.hpp"
#include "lessons/runner/rounding.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/row_parallel_linear.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/vocabulary_parallel.hpp"
#include "src/trial/case.hpp"

namespace lockstep::lessons {

namespace {

/// Which tokens a device has outside of tensor-parallel regions: all, or only its own.
enum class Regions { replicated, sequence_parallel };

GptSizes sizes_of(const LessonOptions& options, int ranks, std::int64_t vocabulary) {
    GptSizes sizes;
    sizes.vocabulary = vocabulary;
    sizes.context = options.values.integer("context", least_multiple(ranks, 32));
    sizes.layers = options.values.integer("layers");
    sizes.block.heads = options.values.integer("heads", least_multiple(ranks, 4));
    sizes.block.hidden = options.values.integer("hidden", 16 * sizes.block.heads);
    const std::string devices = fmt::format("{} ranks", ranks);
    require_shared_out("heads", sizes.block.heads, ranks, devices);
    require_shared_out("context", sizes.context, ranks, devices);
    require_shared_out("hidden", sizes.block.hidden, sizes.block.heads, "the heads");
    return sizes;
}

std::unique_ptr<TensorParallel> make_regions(Regions kind, Device& device,
                                             Communicator& group) {
    if (kind == Regions::sequence_parallel)
        return std::make_unique<SequenceParallel>(device, group);
    return std::make_unique<TensorParallel>(device, group);
}

/// Makes the task from the text of --text, or from the text that lessons share. By
/// default, `ranks` divides the task's sizes.
std::shared_ptr<const GptTask> make_shared_gpt_task(const LessonOptions& options,
                                                    int ranks) {
    return make_gpt_task(
        options, options.values.integer("batch"),
        [&](std::int64_t vocabulary) { return sizes_of(options, ranks, vocabulary); });
}

/// The state that the lesson's experiments share.
struct TensorParallelLesson final : Lesson {
    /// Throws UsageError if the lesson cannot run with these options.
    TensorParallelLesson(const LessonOptions& options, Record& record)
        : Lesson(options, record), ranks(options.ranks.value_or(4)) {
        task = make_shared_gpt_task(options, ranks);
        note_task(*this, *task, {"heads", "hidden", "context"});
    }

    double bound() const {
        return RoundingBound{2e-5, 1e-12}.value(options().dtype, block_stores(ranks));
    }

    int ranks;
    std::shared_ptr<const GptTask> task;
};

/// A module that maps (s, b, h) to the same shape, on one device and sharded.
struct Twins {
    std::int64_t length = 0;
    std::int64_t batch = 0;
    std::int64_t hidden = 0;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    std::function<std::unique_ptr<Module>(const ParameterInit&)> alone;
    std::function<std::unique_ptr<Module>(const ParameterInit&, TensorParallel&)> shared;
};

void run(Rank& rank, const Twins& twins, Module& module, Passes passes) {
    Device& device = rank.device();
    const auto random = [&](const char* name) {
        Tensor tensor =
            device.empty({twins.length, twins.batch, twins.hidden}, twins.dtype);
        device.random_normal(tensor, {twins.seed, name}, 0, 1);
        return tensor;
    };
    Saved saved;
    {
        const Tensor x = random("twins/x");
        const PhaseScope phase(device, Phase::forward);
        rank.keep("y", module.forward(x, saved));
    }
    if (passes == Passes::forward) return;
    const Tensor dy = random("twins/dy");
    const PhaseScope phase(device, Phase::backward);
    rank.keep("dx", module.backward(dy, saved));
    for (const Parameter* parameter : module.parameters())
        rank.keep("grad/" + parameter->name(), parameter->gradient, parameter->part());
}

/// Both runs use a random input and a random gradient of the output, the same on every
/// device. Every rank keeps "y" and, if both passes run, "dx" and "grad/NAME".
RunReport run_alone(Cluster& cluster, const Twins& twins) {
    return cluster.run([&](Rank& rank) {
        const auto module = twins.alone({rank.device(), twins.dtype, twins.seed, ""});
        run(rank, twins, *module, Passes::both);
    });
}

RunReport run_shared(Cluster& cluster, const Twins& twins, Passes passes) {
    return cluster.run([&](Rank& rank) {
        TensorParallel tp(rank.device(), rank.world());
        const auto module =
            twins.shared({rank.device(), twins.dtype, twins.seed, ""}, tp);
        run(rank, twins, *module, passes);
    });
}

Twins twins_of(const GptTask& task, const LessonOptions& options) {
    Twins twins;
    twins.length = task.length();
    twins.batch = task.batch;
    twins.hidden = task.sizes.block.hidden;
    twins.dtype = options.dtype;
    twins.seed = options.seed;
    return twins;
}

Twins attention_twins(const GptTask& task, const LessonOptions& options) {
    Twins twins = twins_of(task, options);
    const BlockSizes sizes = task.sizes.block;
    twins.alone = [sizes](const ParameterInit& init) {
        return make_attention(init, sizes.hidden, {sizes.heads, true});
    };
    twins.shared = [sizes](const ParameterInit& init, TensorParallel& tp) {
        return make_attention(init, sizes.hidden, {sizes.heads, true},
                              tensor_parallel({}, tp));
    };
    return twins;
}

/// Returns attention that splits c_attn as if it were one layer.
Twins badly_cut(Twins twins, const BlockSizes& sizes) {
    twins.shared = [sizes](const ParameterInit& init, TensorParallel& tp) {
        auto attention = std::make_unique<Sequential>();
        attention->add<ColumnParallelLinear>(init.child("c_attn"), tp, sizes.hidden,
                                             3 * sizes.hidden);
        attention->add<CoreAttention>(init.device,
                                      AttentionSizes{sizes.heads / tp.size(), true});
        attention->add<RowParallelLinear>(init.child("c_proj"), tp, sizes.hidden,
                                          sizes.hidden);
        return attention;
    };
    return twins;
}

/// Returns the bytes that device 0 of `ranks` sends in all-reduces of `elements` numbers.
std::int64_t all_reduce_bytes(std::int64_t elements, DType dtype, int ranks, int calls) {
    return calls *
           collective_traffic({Verb::all_reduce, elements, bytes_of(dtype), ranks}, 0)
               .bytes_sent;
}

/// Returns how wrong the output is if c_attn is split as if it were one layer: the
/// largest difference over the largest number of `right`.
double bad_cut(TensorParallelLesson& lesson, const Twins& cut, const HostTensor& right) {
    const LessonOptions unwatched = lesson.options().without_full_check();
    const RunReport report =
        run_shared(*make_cluster(unwatched, lesson.ranks), cut, Passes::forward);
    double largest = 0;
    for (std::int64_t i = 0; i < right.elements(); ++i)
        largest = std::max(largest, std::abs(right.at(i)));
    const HostTensor& wrong = report.ranks[0].kept.at("y");
    return difference({{"y", wrong}}, {{"y", right}}).absolute / largest;
}

void attention(TensorParallelLesson& lesson, Findings& found) {
    const BlockSizes& sizes = lesson.task->sizes.block;
    found.give({"numbers"_is = lesson.has_numbers(), "several"_is = lesson.ranks > 1,
                "devices"_is = lesson.ranks, "t"_is = lesson.ranks,
                "t_less_1"_is = lesson.ranks - 1, "heads"_is = sizes.heads,
                "own_heads"_is = sizes.heads / lesson.ranks, "hidden"_is = sizes.hidden,
                "attention_rows"_is = 3 * sizes.hidden,
                "plain_share"_is = 3 * sizes.hidden / lesson.ranks,
                "own_rows"_is = sizes.hidden / lesson.ranks});

    const Twins twins = attention_twins(*lesson.task, lesson.options());
    const RunReport alone = run_alone(*lesson.devices(1), twins);
    const RunReport shared =
        run_shared(*lesson.devices(lesson.ranks), twins, Passes::both);
    lesson.values_at_most(
        found, "attention_values",
        difference(all_kept(shared, Mistakes::thrown), all_kept(alone)).relative,
        lesson.bound());
    double cut = 1;
    if (lesson.ranks > 1 && lesson.has_numbers())
        cut = bad_cut(lesson, badly_cut(twins, sizes), alone.ranks[0].kept.at("y"));
    found.give({"bad_cut"_is = Figure::percent(100 * cut),
                "attention_cut"_is = cut > lesson.bound() ? "each" : "plain"});
}

void give_block_bytes(TensorParallelLesson& lesson, Findings& found,
                      const RunReport& forward, const RunReport& both) {
    const std::int64_t elements = lesson.task->tokens() * lesson.task->sizes.block.hidden;
    const std::int64_t size = bytes_of(lesson.dtype());
    const double share = static_cast<double>(lesson.ranks - 1) / lesson.ranks;
    const auto bytes = [](double count) { return Figure::bytes(std::llround(count)); };
    const double predicted = 8 * share * static_cast<double>(elements * size);
    found.give({"batch"_is = lesson.task->batch, "context"_is = lesson.task->length(),
                "number_bytes"_is = size,
                "block_tensor"_is = Figure::bytes(elements * size),
                "block_bytes"_is = bytes(predicted),
                "block_bytes_without_t"_is = Figure::bytes(8 * elements * size),
                "block_numbers"_is = bytes(predicted / static_cast<double>(size))});
    const auto check = [&](const std::string& name, const RunReport& report, int calls) {
        found.equal(name, Figure::bytes(report.ranks[0].bytes_sent()),
                    all_reduce_bytes(elements, lesson.dtype(), lesson.ranks, calls));
    };
    check("block_sent_forward", forward, 2);
    check("block_sent", both, 4);
}

void block(TensorParallelLesson& lesson, Findings& found) {
    const BlockSizes& sizes = lesson.task->sizes.block;
    Twins twins = twins_of(*lesson.task, lesson.options());
    twins.alone = [sizes](const ParameterInit& init) { return make_block(init, sizes); };
    twins.shared = [sizes](const ParameterInit& init, TensorParallel& tp) {
        return make_block(init, sizes, tensor_parallel({}, tp));
    };
    const RunReport alone = run_alone(*lesson.devices(1), twins);
    const RunReport shared =
        run_shared(*lesson.devices(lesson.ranks, true), twins, Passes::both);
    lesson.record_run("block", shared);
    found.timeline("block", shared);
    lesson.values_at_most(
        found, "block_values",
        difference(all_kept(shared, Mistakes::thrown), all_kept(alone)).relative,
        lesson.bound());
    const RunReport forward =
        run_shared(*lesson.devices(lesson.ranks), twins, Passes::forward);
    give_block_bytes(lesson, found, forward, shared);
}

/// A tensor-parallel block's activations on a device, measured by the ledger with numbers
/// of 16 bits. `held` is what forward keeps for backward; shared tensors count once.
struct Activations {
    std::int64_t held = 0;
    /// The peak during backward, with its temporary tensors.
    std::int64_t peak = 0;
    std::int64_t sent = 0;      ///< in forward and backward
    std::int64_t scatters = 0;  ///< reduce-scatters in forward and backward
    Picoseconds time = 0;       ///< of forward and backward, on the classroom cluster
};

/// A term of a sum of bytes, in the paper and in this project's block. The block has no
/// dropout, so the two can differ.
struct Term {
    std::string name;
    std::int64_t paper = 0;
    std::int64_t ours = 0;
};

/// Bytes of a mean, or of 1/deviation: f32, even if the rows have 16 bits.
constexpr std::int64_t kStatistic = 4;

std::int64_t live_activations(const Device& device) {
    std::int64_t bytes = 0;
    for (const Storage* storage = device.live(); storage != nullptr;
         storage = storage->next)
        if (storage->category == MemoryCategory::activations) bytes += storage->bytes;
    return bytes;
}

Activations measure_activations(const BlockSizes& sizes, std::int64_t length,
                                std::int64_t batch, int ranks, Regions regions) {
    Activations result;
    const RunReport report = make_shapes_only_cluster(ranks)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = make_regions(regions, device, rank.world());
        const auto block =
            make_block({device, DType::bf16, 1, "h.0"}, sizes, tensor_parallel({}, *tp));
        const std::int64_t part =
            regions == Regions::replicated ? length : length / ranks;
        Saved saved;
        Tensor y =
            block->forward(device.empty({part, batch, sizes.hidden}, DType::bf16), saved);
        const Shape shape = y.shape();
        y = {};  // The next block would save y, so it is not counted.
        if (rank.index() == 0) result.held = live_activations(device);
        block->backward(device.empty(shape, DType::bf16), saved);
    });
    const RankReport& first = report.ranks[0];
    result.peak = first.memory.peak_of(MemoryCategory::activations);
    result.sent = first.bytes_sent();
    for (const Traffic& traffic : first.traffic)
        if (traffic.verb == name_of(Verb::reduce_scatter))
            result.scatters += traffic.calls;
    result.time = report.makespan();
    return result;
}

/// Returns the terms of s b h (10 + 24/t + 5 a s/(h t)). With sequence parallelism,
/// returns the terms of s b h/t (34 + 5 a s/h). Korthikanti et al. 2022, 2205.05198,
/// section 4.
std::vector<Term> activation_terms(const BlockSizes& sizes, std::int64_t length,
                                   std::int64_t batch, int ranks, Regions regions) {
    const bool split = regions == Regions::sequence_parallel;
    const std::int64_t sbh = length * batch * sizes.hidden;
    const std::int64_t scores = batch * sizes.heads * length * length;
    const std::int64_t outside = split ? ranks : 1;
    const std::int64_t statistics = 4 * kStatistic * length * batch / outside;
    return {{"norms", 8 * sbh / outside, 8 * sbh / outside},
            {"masks", 2 * sbh / outside, 0},
            {"attention", 8 * sbh / ranks, 8 * sbh / ranks},
            {"mlp", 16 * sbh / ranks, 16 * sbh / ranks},
            {"softmax", 2 * scores / ranks, 2 * scores / ranks},
            {"dropout", 3 * scores / ranks, 0},
            {"statistics", 0, statistics}};
}

/// Returns the terms of what a device holds while backward computes the gradient of the
/// scores, without sequence parallelism. This is the peak, unless sequences are short.
std::vector<Term> peak_terms(const BlockSizes& sizes, std::int64_t length,
                             std::int64_t batch, int ranks) {
    const std::int64_t sbh = length * batch * sizes.hidden;
    const std::int64_t scores = 2 * batch * sizes.heads * length * length / ranks;
    return {{"norm", 0, 4 * sbh},
            {"statistics", 0, 2 * kStatistic * length * batch},
            {"attention", 0, 6 * sbh / ranks},
            {"softmax", 0, scores},
            {"outside", 0, 4 * sbh},
            {"projection", 0, 2 * sbh / ranks},
            {"attention_gradients", 0, 6 * sbh / ranks},
            {"score_gradients", 0, 2 * scores}};
}

/// The sizes of a block of a real model: GPT-3 with 2.7 B parameters.
constexpr std::int64_t kLength = 2048;
constexpr std::int64_t kBatch = 1;

BlockSizes large_block(int ranks) {
    BlockSizes sizes;
    sizes.heads = least_multiple(ranks, 32);
    sizes.hidden = 80 * sizes.heads;
    return sizes;
}

std::int64_t large_length(int ranks) {
    return least_multiple(ranks, kLength);
}

std::int64_t sum_of(const std::vector<Term>& terms, std::int64_t Term::*what) {
    std::int64_t sum = 0;
    for (const Term& term : terms)
        sum += term.*what;
    return sum;
}

/// Gives each term as "list.NAME.paper" and "list.NAME.ours", and their sums.
void give_terms(Findings& found, const std::string& list,
                const std::vector<Term>& terms) {
    const auto give = [&](const std::string& name, std::int64_t paper,
                          std::int64_t ours) {
        found.give(list + "." + name, {"paper"_is = Figure::memory(paper),
                                       "ours"_is = Figure::memory(ours)});
    };
    for (const Term& term : terms)
        give(term.name, term.paper, term.ours);
    give("sum", sum_of(terms, &Term::paper), sum_of(terms, &Term::ours));
}

void give_peak(TensorParallelLesson& lesson, Findings& found, const BlockSizes& sizes,
               std::int64_t length, const Activations& measured) {
    // On more devices, the scores are no longer the largest term.
    constexpr int kScoresCount = 8;
    found.give("scores_count", lesson.ranks <= kScoresCount);
    if (lesson.ranks > kScoresCount) return;
    const std::vector<Term> terms = peak_terms(sizes, length, kBatch, lesson.ranks);
    const std::int64_t expected = sum_of(terms, &Term::ours);
    give_terms(found, "peak", terms);
    found.give("peak_when", measured.peak == expected ? "attention" : "mlp");
    found.equal("peak_bytes", Figure::bytes(measured.peak), expected);
}

void memory(TensorParallelLesson& lesson, Findings& found) {
    const BlockSizes sizes = large_block(lesson.ranks);
    const std::int64_t length = large_length(lesson.ranks);
    const std::int64_t sbh = length * kBatch * sizes.hidden;
    found.give(
        {"large_s"_is = std::to_string(length), "large_b"_is = kBatch,
         "large_h"_is = std::to_string(sizes.hidden), "large_a"_is = sizes.heads,
         "large_tensor"_is = Figure::memory(2 * sbh),
         "large_scores"_is = Figure::memory(2 * kBatch * sizes.heads * length * length)});
    give_terms(found, "one",
               activation_terms(sizes, length, kBatch, 1, Regions::replicated));

    const std::vector<Term> terms =
        activation_terms(sizes, length, kBatch, lesson.ranks, Regions::replicated);
    const Activations measured =
        measure_activations(sizes, length, kBatch, lesson.ranks, Regions::replicated);
    give_terms(found, "kept", terms);
    found.give("undivided", lesson.ranks > 1 ? "norms" : "all");
    found.equal("kept_bytes", Figure::bytes(measured.held), sum_of(terms, &Term::ours));
    const double copies = 10.0 * static_cast<double>(sbh);
    const double share = static_cast<double>(lesson.ranks - 1) / lesson.ranks;
    const auto bytes = [](double count) { return Figure::bytes(std::llround(count)); };
    found.give({"copies"_is = bytes(copies * share), "copies_all"_is = bytes(copies),
                "copies_without_masks"_is = bytes(0.8 * copies * share)});
    give_peak(lesson, found, sizes, length, measured);
}

void give_activations(Findings& found, const std::string& name,
                      const Activations& activations) {
    found.give(name, {"held"_is = Figure::memory(activations.held),
                      "peak"_is = Figure::memory(activations.peak),
                      "sent"_is = Figure::memory(activations.sent),
                      "time"_is = Figure::time(activations.time)});
}

/// Returns what the checker says if each device updates a bias with its own tokens'
/// part of the gradient.
std::string diagnosis_of_parts(const TensorParallelLesson& lesson) {
    const LessonOptions watched = lesson.options().with_full_check();
    const Twins sizes = twins_of(*lesson.task, lesson.options());
    const auto program = [&](Rank& rank) {
        Device& device = rank.device();
        SequenceParallel tp(device, rank.world());
        RowParallelLinear layer({device, sizes.dtype, sizes.seed, "c_proj"}, tp,
                                sizes.hidden, sizes.hidden);
        const int n = rank.size();
        const Tensor x =
            device.empty({sizes.length, sizes.batch, sizes.hidden / n}, sizes.dtype);
        const Tensor dy =
            device.empty({sizes.length / n, sizes.batch, sizes.hidden}, sizes.dtype);
        device.fill(x, 1);
        device.fill(dy, rank.index() + 1);
        Saved saved;
        layer.forward(x, saved);
        layer.backward(dy, saved);
        Sgd(layer.parameters(), lesson.task->optimizer()).step();
    };
    return diagnosis_of([&] { make_cluster(watched, lesson.ranks)->run(program); });
}

void sequence(TensorParallelLesson& lesson, Findings& found) {
    const BlockSizes sizes = large_block(lesson.ranks);
    const std::int64_t length = large_length(lesson.ranks);
    const std::vector<Term> terms =
        activation_terms(sizes, length, kBatch, lesson.ranks, Regions::sequence_parallel);
    const Activations split = measure_activations(sizes, length, kBatch, lesson.ranks,
                                                  Regions::sequence_parallel);
    const Activations whole =
        measure_activations(sizes, length, kBatch, lesson.ranks, Regions::replicated);
    found.give("leaving", split.scatters > 0 ? "reduce_scatter" : "all_reduce");
    give_terms(found, "split", terms);
    found.equal("split_bytes", Figure::bytes(split.held), sum_of(terms, &Term::ours));
    give_activations(found, "replicated", whole);
    give_activations(found, "sequence", split);

    const std::int64_t tensor = 2 * length * kBatch * sizes.hidden;
    const double again =
        2 * static_cast<double>(tensor) * (lesson.ranks - 1) / lesson.ranks;
    found.give({"again_bytes"_is = Figure::bytes(std::llround(again)),
                "again_bytes_without_t"_is = Figure::bytes(2 * tensor)});
    found.equal("again_sent", Figure::bytes(split.sent - whole.sent), std::round(again));
    const std::string said =
        lesson.ranks > 1 && lesson.has_numbers() ? diagnosis_of_parts(lesson) : "";
    found.give({"f23_shown"_is = !said.empty(), "f23"_is = said});
}

/// Returns how many columns of the logits each of `ranks` devices has.
std::int64_t own_columns_of(std::int64_t vocabulary, int ranks) {
    return (vocabulary + ranks - 1) / ranks;
}

/// Returns the text's first characters.
Tensor targets_of(const GptTask& task, Device& device) {
    HostTensor targets({task.tokens()}, DType::i32);
    for (std::int64_t i = 0; i < targets.elements(); ++i)
        targets.set(i,
                    task.text.ids[i % static_cast<std::int64_t>(task.text.ids.size())]);
    return device.upload(targets);
}

/// Computes the loss of random logits from their shards. Each rank keeps the loss.
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

/// Computes the loss of whole rows on one device, without the padding.
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

/// A token's logits: two devices, two characters each. The last character is the target.
constexpr std::array<std::array<double, 2>, 2> kLogits{{{2, 0}, {3, 1}}};

void give_loss_by_hand(Findings& found) {
    double maximum = kLogits[0][0];
    for (const auto& own : kLogits)
        maximum = std::max({maximum, own[0], own[1]});
    double sum = 0;
    for (std::size_t device = 0; device < kLogits.size(); ++device) {
        const auto& own = kLogits[device];
        const double exponentials =
            std::exp(own[0] - maximum) + std::exp(own[1] - maximum);
        sum += exponentials;
        found.row("by_hand", {"device"_is = device,
                              "logits"_is = fmt::format("{}, {}", own[0], own[1]),
                              "maximum"_is = Figure::count(std::max(own[0], own[1])),
                              "exponentials"_is = Figure::decimals(exponentials, 3),
                              "target"_is = Figure::count(device == 1 ? own[1] : 0)});
    }
    const double target = kLogits[1][1];
    found.give({"hand_maximum"_is = Figure::count(maximum),
                "hand_sum"_is = Figure::decimals(sum, 3),
                "hand_target"_is = Figure::count(target),
                "hand_loss"_is = Figure::decimals(std::log(sum) + maximum - target, 3)});
}

/// Gives the bytes of the loss over a sharded vocabulary, with `columns`
/// columns on each device.
void give_loss_bytes(TensorParallelLesson& lesson, Findings& found,
                     const RunReport& shared, std::int64_t columns) {
    const std::int64_t rows = lesson.task->tokens();
    const std::int64_t size = bytes_of(computed_in(lesson.dtype()));
    const double share = static_cast<double>(lesson.ranks - 1) / lesson.ranks;
    const auto bytes = [&](double numbers) {
        return Figure::bytes(
            std::llround(numbers * share * static_cast<double>(rows * size)));
    };
    found.give({"loss_tokens"_is = rows, "loss_number_bytes"_is = size,
                "loss_bytes"_is = bytes(6),
                "loss_bytes_without_t"_is = Figure::bytes(6 * rows * size),
                "loss_bytes_maximum"_is = bytes(2), "loss_bytes_sums"_is = bytes(4)});
    const auto sent = [&](std::int64_t elements, Verb verb) {
        return collective_traffic({verb, elements, size, lesson.ranks}, 0).bytes_sent;
    };
    found.equal("loss_sent", Figure::bytes(shared.ranks[0].bytes_sent()),
                sent(rows, Verb::all_reduce) + sent(2 * rows, Verb::all_reduce));
    found.give("gathered_logits", Figure::memory(sent(rows * columns, Verb::all_gather)));
    constexpr double kLargeVocabulary = 50'000;
    found.give({"large_vocabulary"_is = Figure::count(kLargeVocabulary),
                "gathering_times"_is = Figure::count(std::round(kLargeVocabulary / 6))});
}

void vocabulary(TensorParallelLesson& lesson, Findings& found) {
    const std::int64_t whole = lesson.task->sizes.vocabulary;
    const std::int64_t columns = own_columns_of(whole, lesson.ranks);
    const std::int64_t padding = columns * lesson.ranks - whole;
    const std::int64_t character = 2 * whole / 3;
    found.give({"vocabulary"_is = whole, "own_characters"_is = columns,
                "padding"_is = padding, "padded"_is = padding > 0,
                "character"_is = character, "holder"_is = character / columns,
                "holder_from_1"_is = character / columns + 1, "told_numbers"_is = 3,
                "own_logits"_is = columns});
    give_loss_by_hand(found);

    const RunReport shared =
        lesson.devices(lesson.ranks)->run(shared_loss(*lesson.task, lesson.options()));
    give_loss_bytes(lesson, found, shared, columns);
    const RunReport alone =
        lesson.devices(1)->run(whole_loss(*lesson.task, lesson.options(), lesson.ranks));
    const double one = alone.ranks[0].kept.at("loss").at(0);
    const double many = shared.ranks[0].kept.at("loss").at(0);
    lesson.values_at_most(found, "loss_value", std::abs(many - one) / std::abs(one),
                          lesson.bound());
}

/// Trains one GPT on all devices, with its weights sharded if there are several. Keeps
/// what train() keeps; every rank has all losses.
RunReport train_gpt(Cluster& cluster, const GptTask& task, Regions regions,
                    const Advance& advance = {}) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = make_regions(regions, device, rank.world());
        const GptKit kit = tensor_parallel({}, *tp);
        const auto gpt = make_gpt(task.init(device), task.sizes, kit);
        const auto batches = [&](int step) {
            return upload_batches(device, task, step, 0, 1, 1);
        };
        train_gpt(rank, *gpt, task, kit.loss(task.sizes), batches, advance);
    });
}

std::vector<double> losses(const RunReport& report) {
    return report.ranks[0].series.at("loss");
}

/// Trains on `ranks` devices, and records the run.
RunReport train_on(TensorParallelLesson& lesson, int ranks, Regions regions,
                   const std::string& variant) {
    RunReport report = train_gpt(*lesson.devices(ranks), *lesson.task, regions,
                                 advancing(variant, lesson.task->steps));
    lesson.record_run(variant, report);
    if (!lesson.has_numbers()) return report;
    record_training(lesson.record(), variant, ranks == 1, losses(report), report);
    return report;
}

Curves train_on_all(TensorParallelLesson& lesson) {
    Curves curves;
    const auto add_curve = [&](int ranks, Regions regions, const std::string& name,
                               const std::string& variant) {
        curves.add(name, losses(train_on(lesson, ranks, regions, variant)));
    };
    const std::string all = fmt::format("gpt_{}", lesson.ranks);
    add_curve(1, Regions::replicated, "alone", "gpt_1");
    if (lesson.ranks % 2 == 0 && lesson.ranks > 2)
        add_curve(2, Regions::replicated, "two", "gpt_2");
    if (lesson.ranks == 1) return curves;
    add_curve(lesson.ranks, Regions::replicated, "together", all);
    add_curve(lesson.ranks, Regions::sequence_parallel, "sequence", all + "_sequence");
    return curves;
}

void train(TensorParallelLesson& lesson, Findings& found) {
    const GptSizes& sizes = lesson.task->sizes;
    found.give({"layers"_is = sizes.layers, "steps"_is = lesson.task->steps,
                "learning_rate"_is = Figure::count(lesson.task->learning_rate)});
    const std::int64_t outside =
        (2 * sizes.vocabulary + sizes.context + 2) * sizes.block.hidden;
    found.give({"parameters"_is = sizes.parameters(),
                "block_parameters"_is = (sizes.parameters() - outside) / sizes.layers});
    record_gpt_inputs(lesson.record(), *lesson.task);

    const Curves curves = train_on_all(lesson);
    if (lesson.has_numbers()) curves.give(found, "curve");
    const std::vector<double>& one = curves.losses.front();
    const int stores = static_cast<int>(sizes.layers) * block_stores(lesson.ranks);
    lesson.values_at_most(found, "gpt_curves", curves.widest_gap(),
                          loss_bound(lesson.dtype(), stores, one));
    const double entropy = unigram_entropy(lesson.task->text);
    found.give("entropy", Figure::decimals(entropy, 3));
    constexpr int kEnough = 100;
    found.give("enough_steps", lesson.task->steps >= kEnough);
    if (lesson.task->steps >= kEnough)
        lesson.values_at_most(found, "learnt", one.back() / entropy, 0.95);
}

constexpr std::int64_t kHidden = 20'480;
constexpr std::int64_t kHeads = 160;

/// Returns the memory of a block's parameters, gradients and AdamW state, in 16 bits.
RankReport block_of(int ranks) {
    return make_shapes_only_cluster(ranks)
        ->run([](Rank& rank) {
            TensorParallel tp(rank.device(), rank.world());
            const auto block = make_block({rank.device(), DType::bf16, 1, "h.0"},
                                          {kHidden, kHeads}, tensor_parallel({}, tp));
            const AdamW optimizer(block->parameters());
        })
        .ranks[0];
}

void give_block_sizes(Findings& found) {
    for (const int ranks : {1, 2, 4, 8, 16}) {
        const RankReport rank = block_of(ranks);
        const auto memory = [&](MemoryCategory category) {
            return Figure::memory(rank.memory.peak_of(category));
        };
        Findings& row =
            found.row("sizes", {"on"_is = ranks, "s"_is = ranks == 1 ? "" : "s",
                                "weights"_is = memory(MemoryCategory::parameters),
                                "gradients"_is = memory(MemoryCategory::gradients),
                                "optimizer"_is = memory(MemoryCategory::optimizer),
                                "all"_is = Figure::memory(rank.memory.peak)});
        // Biases and norms have 13 h. Two norms (4 h) and the biases of row-parallel
        // layers (2 h) are on every device; 7 h are sharded.
        const std::int64_t expected =
            2 * ((12 * kHidden * kHidden + 7 * kHidden) / ranks + 6 * kHidden);
        row.equal("size", Figure::bytes(rank.memory.peak_of(MemoryCategory::parameters)),
                  expected);
    }
}

void size(Findings& found) {
    const RankReport up =
        make_shapes_only_cluster(1)
            ->run([](Rank& rank) {
                const Linear layer({rank.device(), DType::bf16, 1, "c_fc"}, kHidden,
                                   4 * kHidden, /*bias=*/false);
            })
            .ranks[0];
    const std::int64_t weights = 4 * kHidden * kHidden;
    found.give({"wide"_is = kHidden, "wide_inner"_is = 4 * kHidden,
                "wide_bytes"_is = Figure::bytes(2 * weights)});
    found.equal("wide_held", Figure::bytes(up.memory.peak_of(MemoryCategory::parameters)),
                2 * weights);
    found.give({"squares"_is = 12, "squares_attention"_is = 4, "squares_mlp"_is = 8});
    give_block_sizes(found);
}

}  // namespace

LessonEntry tensor_parallel_block_lesson() {
    LessonEntry entry;
    entry.slug = "tensor-parallel-block";
    entry.folder = "04_tensor_parallel_block";
    entry.most_ranks = 64;
    entry.settings = {
        {"layers", "transformer blocks of the GPT", Whole{1, 64, 2}},
        {"heads",
         "of attention; if not set, the smallest multiple of the ranks that is at least "
         "4",
         Whole{1, 64}, "4"},
        {"hidden", "columns between layers; 16 a head", Whole{1, 1024}, "64"},
        {"context",
         "tokens of a sequence; if not set, the smallest multiple of the ranks that is "
         "at least 32",
         Whole{1, 1024}, "32"},
        {"batch", "sequences of a step", Whole{1, 1024, 8}},
        {"steps", "of training", Whole{1, 100'000, 100}},
        {"learning_rate", "of SGD with momentum 0.9", Real{0, 1e6, 0.2}},
    };
    entry.takes_text = true;
    entry.make = lesson_of<TensorParallelLesson>({{"attention", attention},
                                                  {"block", block},
                                                  {"memory", memory},
                                                  {"sequence", sequence},
                                                  {"vocabulary", vocabulary},
                                                  {"train", train},
                                                  {"size", size}});
    return entry;
}

}  // namespace lockstep::lessons
