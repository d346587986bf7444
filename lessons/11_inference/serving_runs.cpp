#include "lessons/11_inference/serving_runs.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/inference/decoding_ring.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/pipeline_gpt.hpp"

namespace lockstep::lessons {

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
        // The bias of keys has no gradient but rounding, which AdamW makes steps of.
        block.bias = false;
        require_shared_out("heads", block.heads, ranks, fmt::format("{} ranks", ranks));
        require_shared_out("heads", block.heads, block.kv_heads,
                           fmt::format("{} heads of keys", block.kv_heads));
        require_shared_out("hidden", block.hidden, block.heads,
                           fmt::format("{} heads", block.heads));
        require(block.kv_heads % ranks == 0 || ranks % block.kv_heads == 0,
                "--set kv_heads={}: a multiple of the {} ranks is expected, or a number "
                "that divides them",
                block.kv_heads, ranks);
        return gpt;
    });
}

RunReport train_by_adamw(Cluster& cluster, const GptTask& task, const Advance& advance) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt(task.init(device), task.sizes);
        AllReduceSync sync(gpt->parameters());
        // With a smaller epsilon steps would be made of the rounding of small gradients.
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

namespace {

constexpr std::int64_t kPageRows = 16;

/// Pages for so many tokens.
CacheSizes pages_for(std::int64_t tokens) {
    return {.pages = (tokens + kPageRows - 1) / kPageRows, .page_rows = kPageRows};
}

/// Heads and columns shared out to all of the ranks; on one, nothing is.
GptKit shared_kit(TensorParallel& tp, int ways) {
    return ways > 1 ? copy_key_heads(tensor_parallel({}, tp), tp) : GptKit();
}

std::unique_ptr<Module> loaded(Device& device, const TrainedGpt& gpt, const GptKit& kit) {
    auto model = make_gpt(ParameterInit{device, gpt.dtype, gpt.seed, ""}.for_inference(),
                          gpt.sizes, kit);
    load_parameters(model->parameters(), gpt.weights);
    return model;
}

}  // namespace

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
                // The model computes what is new since the last token: its keys and
                // values join those in the cache.
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

std::int64_t ServiceRun::rows() const {
    std::int64_t rows = 0;
    for (const ServedPass& pass : passes)
        for (const ServedPass::Piece& piece : pass.pieces)
            rows += piece.rows;
    return rows;
}

std::int64_t ServiceRun::preemptions() const {
    std::int64_t count = 0;
    for (const Served& of : served)
        count += of.answer.preemptions;
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

ServiceRun run_service(Cluster& cluster, const ServicePlan& plan,
                       const std::vector<Request>& requests, const TrainedGpt* gpt) {
    ServiceRun run;
    std::vector<std::vector<Served>> served(static_cast<std::size_t>(plan.replicas()));
    run.report = cluster.run([&](Rank& rank) {
        GptService service(rank, plan);
        if (gpt) load_parameters(service.model().parameters(), gpt->weights);
        auto done = service.serve(requests);
        if (!service.speaks()) return;
        if (service.replica() == 0) run.passes = service.passes();
        served[static_cast<std::size_t>(service.replica())] = std::move(done);
    });
    for (auto& of : served)
        std::move(of.begin(), of.end(), std::back_inserter(run.served));
    std::ranges::sort(run.served, {}, [](const Served& of) { return of.answer.id; });
    return run;
}

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
        // So a pass of several rows gives the bits that passes of one row give.
        const RowByRow scope(device);
        report = speculate(device, {*large_model, large, pages},
                           {*small_model, small, others}, request, {.drafts = drafts});
    });
    return report;
}

namespace {

double seconds_between(Picoseconds begin, Picoseconds end) {
    return static_cast<double>(end - begin) / static_cast<double>(kSecond);
}

constexpr DType kServed = DType::bf16;

ParameterInit served(Device& device) {
    return ParameterInit{device, kServed, 1, ""}.for_inference();
}

/// Keeps what the device holds that has most.
void keep_memory(PassCosts& costs, const RunReport& report) {
    for (const RankReport& rank : report.ranks) {
        costs.weights =
            std::max(costs.weights, rank.memory.peak_of(MemoryCategory::parameters));
        costs.cache = std::max(costs.cache, rank.memory.peak_of(MemoryCategory::cache));
    }
}

}  // namespace

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
    // The first tokens are those of the prompts.
    constexpr std::int64_t kFew = 3, kMany = 7;
    costs.seconds = seconds_between(makespan(kFew), makespan(kMany)) / (kMany - kFew);
    return costs;
}

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

}  // namespace lockstep::lessons
