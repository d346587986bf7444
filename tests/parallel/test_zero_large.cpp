// GPT-3 on devices that compute only shapes, fully sharded between nodes and tensor
// parallel inside nodes. Checks what each device holds and sends, to the byte.

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/cluster.hpp"
#include "src/comm/mesh.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/recompute.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kVocabulary = 50'257;
constexpr std::int64_t kLength = 2048;  // s; one sequence on each replica
constexpr std::int64_t kHidden = 12'288;
constexpr std::int64_t kHeads = 96;
constexpr std::int64_t kBf16 = 2;  // bytes

/// `tp` ranks of a node split each layer. `dp` nodes are replicas, and shard state.
struct Layout {
    std::int64_t layers = 1;
    std::int64_t tp = 1;
    std::int64_t dp = 1;
    bool recompute = true;
};

/// GPT-3's sizes (Brown et al. 2020, 2005.14165, table 2.1), except the number of layers.
GptSizes gpt_3(std::int64_t layers) {
    GptSizes sizes;
    sizes.vocabulary = kVocabulary;
    sizes.context = kLength;
    sizes.layers = layers;
    sizes.block.hidden = kHidden;
    sizes.block.heads = kHeads;
    return sizes;
}

/// Makes the model and takes one step of AdamW in bf16 with masters.
RunReport step_of(const Layout& layout) {
    sim::ClusterOptions options;
    options.ranks = static_cast<int>(layout.tp * layout.dp);
    options.workers = 1;
    options.numbers = false;
    options.spec = load_cluster("h100-data-sheet");
    options.spec.devices_per_node = static_cast<int>(layout.tp);
    return sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), {{"dp", static_cast<int>(layout.dp)},
                                       {"tp", static_cast<int>(layout.tp)}});
        TensorParallel tp(device, mesh["tp"]);
        const GptSizes sizes = gpt_3(layout.layers);
        const GptKit kit = tensor_parallel({}, tp);
        ParameterInit init{device, DType::bf16, 1, ""};
        init.allocate = false;
        const auto gpt = make_gpt(init, sizes, kit);
        if (layout.recompute) recompute_blocks(*gpt, sizes);
        declare_replicas_of(mesh["dp"], *gpt);
        FullySharded sync(device, mesh["dp"], *gpt);
        const auto optimizer = make_optimizer<AdamW>(sync.shards(), AdamWOptions{});
        const Tensor ids = device.empty({kLength, 1}, DType::i32);
        const MicroBatch batch{ids, ids, 1.0 / static_cast<double>(layout.dp)};
        train_step(device, *gpt, kit.loss(sizes), {&batch, 1}, sync, *optimizer);
    });
}

/// The number of elements in each unit of one tensor-parallel rank. Each parameter's rows
/// are padded to a multiple of n.
struct Units {
    std::int64_t table;  ///< the head has the same number
    std::int64_t positions;
    std::int64_t block;
    std::int64_t last_norm;

    std::int64_t all(std::int64_t layers) const {
        return 2 * table + positions + layers * block + last_norm;
    }
};

std::int64_t rounded_up(std::int64_t number, std::int64_t multiple) {
    return (number + multiple - 1) / multiple * multiple;
}

Units units_of(const Layout& layout) {
    const std::int64_t t = layout.tp, h = kHidden;
    const auto padded = [&](std::int64_t rows, std::int64_t columns) {
        return rounded_up(rows, layout.dp) * columns;
    };
    const std::int64_t norm = 2 * padded(h, 1);
    const std::int64_t attention =
        padded(3 * h / t, h) + padded(3 * h / t, 1) + padded(h, h / t) + padded(h, 1);
    const std::int64_t mlp =
        padded(4 * h / t, h) + padded(4 * h / t, 1) + padded(h, 4 * h / t) + padded(h, 1);
    return {padded(rounded_up(kVocabulary, t) / t, h), padded(kLength, h),
            2 * norm + attention + mlp, norm};
}

/// The peak bytes of activations. The peak is in the backward of the last block's
/// attention core. A = 2 s b h are the bytes of a tensor between blocks, W = 2 a s^2 b /
/// t those of attention's weights.
std::int64_t activations(const Layout& layout) {
    const std::int64_t t = layout.tp;
    const std::int64_t a = kBf16 * kLength * kHidden;
    const std::int64_t weights = kBf16 * kHeads * kLength * kLength / t;
    const std::int64_t statistics = 8 * kLength;  // of a norm, f32
    // A block keeps its input; both norms' outputs and the second norm's input; queries,
    // keys and values; the core's output; and both tensors inside the MLP.
    const std::int64_t input = a;
    const std::int64_t rest = 3 * a + (3 + 1 + 4 + 4) * a / t + weights + 2 * statistics;
    // The last block has already released what its second half kept.
    const std::int64_t kept = a + 3 * a / t + weights + statistics;
    // Gradients of: the outputs of the block and of attention; the output and inputs of
    // the core; the core's weights, after and before the softmax.
    const std::int64_t gradients = 2 * a + (1 + 3) * a / t + 2 * weights;
    const std::int64_t logits = kBf16 * kLength * rounded_up(kVocabulary, t) / t;
    const std::int64_t ids = 4 * kLength, loss = 4;
    const std::int64_t others = layout.recompute ? 0 : (layout.layers - 1) * rest;
    return layout.layers * input + others + kept + gradients + logits + ids + loss;
}

void check_memory(const Layout& layout, const RunReport& report) {
    const Units units = units_of(layout);
    const std::int64_t share = units.all(layout.layers) / layout.dp;
    // One node holds the model, the vocabulary's padding, and, on each of its other
    // ranks, copies of what is not sharded (biases added after g, norms, positions).
    const Units bare = units_of({layout.layers, layout.tp, 1});
    const std::int64_t replicated = (6 * layout.layers + 2 + kLength) * kHidden;
    const std::int64_t padding = 2 * (layout.tp * bare.table - kVocabulary * kHidden);
    REQUIRE(layout.tp * bare.all(layout.layers) ==
            gpt_3(layout.layers).parameters() + (layout.tp - 1) * replicated + padding);

    // One unit computes while the next unit is gathered. One unit's gradients are
    // reduced.
    const std::int64_t open = 2 * units.block;
    for (const RankReport& rank : report.ranks) {
        REQUIRE(rank.memory.peak_of(MemoryCategory::parameters) ==
                kBf16 * (share + open));
        REQUIRE(rank.memory.peak_of(MemoryCategory::gradients) == kBf16 * (share + open));
        REQUIRE(rank.memory.peak_of(MemoryCategory::optimizer) == 12 * share);
        REQUIRE(rank.memory.peak_of(MemoryCategory::activations) == activations(layout));
        REQUIRE(rank.memory.peak_of(MemoryCategory::communication) == 0);
        REQUIRE(rank.memory.peak_of(MemoryCategory::workspace) ==
                4 * kLength);  // positions of tokens
    }
}

/// Bytes sent, by line, by verb, and by whether they left the node.
using Sent = std::map<std::tuple<std::string, std::string, bool>, std::int64_t>;

Sent sent_by(const RankReport& rank) {
    Sent sent;
    for (const Traffic& traffic : rank.traffic)
        if (traffic.bytes_sent > 0)
            sent[{traffic.group, traffic.verb, traffic.between_nodes}] +=
                traffic.bytes_sent;
    return sent;
}

void check_bytes(const Layout& layout, const RunReport& report) {
    const Units units = units_of(layout);
    const std::int64_t t = layout.tp, n = layout.dp;
    // All units are gathered twice and reduced once: 3 (n-1)/n S. The head is gathered
    // only once.
    const std::int64_t all = kBf16 * units.all(layout.layers) / n * (n - 1);
    const std::int64_t head = kBf16 * units.table / n * (n - 1);
    // Both halves of a block have f and g (g twice with recomputation), the table has g,
    // and the head has f. The loss needs six f32 numbers a token.
    const std::int64_t whole = kBf16 * kLength * kHidden;
    const std::int64_t reductions = (layout.recompute ? 6 : 4) * layout.layers + 2;
    const std::int64_t tensors = reductions * 2 * (t - 1) * whole / t;
    const std::int64_t loss = 6 * kLength * (t - 1) / t * 4;
    const Sent expected{{{"dp", "all_gather", true}, 2 * all - head},
                        {{"dp", "reduce_scatter", true}, all},
                        {{"tp", "all_reduce", false}, tensors + loss}};
    for (const RankReport& rank : report.ranks)
        REQUIRE(sent_by(rank) == expected);
}

/// The line between nodes must be busy at least for the time of its bytes. Each device
/// must be busy for the time of its computation.
void check_time(const Layout& layout, const RunReport& report) {
    const ClusterSpec spec = load_cluster("h100-data-sheet");
    const Units units = units_of(layout);
    const std::int64_t sent = kBf16 * (3 * units.all(layout.layers) - units.table) /
                              layout.dp * (layout.dp - 1);
    const Picoseconds least =
        picoseconds(static_cast<double>(sent) / spec.between.bytes_per_second);
    for (const RankReport& rank : report.ranks)
        REQUIRE(report.makespan() >= std::max(least, rank.time.compute));
}

void check_step(const Layout& layout) {
    CAPTURE(layout.layers, layout.tp, layout.dp, layout.recompute);
    const RunReport report = step_of(layout);
    check_memory(layout, report);
    check_bytes(layout, report);
    check_time(layout, report);
}

}  // namespace

TEST_CASE(
    "Layers of GPT-3, sharded between and inside nodes, hold and send the formulas' "
    "bytes",
    "[parallel][zero][costs]") {
    for (const bool recompute : {true, false}) {
        check_step({3, 8, 16, recompute});
        check_step({2, 4, 5, recompute});  // all parameters are padded
    }
}

TEST_CASE("GPT-3 on 1,024 devices holds and sends the formulas' bytes", "[.large]") {
    check_step({96, 8, 128});
}

}  // namespace lockstep::test
