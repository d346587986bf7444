// Compares a GPT on one device with a GPT on meshes, which combine tensor, sequence,
// pipeline, context and data parallelism.

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/comm/mesh.hpp"
#include "src/nn/flash_attention.hpp"
#include "src/nn/offloaded_activations.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/power_sgd.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/train_step.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/gpt_on_mesh.hpp"
#include "src/trial/training.hpp"
#include "tests/alike.hpp"
#include "tests/pipeline/meshes.hpp"

namespace lockstep::test {

namespace {

constexpr int kMicroBatches = 4;  // per replica; enough for 4 stages
constexpr std::int64_t kLength = 8;
constexpr std::int64_t kBatch = 1;
constexpr SgdOptions kSgd{0.05, 0.9, 0};
constexpr double kMostNorm = 0.5;  ///< a larger norm of all gradients is clipped

/// How to complete gradients over all ranks that have different micro-batches or tokens.
enum class Sync {
    all_reduce,
    buckets,   ///< reduced during backward
    zero1,     ///< each rank updates a shard
    zero2,     ///< each rank updates a shard, and keeps only the shard's gradients
    by_rows,   ///< fully sharded
    flat,      ///< fully sharded
    power_sgd  ///< reduces factors; then train_alone() also uses factors
};

/// A GPT's layout on a mesh, and its options.
struct Spread {
    int pp = 1, dp = 1, cp = 1, tp = 1;
    bool sequence = false;  ///< Megatron's sequence parallelism between regions
    std::string schedule = "1f1b";
    bool tied = false;
    std::int64_t kv_heads = 0;
    ContextMethod method = ContextMethod::ring_attention;
    TokenOrder order = TokenOrder::contiguous;
    Sync sync = Sync::all_reduce;
    bool llama = false;      ///< RMS norms, SwiGLU, rotary positions, no biases
    bool recompute = false;  ///< recomputes every layer
    bool selective = false;  ///< recomputes attention's core
    bool offload = false;    ///< keeps saved tensors on the host
    bool scatter = false;    ///< scatters messages over the tensor group
    bool flash = false;      ///< FlashAttention on each rank's heads
    int steps = 5;
    DType dtype = DType::f64;
    bool turned = false;  ///< axes in reverse order
    int ep = 1;           ///< ranks that shard experts and replicate other layers
    std::int64_t experts = 0;
    enum class Gate { plain, deepseek, gshard } gate = Gate::plain;
    bool other_experts = false;  ///< ranks of "tp" have different experts, too
    bool share_columns = true;   ///< if not, "tp" replicates whole experts
    bool drop_copies = true;

    int ranks() const { return pp * dp * ep * cp * tp; }
    int replicas() const { return dp * ep; }
    std::string text() const {
        return fmt::format(
            "pp {} dp {} ep {} cp {} tp {}{} {} {}kv {} {} {} sync {} experts {} {} {} "
            "gate {} {}{}",
            pp, dp, ep, cp, tp, sequence ? " sp" : "", schedule, tied ? "tied " : "",
            kv_heads, name_of(method), name_of(order), static_cast<int>(sync), experts,
            other_experts   ? "apart"
            : share_columns ? "shared"
                            : "copied",
            drop_copies, static_cast<int>(gate), name_of(dtype), turned ? " turned" : "");
    }
};

GptSizes sizes_of(const Spread& spread) {
    GptSizes sizes;
    sizes.vocabulary = 13;
    sizes.context = kLength;
    sizes.layers = 4;
    sizes.block.hidden = 16;
    sizes.block.heads = 8;
    sizes.block.kv_heads = spread.kv_heads;
    sizes.tied = spread.tied;
    if (spread.llama) {
        sizes.block.norm = NormKind::rms_norm;
        sizes.block.mlp = MlpKind::swiglu;
        sizes.block.inner = 24;
        sizes.block.rotary_base = 10000;
        sizes.block.bias = false;
    }
    if (spread.experts > 0) {
        ExpertSizes& experts = sizes.block.experts;
        sizes.dense_blocks = 1;
        experts.count = spread.experts;
        experts.inner = 12;
        experts.shared = 8;
        experts.gate.balance = 0.02;
        experts.gate.z = 0.01;
        if (spread.gate == Spread::Gate::deepseek) {
            experts.gate.form = GateForm::sigmoid;
            experts.gate.normalized = true;
            experts.gate.factor = 2.5;
            experts.gate.chosen = 3;
            experts.gate.noise = 0.1;
            experts.portions = 2;
        }
        if (spread.gate == Spread::Gate::gshard) {
            experts.gate.form = GateForm::softmax_then_top_k;
            experts.gate.normalized = true;
            experts.capacity = 1.25;
        }
    }
    return sizes;
}

/// Ids, and each id's successor.
struct Sequences {
    HostTensor ids{{kLength, kBatch}, DType::i32};
    HostTensor next{{kLength, kBatch}, DType::i32};
};

/// Returns the sequences of micro-batch `index` of `all` in a step.
Sequences sequences(int step, int index, int all) {
    Sequences made;
    for (std::int64_t i = 0; i < made.ids.elements(); ++i) {
        const std::int64_t at = (step * all + index) * made.ids.elements() + i;
        made.ids.set(i, static_cast<double>((at * at + at / 3) % 13));
        made.next.set(i, static_cast<double>(((at + 1) * (at + 1) + (at + 1) / 3) % 13));
    }
    return made;
}

/// Returns a micro-batch for one device.
MicroBatch micro_batch(Device& device, int step, int index, int all, double weight) {
    const Sequences made = sequences(step, index, all);
    return {device.upload(made.ids), device.upload(made.next), weight};
}

/// Keeps a step's loss on the rank that has it. Rank 0 keeps the gradients' squared norm.
void keep_step(Rank& rank, int step, const Tensor& loss,
               const std::vector<Parameter*>& updated) {
    Device& device = rank.device();
    if (loss) rank.keep_value("loss", device.peek(loss).at(0));
    const Tensor norm = squared_gradient_norm(device, rank.world(), updated);
    if (rank.index() == 0) rank.keep(fmt::format("norm/{}", step), norm);
    keep_parameters(rank, updated, fmt::format("grad/{}/", step), &Parameter::gradient);
}

// Each function keeps "loss/STEP", "norm/STEP" and "grad/STEP/NAME" of each step, and
// "value/NAME". Replicas must have the same bits.

Outcome train_alone(const Spread& spread) {
    const int all = kMicroBatches * spread.replicas();
    return outcome_of(*sim::make_cluster(1), [&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, spread.dtype, 1, ""}, sizes_of(spread));
        const auto parameters = gpt->parameters();
        std::unique_ptr<GradientSync> sync = std::make_unique<AllReduceSync>(parameters);
        if (spread.sync == Sync::power_sgd)
            sync = std::make_unique<PowerSgd>(device, rank.world(), parameters);
        const auto optimizer = make_optimizer<Sgd>(parameters, kSgd);
        for (int step = 0; step < spread.steps; ++step) {
            std::vector<MicroBatch> batches;
            batches.reserve(all);
            for (int i = 0; i < all; ++i)
                batches.push_back(micro_batch(device, step, i, all, 1.0 / all));
            sync->begin();
            const Tensor loss =
                accumulate_gradients(device, *gpt, cross_entropy_loss, batches);
            sync->finish();
            keep_step(rank, step, loss, parameters);
            clip_gradients(device, rank.world(), parameters, kMostNorm);
            sync->update(*optimizer);
        }
        keep_parameters(rank, parameters, "value/", &Parameter::value);
    });
}

MeshOptions::Recompute recompute_of(const Spread& spread) {
    return spread.recompute   ? MeshOptions::Recompute::layers
           : spread.selective ? MeshOptions::Recompute::attention
                              : MeshOptions::Recompute::nothing;
}

/// Makes a strategy that has no number in MeshOptions::zero.
MakeSync other_sync(Sync way) {
    return [way](Device& device, Mesh& mesh,
                 Sequential& model) -> std::unique_ptr<GradientSync> {
        Communicator& replicas = mesh.plane(replica_axes(mesh.shape()));
        const std::vector<Parameter*> all = model.parameters();
        const BucketSizes sizes{2000, 2000};
        if (way == Sync::flat)
            return std::make_unique<FullySharded>(
                device, replicas, model, FullyShardedOptions{.shard_by = ShardBy::flat});
        if (way == Sync::power_sgd)
            return std::make_unique<PowerSgd>(device, replicas, all);
        return std::make_unique<BucketedDataParallel>(device, replicas, all,
                                                      BucketOptions{.sizes = sizes});
    };
}

MeshOptions options_of(const Spread& spread) {
    MeshOptions options;
    options.axes = {{"pp", spread.pp},
                    {"dp", spread.dp},
                    {"ep", spread.ep},
                    {"cp", spread.cp},
                    {"tp", spread.tp}};
    if (spread.turned) std::ranges::reverse(options.axes);
    options.schedule = spread.schedule;
    if (spread.schedule == "interleaved") options.chunks = 2;
    options.micro_batches = kMicroBatches;
    options.sequence = spread.sequence;
    options.context = spread.method;
    options.order = spread.order;
    if (spread.other_experts) options.expert_axes.emplace_back("tp");
    options.experts.share_columns = spread.share_columns;
    options.experts.drop_copies = spread.drop_copies;
    options.recompute = recompute_of(spread);
    options.scatter_messages = spread.scatter;
    if (spread.sync == Sync::zero1)
        options.zero = 1;
    else if (spread.sync == Sync::zero2)
        options.zero = 2;
    else if (spread.sync == Sync::by_rows)
        options.zero = 3;
    else if (spread.sync != Sync::all_reduce)
        options.sync = other_sync(spread.sync);
    if (spread.offload)
        options.offload = OffloadOptions{.least_bytes = 0, .last_stay = false};
    if (spread.flash)
        options.kit.core = [](Device& device, const AttentionSizes& sizes) {
            return std::make_unique<FlashAttention>(device, sizes);
        };
    return options;
}

/// Returns the micro-batches of a step for this replica.
std::vector<MicroBatch> own_batches(GptOnMesh& gpt, int step) {
    std::vector<MicroBatch> batches;
    batches.reserve(kMicroBatches);
    for (int i = 0; i < kMicroBatches; ++i) {
        const Sequences made = sequences(step, kMicroBatches * gpt.replica() + i,
                                         gpt.plan().micro_batches());
        batches.push_back(gpt.micro_batch(made.ids, made.next));
    }
    return batches;
}

/// Returns the parameters that have values between steps: `whole` or, if these have no
/// values, `shards`.
std::vector<Parameter*> holders(const std::vector<Parameter*>& whole,
                                const std::vector<Parameter*>& shards) {
    return whole.front()->value ? whole : shards;
}

Outcome train_spread(const Spread& spread) {
    const MeshPlan plan(sizes_of(spread), options_of(spread));
    sim::ClusterOptions options;
    options.ranks = plan.shape().ranks();
    options.check = sim::CheckLevel::full;
    return outcome_of(*sim::make_cluster(options), [&](Rank& rank) {
        GptOnMesh gpt(rank, plan, spread.dtype, 1);
        const auto updated = gpt.sync().shards();
        const auto optimizer = make_optimizer<Sgd>(updated, kSgd);
        for (int step = 0; step < spread.steps; ++step) {
            const auto batches = own_batches(gpt, step);
            const Tensor loss = gpt.gradients(batches);
            keep_step(rank, step, loss, updated);
            clip_gradients(rank.device(), rank.world(), updated, kMostNorm);
            gpt.update(*optimizer);
        }
        keep_parameters(rank, holders(gpt.parameters(), updated), "value/",
                        &Parameter::value);
    });
}

void check_as_alone(const Spread& spread) {
    CAPTURE(spread.text());
    check_alike(train_spread(spread), train_alone(spread));
}

/// In bf16, sums in different orders differ. So gradients and values are compared with
/// f64: the mesh's error may be four times one bf16 device's, and 4 % is always allowed.
void check_as_alone_in_bf16(Spread spread) {
    CAPTURE(spread.text());
    const NamedTensors exact = train_alone(spread).results;
    spread.dtype = DType::bf16;
    const NamedTensors one = train_alone(spread).results;
    const NamedTensors many = train_spread(spread).results;
    REQUIRE(many.size() == exact.size());
    for (const auto& [name, tensor] : exact) {
        CAPTURE(name);
        REQUIRE(many.contains(name));
        const bool is_loss = name.starts_with("loss/");
        if (is_loss || name.starts_with("norm/"))
            CHECK(std::abs(many.at(name).at(0) / one.at(name).at(0) - 1) <=
                  (is_loss ? 0x1p-8 : 0x1p-4));
        else
            CHECK(relative_difference(many.at(name), tensor) <=
                  4 * std::max(relative_difference(one.at(name), tensor), 0.01));
    }
}

constexpr auto kRing = ContextMethod::ring_attention;
constexpr auto kUlysses = ContextMethod::ulysses;
constexpr auto kZigzag = TokenOrder::zigzag;
constexpr auto kStriped = TokenOrder::striped;

}  // namespace

namespace {

/// Sets the other options by `index`, such that any two occur together on some mesh.
Spread on_mesh(const std::array<int, 4>& sizes, std::size_t index) {
    const auto one_of = [&](std::size_t every, auto... all) {
        const std::array list{all...};
        return list[index / every % list.size()];
    };
    Spread spread{sizes[0], sizes[1], sizes[2], sizes[3]};
    spread.schedule = spread.pp == 1
                          ? "gpipe"
                          : one_of(1, "1f1b", "zb-h1", "interleaved", "gpipe", "zb-v");
    spread.tied = one_of(2, true, false);
    spread.kv_heads = one_of(3, 0, 4);
    spread.method = one_of(1, kRing, kUlysses, ContextMethod::gather,
                           ContextMethod::ring_self_attention);
    if (spread.method == kUlysses && spread.cp * spread.tp > 4) spread.method = kRing;
    spread.order = one_of(1, kZigzag, TokenOrder::contiguous, kStriped);
    spread.sequence =
        std::int64_t{spread.cp} * spread.tp <= kLength && one_of(1, true, true, false);
    spread.sync = one_of(1, Sync::all_reduce, Sync::zero1, Sync::zero2, Sync::by_rows,
                         Sync::zero1, Sync::flat, Sync::all_reduce);
    spread.turned = one_of(4, false, true);
    spread.llama = one_of(5, false, true);
    // `llama` has one layer fewer. That is too few for two layers on each of four stages.
    if (spread.llama && spread.pp == 4) spread.schedule = "1f1b";
    return spread;
}

}  // namespace

TEST_CASE("A GPT on any mesh of up to 16 devices trains as on one", "[pipeline][mesh]") {
    const std::vector<std::array<int, 4>> meshes = all_meshes();
    CHECK(meshes.size() == 49);
    const std::size_t round = GENERATE(0, 1);
    for (std::size_t i = 0; i < meshes.size(); ++i)
        check_as_alone(on_mesh(meshes[i], 2 * i + round));
}

TEST_CASE("A GPT in bf16 with masters in f32 trains on meshes as on one device",
          "[pipeline][mesh]") {
    const std::vector<std::array<int, 4>> meshes = all_meshes();
    for (std::size_t i = 0; i < meshes.size(); ++i)
        check_as_alone_in_bf16(on_mesh(meshes[i], i));
}

TEST_CASE("Context and tensor parallelism nest in either order, with the same bits",
          "[pipeline][mesh]") {
    const Spread spread{1, 1, 2, 2, true, "gpipe", true, 4};
    const auto trained = [&](bool context_first) {
        sim::ClusterOptions options;
        options.ranks = spread.ranks();
        options.check = sim::CheckLevel::full;
        return outcome_of(*sim::make_cluster(options), [&](Rank& rank) {
            Device& device = rank.device();
            Mesh mesh(rank.world(), {{"cp", spread.cp}, {"tp", spread.tp}});
            SequenceParallel tp(device, mesh["tp"]);
            GptKit kit;
            const auto context = [&] {
                kit = context_parallel(kit, mesh["cp"], kRing, kZigzag);
            };
            if (context_first) context();
            kit = tensor_parallel(kit, tp);
            if (!context_first) context();
            const GptSizes sizes = sizes_of(spread);
            const auto gpt = make_gpt({device, DType::f64, 1, ""}, sizes, kit);
            declare_replicas_of(mesh, {"cp"}, *gpt);
            AllReduceSync sync(gpt->parameters());
            Sgd optimizer(gpt->parameters(), kSgd);
            const Sequences made = sequences(0, 0, 1);
            const MicroBatch mine{device.upload(dealt_rows(made.ids, kit.tokens)),
                                  device.upload(dealt_rows(made.next, kit.tokens)),
                                  1.0 / spread.cp};
            train_step(device, *gpt, kit.loss(sizes), {&mine, 1}, sync, optimizer);
            keep_parameters(rank, gpt->parameters(), "value/", &Parameter::value);
        });
    };
    CHECK(trained(false).results == trained(true).results);
}

TEST_CASE(
    "Rotary positions and recomputation work with every sharding of heads and tokens",
    "[pipeline][mesh]") {
    Spread spread;
    spread.llama = true;
    spread.kv_heads = 4;
    const auto [pp, cp, tp] =
        GENERATE(std::array{1, 1, 4}, std::array{1, 4, 1}, std::array{2, 1, 2},
                 std::array{1, 2, 2}, std::array{2, 2, 2});
    spread.pp = pp;
    spread.cp = cp;
    spread.tp = tp;
    spread.sequence = GENERATE(false, true);
    spread.recompute = GENERATE(false, true);
    spread.schedule = pp == 1 ? "gpipe" : spread.recompute ? "zb-h1" : "1f1b";
    spread.order = GENERATE(TokenOrder::contiguous, TokenOrder::zigzag);
    if (cp > 1) spread.method = GENERATE(from_range(all_context_methods()));
    check_as_alone(spread);
}

TEST_CASE("ZeRO's stages train a GPT spread along four axes as one device",
          "[pipeline][mesh][zero]") {
    Spread spread = GENERATE(
        Spread{2, 4, 1, 2, true, "1f1b", true, 4},
        Spread{2, 2, 2, 2, true, "zb-h1", true, 4},
        Spread{2, 3, 2, 1, true, "interleaved", true, 4, kRing, kZigzag},
        Spread{1, 4, 1, 4, true, "gpipe", true, 4}, Spread{1, 3, 1, 2, false, "gpipe"});
    spread.sync = GENERATE(Sync::zero2, Sync::by_rows, Sync::flat);
    spread.recompute = GENERATE(false, true);
    check_as_alone(spread);
}

TEST_CASE("Stages may recompute or offload activations and get the same bits",
          "[pipeline][mesh][activations]") {
    Spread spread = GENERATE(Spread{2, 1, 1, 1, false, "1f1b", true},
                             Spread{2, 1, 1, 1, false, "zb-h2"},
                             Spread{4, 1, 1, 2, true, "1f1b", false, 4},
                             Spread{2, 2, 2, 2, true, "zb-h1", true, 4, kRing, kZigzag},
                             Spread{2, 1, 2, 2, true, "interleaved", true, 4,
                                    ContextMethod::ring_self_attention, kStriped});
    if (spread.dp > 1) spread.sync = GENERATE(Sync::zero2, Sync::by_rows, Sync::flat);
    spread.llama = GENERATE(false, true);
    const auto kept = train_spread(spread).results;
    for (const auto& [recompute, selective, offload] :
         {std::array{true, false, false}, std::array{false, true, false},
          std::array{false, false, true}, std::array{true, true, true}}) {
        CAPTURE(spread.text(), spread.llama, recompute, selective, offload);
        Spread other = spread;
        other.recompute = recompute;
        other.selective = selective;
        other.offload = offload;
        CHECK(train_spread(other).results == kept);
    }
}

TEST_CASE("Messages that a tensor group scatters and gathers change no bit",
          "[pipeline][mesh]") {
    Spread spread = GENERATE(
        Spread{2, 1, 1, 2, false, "1f1b", true}, Spread{2, 1, 1, 2, false, "zb-v"},
        Spread{2, 1, 1, 2, false, "dualpipe"}, Spread{4, 1, 1, 2, false, "zb-h1"},
        Spread{2, 2, 2, 2, false, "interleaved", true, 4, kRing, kZigzag});
    const auto whole = train_spread(spread).results;
    spread.scatter = true;
    CHECK(train_spread(spread).results == whole);
}

TEST_CASE("A pipeline with PowerSGD trains as one device", "[pipeline][mesh]") {
    // Leaves out tensor parallelism and a tied table: they change PowerSGD's matrices.
    Spread spread;
    spread.sync = Sync::power_sgd;
    spread.pp = GENERATE(1, 2);
    spread.dp = 2;
    spread.cp = GENERATE(1, 2);
    spread.schedule = GENERATE("1f1b", "zb-h1", "interleaved");
    check_as_alone(spread);
}

TEST_CASE("FlashAttention works on a rank's own heads", "[pipeline][mesh]") {
    Spread spread;
    spread.flash = true;
    spread.tp = GENERATE(2, 4);
    spread.pp = GENERATE(1, 2);
    spread.sequence = GENERATE(false, true);
    spread.kv_heads = GENERATE(0, 4);
    spread.schedule = spread.pp == 1 ? "gpipe" : "1f1b";
    check_as_alone(spread);
}

namespace {

/// Returns a GPT with experts on a mesh of ep, tp and other axes.
Spread of_experts(int pp, int dp, int ep, int tp, bool sequence,
                  const std::string& schedule = "gpipe") {
    Spread spread{pp, dp, 1, tp, sequence, schedule};
    spread.ep = ep;
    spread.experts = 8;
    return spread;
}

}  // namespace

TEST_CASE("A GPT of experts spread over a mesh trains as on one device",
          "[pipeline][mesh][experts]") {
    Spread spread = GENERATE(of_experts(1, 1, 2, 1, false), of_experts(1, 2, 2, 1, false),
                             of_experts(2, 2, 2, 1, false, "zb-h1"),
                             of_experts(1, 1, 4, 2, false), of_experts(1, 1, 2, 2, true),
                             of_experts(2, 1, 2, 2, true, "interleaved"),
                             of_experts(2, 2, 1, 2, false, "1f1b"));
    spread.gate =
        GENERATE(Spread::Gate::plain, Spread::Gate::deepseek, Spread::Gate::gshard);
    spread.llama = spread.gate == Spread::Gate::deepseek;
    if (spread.tp > 1) {
        const auto [other, columns, drop] =
            GENERATE(std::array{true, true, true}, std::array{false, true, true},
                     std::array{false, true, false}, std::array{false, false, true},
                     std::array{false, false, false});
        spread.other_experts = other;
        spread.share_columns = columns;
        spread.drop_copies = drop;
    }
    check_as_alone(spread);
}

TEST_CASE("Experts on a mesh give one device's final weights",
          "[pipeline][mesh][experts][slow]") {
    Spread spread =
        GENERATE(of_experts(1, 1, 2, 2, false), of_experts(2, 1, 2, 2, true, "1f1b"),
                 of_experts(2, 2, 2, 1, false, "zb-h1"));
    spread.gate = spread.sequence ? Spread::Gate::gshard : Spread::Gate::deepseek;
    spread.other_experts = spread.sequence;
    spread.steps = 20;
    if (spread.dp > 1 || spread.other_experts) spread.sync = Sync::zero1;
    check_as_alone(spread);
}

TEST_CASE("Experts, tokens of other ranks and ZeRO train as one device",
          "[pipeline][mesh][experts]") {
    Spread spread = GENERATE(of_experts(1, 2, 2, 1, false), of_experts(1, 2, 2, 2, true),
                             of_experts(2, 2, 2, 1, false, "1f1b"));
    spread.cp = 2;
    spread.order = TokenOrder::zigzag;
    spread.sync = GENERATE(Sync::all_reduce, Sync::zero1);
    spread.recompute = spread.pp > 1;
    spread.tied = true;
    check_as_alone(spread);
}

TEST_CASE("A pipeline can run only forwards", "[pipeline][mesh]") {
    const std::string name = GENERATE("gpipe", "1f1b", "interleaved", "zb-h1", "hanayo",
                                      "zb-v", "chimera", "pipedream");
    const int chunks = name == "interleaved" ? 2 : 1;
    const PipelinePlan plan(make_schedule(name, {2, kMicroBatches, chunks}));
    const GptSizes sizes = sizes_of({});
    const auto batches = [](Device& device) {
        std::vector<MicroBatch> all;
        all.reserve(kMicroBatches);
        for (int i = 0; i < kMicroBatches; ++i)
            all.push_back(micro_batch(device, 0, i, kMicroBatches, 1));
        return all;
    };
    std::vector<HostTensor> one, many(kMicroBatches);
    sim::make_cluster(1)->run([&](Rank& rank) {
        const auto gpt = make_gpt({rank.device(), DType::f64, 1, ""}, sizes);
        for (const MicroBatch& batch : batches(rank.device()))
            one.push_back(rank.device().peek(gpt->infer(batch.input)));
    });
    sim::ClusterOptions options;
    options.ranks = 2;
    options.check = sim::CheckLevel::full;
    options.workers = 1;
    sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const Schedule& schedule = plan.schedule();
        const GptStage stage =
            make_gpt_stage({device, DType::f64, 1, ""}, sizes, schedule, rank.index(),
                           cut_gpt(sizes, schedule));
        Pipeline pipeline(device, rank.world(), plan, stage.modules(),
                          gpt_boundary(sizes, DType::f64));
        const std::vector<Tensor> results = pipeline.infer(batches(device));
        for (std::size_t i = 0; i < results.size(); ++i)
            if (results[i]) many[i] = device.peek(results[i]);
    });
    CHECK(one == many);
}

namespace {

/// On a mesh with all four axes, each rank reads micro-batch number(mesh). Returns the
/// diagnosis; empty if there is none.
std::string found_reading(const std::function<int(Mesh& mesh)>& number) {
    Spread spread{2, 2, 2, 2};
    const MeshPlan plan(sizes_of(spread), options_of(spread));
    sim::ClusterOptions options;
    options.ranks = 16;
    options.check = sim::CheckLevel::full;
    try {
        sim::make_cluster(options)->run([&](Rank& rank) {
            GptOnMesh gpt(rank, plan, DType::f32, 1);
            const Sequences made = sequences(0, number(gpt.mesh()), 16);
            const MicroBatch batch = gpt.micro_batch(made.ids, made.next);
            CHECK(batch.input.shape() == Shape{kLength / 2, kBatch});
            CHECK(batch.weight == 1.0 / 16);
        });
    } catch (const FaultError& fault) {
        CHECK(fault.diagnosis().fault == "F24");
        return fault.diagnosis().sentence;
    }
    return "";
}

}  // namespace

TEST_CASE("Ranks that shard one model read one replica's sequences",
          "[pipeline][mesh][errors]") {
    for (const char* axis : {"pp", "cp", "tp"}) {
        CAPTURE(axis);
        CHECK_THAT(found_reading([&](Mesh& mesh) { return mesh.coordinate(axis); }),
                   Catch::Matchers::ContainsSubstring(fmt::format(
                       "the ranks of {} must read the same ids of a micro-batch", axis)));
    }
    CHECK(found_reading([](Mesh& mesh) { return mesh.coordinate("dp"); }).empty());
}

TEST_CASE("A micro-batch has whole sequences of ids", "[pipeline][mesh][errors]") {
    const Spread spread{1, 1, 2, 1, false, "gpipe"};
    const MeshPlan plan(sizes_of(spread), options_of(spread));
    sim::make_cluster(2)->run([&](Rank& rank) {
        GptOnMesh gpt(rank, plan, DType::f32, 1);
        const HostTensor right({kLength, kBatch}, DType::i32);
        const HostTensor flat({kLength}, DType::i32);
        const HostTensor real({kLength, kBatch}, DType::f32);
        const HostTensor more({kLength, 2 * kBatch}, DType::i32);
        for (const HostTensor* wrong : {&flat, &real, &more}) {
            CHECK_THROWS_AS(gpt.micro_batch(*wrong, right), UsageError);
            CHECK_THROWS_AS(gpt.micro_batch(right, *wrong), UsageError);
        }
        CHECK_THROWS_AS(gpt.micro_batch(flat, flat), UsageError);
    });
}

}  // namespace lockstep::test
