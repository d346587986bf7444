// Tensor and sequence parallelism from src/parallel, without a mistake. The checker must
// find nothing.

#include <cmath>

#include "src/comm/mesh.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/norm.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/row_parallel_linear.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/vocabulary_parallel.hpp"
#include "tests/catch.hpp"
#include "tests/faults/correct.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kLength = 8;
constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kVocabulary = 13;  // no number of ranks divides it

struct Style {
    bool by_sequence = false;
    bool adamw = false;
    MlpKind mlp = MlpKind::gelu;
    int micro_batches = 1;

    NormKind norm() const {
        return mlp == MlpKind::gelu ? NormKind::layer_norm : NormKind::rms_norm;
    }
};

std::unique_ptr<TensorParallel> make_regions(Device& device, Communicator& group,
                                             bool by_sequence) {
    if (by_sequence) return std::make_unique<SequenceParallel>(device, group);
    return std::make_unique<TensorParallel>(device, group);
}

std::unique_ptr<Sequential> make_small_gpt(Device& device, TensorParallel& tp,
                                           const Style& style) {
    GptSizes sizes{kVocabulary, kLength, 2, {8, 4, 16, style.norm(), style.mlp, true}};
    return make_gpt({device, DType::f64, 7, ""}, sizes, tensor_parallel({}, tp));
}

std::unique_ptr<Optimizer> make_optimizer(Module& model, bool adamw) {
    if (adamw) return std::make_unique<AdamW>(model.parameters());
    return std::make_unique<Sgd>(model.parameters(), SgdOptions{0.1, 0.9, 0});
}

/// Returns tokens (s, b). The same `number` gives the same tokens.
Tensor tokens(Device& device, int number, const char* name) {
    HostTensor ids({kLength, kBatch}, DType::i32);
    const RandomStream stream(5, name);
    for (std::int64_t i = 0; i < ids.elements(); ++i)
        ids.set(i, std::floor(stream.uniform(static_cast<std::uint64_t>(
                                  number * ids.elements() + i)) *
                              static_cast<double>(kVocabulary)));
    return device.upload(ids);
}

/// Runs forward and backward of micro-batch `number`. Returns its part of the loss.
Tensor train(TensorParallel& tp, Module& model, int number, int index, double weight) {
    Device& device = tp.device();
    Saved saved;
    LossResult loss;
    {
        const PhaseScope phase(device, Phase::forward, index);
        const Tensor logits = model.forward(tokens(device, number, "x"), saved);
        loss = vocabulary_parallel_cross_entropy(tp, logits, tokens(device, number, "y"),
                                                 kVocabulary, weight);
    }
    const PhaseScope phase(device, Phase::backward, index);
    model.backward(loss.gradient, saved);
    return loss.loss;
}

/// Two steps. In each step, each of the `replicas` trains on its own micro-batches.
void train_gpt(Rank& rank, Communicator& group, Communicator* replicas,
               const Style& style) {
    Device& device = rank.device();
    const auto tp = make_regions(device, group, style.by_sequence);
    const auto gpt = make_small_gpt(device, *tp, style);
    const auto optimizer = make_optimizer(*gpt, style.adamw);
    const int d = replicas != nullptr ? replicas->size() : 1;
    const int place = replicas != nullptr ? replicas->rank() : 0;
    const int m = style.micro_batches;
    for (int i = 0; i < 2; ++i) {
        zero_gradients(*gpt);
        for (int index = 0; index < m; ++index) {
            const Tensor loss =
                train(*tp, *gpt, (i * d + place) * m + index, index, 1.0 / (m * d));
            if (replicas != nullptr) replicas->all_reduce(loss).wait();
        }
        complete_gradients(gpt->parameters());
        if (replicas != nullptr)
            for (Parameter* parameter : gpt->parameters())
                replicas->all_reduce(parameter->gradient).wait();
        step(device, *optimizer);
    }
}

std::vector<Style> styles() {
    std::vector<Style> all;
    for (const bool by_sequence : {false, true})
        for (const MlpKind mlp : {MlpKind::gelu, MlpKind::swiglu})
            // So each kind of region is trained with both optimizers.
            all.push_back({by_sequence, by_sequence == (mlp == MlpKind::gelu), mlp, 1});
    return all;
}

}  // namespace

TEST_CASE("correct: a GPT in tensor-parallel and sequence-parallel regions", "[faults]") {
    for (const int ranks : {1, 2, 4})
        for (Style style : styles())
            for (const bool other : {false, true}) {
                style.adamw = style.adamw != other;
                must_stay_silent(ranks, [&](Rank& rank) {
                    train_gpt(rank, rank.world(), nullptr, style);
                });
            }
}

TEST_CASE("correct: a GPT of tensor times data parallelism", "[faults]") {
    for (const Style& style : styles())
        for (const char* fastest : {"tp", "dp"})
            must_stay_silent(4, [&](Rank& rank) {
                const bool tp_first = std::string(fastest) == "tp";
                const Mesh mesh(rank.world(),
                                {{tp_first ? "dp" : "tp", 2}, {fastest, 2}});
                train_gpt(rank, mesh["tp"], &mesh["dp"], style);
            });
}

TEST_CASE("correct: gradients accumulated before they are completed", "[faults]") {
    for (Style style : styles()) {
        style.micro_batches = 3;
        must_stay_silent(
            2, [&](Rank& rank) { train_gpt(rank, rank.world(), nullptr, style); });
        must_stay_silent(4, [&](Rank& rank) {
            const Mesh mesh(rank.world(), {{"dp", 2}, {"tp", 2}});
            train_gpt(rank, mesh["tp"], &mesh["dp"], style);
        });
    }
}

TEST_CASE("correct: shards that start as one number, sums of sums", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        TensorParallel tp(device, rank.world());
        Sequential model;
        const ParameterInit init{device, DType::f64, 7, ""};
        for (const char* name : {"first", "second"}) {
            auto& norm = model.add<LayerNorm>(init.child(name).child("norm"), 8);
            tp.replicate(norm.parameters());
            model.add(make_mlp(init.child(name), 8, 16, tensor_parallel({}, tp)));
        }
        for (Parameter* parameter : model.parameters())
            device.fill(parameter->value, 0.125);
        Sgd optimizer(model.parameters());
        for (int i = 0; i < kSteps; ++i) {
            zero_gradients(model);
            const Tensor x = random_rows(device, "x", 4 * i, 4, 8);
            tp.group().all_reduce(x).wait();
            Saved saved;
            const Tensor y = model.forward(x, saved);
            const LossResult loss = mean_squared_error(device, y, x);
            model.backward(loss.gradient, saved);
            step(device, optimizer);
        }
    });
}

TEST_CASE("correct: dropout within regions, between them, and of parts of the sequence",
          "[faults]") {
    for (const bool by_sequence : {false, true})
        must_stay_silent(4, [by_sequence](Rank& rank) {
            Device& device = rank.device();
            const Mesh mesh(rank.world(), {{"dp", 2}, {"tp", 2}});
            const auto tp = make_regions(device, mesh["tp"], by_sequence);
            const ParameterInit init{device, DType::f64, 7, ""};
            ColumnParallelLinear up(init.child("up"), *tp, 6, 8);
            RowParallelLinear down(init.child("down"), *tp, 8, 6, /*bias=*/false);
            std::vector<Parameter*> all = up.parameters();
            all.push_back(&down.weight());
            Sgd optimizer(all);
            const std::int64_t rows = by_sequence ? 4 / tp->size() : 4;
            const auto replica = static_cast<std::uint64_t>(mesh.coordinate("dp"));
            for (int i = 0; i < kSteps; ++i) {
                for (Parameter* parameter : all)
                    parameter->zero_gradient();
                const std::int64_t first = 4 * (2 * i + mesh.coordinate("dp"));
                const Tensor x = random_rows(
                    device, "x", first + tp->token_deal().rank * rows, rows, 6);
                // `within`: some columns of a mask. `outside`: some or all rows of one.
                const Tensor within = device.empty({4, 4}, DType::f64);
                const Tensor outside = device.empty({rows, 6}, DType::f64);
                Saved of_up, of_down;
                LossResult loss;
                {
                    const PhaseScope phase(device, Phase::forward, 0);
                    device.random_uniform(within, RandomStream(replica, "within"), 0, 2,
                                          {32 * i + 4 * tp->rank(), 8});
                    device.random_uniform(outside, RandomStream(replica, "outside"), 0, 2,
                                          24 * i + tp->token_deal().rank * rows * 6);
                    const Tensor h = up.forward(x, of_up);
                    device.multiply(h, within);
                    const Tensor y = down.forward(h, of_down);
                    device.multiply(y, outside);
                    loss = mean_squared_error(device, y, x,
                                              0.5 / (by_sequence ? tp->size() : 1));
                }
                {
                    const PhaseScope phase(device, Phase::backward, 0);
                    device.multiply(loss.gradient, outside);
                    const Tensor dh = down.backward(loss.gradient, of_down);
                    device.multiply(dh, within);
                    up.backward(dh, of_up);
                }
                for (Parameter* parameter : all)
                    mesh["dp"].all_reduce(parameter->gradient).wait();
                step(device, optimizer);
            }
        });
}

TEST_CASE("correct: a factor before a sharded vocabulary, with its gradient summed",
          "[faults]") {
    must_stay_silent(2, [](Rank& rank) {
        Device& device = rank.device();
        TensorParallel tp(device, rank.world());
        const ParameterInit init{device, DType::f64, 7, ""};
        Linear factor(init.child("factor"), 6, 4, /*bias=*/false);
        ColumnParallelLinear head(init.child("head"), tp, 4, kVocabulary,
                                  {.bias = false, .pad = true});
        head.set_input_gradient(false);
        tp.replicate(factor.parameters());
        Sgd optimizer({&factor.weight(), &head.weight()});
        for (int i = 0; i < kSteps; ++i) {
            factor.weight().zero_gradient();
            head.weight().zero_gradient();
            Saved of_factor, of_head;
            const Tensor x = random_rows(device, "x", 16 * i, kLength * kBatch, 6);
            const Tensor logits = head.forward(factor.forward(x, of_factor), of_head);
            const LossResult loss = vocabulary_parallel_cross_entropy(
                tp, logits, tokens(device, i, "y"), kVocabulary);
            // Without f, a rank passes back only its part; the all-reduce adds the parts.
            head.backward(loss.gradient, of_head);
            const Tensor part = device.matmul(loss.gradient, head.weight().value);
            factor.backward(part, of_factor);
            tp.group().all_reduce(factor.weight().gradient).wait();
            step(device, optimizer);
        }
    });
}

TEST_CASE("correct: attention's mean over rows, averaged over replicas", "[faults]") {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum})
        must_stay_silent(2, [reduction](Rank& rank) {
            Device& device = rank.device();
            const GptSizes sizes{kVocabulary, kLength, 1, {8, 4, 16}};
            const auto gpt = make_gpt({device, DType::f64, 7, ""}, sizes);
            const auto optimizer = make_optimizer(*gpt, true);
            for (int i = 0; i < kSteps; ++i) {
                zero_gradients(*gpt);
                Saved saved;
                const int number = 2 * i + rank.index();
                const Tensor logits = gpt->forward(tokens(device, number, "x"), saved);
                const LossResult loss =
                    cross_entropy_loss(device, logits, tokens(device, number, "y"),
                                       reduction == Reduction::sum ? 0.5 : 1);
                gpt->backward(loss.gradient, saved);
                for (Parameter* parameter : gpt->parameters())
                    rank.world().all_reduce(parameter->gradient, reduction).wait();
                step(device, *optimizer);
            }
        });
}

}  // namespace lockstep::test
