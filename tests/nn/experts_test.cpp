// Compares a layer of experts on one device with every expert on every token.

#include <numeric>

#include "src/nn/dropout.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/published_sizes.hpp"
#include "src/nn/recompute.hpp"
#include "tests/nn/dense_experts.hpp"
#include "tests/nn/finite_difference.hpp"
#include "tests/nn/fixture.hpp"
#include "tests/nn/one_rank.hpp"

namespace lockstep::nn_test {

namespace {

constexpr std::int64_t kHidden = 6;

MixtureOfExperts::Sizes small(std::int64_t experts, const GateOptions& gate) {
    MixtureOfExperts::Sizes sizes;
    sizes.hidden = kHidden;
    sizes.experts.count = experts;
    sizes.experts.inner = 5;
    sizes.experts.gate = gate;
    return sizes;
}

struct Trial {
    MixtureOfExperts::Sizes sizes;
    std::int64_t tokens = 11;
    std::vector<double> bias{};
    /// The gate's logits are small whole numbers, so many of them are equal.
    bool ties = false;
    /// All tokens are equal, and so are the experts chosen for them.
    bool alike = false;
};

/// Runs backward whole and in halves; both must give the same bits.
void agrees_with_dense(const Trial& trial) {
    constexpr double kBound = 1e-12, kWeight = 0.75;
    OneDevice one;
    MixtureOfExperts layer(one.init(), trial.sizes, nullptr, nullptr);
    HostTensor x = normal_values({trial.tokens, kHidden}, "x");
    if (trial.ties)
        for (std::int64_t i = 0; i < x.elements(); ++i)
            x.set(i, std::floor(x.at(i)));
    if (trial.alike)
        for (std::int64_t i = kHidden; i < x.elements(); ++i)
            x.set(i, x.at(i % kHidden));
    std::map<std::string, HostTensor> values;
    for (const Parameter* parameter : layer.parameters()) {
        HostTensor value = normal_values(parameter->shape(), parameter->name());
        if (trial.ties && parameter->name() == "gate.weight")
            for (std::int64_t i = 0; i < value.elements(); ++i)
                value.set(i, std::floor(value.at(i)));
        one.device.upload_into(parameter->value, value);
        values[parameter->name()] = value;
    }
    if (!trial.bias.empty())
        one.device.upload_into(
            layer.gate().bias(),
            f64({static_cast<std::int64_t>(trial.bias.size())}, trial.bias));
    const HostTensor dy = normal_values(x.shape(), "dy");
    const DenseExperts::Results expected =
        DenseExperts(trial.sizes, values, trial.bias).run(x, dy, kWeight);

    for (const bool halves : {false, true}) {
        CAPTURE(halves);
        zero_gradients(layer);
        Saved saved;
        saved.set_loss_weight(kWeight);
        const HostTensor y =
            one.device.download(layer.forward(one.device.upload(x), saved));
        double loss = 0;
        for (const Tensor& term : saved.take_losses())
            loss += one.device.download(term).at(0);
        const Tensor gradient = one.device.upload(dy);
        const Tensor dx = halves ? layer.backward_input(gradient, saved)
                                 : layer.backward(gradient, saved);
        if (halves) layer.backward_weight(saved);
        CHECK(relative_difference(y, expected.y) <= kBound);
        CHECK(relative_difference(one.device.download(dx), expected.dx) <= kBound);
        CHECK(std::abs(loss - expected.loss) <= kBound * std::abs(expected.loss));
        for (const Parameter* parameter : layer.parameters()) {
            INFO(parameter->name());
            const HostTensor got = one.device.download(parameter->gradient);
            const HostTensor& wanted = expected.gradients.at(parameter->name());
            // If a token's only weight is normalized, it is constant: the gradient is 0.
            CHECK((largest(wanted) > 0 ? relative_difference(got, wanted)
                                       : largest(got)) <= kBound);
        }
    }
}

std::vector<GateOptions> all_forms() {
    std::vector<GateOptions> all;
    for (const GateForm form :
         {GateForm::softmax_then_top_k, GateForm::top_k_then_softmax, GateForm::sigmoid})
        for (const bool normalized : {false, true}) {
            if (normalized && form == GateForm::top_k_then_softmax) continue;
            GateOptions gate;
            gate.form = form;
            gate.normalized = normalized;
            all.push_back(gate);
        }
    return all;
}

}  // namespace

TEST_CASE("Experts give the same as every expert on every token with a mask",
          "[nn][experts]") {
    GateOptions gate = GENERATE(from_range(all_forms()));
    gate.chosen = GENERATE(1, 2, 3);
    const bool losses = GENERATE(false, true);
    if (losses) {
        gate.balance = 0.3;
        gate.z = 0.2;
        gate.factor = 2.5;
    }
    for (const std::int64_t experts : {3, 4, 7})
        for (const double capacity : {0.0, 0.4, 1.0, 100.0})
            for (const CopyOrder order : {CopyOrder::tokens, CopyOrder::choices_first})
                for (const bool ties : {false, true}) {
                    CAPTURE(static_cast<int>(gate.form), gate.normalized, gate.chosen,
                            losses, experts, capacity, static_cast<int>(order), ties);
                    Trial trial{small(experts, gate)};
                    trial.sizes.experts.capacity = capacity;
                    trial.sizes.experts.order = order;
                    trial.ties = ties;
                    agrees_with_dense(trial);
                }
}

TEST_CASE("Experts may have no tokens, or all tokens", "[nn][experts]") {
    GateOptions gate = GENERATE(from_range(all_forms()));
    gate.chosen = GENERATE(1, 2);
    gate.balance = 0.3;
    const std::int64_t tokens = GENERATE(1, 2, 9);
    const double capacity = GENERATE(0.0, 1.0);
    CAPTURE(static_cast<int>(gate.form), gate.chosen, tokens, capacity);
    Trial trial{small(8, gate), tokens};
    trial.sizes.experts.capacity = capacity;
    trial.alike = true;
    agrees_with_dense(trial);
}

TEST_CASE("A bias affects the choice of experts, but not their weights",
          "[nn][experts]") {
    GateOptions gate = GENERATE(from_range(all_forms()));
    gate.biased = true;
    Trial trial{small(5, gate)};
    trial.bias = {0.4, -0.3, 0, 0.1, -0.2};
    agrees_with_dense(trial);
    trial.bias = {0, 0, 0, 9, 9};
    agrees_with_dense(trial);
}

TEST_CASE("The chosen experts come from few groups", "[nn][experts]") {
    GateOptions gate = GENERATE(from_range(all_forms()));
    gate.groups = 4;
    gate.chosen_groups = GENERATE(1, 2);
    gate.chosen = 2;
    Trial trial{small(8, gate), 40};
    agrees_with_dense(trial);
}

TEST_CASE("Experts equal plain loops one by one, by GELU, in portions", "[nn][experts]") {
    const bool gated = GENERATE(true, false);
    const bool grouped = GENERATE(true, false);
    const int portions = GENERATE(1, 2, 3, 20);
    CAPTURE(gated, grouped, portions);
    GateOptions gate;
    gate.balance = 0.1;
    Trial trial{small(4, gate)};
    trial.sizes.gated = gated;
    trial.sizes.experts.grouped = grouped;
    trial.sizes.experts.portions = portions;
    agrees_with_dense(trial);
}

namespace {

/// A layer with all options of a gate.
MixtureOfExperts::Sizes rich() {
    GateOptions gate;
    gate.form = GateForm::sigmoid;
    gate.normalized = true;
    gate.factor = 2.5;
    gate.noise = 0.25;
    gate.balance = 0.1;
    gate.z = 0.01;
    gate.biased = true;
    MixtureOfExperts::Sizes sizes = small(6, gate);
    sizes.experts.capacity = 1.25;
    return sizes;
}

/// As if the tokens belonged to the second of two ranks.
struct SecondHalf : ExpertExchange {
    std::int64_t first_token(std::int64_t own) const override { return own; }
};

std::unique_ptr<MixtureOfExperts> made(const ParameterInit& init,
                                       const MixtureOfExperts::Sizes& sizes,
                                       std::shared_ptr<ExpertExchange> exchange = {}) {
    return std::make_unique<MixtureOfExperts>(
        init, sizes, std::move(exchange),
        std::make_unique<Linear>(init.child("shared_experts"), kHidden, kHidden));
}

}  // namespace

TEST_CASE("Noise comes from the numbers that were set, and inference has none",
          "[nn][experts]") {
    OneDevice one;
    MixtureOfExperts::Sizes sizes = small(4, {});
    sizes.experts.gate.noise = 3;
    const auto layer = made(one.init(), sizes);
    const Tensor x = one.device.upload(normal_values({9, kHidden}, "x"));
    const auto forward = [&](std::int64_t offset) {
        layer->set_noise(offset);
        Saved saved;
        return one.device.download(layer->forward(x, saved));
    };
    const HostTensor first = forward(0);
    CHECK(forward(0) == first);
    CHECK(forward(36) != first);
    // Tokens 3 to 8 of the batch use the batch's random numbers from number 3 E on.
    layer->set_noise(12);
    Saved saved;
    const HostTensor some = one.device.download(layer->forward(x.rows(3, 6), saved));
    CHECK(relative_difference(some, first.rows(3, 6)) <= 1e-14);
    // If rows are spaced apart, each rank's own rows have the same spaces.
    const auto second = made(one.init(), sizes, std::make_shared<SecondHalf>());
    constexpr std::int64_t kApart = 8;
    const auto rows_3_to_5 = [&](MixtureOfExperts& mixture, std::int64_t begin) {
        mixture.set_noise({begin, kApart});
        Saved kept;
        return one.device.download(mixture.forward(x.rows(3, 3), kept));
    };
    CHECK(rows_3_to_5(*second, 0) == rows_3_to_5(*layer, 3 * kApart));
    const HostTensor quiet = one.device.download(layer->infer(x));
    CHECK(quiet != first);
    layer->set_noise(36);
    CHECK(one.device.download(layer->infer(x)) == quiet);
}

TEST_CASE("Recomputed experts give equal bits and count copies once", "[nn][experts]") {
    OneDevice one;
    std::vector<Gradients> gradients;
    std::vector<std::vector<std::int64_t>> loads;
    for (const bool again : {false, true}) {
        auto layer = made(one.init(), rich());
        MixtureOfExperts& experts = *layer;
        one.device.upload_into(experts.gate().bias(),
                               f64({6}, {0.2, -0.1, 0, 0.3, 0, -0.4}));
        std::unique_ptr<Module> module = std::move(layer);
        if (again) module = std::make_unique<Recompute>(std::move(module));
        const HostTensor x = normal_values({3, 5, kHidden}, "x");
        gradients.push_back(
            nn_test::gradients(one.device, *module, x, normal_values(x.shape(), "dy")));
        CHECK(gradients.back().input.shape() == x.shape());
        loads.push_back(experts.take_load());
        CHECK(experts.take_load() == std::vector<std::int64_t>(6));
    }
    CHECK(gradients[0] == gradients[1]);
    CHECK(loads[0] == loads[1]);
    CHECK(std::accumulate(loads[0].begin(), loads[0].end(), std::int64_t{0}) == 30);
}

TEST_CASE("Experts in bf16 compute scores and weights in f32", "[nn][experts]") {
    OneDevice one;
    MixtureOfExperts layer(one.init("", DType::bf16), rich(), nullptr, nullptr);
    CHECK(layer.gate().bias().dtype() == DType::f32);
    const HostTensor x = normal_values({16, kHidden}, "x").as(DType::bf16);
    zero_gradients(layer);
    Saved saved;
    const Tensor y = layer.forward(one.device.upload(x), saved);
    CHECK(y.dtype() == DType::bf16);
    for (const Tensor& loss : saved.take_losses())
        CHECK(loss.dtype() == DType::f32);
    const Tensor dx = layer.backward(one.device.upload(x), saved);
    CHECK(dx.dtype() == DType::bf16);
    for (const Parameter* parameter : layer.parameters())
        CHECK(largest(one.device.download(parameter->gradient)) > 0);
}

TEST_CASE("Sigmoids that are all 0 weigh nothing, and are no NaN", "[nn][experts]") {
    OneDevice one;
    GateOptions gate;
    gate.form = GateForm::sigmoid;
    gate.normalized = true;
    gate.balance = 0.1;
    MixtureOfExperts layer(one.init("", DType::f32), small(4, gate), nullptr, nullptr);
    one.device.fill(layer.parameters()[0]->value, -100);
    HostTensor x({3, kHidden}, DType::f32);
    for (std::int64_t i = 0; i < x.elements(); ++i)
        x.set(i, 1);
    const Gradients all = gradients(one.device, layer, x, x);
    CHECK(largest(all.input) == 0);
    for (const auto& [name, gradient] : all.parameters)
        CHECK(largest(gradient) == 0);
}

TEST_CASE("Inference applies no dropout in the shared expert", "[nn][experts]") {
    OneDevice one;
    auto shared = std::make_unique<Sequential>();
    shared->add<Linear>(one.init("shared"), kHidden, kHidden);
    shared->add<Dropout>(one.device, 0.5, RandomStream(1, "dropped"));
    MixtureOfExperts layer(one.init(), small(4, {}), nullptr, std::move(shared));
    const Tensor x = one.device.upload(normal_values({9, kHidden}, "x"));
    Saved saved;
    const HostTensor trained = one.device.download(layer.forward(x, saved));
    CHECK(one.device.download(layer.infer(x)) != trained);
    CHECK(one.count("dropout") == 1);
}

TEST_CASE("Backward frees the experts' tensors before it computes", "[nn][experts]") {
    // In this layer, experts make tensors as large as the tensors that they read.
    const auto kept_between_halves = [](bool backward) {
        std::int64_t held = 0;
        run_one(
            [&](Rank& rank) {
                MixtureOfExperts layer({rank.device(), DType::f32, 7, ""}, small(4, {}),
                                       nullptr, nullptr);
                const Tensor x = rank.device().zeros({64, kHidden}, DType::f32);
                const Tensor dy = rank.device().zeros({64, kHidden}, DType::f32);
                zero_gradients(layer);
                Saved saved;
                layer.forward(x, saved);
                if (backward) layer.backward_input(dy, saved);
                for (const Storage* storage = rank.device().live(); storage != nullptr;
                     storage = storage->next)
                    if (storage->category == MemoryCategory::activations)
                        held += storage->bytes;
            },
            /*numbers=*/true);
        return held;
    };
    const std::int64_t copies = std::int64_t{64} * 2 * 4;  // bytes of a column of f32
    // "made" and "wide" are freed. The experts' dy, d_wide and the gradient of the logits
    // are new.
    CHECK(kept_between_halves(true) <= kept_between_halves(false) + copies);
}

TEST_CASE("The input's gradient is computed only if it is needed", "[nn][experts]") {
    OneDevice one;
    const HostTensor x = normal_values({7, kHidden}, "x");
    const auto with_input = made(one.init(), rich());
    const auto without_input = made(one.init(), rich());
    without_input->set_input_gradient(false);
    const Gradients all = gradients(one.device, *with_input, x, x);
    const std::int64_t products = one.count("grouped_matmul");
    const Gradients some = gradients(one.device, *without_input, x, x);
    CHECK(one.count("grouped_matmul") - products == products - 1);
    CHECK(some.parameters == all.parameters);
    CHECK(some.input.elements() == 0);
}

TEST_CASE("A layer of experts accepts an empty batch", "[nn][experts]") {
    OneDevice one;
    const auto layer = made(one.init(), rich());
    const HostTensor none({0, kHidden}, DType::f64);
    const Gradients all = gradients(one.device, *layer, none, none);
    CHECK(all.input.shape() == none.shape());
    for (const auto& [name, gradient] : all.parameters)
        CHECK(largest(gradient) == 0);
}

TEST_CASE("Experts' options that do not fit are refused", "[nn][experts][errors]") {
    OneDevice one;
    const auto refuses = [&](const std::string& sentence, const auto& change) {
        MixtureOfExperts::Sizes sizes = small(6, {});
        change(sizes.experts, sizes.experts.gate);
        CHECK_THAT(
            refusal([&] { MixtureOfExperts(one.init("mlp"), sizes, nullptr, nullptr); }),
            says(sentence));
    };
    using E = ExpertSizes;
    using G = GateOptions;
    refuses("mlp.gate: a token chooses 7 of 6 experts; from 1 to all",
            [](E&, G& gate) { gate.chosen = 7; });
    refuses("mlp.gate: a token chooses 0 of 6 experts", [](E&, G& g) { g.chosen = 0; });
    refuses(
        "the softmax of the chosen logits is normalized already; leave normalized off",
        [](E&, G& gate) { gate.normalized = true; });
    refuses("6 experts cannot be split into 4 equal groups",
            [](E&, G& gate) { gate.groups = 4; });
    refuses("a token cannot choose 2 experts from 3 of 2 groups with 3 experts each",
            [](E&, G& gate) {
                gate.groups = 2;
                gate.chosen_groups = 3;
            });
    refuses("a token chooses 3 experts from 2 groups; a multiple of 2 is expected",
            [](E&, G& gate) {
                gate.groups = 3;
                gate.chosen_groups = 2;
                gate.chosen = 3;
            });
    refuses("balance is -1, z is 0 and noise is 0; none may be negative",
            [](E&, G& gate) { gate.balance = -1; });
    refuses("mlp: tokens in 0 portions; one is expected",
            [](E& experts, G&) { experts.portions = 0; });
    refuses("the capacity is -1 times an equal share",
            [](E& experts, G&) { experts.capacity = -1; });
    refuses("a capacity take all tokens at once; got 2 portions", [](E& experts, G&) {
        experts.portions = 2;
        experts.capacity = 1;
    });
    refuses("the load has 2 numbers for 6 experts", [](E& experts, G&) {
        experts.load = {1, 2};
    });
    refuses("mlp.experts: 6 experts from 6 to 0 columns",
            [](E& experts, G&) { experts.inner = 0; });
}

TEST_CASE("Mixtral has 46.7 billion parameters, and a token uses 12.9 billion",
          "[nn][experts]") {
    // Jiang et al. 2024, 2401.04088, table 1 and section 2. The published weights have
    // 46,702,792,704 numbers.
    const GptSizes sizes = mixtral_8x7b(4096);
    CHECK(sizes.parameters() == 46702792704);
    CHECK(sizes.active_parameters() == 12879925248);
}

TEST_CASE("A GPT of experts counts its parameters", "[nn][experts]") {
    OneDevice one;
    GptSizes sizes{11, 6, /*layers=*/3, {kHidden, 2}};
    sizes.dense_blocks = GENERATE(0, 1, 5);
    sizes.block.mlp = GENERATE(MlpKind::gelu, MlpKind::swiglu);
    sizes.block.experts.count = 4;
    sizes.block.experts.inner = 5;
    sizes.block.experts.shared = GENERATE(0, 7);
    const auto gpt = make_gpt(one.init(), sizes);
    std::int64_t numbers = 0;
    for (const Parameter* parameter : gpt->parameters())
        numbers += parameter->shape().elements();
    CHECK(numbers == sizes.parameters());
    CHECK(static_cast<std::int64_t>(expert_layers(*gpt).size()) ==
          std::max<std::int64_t>(0, 3 - sizes.dense_blocks));
    const std::int64_t experts = std::max<std::int64_t>(0, 3 - sizes.dense_blocks);
    const std::int64_t layers = sizes.block.mlp == MlpKind::swiglu ? 3 : 2;
    CHECK(sizes.active_parameters() == numbers - experts * 2 * layers * 5 * kHidden);
}

TEST_CASE("A GPT's experts have true gradients", "[nn][experts]") {
    OneDevice one;
    GptSizes sizes{5, 4, /*layers=*/1, {4, 2}};
    sizes.block.mlp = MlpKind::swiglu;
    sizes.block.experts.count = 3;
    sizes.block.experts.inner = 3;
    sizes.block.experts.shared = 2;
    sizes.block.experts.gate.form = GateForm::softmax_then_top_k;
    const auto gpt = make_gpt(one.init(), sizes);
    require_true_gradients(one.device, *gpt, ids_below({4, 2}, 5, "ids"));
}

TEST_CASE("In a run of shapes only, experts take the given load", "[nn][experts]") {
    MixtureOfExperts::Sizes sizes = small(4, {});
    sizes.experts.load = {4, 1, 0, 3};
    sizes.experts.capacity = GENERATE(0.0, 1.0);
    OneDevice one(false);
    MixtureOfExperts layer(one.init("", DType::f32), sizes, nullptr, nullptr);
    const Tensor x = one.device.zeros({8, kHidden}, DType::f32);
    Saved saved;
    layer.backward(layer.forward(x, saved), saved);
    CHECK(layer.take_load() == std::vector<std::int64_t>{8, 2, 0, 6});
    // With a capacity of 4, the experts accept 4, 2, 0 and 4 of the 16 copies.
    const std::int64_t copies = sizes.experts.capacity == 0 ? 16 : 10;
    std::int64_t flops = 0;
    for (const auto& seen : one.monitor.operations)
        if (seen.name == std::string("grouped_matmul")) flops += seen.flops;
    CHECK(flops == copies * 3 * 2 * 3 * kHidden * 5);
}

}  // namespace lockstep::nn_test
