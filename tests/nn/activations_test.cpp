// Activations may be recomputed, or kept on the host: the bits must stay the same. Also
// compares the bytes and flops of each way exactly with formulas.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/nn/dropout.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/offloaded_activations.hpp"
#include "src/nn/recompute.hpp"
#include "tests/nn/fixture.hpp"
#include "tests/nn/one_rank.hpp"

namespace lockstep::nn_test {

namespace {

/// The treatment of activations between forward and backward.
struct Held {
    std::string name;
    bool selective = false;
    bool full = false;
    std::optional<OffloadOptions> offload{};  ///< for the blocks, after recomputation
};

/// Wraps the modules as `held` says. The returned object must live as long as the model.
std::unique_ptr<OffloadedActivations> hold_by(const Held& held, Device& device,
                                              Sequential& model, std::size_t first,
                                              std::size_t last) {
    if (held.full) recompute_modules(model, first, last);
    if (!held.offload) return nullptr;
    return std::make_unique<OffloadedActivations>(device, model, first, last,
                                                  *held.offload);
}

GptKit kit_of(const Held& held, const GptKit& kit = {}) {
    return held.selective ? selective_recompute(kit) : kit;
}

/// Options that offload small tensors, too.
OffloadOptions all_of_it(int prefetch, bool last_stay = true) {
    return {.prefetch = prefetch, .least_bytes = 0, .last_stay = last_stay};
}

const std::vector<Held>& ways() {
    static const std::vector<Held> all = {
        {.name = "full", .full = true},
        {.name = "selective", .selective = true},
        {.name = "selective and full", .selective = true, .full = true},
        {.name = "offloaded", .offload = all_of_it(1)},
        {.name = "offloaded, not prefetched", .offload = all_of_it(0)},
        {.name = "offloaded, 2 ahead", .offload = all_of_it(2)},
        {.name = "offloaded, the last, too", .offload = all_of_it(1, false)},
        {.name = "offloaded, large tensors", .offload = OffloadOptions{}},
        {.name = "full and offloaded", .full = true, .offload = all_of_it(1)},
        {.name = "selective and offloaded", .selective = true, .offload = all_of_it(1)},
    };
    return all;
}

constexpr std::int64_t kLength = 6, kBatch = 2, kVocabulary = 11;

enum class Form { gpt2, uncausal, llama };

GptSizes sizes_of(Form kind) {
    GptSizes sizes{kVocabulary, kLength, /*layers=*/4, {8, 4}};
    sizes.block.causal = kind != Form::uncausal;
    if (kind != Form::llama) return sizes;
    sizes.block.kv_heads = 2;
    sizes.block.inner = 12;
    sizes.block.norm = NormKind::rms_norm;
    sizes.block.mlp = MlpKind::swiglu;
    sizes.block.rotary_base = 10000;
    sizes.block.bias = false;
    return sizes;
}

/// A kit whose narrow layers have dropout. Before each forward the caller chooses the
/// random numbers.
GptKit with_dropout(std::vector<Dropout*>& made) {
    GptKit kit;
    kit.narrow = [&made, narrow = kit.narrow](const ParameterInit& init,
                                              const LinearSizes& sizes) {
        auto layers = std::make_unique<Sequential>();
        layers->add(narrow(init, sizes));
        made.push_back(
            &layers->add<Dropout>(init.device, 0.25, RandomStream(3, init.name)));
        return layers;
    };
    return kit;
}

struct Training {
    Form kind = Form::gpt2;
    DType dtype = DType::f64;
    bool dropout = false;
    bool halves = false;  ///< each backward in two halves
};

/// Returns gradients and outputs of three micro-batches, with two in flight at a time.
std::map<std::string, HostTensor> trained(const Training& training, const Held& held) {
    const RunReport report = run_one(
        [&](Rank& rank) {
            Device& device = rank.device();
            std::vector<Dropout*> dropouts;
            const GptSizes sizes = sizes_of(training.kind);
            const GptKit kit =
                kit_of(held, training.dropout ? with_dropout(dropouts) : GptKit{});
            const auto gpt = make_gpt({device, training.dtype, 7, ""}, sizes, kit);
            const auto first = static_cast<std::size_t>(sizes.first_block());
            const auto keeper = hold_by(held, device, *gpt, first, first + 4);
            constexpr int kMicroBatches = 3;
            zero_gradients(*gpt, kMicroBatches);
            std::vector<Saved> saved(kMicroBatches);
            const auto forward = [&](int i) {
                std::int64_t number = std::int64_t{1000} * i;
                for (Dropout* dropout : dropouts)
                    dropout->set_part(number += 100);
                const std::string name = std::to_string(i);
                const Tensor ids =
                    device.upload(ids_below({kLength, kBatch}, kVocabulary, name));
                rank.keep("y of " + name, gpt->forward(ids, saved[i]));
            };
            const auto backward = [&](int i) {
                const Tensor dy = device.upload(normal_values(
                    {kLength, kBatch, kVocabulary}, std::to_string(i), training.dtype));
                if (!training.halves) {
                    gpt->backward(dy, saved[i]);
                    return;
                }
                gpt->backward_input(dy, saved[i]);
                gpt->backward_weight(saved[i]);
            };
            forward(0);
            for (int i = 0; i < kMicroBatches; ++i) {
                if (i + 1 < kMicroBatches) forward(i + 1);
                backward(i);
            }
            for (const Parameter* parameter : gpt->parameters())
                rank.keep(parameter->name(), parameter->gradient);
        },
        /*numbers=*/true);
    for (const std::int64_t bytes : report.ranks[0].host.memory.current)
        CHECK(bytes == 0);
    return report.ranks[0].kept;
}

}  // namespace

TEST_CASE("Recomputed or offloaded activations give the same bits",
          "[nn][sim][activations]") {
    for (const Form kind : {Form::gpt2, Form::uncausal, Form::llama})
        for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
            for (const bool dropout : {false, true})
                for (const bool halves : {false, true}) {
                    const Training training{kind, dtype, dropout, halves};
                    const auto kept = trained(training, {.name = "kept"});
                    REQUIRE(kept.size() > 20);
                    for (const Held& way : ways()) {
                        CAPTURE(static_cast<int>(kind), name_of(dtype), dropout, halves,
                                way.name);
                        CHECK(trained(training, way) == kept);
                    }
                }
}

TEST_CASE("A recomputed forward begins at the first one's position",
          "[nn][sim][activations]") {
    OneDevice one;
    AttentionSizes sizes{2, true};
    sizes.rotary_base = 100;
    GptKit kit;
    kit.places = std::make_shared<RowPlaces>();
    const auto from = [&](int first) {
        HostTensor places({4, 2}, DType::i32);
        for (int row = 0; row < 8; ++row) {
            const int position = first + row / 2;
            places.set(row, position);
        }
        return one.device.upload(places);
    };
    const auto dx_of = [&](bool recomputed) {
        *kit.places = from(3);
        Sequential model;
        const ParameterInit init = one.init("model");
        model.add(kit.positions(init.child("wpe"), {5, 12, 1, {8, 2}}, kit));
        model.add(make_attention(init.child("attn"), 8, sizes, kit));
        if (recomputed) recompute_modules(model, 0, model.size());
        zero_gradients(model);
        Saved saved;
        const Tensor y =
            model.forward(one.device.upload(normal_values({4, 2, 8}, "x")), saved);
        *kit.places = from(7);
        std::vector<HostTensor> found{one.device.download(model.backward(y, saved))};
        for (const Parameter* parameter : model.parameters())
            found.push_back(one.device.download(parameter->gradient));
        return found;
    };
    CHECK(dx_of(true) == dx_of(false));
}

TEST_CASE("Recomputation refuses modules and attention that do not exist",
          "[nn][errors][activations]") {
    OneDevice one;
    Sequential model;
    model.add<Linear>(one.init("layer"), 3, 3);
    CHECK_THAT(refusal([&] { recompute_modules(model, 0, 2); }),
               says("cannot recompute modules 0 to 2 of a Sequential of 1"));
    GptKit dealt;
    dealt.tokens = {TokenOrder::contiguous, 2, 0};
    CHECK_THAT(refusal([&] { selective_recompute(dealt); }),
               says("sharded over 2 ranks, but its attention does not see the other "
                    "ranks' tokens"));
}

namespace {

/// Sizes that all differ, so that no two terms are equal by chance.
constexpr std::int64_t kS = 24, kB = 3, kH = 40, kA = 5;
constexpr std::int64_t kScores = kB * kA * kS * kS;

BlockSizes block_of(Form kind) {
    BlockSizes block = sizes_of(kind).block;
    block.hidden = kH;
    block.heads = kA;
    block.inner = 0;
    if (block.kv_heads != 0) block.kv_heads = 1;
    return block;
}

/// The numbers that a block keeps, by the part of backward that reads them.
struct Kept {
    std::int64_t norms = 0;       ///< inputs of both norms
    std::int64_t statistics = 0;  ///< of both norms' rows
    std::int64_t queries_keys_values = 0;
    std::int64_t weights = 0;  ///< of attention
    std::int64_t inputs = 0;   ///< of the four linear layers
    std::int64_t activation = 0;

    std::int64_t bytes(DType dtype) const {
        return (norms + queries_keys_values + weights + inputs + activation) *
                   bytes_of(dtype) +
               statistics * bytes_of(computed_in(dtype));
    }
};

Kept kept_by(const BlockSizes& block) {
    const bool gated = block.mlp == MlpKind::swiglu;
    const std::int64_t keys = kH / kA * block.attention().key_heads();
    const std::int64_t inner = block.inner_columns();
    Kept kept;
    kept.norms = 2 * kS * kB * kH;
    kept.statistics = 2 * kS * kB * (block.norm == NormKind::layer_norm ? 2 : 1);
    kept.queries_keys_values = kS * kB * (kH + 2 * keys);
    kept.weights = kScores;
    kept.inputs = kS * kB * (kH + kH + kH + inner);
    kept.activation = kS * kB * inner * (gated ? 2 : 1);
    return kept;
}

/// Blocks for one pass that computes only shapes. Without `backward`, only forward runs.
struct Stack {
    Form kind = Form::gpt2;
    DType dtype = DType::bf16;
    std::int64_t blocks = 1;
    bool backward = true;
};

std::int64_t activations_held(const Device& device) {
    std::int64_t bytes = 0;
    for (const Storage* storage = device.live(); storage; storage = storage->next)
        if (storage->category == MemoryCategory::activations) bytes += storage->bytes;
    return bytes;
}

struct Passed {
    std::int64_t held = 0;  ///< between forward and backward
    RankReport rank;
};

Passed pass(const Stack& stack, const Held& held) {
    Passed passed;
    GptSizes sizes{kVocabulary, kS, stack.blocks, block_of(stack.kind)};
    passed.rank = figures_of([&](Rank& rank) {
        Device& device = rank.device();
        const int first = sizes.first_block();
        const int last = first + static_cast<int>(stack.blocks);
        const auto blocks = make_gpt_layers({device, stack.dtype, 7, ""}, sizes, first,
                                            last, kit_of(held));
        const auto keeper = hold_by(held, device, *blocks, 0, blocks->size());
        Saved saved;
        const Tensor y = blocks->forward(device.empty({kS, kB, kH}, stack.dtype), saved);
        passed.held = activations_held(device) - y.bytes();
        if (stack.backward) blocks->backward(y, saved);
    });
    return passed;
}

const Held kAll{.name = "all"};
const Held kFull{.name = "full", .full = true};
const Held kSelective{.name = "selective", .selective = true};

}  // namespace

TEST_CASE("A block keeps the paper's bytes, without dropout's, and its statistics",
          "[nn][sim][activations]") {
    // Korthikanti et al. 2022, 2205.05198, section 4: s b h (34 + 5 a s/h) bytes in 16
    // bits. Our block has no dropout. The paper leaves out the statistics.
    constexpr std::int64_t kSbh = kS * kB * kH;
    constexpr std::int64_t kPaper = 34 * kSbh + 5 * kScores;
    // One mask at the end of attention and one at the end of the MLP, a byte an element.
    constexpr std::int64_t kMasks = 2 * kSbh;
    // The mask on the softmax's results, and the results after the mask, in 16 bits.
    constexpr std::int64_t kOfSoftmax = (1 + 2) * kScores;
    // Two norms keep the mean and 1/deviation of each token, in f32.
    constexpr std::int64_t kStatistics = std::int64_t{2} * 2 * kS * kB * 4;
    constexpr std::int64_t kOurs = kPaper - kMasks - kOfSoftmax + kStatistics;
    CHECK(kept_by(block_of(Form::gpt2)).bytes(DType::bf16) == kOurs);
    CHECK(pass({}, kAll).held == kOurs);
    // Section 5: selective recomputation removes the whole term 5 a s/h. Our block has
    // only 2 of the 5.
    CHECK(pass({}, kSelective).held == kPaper - 5 * kScores - kMasks + kStatistics);
    // Full recomputation keeps only the input, 2 s b h.
    CHECK(pass({}, kFull).held == 2 * kSbh);
}

TEST_CASE("Blocks keep the formula's terms, in any type and form",
          "[nn][sim][activations]") {
    for (const Form kind : {Form::gpt2, Form::uncausal, Form::llama})
        for (const DType dtype : {DType::bf16, DType::f32, DType::f64})
            for (const std::int64_t blocks : {1, 3}) {
                CAPTURE(static_cast<int>(kind), name_of(dtype), blocks);
                const Stack stack{kind, dtype, blocks};
                const std::int64_t e = bytes_of(dtype);
                const std::int64_t all = kept_by(block_of(kind)).bytes(dtype);
                CHECK(pass(stack, kAll).held == blocks * all);
                CHECK(pass(stack, kSelective).held == blocks * (all - kScores * e));
                CHECK(pass(stack, kFull).held == blocks * kS * kB * kH * e);
            }
}

TEST_CASE("The peak grows by what a block keeps", "[nn][sim][activations]") {
    const Form kind = GENERATE(Form::gpt2, Form::llama);
    const DType dtype = DType::f32;
    const std::int64_t x = kS * kB * kH * bytes_of(dtype);
    const std::int64_t all = kept_by(block_of(kind)).bytes(dtype);
    const auto peak = [&](const Held& held, std::int64_t blocks) {
        return peak_of(pass({kind, dtype, blocks}, held).rank.memory);
    };
    const std::int64_t one = peak(kAll, 1);
    for (const std::int64_t blocks : {2, 3, 7}) {
        CAPTURE(blocks);
        CHECK(peak(kAll, blocks) == one + (blocks - 1) * all);
        CHECK(peak(kSelective, blocks) ==
              peak(kSelective, 1) + (blocks - 1) * (all - kScores * bytes_of(dtype)));
        // A block keeps everything while it is recomputed.
        CHECK(peak(kFull, blocks) == one + (blocks - 1) * x);
    }
}

TEST_CASE(
    "Offloaded blocks hold two blocks' activations on the device, the others on the host",
    "[nn][sim][activations]") {
    const Form kind = GENERATE(Form::gpt2, Form::llama);
    const DType dtype = DType::f32;
    const std::int64_t x = kS * kB * kH * bytes_of(dtype);
    const std::int64_t all = kept_by(block_of(kind)).bytes(dtype);
    const auto at = [&](const Held& held, std::int64_t blocks) {
        return pass({kind, dtype, blocks}, held).rank;
    };
    for (const int ahead : {0, 1, 2}) {
        const Held offloaded{.name = "offloaded", .offload = all_of_it(ahead)};
        const std::int64_t window = 1 + ahead;
        // The caller holds the gradient of the last block's output until the end. If
        // there are more blocks, one more gradient exists.
        const std::int64_t peak = peak_of(at(kAll, window).memory) + x;
        for (const std::int64_t blocks : {5, 6, 9}) {
            CAPTURE(ahead, blocks);
            const RankReport rank = at(offloaded, blocks);
            CHECK(peak_of(rank.memory) == peak);
            CHECK(peak_of(rank.host.memory) == (blocks - window) * all);
            CHECK(rank.host.memory.peak == (blocks - window) * all);
            CHECK(rank.host.bytes_to_host == (blocks - window) * all);
            CHECK(rank.host.bytes_to_device == (blocks - window) * all);
        }
    }
    // If blocks are recomputed, only their inputs are offloaded.
    const Held inputs{.name = "inputs", .full = true, .offload = all_of_it(1)};
    for (const std::int64_t blocks : {5, 9}) {
        const RankReport rank = at(inputs, blocks);
        CHECK(peak_of(rank.host.memory) == (blocks - 2) * x);
        CHECK(peak_of(rank.memory) == peak_of(at(kAll, 1).memory) + 2 * x);
    }
}

TEST_CASE(
    "Full recomputation costs one more forward, selective recomputation only the core's",
    "[nn][sim][activations]") {
    const Form kind = GENERATE(Form::gpt2, Form::llama);
    const auto flops = [&](const Held& held, bool backward) {
        return pass({kind, DType::f32, 3, backward}, held).rank.flops;
    };
    const std::int64_t step = flops(kAll, true);
    CHECK(flops(kFull, true) == step + flops(kAll, false));
    // The flops of Q K^T, P V and the softmax. Recomputation does not change forward's.
    const std::int64_t core =
        4 * kB * kS * kS * kH + ops::Softmax::kFlopsOfElement * kScores;
    CHECK(flops(kSelective, true) == step + 3 * core);
    CHECK(flops(kSelective, false) == flops(kAll, false));
}

TEST_CASE("Recomputed linear layers cost four thirds", "[nn][sim][activations]") {
    const auto flops = [&](bool recomputed) {
        return figures_of([&](Rank& rank) {
                   const ParameterInit init{rank.device(), DType::f32, 1, "layer"};
                   Sequential model;
                   for (int i = 0; i < 3; ++i)
                       model.add<Linear>(init, kH, kH, /*bias=*/false);
                   if (recomputed) recompute_modules(model, 0, model.size());
                   Saved saved;
                   const Tensor x = rank.device().empty({kS, kH}, DType::f32);
                   model.backward(model.forward(x, saved), saved);
               })
            .flops;
    };
    CHECK(flops(false) == std::int64_t{3} * 3 * 2 * kS * kH * kH);
    CHECK(3 * flops(true) == 4 * flops(false));
}

}  // namespace lockstep::nn_test
