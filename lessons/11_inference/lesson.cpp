#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "lessons/runner/gpt_task.hpp"
#include "lessons/runner/rounding.hpp"
#include "src/core/require.hpp"
#include "src/cost/collectives.hpp"
#include "src/inference/decision.hpp"
#include "src/inference/decoding_ring.hpp"
#include "src/inference/gpt_service.hpp"
#include "src/inference/request_mix.hpp"
#include "src/inference/service_picture.hpp"
#include "src/inference/service_report.hpp"
#include "src/inference/speculation.hpp"
#include "src/nn/published_sizes.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/pipeline_gpt.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

/// Makes a GPT for the text's characters; `ranks` devices can shard it. The lesson trains
/// the GPT, and then lets it write.
std::shared_ptr<const GptTask> make_inference_task(const LessonOptions& options,
                                                   int ranks) {
    const std::int64_t batch = options.values.integer("batch");
    return make_gpt_task(options, batch, [&](std::int64_t vocabulary) {
        GptSizes gpt;
        gpt.vocabulary = vocabulary;
        gpt.context = options.values.integer("context");
        gpt.layers = options.values.integer("layers");
        gpt.tied = true;
        BlockSizes& block = gpt.block;
        block.heads = options.values.integer("heads", 2 * least_multiple(ranks, 4));
        block.kv_heads = options.values.integer("kv_heads", block.heads / 2);
        block.hidden = options.values.integer("hidden", 8 * block.heads);
        // The gradient of the keys' bias is only rounding, and AdamW would follow it.
        block.bias = false;
        require_shared_out("heads", block.heads, ranks, fmt::format("{} ranks", ranks));
        require_shared_out("heads", block.heads, block.kv_heads,
                           fmt::format("{} heads of keys", block.kv_heads));
        require_shared_out("hidden", block.hidden, block.heads,
                           fmt::format("{} heads", block.heads));
        require(block.kv_heads % ranks == 0 || ranks % block.kv_heads == 0,
                "--set kv_heads={}: expected a multiple or a divisor of the {} ranks",
                block.kv_heads, ranks);
        return gpt;
    });
}

/// The whole weights of a trained GPT, by their names. Empty in a run without numbers.
struct TrainedGpt {
    GptSizes sizes;
    DType dtype = DType::f32;
    std::uint64_t seed = 1;
    NamedTensors weights;
};

constexpr int kChips = 8;
constexpr std::int64_t kPromptWritten = 16, kWritten = 40;

constexpr double kChipMemory = 16e9;

/// The state that the lesson's experiments share.
struct InferenceLesson final : Lesson {
    /// Throws UsageError if the lesson cannot run with these options.
    InferenceLesson(const LessonOptions& options, Record& record)
        : Lesson(options, record),
          ranks(options.ranks.value_or(4)),
          task(make_inference_task(options, ranks)) {
        require(task->sizes.context >= kPromptWritten + kWritten,
                "--set context={}: the lesson writes {} characters after a prompt of {}, "
                "so it must be at least {}",
                task->sizes.context, kWritten, kPromptWritten, kPromptWritten + kWritten);
        note_task(*this, *task, {"heads", "kv_heads", "hidden"});
    }

    int ranks;
    std::shared_ptr<const GptTask> task;
    std::optional<TrainedGpt> trained;
    std::vector<double> losses;
};

/// Returns a chip of 197 TFLOP/s, 820 GB/s and 16 GB. Its links and launches are free.
ClusterSpec chip() {
    ClusterSpec spec;
    spec.name = "chip";
    spec.flops_bf16 = 197e12;
    spec.memory_bytes_per_second = 820e9;
    return spec;
}

/// Returns H100s whose launches take no time, so that times follow from bytes alone.
ClusterSpec h100_without_launches() {
    ClusterSpec spec = load_cluster("h100-data-sheet");
    spec.launch_seconds = 0;
    return spec;
}

/// Returns LLaMA-2 13B with a fifth of the heads of keys, and the same parameter count.
GptSizes grouped_13b(std::int64_t context) {
    GptSizes sizes = llama2_13b(context);
    sizes.block.kv_heads = 8;
    sizes.block.inner += 2736;
    return sizes;
}

Figure milliseconds(double seconds) {
    return Figure::time(picoseconds(seconds));
}

double gigabytes(std::int64_t bytes) {
    return static_cast<double>(bytes) / 1e9;
}

/// Trains the GPT by AdamW on one device. Keeps what train() keeps.
RunReport train_by_adamw(Cluster& cluster, const GptTask& task, const Advance& advance) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt(task.init(device), task.sizes);
        AllReduceSync sync(gpt->parameters());
        // With a smaller epsilon, the rounding of small gradients would become steps.
        const auto optimizer = make_optimizer<AdamW>(
            gpt->parameters(),
            AdamWOptions{.learning_rate = task.learning_rate, .epsilon = 1e-5});
        const auto step = [&](int i) {
            const MicroBatch batch = upload_tokens(device, task, i, 0, task.batch);
            return train_step(device, *gpt, cross_entropy_loss, std::span(&batch, 1),
                              sync, *optimizer);
        };
        train(rank, gpt->parameters(), task.steps, step, advance);
    });
}

TrainedGpt train(InferenceLesson& lesson, const std::string& variant,
                 const GptTask& task) {
    const Advance advance = advancing(variant, task.steps);
    const RunReport report = train_by_adamw(*lesson.devices(1), task, advance);
    if (variant == "alone") lesson.losses = losses_of(report);
    record_training(lesson.record(), variant, variant == "alone", losses_of(report),
                    report);
    return {task.sizes, lesson.dtype(), lesson.options().seed, kept_under(report, "")};
}

/// Returns the GPT that this lesson trains. The first call trains it.
const TrainedGpt& trained(InferenceLesson& lesson) {
    if (!lesson.trained) lesson.trained = train(lesson, "alone", *lesson.task);
    return *lesson.trained;
}

constexpr std::int64_t kPageRows = 16;

/// Returns the pages for `tokens` tokens.
CacheSizes pages_for(std::int64_t tokens) {
    return {.pages = (tokens + kPageRows - 1) / kPageRows, .page_rows = kPageRows};
}

/// Returns a kit that shards heads and columns over `ways` ranks.
GptKit shared_kit(TensorParallel& tp, int ways) {
    return ways > 1 ? copy_key_heads(tensor_parallel({}, tp), tp) : GptKit();
}

std::unique_ptr<Module> loaded(Device& device, const TrainedGpt& gpt, const GptKit& kit) {
    auto model = make_gpt(ParameterInit{device, gpt.dtype, gpt.seed, ""}.for_inference(),
                          gpt.sizes, kit);
    load_parameters(model->parameters(), gpt.weights);
    return model;
}

/// Returns a prompt: `tokens` characters of the text from the beginning of a sequence.
std::vector<std::int32_t> prompt(const InferenceLesson& lesson, std::int64_t sequence,
                                 std::int64_t tokens) {
    const std::vector<std::int32_t>& ids = lesson.task->text.ids;
    const auto characters = static_cast<std::int64_t>(ids.size());
    std::vector<std::int32_t> prompt;
    for (std::int64_t i = 0; i < tokens; ++i)
        prompt.push_back(ids[(97 * sequence + i) % characters]);
    return prompt;
}

/// Writes the characters in one line.
std::string text_of(const InferenceLesson& lesson,
                    const std::vector<std::int32_t>& tokens) {
    std::string text;
    for (const std::int32_t token : tokens) {
        const char32_t character = lesson.task->text.vocabulary[token];
        const bool plain = character >= U' ' && character != U'`';
        text += plain ? encode_utf8(character) : " ";
    }
    return text;
}

/// Returns the request that is answered with a cache and without.
Request written_request(const InferenceLesson& lesson) {
    Sampling sampling;
    sampling.temperature = 0.7;
    sampling.top_k = 3;
    sampling.seed = lesson.options().seed;
    return {0, 0, prompt(lesson, 0, kPromptWritten), kWritten, sampling};
}

void compare_writing(InferenceLesson& lesson, Findings& found, const RunReport& alone,
                     const RunReport& many) {
    // Rounding in 16 bits may change which character is the most probable. All characters
    // after it then differ, too.
    const bool exact = lesson.dtype() != DType::bf16;
    found.give("exact", exact);
    std::int64_t other = 0;
    double gap = 0, largest = 0;
    HostTensor whole({kWritten, lesson.task->sizes.vocabulary}, DType::f64);
    for (std::int64_t i = 0; lesson.has_numbers() && i < kWritten; ++i) {
        const std::string name = fmt::format("logits/{}", i);
        const HostTensor& expected = alone.ranks[0].kept.at(name);
        const std::int64_t columns = many.ranks[0].kept.at(name).shape().columns();
        for (std::int64_t j = 0; j < lesson.task->sizes.vocabulary; ++j) {
            const auto rank = static_cast<std::size_t>(j / columns);
            const double logit = many.ranks[rank].kept.at(name).at(j % columns);
            whole.set(i * lesson.task->sizes.vocabulary + j, logit);
            gap = std::max(gap, std::abs(logit - expected.at(j)));
            largest = std::max(largest, std::abs(expected.at(j)));
        }
        const HostTensor &one = alone.ranks[0].kept.at("tokens"),
                         &all = many.ranks[0].kept.at("tokens");
        other += one.at(i) != all.at(i);
    }
    if (lesson.has_numbers()) {
        lesson.record_output("written/logits", whole);
        lesson.record_output("written/tokens", many.ranks[0].kept.at("tokens"));
    }
    if (!exact) return;
    lesson.values_equal(found, "same_characters", other, 0);
    const RoundingBound bound{1e-4, 1e-11};
    lesson.values_at_most(found, "same_logits", largest > 0 ? gap / largest : gap,
                          bound.value(lesson.dtype(), 1));
}

/// Answers a request. Every rank keeps the logits of its columns under "logits/i", and
/// the first rank keeps "tokens". Without a cache, a device computes all characters
/// again for each token.
RunReport write_on(Cluster& cluster, const TrainedGpt& gpt, const Request& request,
                   bool cached) {
    const std::vector<std::int32_t>& prompt = request.prompt;
    const std::int64_t output = request.output;
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        TensorParallel tp(device, rank.world());
        KeyValueCache cache(device, gpt.dtype, pages_for(gpt.sizes.context));
        const GptKit kit = shared_kit(tp, rank.size());
        const auto model = loaded(device, gpt, cached ? with_cache(kit, cache) : kit);
        PagePool pool(cache.sizes().pages, kPageRows);
        SequencePages pages;
        std::vector<std::int32_t> ids = prompt;
        std::int64_t computed = 0;
        for (std::int64_t i = 0; i < output; ++i) {
            const auto end = static_cast<std::int64_t>(ids.size());
            Tensor logits;
            // lesson: with-and-without-cache
            if (cached) {
                // The model computes only what is new since the last token. The new keys
                // and values join those in the cache.
                pool.grow(pages, end);
                const Pass pass{{{{computed, end - computed, pages.pages}}},
                                {ids.begin() + computed, ids.end()},
                                {static_cast<std::int32_t>(end - computed - 1)}};
                logits = model->infer(cache.begin(pass));
                computed = end;
            } else {
                const Tensor all =
                    device.upload(HostTensor::of<std::int32_t>({end, 1}, ids));
                logits = model->infer(all).rows(end - 1, 1);
            }
            // lesson: end
            rank.keep(fmt::format("logits/{}", i), logits);
            const Wanted next{request.sampling, end, 0};
            ids.push_back(sample_rows(device, rank.world(), logits, gpt.sizes.vocabulary,
                                      std::span(&next, 1))[0]);
        }
        const std::vector<std::int32_t> tokens(
            ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()), ids.end());
        if (rank.index() == 0)
            rank.keep("tokens",
                      device.upload(HostTensor::of<std::int32_t>({output}, tokens)));
    });
}

/// Writes a text with a cache and without, on one device and on all devices.
void generate(InferenceLesson& lesson, Findings& found) {
    const GptSizes& sizes = lesson.task->sizes;
    const TrainedGpt& gpt = trained(lesson);
    const Request request = written_request(lesson);
    const std::vector<std::int32_t>& begun = request.prompt;
    found.give(
        {"ranks"_is = lesson.ranks, "numbers"_is = lesson.has_numbers(),
         "parameters"_is = sizes.parameters(), "training_steps"_is = lesson.task->steps,
         "loss_before"_is =
             Figure::decimals(lesson.losses.empty() ? 0 : lesson.losses.front(), 2),
         "loss_after"_is =
             Figure::decimals(lesson.losses.empty() ? 0 : lesson.losses.back(), 2),
         "written"_is = kWritten, "written_before"_is = kPromptWritten});
    // With a cache, each token except the last is computed once.
    const std::int64_t once = kPromptWritten + kWritten - 1;
    std::int64_t anew = 0;
    for (std::int64_t i = 0; i < kWritten; ++i)
        anew += kPromptWritten + i;
    found.give({"rows_anew"_is = anew, "rows_once"_is = once,
                "rows_prompt"_is = kPromptWritten + kWritten,
                "rows_times"_is = Figure::decimals(static_cast<double>(anew) / once, 1)});

    const RunReport alone = write_on(*lesson.devices(1), gpt, request, false);
    const RunReport cached = write_on(*lesson.devices(1), gpt, request, true);
    const RunReport many = write_on(*lesson.devices(lesson.ranks), gpt, request, true);
    lesson.record_run("written", many);
    record_gpt_inputs(lesson.record(), *lesson.task);
    // A token's products cost the same number of flops with and without a cache.
    // Attention costs little here.
    const double flops = ratio(alone.ranks[0].flops, cached.ranks[0].flops);
    found.give("flops_times", Figure::decimals(flops, 1));
    if (lesson.has_numbers()) {
        const HostTensor tokens = alone.ranks[0].kept.at("tokens");
        const auto values = tokens.values<std::int32_t>();
        found.give({"begun"_is = text_of(lesson, begun),
                    "continued"_is =
                        text_of(lesson, {values.begin(), values.begin() + kWritten})});
    }
    compare_writing(lesson, found, alone, many);
}

/// A pass of equal sequences. Each has `before` tokens in the cache
/// and `rows` new tokens.
struct EqualPass {
    std::int64_t sequences = 1;
    std::int64_t before = 0;
    std::int64_t rows = 1;
};

/// The time of a pass on devices that shard heads and columns, and the bytes that a
/// device holds, by shapes only.
struct PassCosts {
    double seconds = 0;
    std::int64_t weights = 0;  ///< bytes
    std::int64_t cache = 0;
};

double seconds_between(Picoseconds begin, Picoseconds end) {
    return ratio(end - begin, kSecond);
}

constexpr DType kServed = DType::bf16;

ParameterInit served(Device& device) {
    return ParameterInit{device, kServed, 1, ""}.for_inference();
}

/// Stores the maximum number of bytes that a device holds.
void keep_memory(PassCosts& costs, const RunReport& report) {
    for (const RankReport& rank : report.ranks) {
        costs.weights =
            std::max(costs.weights, rank.memory.peak_of(MemoryCategory::parameters));
        costs.cache = std::max(costs.cache, rank.memory.peak_of(MemoryCategory::cache));
    }
}

PassCosts pass_costs(const GptSizes& sizes, const ClusterSpec& spec, int ways,
                     const EqualPass& pass) {
    PassCosts costs;
    Picoseconds begun = 0;
    const std::int64_t of_each = pages_for(pass.before + pass.rows).pages;
    const RunReport report = make_shapes_only_cluster(ways, spec)->run([&](Rank& rank) {
        Device& device = rank.device();
        TensorParallel tp(device, rank.world());
        KeyValueCache cache(device, kServed,
                            {.pages = pass.sequences * of_each, .page_rows = kPageRows});
        const auto gpt =
            make_gpt(served(device), sizes, with_cache(shared_kit(tp, ways), cache));
        if (rank.index() == 0) begun = device.now();
        gpt->infer(
            cache.begin(equal_pass(pass.sequences, pass.before, pass.rows, kPageRows)));
    });
    costs.seconds = seconds_between(begun, report.makespan());
    keep_memory(costs, report);
    return costs;
}

/// Shows the times of passes with more and more rows.
void time(Findings& found) {
    const ClusterSpec both = chip();
    ClusterSpec reads = both, computes = both;
    reads.flops_bf16 = 0;
    computes.memory_bytes_per_second = 0;
    const GptSizes sizes = llama2_13b(8192);
    // A pass reads only one row of the table of tokens for each token.
    const auto numbers =
        static_cast<double>(sizes.parameters() - sizes.vocabulary * sizes.block.hidden);
    const double reading = 2 * numbers / (kChips * both.memory_bytes_per_second);
    const double computing = 2 * numbers / (kChips * both.flops_bf16);  // for one row
    found.give(
        {"chips"_is = kChips, "chip_flops"_is = Figure::count(both.flops_bf16 / 1e12),
         "chip_bytes"_is = Figure::count(both.memory_bytes_per_second / 1e9),
         "thirteen"_is =
             Figure::decimals(static_cast<double>(sizes.parameters()) / 1e9, 1),
         "reading"_is = milliseconds(reading), "computing"_is = milliseconds(computing)});
    constexpr std::int64_t kMany = 2048;
    double one = 0, read_one = 0, read_many = 0, computed_many = 0;
    for (const std::int64_t rows : {1, 8, 64, 240, 512, 1024, 2048}) {
        const auto took = [&](const ClusterSpec& spec) {
            return pass_costs(sizes, spec, kChips, {rows, 0, 1}).seconds;
        };
        const double all = took(both), read = took(reads), computed = took(computes);
        found.row("passes",
                  {"rows"_is = rows, "reads"_is = milliseconds(read),
                   "computes"_is = milliseconds(computed), "takes"_is = milliseconds(all),
                   "of_row"_is = milliseconds(all / static_cast<double>(rows))});
        if (rows == 1) std::tie(one, read_one) = std::pair(all, read);
        if (rows == kMany) std::tie(read_many, computed_many) = std::pair(read, computed);
    }
    const double ideal = both.flops_bf16 / both.memory_bytes_per_second;
    found.give({"meeting"_is = Figure::count(std::round(ideal)),
                "meeting_twice"_is = Figure::count(std::round(2 * ideal)),
                "meeting_half"_is = Figure::count(std::round(ideal / 2))});
    // Kernels read and write activations of each row, in addition to the weights.
    const double of_row = (read_many - read_one) / (kMany - 1);
    found.give(
        {"activations"_is =
             Figure::decimals(of_row * both.memory_bytes_per_second / 1e6, 1),
         "meeting_here"_is = Figure::count(std::round(read_one / (computing - of_row)))});
    found.at_most("one_row", Figure::percent(100 * (read_one / reading - 1), 2), 1);
    found.at_most("many_rows",
                  Figure::percent(100 * (computed_many / (kMany * computing) - 1), 2), 1);
    const PassCosts prefill = pass_costs(sizes, both, kChips, {1, 0, kMany});
    found.give(
        {"prefill"_is = milliseconds(prefill.seconds), "prefill_rows"_is = kMany,
         "decodes"_is = milliseconds(one * kMany),
         "prefill_times"_is = Figure::count(std::round(one * kMany / prefill.seconds))});
}

constexpr std::int64_t kCached = 8192;  ///< tokens of each sequence

/// Gives a row for each model, with the bytes that a token needs in the model's cache.
void give_tokens(Findings& found) {
    GptSizes all_heads = llama3_405b(kCached), one_head = all_heads;
    all_heads.block.kv_heads = all_heads.block.heads;
    one_head.block.kv_heads = 1;
    for (const auto& [name, sizes] :
         {std::pair{"llama405", llama3_405b(kCached)}, std::pair{"all_heads", all_heads},
          std::pair{"one_head", one_head}, std::pair{"qwen72", qwen2_5_72b(kCached)},
          std::pair{"deepseek", deepseek_v3(kCached)},
          std::pair{"llama13", llama2_13b(kCached)}}) {
        const BlockSizes& block = sizes.block;
        found.row(
            "tokens",
            {"model"_is = name, "blocks"_is = sizes.layers,
             "query_heads"_is = block.heads,
             "key_heads"_is = block.latent.query_rank > 0
                                  ? std::string("latent")
                                  : std::to_string(block.attention().key_heads()),
             "of_token"_is = Figure::bytes(cache_bytes_of_token(sizes, DType::bf16))});
    }
}

/// Return how many bytes of the weights, and of a sequence's cache, a chip holds.
double weights_of_chip(const GptSizes& sizes) {
    return 2 * static_cast<double>(sizes.parameters()) / kChips;
}

double sequence_of_chip(const GptSizes& sizes) {
    return static_cast<double>(kCached * cache_bytes_of_token(sizes, DType::bf16)) /
           kChips;
}

/// Gives rows for more and more sequences that decode together. Returns the largest
/// relative error of the formula.
double give_decodes(Findings& found, const char* list, const GptSizes& sizes) {
    double worst = 0;
    for (const std::int64_t batch : {1, 8, 16, 32, 64, 240}) {
        const PassCosts costs =
            pass_costs(sizes, chip(), kChips, {batch, kCached - 1, 1});
        const double cache = static_cast<double>(batch) * sequence_of_chip(sizes);
        const double reading =
            (weights_of_chip(sizes) + cache) / chip().memory_bytes_per_second;
        worst = std::max(worst, std::abs(costs.seconds / reading - 1));
        const auto held = static_cast<double>(costs.weights + costs.cache);
        found.row(list,
                  {"sequences"_is = batch, "cached"_is = Figure::decimals(cache / 1e9, 2),
                   "decode"_is = milliseconds(costs.seconds),
                   "by_formula"_is = milliseconds(reading),
                   "per_second"_is = Figure::count(
                       std::round(static_cast<double>(batch) / costs.seconds)),
                   "fits"_is = held < kChipMemory ? "yes" : "no"});
    }
    return worst;
}

/// Shows what a token needs in the cache, and how many sequences fit.
void cache(Findings& found) {
    give_tokens(found);
    const GptSizes whole = llama2_13b(kCached), fifth = grouped_13b(kCached);
    const double worst = std::max(give_decodes(found, "whole", whole),
                                  give_decodes(found, "fifth", fifth));
    found.at_most("decode_by_formula", Figure::percent(100 * worst, 1), 5);
    const auto most = [](double memory, const GptSizes& sizes) {
        return Figure::count(std::floor(memory / sequence_of_chip(sizes)));
    };
    found.give(
        {"cache_chips"_is = kChips, "chip_memory"_is = Figure::count(kChipMemory / 1e9),
         "cache_tokens"_is = kCached,
         "weights_of_chip"_is = Figure::decimals(weights_of_chip(whole) / 1e9, 2),
         "sequence_of_chip"_is = Figure::decimals(sequence_of_chip(whole) / 1e9, 2),
         "most_sequences"_is = most(kChipMemory - weights_of_chip(whole), whole),
         "most_of_fifth"_is = most(kChipMemory - weights_of_chip(fifth), fifth),
         "most_without_weights"_is = most(kChipMemory, whole)});
}

/// Measures a round of a ring of stages. In a round, each of `groups` equal groups gets a
/// token for each of its sequences, which have about `before` tokens each.
PassCosts ring_costs(const GptSizes& sizes, const ClusterSpec& spec, int stages,
                     int groups, const EqualPass& pass) {
    PassCosts costs;
    const auto makespan = [&](std::int64_t output) {
        const std::int64_t of_each = pages_for(pass.before + output).pages;
        const std::int64_t pages = groups * pass.sequences * of_each;
        const PipelinePlan plan(make_schedule("gpipe", {stages, 1, 1}));
        const auto cut = cut_gpt(sizes, plan.schedule());
        const RunReport report =
            make_shapes_only_cluster(stages, spec)->run([&](Rank& rank) {
                Device& device = rank.device();
                KeyValueCache cache(device, kServed,
                                    {.pages = pages, .page_rows = kPageRows});
                const GptStage stage =
                    make_gpt_stage(served(device), sizes, plan.schedule(), rank.index(),
                                   cut, with_cache({}, cache));
                DecodingRing ring(rank.world(),
                                  {cache, *stage.chunks[0], sizes.block.hidden, kServed,
                                   [&](const Tensor& logits, auto wanted) {
                                       return sample_rows(device, logits, wanted);
                                   }});
                PagePool pool(pages, kPageRows, false);
                std::vector<std::unique_ptr<Batcher>> batchers;
                std::vector<Batcher*> all;
                for (int group = 0; group < groups; ++group) {
                    batchers.push_back(std::make_unique<Batcher>(
                        pool, BatchRules{.most_rows = pass.sequences * pass.before}));
                    all.push_back(batchers.back().get());
                    for (std::int64_t i = 0; i < pass.sequences; ++i)
                        all.back()->add({i,
                                         0,
                                         std::vector<std::int32_t>(
                                             static_cast<std::size_t>(pass.before)),
                                         output,
                                         {}});
                }
                ring.run(all);
            });
        keep_memory(costs, report);
        return report.makespan();
    };
    // The difference leaves out the first tokens, which come from the prompts.
    constexpr std::int64_t kFew = 3, kMany = 7;
    costs.seconds = seconds_between(makespan(kFew), makespan(kMany)) / (kMany - kFew);
    return costs;
}

/// Compares ways to shard a decode over eight devices.
void sharding(Findings& found) {
    constexpr int kDevices = 8;
    constexpr std::int64_t kTokens = 2048;
    const ClusterSpec spec = h100_without_launches();
    const GptSizes sizes = grouped_13b(kTokens + 16);
    const double weights = 2 * static_cast<double>(sizes.parameters()),
                 cache = static_cast<double>(kTokens *
                                             cache_bytes_of_token(sizes, DType::bf16)),
                 memory = spec.memory_bytes_per_second;
    found.give({"sharing_devices"_is = kDevices, "soonest"_is = "by_tp",
                "sharing_tokens"_is = kTokens});
    double worst = 0;
    const auto give = [&](const char* list, const char* way, const PassCosts& costs,
                          double formula, std::int64_t sequences) {
        worst = std::max(worst, std::abs(costs.seconds / formula - 1));
        found.row(list, {"way"_is = way,
                         "weights"_is = Figure::decimals(gigabytes(costs.weights), 1),
                         "cached"_is = Figure::decimals(gigabytes(costs.cache), 2),
                         "token"_is = milliseconds(costs.seconds),
                         "by_formula"_is = milliseconds(formula),
                         "per_second"_is = Figure::count(std::round(
                             static_cast<double>(sequences) / costs.seconds))});
    };
    const auto tensor = [&](std::int64_t sequences) {
        const std::int64_t bytes = 2 * sequences * sizes.block.hidden;
        const auto sums = static_cast<double>(2 * sizes.layers + 1);
        return (weights + static_cast<double>(sequences) * cache) / kDevices / memory +
               sums * ring_all_reduce_seconds(spec.inside, bytes, kDevices);
    };
    const auto alone = [&](std::int64_t sequences) {
        return (weights + static_cast<double>(sequences) * cache) / memory;
    };
    // A single sequence.
    give("alone", "tp", pass_costs(sizes, spec, kDevices, {1, kTokens - 1, 1}), tensor(1),
         1);
    give("alone", "pp", ring_costs(sizes, spec, kDevices, 1, {1, kTokens - 1, 1}),
         alone(1), 1);
    give("alone", "dp", pass_costs(sizes, spec, 1, {1, kTokens - 1, 1}), alone(1), 1);
    // Eight sequences for each device.
    constexpr std::int64_t kAll = 64, kOwn = kAll / kDevices;
    give("busy", "tp", pass_costs(sizes, spec, kDevices, {kAll, kTokens - 1, 1}),
         tensor(kAll), kAll);
    const PassCosts ring =
        ring_costs(sizes, spec, kDevices, kDevices, {kOwn, kTokens - 1, 1});
    // All stages wait for the stage that has the most weights.
    give("busy", "pp", ring,
         (kDevices * static_cast<double>(ring.weights) + kOwn * cache) / memory, kAll);
    give("busy", "dp", pass_costs(sizes, spec, 1, {kOwn, kTokens - 1, 1}), alone(kOwn),
         kAll);
    found.give({"busy_sequences"_is = kAll, "messages_of_token"_is = 2 * sizes.layers + 1,
                "sum_time"_is = milliseconds(ring_all_reduce_seconds(
                    spec.inside, 2 * sizes.block.hidden, kDevices))});
    found.at_most("sharing_by_formula", Figure::percent(100 * worst, 1), 10);
}

/// Returns the time of both all-to-alls of a layer of experts in a decode, if
/// nothing else takes time.
double exchange_seconds(const GptSizes& sizes, int ranks, double bytes_per_second,
                        std::int64_t tokens) {
    ClusterSpec spec;
    spec.devices_per_node = 1;
    spec.between.bytes_per_second = bytes_per_second;
    const auto makespan = [&](std::int64_t layers) {
        GptSizes few = sizes;
        few.layers = layers;
        few.dense_blocks = 0;
        const RunReport report =
            make_shapes_only_cluster(ranks, spec)->run([&](Rank& rank) {
                Mesh mesh(rank.world(), {{"ep", ranks}});
                KeyValueCache cache(rank.device(), kServed,
                                    {.pages = tokens, .page_rows = kPageRows});
                const auto gpt =
                    make_gpt(served(rank.device()), few,
                             with_cache(expert_parallel({}, mesh, {"ep"}), cache));
                gpt->infer(cache.begin(equal_pass(tokens, 3, 1, kPageRows)));
            });
        return report.makespan();
    };
    return seconds_between(makespan(1), makespan(2));
}

/// Shows how fast tokens can follow one another if experts are on many devices.
void exchange(Findings& found) {
    constexpr int kRanks = 32;
    constexpr std::int64_t kTokens = 32;
    const GptSizes sizes = deepseek_v3(64);
    found.give({"exchange_devices"_is = kRanks, "exchange_tokens"_is = kTokens});
    double worst = 0;
    for (const double bytes : {50e9, 900e9}) {
        // As published: 9 copies of 7,000 numbers; 1 byte sends a number, 2 return it.
        const double published = (1 + 2) * 32.0 * 9 * 7000 / bytes;
        const double took = exchange_seconds(sizes, kRanks, bytes, kTokens);
        const double copies = 8.0 * kTokens * (kRanks - 1) / kRanks;
        const double counts =
            4.0 * static_cast<double>(sizes.block.experts.count) / kRanks * (kRanks - 1);
        const double formula =
            (2 * 2 * copies * static_cast<double>(sizes.block.hidden) + counts) / bytes;
        worst = std::max(worst, std::abs(took / formula - 1));
        constexpr int kLayers = 61;
        found.row("exchanges",
                  {"link"_is = Figure::count(bytes / 1e9),
                   "published"_is = Figure::decimals(published * 1e6, 2),
                   "of_layers"_is = Figure::decimals(2 * kLayers * published * 1e3, 2),
                   "here"_is = Figure::decimals(took * 1e6, 2),
                   "here_of_layers"_is = Figure::decimals(2 * kLayers * took * 1e3, 2)});
    }
    found.at_most("exchange_by_formula", Figure::percent(100 * worst, 4), 0.01);
    found.give({"exchange_answer"_is =
                    Figure::count(std::round(1 / (2 * 61 * 3 * 32.0 * 9 * 7000 / 50e9))),
                "exchange_once"_is =
                    Figure::count(std::round(1 / (61 * 3 * 32.0 * 9 * 7000 / 50e9)))});
}

/// The answers of a plan's devices, and the passes that made them.
struct ServiceRun {
    std::vector<Served> served;      ///< answers of all replicas, by request
    std::vector<ServedPass> passes;  ///< passes of the first replica
    RunReport report;

    std::int64_t rows() const;
    std::int64_t preemptions() const;
    /// Returns the longest time between two tokens, over requests that `counts` accepts.
    Picoseconds longest_gap(
        const std::function<bool(std::int64_t request)>& counts) const;
};

std::int64_t ServiceRun::rows() const {
    std::int64_t rows = 0;
    for (const ServedPass& pass : passes)
        for (const ServedPass::Piece& piece : pass.pieces)
            rows += piece.rows;
    return rows;
}

std::int64_t ServiceRun::preemptions() const {
    std::int64_t count = 0;
    for (const Served& request : served)
        count += request.answer.preemptions;
    return count;
}

Picoseconds ServiceRun::longest_gap(
    const std::function<bool(std::int64_t request)>& counts) const {
    Picoseconds longest = 0;
    std::map<std::int64_t, Picoseconds> before;
    for (const ServedPass& pass : passes)
        for (const ServedPass::Piece& piece : pass.pieces) {
            if (!piece.wanted || !counts(piece.request)) continue;
            const auto last = before.find(piece.request);
            if (last != before.end())
                longest = std::max(longest, pass.end - last->second);
            before[piece.request] = pass.end;
        }
    return longest;
}

/// Runs a plan's service. `gpt` may be null: without numbers, weights do not matter.
ServiceRun run_service(Cluster& cluster, const ServicePlan& plan,
                       const std::vector<Request>& requests,
                       const TrainedGpt* gpt = nullptr) {
    ServiceRun run;
    std::vector<std::vector<Served>> served(static_cast<std::size_t>(plan.replicas()));
    run.report = cluster.run([&](Rank& rank) {
        GptService service(rank, plan);
        if (gpt) load_parameters(service.model().parameters(), gpt->weights);
        auto done = service.serve(requests);
        if (!service.speaks()) return;
        if (service.replica() == 0) run.passes = service.passes();
        served[service.replica()] = std::move(done);
    });
    for (auto& of_replica : served)
        std::move(of_replica.begin(), of_replica.end(), std::back_inserter(run.served));
    std::ranges::sort(run.served, {},
                      [](const Served& request) { return request.answer.id; });
    return run;
}

std::vector<Request> small_requests(const InferenceLesson& lesson) {
    constexpr std::array<std::int64_t, 8> kPrompts{6, 10, 4, 8, 12, 5, 9, 7},
        kOutputs{20, 3, 6, 12, 4, 8, 3, 10};
    std::vector<Request> requests;
    for (std::size_t i = 0; i < kPrompts.size(); ++i) {
        const auto id = static_cast<std::int64_t>(i);
        Request request{id,
                        id * 200 * (kSecond / 1'000'000),
                        prompt(lesson, id, kPrompts[i]),
                        kOutputs[i],
                        {}};
        request.sampling.temperature = 0.8;
        request.sampling.seed = lesson.options().seed + i;
        requests.push_back(std::move(request));
    }
    return requests;
}

ServiceOptions small_service(const InferenceLesson& lesson) {
    ServiceOptions service;
    service.cache = {.pages = 64, .page_rows = 4};
    service.rules.most_sequences = 4;
    service.rules.most_rows = 16;
    service.row_by_row = true;
    service.dtype = lesson.dtype();
    service.seed = lesson.options().seed;
    return service;
}

/// Counts the requests that get different tokens when each is served on its own.
std::int64_t other_tokens(InferenceLesson& lesson, const ServiceRun& run,
                          const std::vector<Request>& requests) {
    ServiceOptions one_by_one = small_service(lesson);
    one_by_one.rules.most_sequences = 1;
    const ServiceRun alone = run_service(*lesson.virtual_devices(1),
                                         ServicePlan(lesson.task->sizes, one_by_one),
                                         requests, &trained(lesson));
    std::int64_t other = 0;
    for (std::size_t i = 0; i < requests.size(); ++i)
        other += alone.served[i].answer.tokens != run.served[i].answer.tokens;
    return other;
}

/// Serves eight requests by static batching, and by continuous batching, in which
/// requests join a running batch.
void batching(InferenceLesson& lesson, Findings& found) {
    const std::vector<Request> requests = small_requests(lesson);
    ServiceOptions service = small_service(lesson);
    found.give({"batch_requests"_is = requests.size(),
                "first_output"_is = requests[0].output,
                "first_both"_is = requests[0].output + 1,
                "batch_most"_is = service.rules.most_sequences});
    const auto serve = [&](bool continuous) {
        service.rules.continuous = continuous;
        return run_service(*lesson.virtual_devices(1, continuous),
                           ServicePlan(lesson.task->sizes, service), requests,
                           &trained(lesson));
    };
    const ServiceRun fixed = serve(false), joining = serve(true);
    for (std::size_t i = 0; i < requests.size(); ++i) {
        found.row(
            "joined",
            {"request"_is = i, "came"_is = Figure::time(requests[i].arrival),
             "prompt"_is = requests[i].prompt.size(), "output"_is = requests[i].output,
             "fixed"_is = Figure::time(fixed.served[i].to_first()),
             "joins"_is = Figure::time(joining.served[i].to_first())});
    }
    const auto mean = [](const ServiceRun& run) {
        double sum = 0;
        for (const Served& request : run.served)
            sum += static_cast<double>(request.to_first());
        return sum / static_cast<double>(run.served.size());
    };
    found.give({"fixed_mean"_is = Figure::time(std::llround(mean(fixed))),
                "joins_mean"_is = Figure::time(std::llround(mean(joining))),
                "fixed_passes"_is = fixed.passes.size(),
                "joins_passes"_is = joining.passes.size(),
                "fixed_end"_is = Figure::time(fixed.report.makespan()),
                "joins_end"_is = Figure::time(joining.report.makespan())});
    lesson.record_run("served", joining.report);
    ServiceTrace trace;
    trace.pages = service.cache.pages;
    trace.requests = asked_of(requests);
    trace.passes = fixed.passes;
    found.service("waiting_batches", trace);
    trace.passes = joining.passes;
    found.service("joined_batches", trace);
    const std::int64_t other =
        lesson.has_numbers() ? other_tokens(lesson, joining, requests) : 0;
    lesson.values_equal(found, "batch_tokens", other, 0);
}

std::vector<Request> common_requests(const InferenceLesson& lesson) {
    constexpr std::int64_t kRequests = 8, kCommon = 24, kOwn = 6, kOutput = 8;
    std::vector<Request> requests;
    for (std::int64_t id = 0; id < kRequests; ++id) {
        Request request{id, 0, prompt(lesson, 100, kCommon), kOutput, {}};
        const auto own = prompt(lesson, id, kOwn);
        request.prompt.insert(request.prompt.end(), own.begin(), own.end());
        requests.push_back(std::move(request));
    }
    return requests;
}

/// Reuses the pages of a common prompt, and preempts sequences if pages are missing.
void pages(InferenceLesson& lesson, Findings& found) {
    const std::vector<Request> requests = common_requests(lesson);
    ServiceOptions service = small_service(lesson);
    service.rules.most_sequences = 8;
    service.rules.most_rows = 32;
    const auto serve = [&](bool reuse, std::int64_t pages) {
        service.reuse = reuse;
        service.cache.pages = pages;
        return run_service(*lesson.virtual_devices(1),
                           ServicePlan(lesson.task->sizes, service), requests,
                           &trained(lesson));
    };
    constexpr std::int64_t kMany = 128, kFew = 36;
    const ServiceRun plain = serve(false, kMany), found_again = serve(true, kMany),
                     tight = serve(false, kFew);
    const auto own = static_cast<std::int64_t>(requests[0].prompt.size());
    const std::int64_t output = requests[0].output;
    const auto count = static_cast<std::int64_t>(requests.size());
    found.give({"paged_requests"_is = count, "paged_prompt"_is = own,
                "paged_output"_is = output, "paged_rows"_is = service.cache.page_rows,
                "paged_most"_is = kMany, "paged_few"_is = kFew,
                "paged_longest"_is = lesson.task->sizes.context});
    const std::int64_t tokens = own + output - 1;
    const auto pages_of = [&](std::int64_t count_of) {
        return (count_of + service.cache.page_rows - 1) / service.cache.page_rows;
    };
    const std::int64_t taken = pages_of(tokens),
                       longest = pages_of(lesson.task->sizes.context);
    found.give({"paged_each"_is = taken, "reserved_each"_is = longest,
                "reserved_fit"_is = kFew / longest, "paged_fit"_is = kFew / taken});
    for (const auto& [name, run] :
         {std::pair{"plain", &plain}, std::pair{"found", &found_again},
          std::pair{"tight", &tight}}) {
        found.row("paged",
                  {"service"_is = name, "rows"_is = run->rows(),
                   "passes"_is = run->passes.size(), "preempted"_is = run->preemptions(),
                   "end"_is = Figure::time(run->report.makespan())});
    }
    found.equal("plain_rows", plain.rows(), count * tokens);
    std::int64_t reused = 0, other = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        reused += found_again.served[i].answer.reused;
        other += found_again.served[i].answer.tokens != plain.served[i].answer.tokens;
        other += tight.served[i].answer.tokens != plain.served[i].answer.tokens;
    }
    found.equal("found_rows", found_again.rows(), count * tokens - reused);
    found.give("reused_tokens", reused);
    lesson.values_equal(found, "paged_tokens", other, 0);
}

/// Lets a long prompt arrive between decodes, whole and in pieces.
void pieces(Findings& found) {
    constexpr std::int64_t kLong = 4096, kOthers = 16;
    const GptSizes sizes = grouped_13b(8192);
    std::vector<Request> requests;
    for (std::int64_t id = 0; id < kOthers; ++id)
        requests.push_back({id, 0, std::vector<std::int32_t>(256), 100, {}});
    requests.push_back({kOthers, kSecond / 2, std::vector<std::int32_t>(kLong), 1, {}});
    found.give("long_prompt", kLong);
    constexpr std::int64_t kRows = 512;
    found.give({"piece_rows"_is = kRows,
                "piece_passes"_is = (kLong + kRows - kOthers - 1) / (kRows - kOthers),
                "piece_alone"_is = kLong / kRows, "pieces_others"_is = kOthers});
    Picoseconds whole = 0, shortest = 0;
    const auto serve = [&](std::int64_t rows, bool pieces) {
        ServiceOptions service;
        service.cache = {.pages = 1024, .page_rows = 16};
        service.rules.most_rows = rows;
        service.rules.pieces = pieces;
        service.reuse = false;
        const ServiceRun run =
            run_service(*make_shapes_only_cluster(1, load_cluster("h100-data-sheet")),
                        ServicePlan(sizes, service), requests);
        const auto is_other = [](std::int64_t request) { return request < kOthers; };
        const Picoseconds gap = run.longest_gap(is_other);
        found.row("pieced", {"rows"_is = rows, "how"_is = pieces ? "pieces" : "whole",
                             "gap"_is = Figure::time(gap),
                             "first"_is = Figure::time(run.served.back().to_first()),
                             "end"_is = Figure::time(run.report.makespan())});
        (pieces ? shortest : whole) = gap;
    };
    serve(kLong + kOthers, false);
    for (const std::int64_t rows : {2048, 1024, 512, 256, 128})
        serve(rows, true);
    found.give("gap_times", Figure::decimals(ratio(whole, shortest), 0));
    found.at_most("gap_ratio", Figure::decimals(ratio(shortest, whole), 3), 0.25);
}

constexpr std::int64_t kApart = 64, kShortest = 2048, kLongest = 4096;

RequestMix long_prompts(double rate, const GptSizes& sizes, std::uint64_t seed) {
    return {kApart, rate, kShortest, kLongest, 64, 128, sizes.vocabulary, seed};
}

/// A way to compute prompts: on which devices, and whole or in pieces.
struct PromptsWay {
    const char* name;
    bool apart;
    bool pieces;
};

ServiceRun serve_long_prompts(const GptSizes& sizes, const std::vector<Request>& requests,
                              const PromptsWay& way) {
    ServiceOptions service;
    if (!way.apart) service.axes = {{"dp", 2}};
    service.apart = way.apart;
    service.cache = {.pages = 8192, .page_rows = 16};
    service.rules.most_rows = way.pieces ? 256 : kLongest;
    service.rules.pieces = way.pieces;
    return run_service(*make_shapes_only_cluster(2, load_cluster("h100-data-sheet")),
                       ServicePlan(sizes, service), requests);
}

/// Gives what it costs to send a prompt of mean length from one device to another.
void give_prompt_apart(Findings& found, const GptSizes& sizes) {
    constexpr std::int64_t kMean = (kShortest + kLongest) / 2;
    const ClusterSpec spec = load_cluster("h100-data-sheet");
    const std::int64_t of_token = cache_bytes_of_token(sizes, DType::bf16);
    found.give({"apart_of_token"_is = Figure::bytes(of_token), "apart_mean"_is = kMean,
                "apart_shortest"_is = kShortest, "apart_longest"_is = kLongest,
                "apart_prompt"_is = Figure::memory(kMean * of_token),
                "apart_heads"_is = Figure::memory(
                    kMean * cache_bytes_of_token(llama2_13b(1), DType::bf16)),
                "apart_prompt_time"_is = milliseconds(
                    static_cast<double>(kMean * of_token) / spec.inside.bytes_per_second),
                "apart_pass_time"_is =
                    milliseconds(pass_costs(sizes, spec, 1, {1, 0, kMean}).seconds)});
}

/// Computes prompts on the devices that decode, and on other devices.
void apart(InferenceLesson& lesson, Findings& found) {
    constexpr PromptsWay kApartWay{"apart", true, false};
    const GptSizes sizes = grouped_13b(2 * kLongest);
    const ServiceLimits limits{kSecond / 2, 15 * (kSecond / 1000)};
    found.give({"apart_first"_is = Figure::time(limits.to_first),
                "apart_token"_is = Figure::time(limits.per_token),
                "apart_requests"_is = kApart});
    for (const double rate : {2.0, 4.0, 6.0, 8.0, 10.0, 12.0}) {
        const auto requests =
            make_requests(long_prompts(rate, sizes, lesson.options().seed));
        Findings& row = found.row("rates", {"rate"_is = Figure::count(rate)});
        for (const PromptsWay& way : {PromptsWay{"together", false, false},
                                      PromptsWay{"pieces", false, true}, kApartWay}) {
            const ServiceReport report =
                report_of(serve_long_prompts(sizes, requests, way).served, limits);
            const auto give = [&](const char* what, Figure figure) {
                row.give(fmt::format("{}_{}", way.name, what), figure);
            };
            give("first", Figure::time(report.to_first.p90));
            give("token", Figure::time(report.per_token.p90));
            give("goodput", Figure::decimals(report.goodput, 1));
        }
    }
    const auto requests = make_requests(long_prompts(8, sizes, lesson.options().seed));
    const ServiceRun run = serve_long_prompts(sizes, requests, kApartWay);
    std::int64_t tokens = 0, sent = 0;
    for (const Request& request : requests)
        tokens += static_cast<std::int64_t>(request.prompt.size());
    for (const Traffic& traffic : run.report.ranks[0].traffic)
        if (traffic.group == "side") sent += traffic.bytes_sent;
    found.give("apart_tokens", tokens);
    found.equal("apart_bytes", Figure::bytes(sent),
                tokens * cache_bytes_of_token(sizes, DType::bf16) + 4 * kApart);
    give_prompt_apart(found, sizes);
}

/// Gives rows for more and more drafts of a 1.1 B model, which a 13 B model checks.
void give_drafts(Findings& found, double acceptance) {
    const GptSizes large = grouped_13b(4096);
    GptSizes small = llama2_13b(4096);
    small.layers = 22;
    small.block.hidden = 2048;
    small.block.heads = 32;
    small.block.kv_heads = 4;
    small.block.inner = 5632;
    const ClusterSpec spec = load_cluster("h100-data-sheet");
    constexpr std::int64_t kBefore = 1024;
    const double draft = pass_costs(small, spec, 1, {1, kBefore, 1}).seconds;
    const double plain = pass_costs(large, spec, 1, {1, kBefore, 1}).seconds;
    found.give({"draft_billions"_is =
                    Figure::decimals(static_cast<double>(small.parameters()) / 1e9, 1),
                "draft_time"_is = milliseconds(draft),
                "plain_time"_is = milliseconds(plain),
                "stated_part"_is = Figure::decimals(acceptance, 1)});
    for (const int drafts : {1, 2, 3, 4, 6, 8, 12}) {
        const double pass = pass_costs(large, spec, 1, {1, kBefore, drafts + 1}).seconds;
        const double tokens = expected_tokens(acceptance, drafts);
        const double of_token = (drafts * draft + pass) / tokens;
        found.row("drafted",
                  {"drafts"_is = drafts, "tokens"_is = Figure::decimals(tokens, 2),
                   "pass"_is = milliseconds(pass), "token"_is = milliseconds(of_token),
                   "times"_is = Figure::decimals(plain / of_token, 2)});
    }
    constexpr int kFour = 4;
    found.give(
        {"drafts_four"_is = Figure::decimals(expected_tokens(acceptance, kFour), 2),
         "drafts_sum"_is = Figure::decimals(acceptance * kFour + 1, 2),
         "drafts_all"_is = Figure::decimals(kFour + 1, 2)});
}

/// Answers a request on one device, with drafts of another model.
SpeculationReport write_with_drafts(Cluster& cluster, const TrainedGpt& writer,
                                    const TrainedGpt& drafter, const Request& request,
                                    int drafts) {
    SpeculationReport report;
    cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const CacheSizes sizes = pages_for(writer.sizes.context);
        KeyValueCache large(device, writer.dtype, sizes);
        KeyValueCache small(device, drafter.dtype, sizes);
        const auto large_model = loaded(device, writer, with_cache({}, large));
        const auto small_model = loaded(device, drafter, with_cache({}, small));
        PagePool pages(sizes.pages, kPageRows, false);
        PagePool others(sizes.pages, kPageRows, false);
        // Row by row, a pass of several rows gives the same bits as passes of one row.
        const RowByRow scope(device);
        report = speculate(device, {*large_model, large, pages},
                           {*small_model, small, others}, request, {.drafts = drafts});
    });
    return report;
}

/// Lets a small model draft tokens, which a large model checks.
void speculation(InferenceLesson& lesson, Findings& found) {
    give_drafts(found, 0.8);
    // The trained model checks the drafts of a model with a single block.
    GptTask task = *lesson.task;
    task.sizes.layers = 1;
    const TrainedGpt drafter = train(lesson, "draft", task);
    const Request request{0, 0, prompt(lesson, 0, kPromptWritten), kWritten, {}};
    const SpeculationReport spoken = write_with_drafts(
        *lesson.virtual_devices(1), trained(lesson), drafter, request, 4);
    found.give({"spoken_passes"_is = spoken.passes, "spoken_drafted"_is = spoken.drafted,
                "spoken_stayed"_is = spoken.stayed, "spoken_tokens"_is = kWritten});
    const ServiceRun plain =
        run_service(*lesson.virtual_devices(1),
                    ServicePlan(lesson.task->sizes, small_service(lesson)), {request},
                    &trained(lesson));
    const bool other = plain.served[0].answer.tokens != spoken.tokens;
    lesson.values_equal(found, "spoken_same", other ? 1 : 0, 0);
}

constexpr CacheSizes kPages{.pages = 32, .page_rows = 4};

constexpr Picoseconds kMillisecond = kSecond / 1000;

GptSizes tiny_sizes(int experts = 0) {
    GptSizes sizes{/*vocabulary=*/16, /*context=*/32, /*layers=*/1, {8, 2}};
    sizes.block.experts.count = experts;
    sizes.block.experts.gate.chosen = 2;
    return sizes;
}

std::vector<Request> tiny_requests() {
    std::vector<Request> requests;
    for (std::int64_t id = 0; id < 4; ++id)
        requests.push_back({id, id * kMillisecond, {1, 2, 3}, 4 + 2 * id, {}});
    return requests;
}

/// Answers requests. After each pass `gives_up` is told whether the last request is late
/// by this rank's clock, and returns whether to drop the request.
void answer_or_drop(Rank& rank, const std::function<bool(bool is_late)>& gives_up) {
    Device& device = rank.device();
    TensorParallel tp(device, rank.world());
    KeyValueCache cache(device, DType::f32, kPages);
    const auto gpt = make_gpt(ParameterInit{device, DType::f32, 1, ""}.for_inference(),
                              tiny_sizes(), with_cache(tensor_parallel({}, tp), cache));
    PagePool pool(kPages.pages, kPages.page_rows);
    Batcher batcher(pool, {});
    for (const Request& request : tiny_requests())
        batcher.add(request);
    // lesson: drop-when-late
    const Picoseconds limit = device.now() + 5 * kMillisecond;
    while (!batcher.idle()) {
        const Tensor logits = gpt->infer(cache.begin(batcher.next()));
        batcher.take(sample_rows(device, rank.world(), logits, 16, batcher.wanted()));
        // Rank 0 also sends answers to the users, so it is later.
        if (rank.index() == 0) device.sleep_until(device.now() + kMillisecond);
        if (gives_up(device.now() > limit)) batcher.drop(3);
    }
    // lesson: end
    rank.keep_value("answered", static_cast<double>(batcher.answers().size()));
}

/// Both ranks shard the heads of a model. A request that has waited for too long is
/// dropped, by each rank's own clock or by rank 0's clock. Keeps in the series "answered"
/// how many requests have been answered, at least in part.
void drop_by_own_clock(Rank& rank) {
    // lesson: drop-by-own-clock
    answer_or_drop(rank, [](bool is_late) { return is_late; });
    // lesson: end
}

void drop_by_one_clock(Rank& rank) {
    // lesson: drop-by-one-clock
    answer_or_drop(rank, [&](bool is_late) {
        return decided_by_first(rank.device(), rank.world(), is_late);
    });
    // lesson: end
}

/// The ranks shard experts, and have their own requests. A rank without requests stops.
void rest_without_requests(Rank& rank) {
    Device& device = rank.device();
    Mesh mesh(rank.world(), {{"ep", 2}});
    KeyValueCache cache(device, DType::f32, kPages);
    const auto gpt =
        make_gpt(ParameterInit{device, DType::f32, 1, ""}.for_inference(), tiny_sizes(4),
                 with_cache(expert_parallel({}, mesh, {"ep"}), cache));
    PagePool pool(kPages.pages, kPages.page_rows);
    Batcher batcher(pool, {});
    batcher.add(tiny_requests()[rank.index()]);
    // lesson: rest-without-requests
    while (!batcher.idle()) {
        const Tensor logits = gpt->infer(cache.begin(batcher.next()));
        batcher.take(sample_rows(device, logits, batcher.wanted()));
    }
    // lesson: end
}

/// The ranks continue until no rank has a request. Keeps "answered", too.
void serve_each_other(Rank& rank) {
    const ServicePlan plan(tiny_sizes(4),
                           {.axes = {{"ep", 2}}, .cache = kPages, .dtype = DType::f32});
    GptService service(rank, plan);
    rank.keep_value("answered",
                    static_cast<double>(service.serve(tiny_requests()).size()));
}

/// Shows two services that hang, the diagnosis of each, and their cures.
void hangs(InferenceLesson& lesson, Findings& found) {
    LessonOptions here = lesson.options().without_full_check();
    here.backend = "sim";
    std::int64_t named = 0;
    const auto sentence = [&](void (*program)(Rank&)) {
        try {
            make_cluster(here, 2)->run(program);
        } catch (const FaultError& fault) {
            ++named;
            return fault.diagnosis().sentence;
        }
        return std::string("Nothing.");
    };
    found.give({"own_clock"_is = sentence(drop_by_own_clock),
                "no_requests"_is = sentence(rest_without_requests)});
    found.equal("named_hangs", named, 2);
    const auto answered = [&](void (*program)(Rank&)) {
        std::int64_t count = 0;
        for (const RankReport& rank : make_cluster(here, 2)->run(program).ranks)
            count += static_cast<std::int64_t>(rank.series.at("answered").at(0));
        return count;
    };
    found.give("dropped_by_one", answered(drop_by_one_clock));
    if (lesson.has_numbers()) found.give("served_each_other", answered(serve_each_other));
}

}  // namespace

LessonEntry inference_lesson() {
    LessonEntry entry;
    entry.slug = "inference";
    entry.folder = "11_inference";
    entry.most_ranks = 8;
    entry.settings = {
        {"layers", "transformer blocks", Whole{1, 64, 2}},
        {"heads",
         "of attention; if not set, twice the smallest multiple of the ranks that is at "
         "least 4",
         Whole{1, 64}, "8"},
        {"kv_heads", "of keys and values", Whole{1, 64}, "half of the heads"},
        {"hidden", "columns between layers; 8 a head", Whole{1, 1024}, "64"},
        {"context", "characters of the longest sequence", Whole{1, 1024, 64}},
        {"batch", "sequences of a step", Whole{1, 1024, 8}},
        {"steps", "of training", Whole{1, 100'000, 250}},
        {"learning_rate", "of AdamW", Real{0, 1e6, 0.005}},
    };
    entry.takes_text = true;
    entry.make = lesson_of<InferenceLesson>({{"generate", generate},
                                             {"time", time},
                                             {"cache", cache},
                                             {"sharding", sharding},
                                             {"exchange", exchange},
                                             {"batching", batching},
                                             {"pages", pages},
                                             {"pieces", pieces},
                                             {"apart", apart},
                                             {"speculation", speculation},
                                             {"hangs", hangs}});
    return entry;
}

}  // namespace lockstep::lessons
