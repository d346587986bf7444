#include <fmt/format.h>

#include "src/nn/attention.hpp"
#include "src/nn/embedding.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/plain_column_parallel_linear.hpp"
#include "src/parallel/row_parallel_linear.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/vocabulary_parallel.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/twin.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

// These sizes are divisible by 1, 2, 3, 4 and 8 ranks.
constexpr std::int64_t kLength = 24;
constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kHidden = 48;
constexpr std::int64_t kHeads = 24;
constexpr std::int64_t kInner = 72;
constexpr int kWays[] = {1, 2, 3, 4, 8};

struct Twin {
    std::string name;
    MakeAlone alone;
    MakeShared shared;
    Case inputs;
};

template <typename Layer, typename... Arguments>
MakeAlone alone(Arguments... arguments) {
    return [=](const ParameterInit& init) -> std::unique_ptr<Module> {
        return std::make_unique<Layer>(init.child("layer"), arguments...);
    };
}

Case of_shape(std::int64_t in, std::int64_t out, Deal x_dealt = Deal::whole,
              Deal y_dealt = Deal::whole) {
    return {{{"x", {normal_values({kLength, kBatch, in}, "x"), x_dealt}},
             {"dy", {normal_values({kLength, kBatch, out}, "dy"), y_dealt}}}};
}

Twin column_parallel(bool gather) {
    Twin twin;
    twin.name = gather ? "column-parallel linear, gathered" : "column-parallel linear";
    twin.alone = alone<Linear>(kHidden, kInner, true);
    twin.shared = [gather](const ParameterInit& init, TensorParallel& tp) {
        ColumnParallelOptions options;
        options.gather_output = gather;
        return std::make_unique<ColumnParallelLinear>(init.child("layer"), tp, kHidden,
                                                      kInner, options);
    };
    twin.inputs =
        of_shape(kHidden, kInner, Deal::whole, gather ? Deal::whole : Deal::columns);
    return twin;
}

Twin plain_column_parallel() {
    Twin twin = column_parallel(/*gather=*/false);
    twin.name = "column-parallel linear, plainly";
    twin.shared = [](const ParameterInit& init, TensorParallel& tp) {
        return std::make_unique<PlainColumnParallelLinear>(init.child("layer"), tp,
                                                           kHidden, kInner);
    };
    return twin;
}

Twin row_parallel() {
    Twin twin;
    twin.name = "row-parallel linear";
    twin.alone = alone<Linear>(kInner, kHidden, true);
    twin.shared = [](const ParameterInit& init, TensorParallel& tp) {
        return std::make_unique<RowParallelLinear>(init.child("layer"), tp, kInner,
                                                   kHidden);
    };
    twin.inputs = of_shape(kInner, kHidden, Deal::columns);
    return twin;
}

std::unique_ptr<Module> made_mlp(const ParameterInit& init, bool gelu,
                                 const GptKit& kit) {
    if (gelu) return make_mlp(init, kHidden, kInner, kit);
    return make_swiglu_mlp(init, kHidden, kInner, kit);
}

Twin mlp(MlpKind kind) {
    const bool gelu = kind == MlpKind::gelu;
    return {gelu ? "MLP" : "SwiGLU MLP",
            [gelu](const ParameterInit& init) { return made_mlp(init, gelu, {}); },
            [gelu](const ParameterInit& init, TensorParallel& tp) {
                return made_mlp(init, gelu, tensor_parallel({}, tp));
            },
            of_shape(kHidden, kHidden)};
}

Twin attention(bool causal) {
    return {causal ? "causal attention" : "attention",
            [causal](const ParameterInit& init) {
                return make_attention(init, kHidden, {kHeads, causal});
            },
            [causal](const ParameterInit& init, TensorParallel& tp) {
                return make_attention(init, kHidden, {kHeads, causal},
                                      tensor_parallel({}, tp));
            },
            of_shape(kHidden, kHidden)};
}

Twin block(NormKind norm, MlpKind kind) {
    const BlockSizes sizes{kHidden, kHeads, kInner, norm, kind, true};
    return {kind == MlpKind::gelu ? "block" : "block with RMSNorm and SwiGLU",
            [sizes](const ParameterInit& init) { return make_block(init, sizes); },
            [sizes](const ParameterInit& init, TensorParallel& tp) {
                return make_block(init, sizes, tensor_parallel({}, tp));
            },
            of_shape(kHidden, kHidden)};
}

Twin embedding(std::int64_t vocabulary) {
    return {fmt::format("embedding of {}", vocabulary),
            alone<Embedding>(vocabulary, kHidden),
            [vocabulary](const ParameterInit& init, TensorParallel& tp) {
                return std::make_unique<VocabularyParallelEmbedding>(
                    init.child("layer"), tp, vocabulary, kHidden);
            },
            {{{"x", {ids_below({kLength, kBatch}, vocabulary, "ids")}},
              {"dy", {normal_values({kLength, kBatch, kHidden}, "dy")}}}}};
}

std::vector<Twin> twins() {
    return {column_parallel(false),
            column_parallel(true),
            plain_column_parallel(),
            row_parallel(),
            mlp(MlpKind::gelu),
            mlp(MlpKind::swiglu),
            attention(true),
            attention(false),
            block(NormKind::layer_norm, MlpKind::gelu),
            block(NormKind::rms_norm, MlpKind::swiglu),
            embedding(48),
            embedding(29)};
}

/// Returns the twins; with sequence parallelism, shards whole inputs (not ids) by tokens.
std::vector<Twin> twins(Regions kind) {
    std::vector<Twin> all = twins();
    if (kind == Regions::replicated) return all;
    std::erase_if(all, [](const Twin& twin) {  // refused with sharded sequences
        return twin.name == "column-parallel linear, gathered" ||
               twin.name == "column-parallel linear, plainly";
    });
    for (Twin& twin : all)
        for (auto& [name, input] : twin.inputs.inputs)
            if (input.deal == Deal::whole && is_floating(input.whole.dtype()))
                input.deal = Deal::contiguous;
    return all;
}

}  // namespace

TEST_CASE("Every tensor-parallel layer equals its single-device twin",
          "[parallel][sim]") {
    const Regions kind = GENERATE(Regions::replicated, Regions::sequence_parallel);
    for (Twin& twin : twins(kind))
        for (const auto& [dtype, bound] :
             {std::pair{DType::f64, 1e-12}, {DType::f32, 1e-5}}) {
            twin.inputs.dtype = dtype;
            const Outcome one =
                outcome_of(*classroom(1), pass_alone(twin.alone), twin.inputs);
            for (const int ways : kWays) {
                CAPTURE(twin.name, ways, name_of(dtype), kind == Regions::replicated);
                check_alike(
                    outcome_of(*classroom(ways), pass_shared(regions(kind), twin.shared),
                               twin.inputs),
                    one, bound);
            }
        }
}

TEST_CASE("Backward in two halves gives the same bits as in one", "[parallel][sim]") {
    const Regions kind = GENERATE(Regions::replicated, Regions::sequence_parallel);
    for (Twin& twin : twins(kind)) {
        CAPTURE(twin.name);
        twin.inputs.dtype = DType::f32;
        const auto results = [&](Backward backward) {
            return outcome_of(*classroom(2),
                              pass_shared(regions(kind), twin.shared, backward),
                              twin.inputs)
                .results;
        };
        CHECK(results(Backward::halves) == results(Backward::whole));
    }
}

TEST_CASE("If the ranks do not divide the rows of stacked layers, each layer is padded",
          "[parallel][sim]") {
    constexpr std::int64_t kRowsOut = 10;
    const RunReport alone = classroom(1)->run([&](Rank& rank) {
        Linear layer({rank.device(), DType::f64, 7, "layer"}, 4, kRowsOut);
        keep_parameters(rank, layer.parameters(), "", &Parameter::value);
    });
    const RunReport report = classroom(3)->run([&](Rank& rank) {
        TensorParallel tp(rank.device(), rank.world());
        ColumnParallelOptions options;
        options.stacked = {5, 5};
        options.pad = true;
        ColumnParallelLinear layer({rank.device(), DType::f64, 7, "layer"}, tp, 4,
                                   kRowsOut, options);
        CHECK(layer.weight().shape() == Shape{4, 4});
        keep_parameters(rank, layer.parameters(), "", &Parameter::value);
    });
    CHECK(all_kept(report) == all_kept(alone));
}

namespace {

/// Returns the message that two ranks get.
std::string refused_by_two(Regions kind,
                           const std::function<void(Rank&, TensorParallel&)>& call) {
    return refusal([&] {
        classroom(2)->run([&](Rank& rank) {
            const auto tp = regions(kind)(rank.device(), rank.world());
            call(rank, *tp);
        });
    });
}

std::string refused_linear(Regions kind, std::int64_t out,
                           ColumnParallelOptions options) {
    return refused_by_two(kind, [&](Rank& rank, TensorParallel& tp) {
        ColumnParallelLinear({rank.device(), DType::f32, 1, "layer"}, tp, 4, out,
                             options);
    });
}

}  // namespace

TEST_CASE("A plain column-parallel layer refuses a part of the sequence",
          "[parallel][errors]") {
    CHECK_THAT(refused_by_two(Regions::sequence_parallel,
                              [](Rank& rank, TensorParallel& tp) {
                                  PlainColumnParallelLinear(
                                      {rank.device(), DType::f32, 1, "layer"}, tp, 4, 4);
                              }),
               says("layer.weight: each rank holds only a part of the sequence"));
}

TEST_CASE("Parameters that cannot be gathered are refused", "[parallel][errors]") {
    ColumnParallelOptions gather;
    gather.gather_output = true;
    CHECK_THAT(refused_linear(Regions::sequence_parallel, 4, gather),
               says("layer: gather_output gives every rank the whole sequence"));
    ColumnParallelOptions stacked = gather, padded = gather;
    stacked.stacked = {2, 2};
    padded.pad = true;
    for (const ColumnParallelOptions& options : {stacked, padded})
        CHECK_THAT(refused_linear(Regions::replicated, 4, options),
                   says("cannot be used with stacked layers or padding"));
}

TEST_CASE("Parallel layers refuse tensors that do not fit, by name",
          "[parallel][errors]") {
    CHECK_THAT(refused_linear(Regions::replicated, 5, {}),
               says("layer: 5 columns cannot be sharded over 2 ranks"));
    CHECK_THAT(refused_linear(Regions::replicated, 0, {}), says("from 4 to 0 columns"));
    CHECK_THAT(
        refused_by_two(Regions::replicated,
                       [](Rank& rank, TensorParallel& tp) {
                           RowParallelLinear layer(
                               {rank.device(), DType::f32, 1, "layer"}, tp, 8, 3);
                           Saved saved;
                           layer.forward(rank.device().zeros({5, 8}, DType::f32), saved);
                       }),
        says("layer.weight has shape (3, 4), so this rank's x must have 4 columns; got "
             "shape (5, 8)"));
    CHECK_THAT(
        refused_by_two(Regions::replicated,
                       [](Rank& rank, TensorParallel& tp) {
                           Device& device = rank.device();
                           vocabulary_parallel_cross_entropy(
                               tp, device.zeros({3, 4}, DType::f32),
                               device.zeros({3}, DType::i32), 10);
                       }),
        says("4 columns of logits on each of 2 ranks do not fit a vocabulary of 10; 5 "
             "are expected"));
}

}  // namespace lockstep::test
