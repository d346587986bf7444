// The hooks for strategies: modules that wrap other modules, forward without backward,
// parameters that are made later, losses that layers add, and published weights.

#include <functional>
#include <map>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/embedding.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/norm.hpp"
#include "src/nn/optimizer.hpp"
#include "src/nn/part.hpp"
#include "src/nn/published.hpp"
#include "src/nn/recompute.hpp"
#include "src/parallel/gradient_accumulation.hpp"
#include "tests/nn/finite_difference.hpp"
#include "tests/nn/fixture.hpp"

namespace lockstep::nn_test {

namespace {

GptSizes small_gpt(bool llama = false) {
    GptSizes sizes{11, /*context=*/6, /*layers=*/2, {8, 4}};
    if (!llama) return sizes;
    sizes.block.kv_heads = 2;
    sizes.block.inner = 12;
    sizes.block.norm = NormKind::rms_norm;
    sizes.block.mlp = MlpKind::swiglu;
    sizes.block.rotary_base = 10000;
    sizes.block.bias = false;
    return sizes;
}

std::map<std::string, HostTensor> shown(OneDevice& one, Module& module,
                                        Tensor Parameter::*tensor) {
    std::map<std::string, HostTensor> all;
    for (const Parameter* parameter : module.parameters())
        all[parameter->name()] = one.device.download(parameter->*tensor);
    return all;
}

std::string refused(const std::function<void()>& call) {
    try {
        call();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "nothing was refused";
}

}  // namespace

TEST_CASE("Recomputed blocks give the same bits and keep less", "[nn][sim]") {
    const HostTensor ids = ids_below({6, 2}, 11, "ids");
    std::vector<std::map<std::string, HostTensor>> gradients;
    std::vector<std::int64_t> kept;
    for (const bool recomputed : {false, true}) {
        OneDevice one;
        const auto gpt = make_gpt(one.init(), small_gpt());
        if (recomputed) recompute_blocks(*gpt, small_gpt());
        zero_gradients(*gpt);
        Saved saved;
        const Tensor y = gpt->forward(one.device.upload(ids), saved);
        std::int64_t bytes = 0;
        for (const Storage* storage = one.device.live(); storage; storage = storage->next)
            if (storage->category == MemoryCategory::activations) bytes += storage->bytes;
        kept.push_back(bytes);
        gpt->backward(one.device.upload(normal_values({6, 2, 11}, "dy")), saved);
        gradients.push_back(shown(one, *gpt, &Parameter::gradient));
    }
    CHECK(gradients[0] == gradients[1]);
    CHECK(kept[1] < kept[0] / 2);
}

TEST_CASE("Recomputation works with both halves of backward", "[nn][sim]") {
    OneDevice one;
    Recompute recomputed(make_block(one.init("h.0"), small_gpt().block));
    require_true_gradients(one.device, recomputed, normal_values({3, 2, 8}, "x"));
}

TEST_CASE("infer gives the same as forward, and holds less memory", "[nn][sim]") {
    const bool llama = GENERATE(false, true);
    OneDevice one;
    const auto gpt = make_gpt(one.init(), small_gpt(llama));
    const Tensor ids = one.device.upload(ids_below({6, 2}, 11, "ids"));
    Saved saved;
    const HostTensor expected = one.device.download(gpt->forward(ids, saved));
    CHECK(one.device.download(gpt->infer(ids)) == expected);

    const auto peak = [&](const auto& pass) {
        sim::ClusterOptions options;
        options.numbers = false;
        return sim::make_cluster(options)
            ->run([&](Rank& rank) {
                GptSizes deep = small_gpt(llama);
                deep.layers = 32;
                const auto model = make_gpt({rank.device(), DType::f64, 7, ""}, deep);
                pass(*model, rank.device().zeros({6, 2}, DType::i32));
            })
            .ranks.front()
            .memory.peak_of(MemoryCategory::activations);
    };
    const std::int64_t forward = peak([](Module& model, const Tensor& x) {
        Saved all;
        model.forward(x, all);
    });
    const std::int64_t alone =
        peak([](Module& model, const Tensor& x) { model.infer(x); });
    CHECK(alone < forward / 8);
}

TEST_CASE("Pieces of a sequence have the positions of the whole", "[nn][sim]") {
    OneDevice one;
    const HostTensor ids = ids_below({6, 1}, 11, "ids");
    GptKit kit;
    kit.places = std::make_shared<RowPlaces>();
    // Tokens do not depend on each other here, so each piece is computed separately.
    const auto places = kit.positions(one.init("wpe"), small_gpt(), kit);
    const HostTensor x = normal_values({6, 1, 8}, "x");
    const HostTensor whole = one.device.download(places->infer(one.device.upload(x)));
    const auto fed = [&](const std::vector<std::int32_t>& at) {
        const auto rows = static_cast<std::int64_t>(at.size());
        *kit.places = one.device.upload(HostTensor::of<std::int32_t>({rows}, at));
        return one.device.download(places->infer(one.device.upload(x.rows(4, 2))));
    };
    CHECK(fed({4, 5}) == whole.rows(4, 2));
    CHECK(refused([&] {
              fed({5, 6});
          }).find("index 1 is 6, outside [0, 6)") != std::string::npos);
    CHECK(refused([&] {
              fed({5});
          }).find("wpe.weight got x of shape (2, 1, 8), and 1 positions") !=
          std::string::npos);
}

TEST_CASE("Rotary attention's gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    for (const std::int64_t kv_heads : {2, 4}) {
        AttentionSizes sizes{4, true, kv_heads};
        sizes.rotary_base = 100;
        const auto attention = make_attention(one.init("attn"), 8, sizes);
        require_true_gradients(one.device, *attention, normal_values({3, 2, 8}, "x"));
    }
}

TEST_CASE("Rotary scores depend only on the distance of two tokens", "[nn][sim]") {
    OneDevice one;
    AttentionSizes sizes{4, /*causal=*/false};
    sizes.rotary_base = 100;
    GptKit kit;
    kit.places = std::make_shared<RowPlaces>();
    const auto attention = make_attention(one.init("attn"), 8, sizes, kit);
    const Tensor x = one.device.upload(normal_values({5, 2, 8}, "x"));
    const HostTensor here = one.device.download(attention->infer(x));
    *kit.places = one.device.upload(HostTensor::of<std::int32_t>(
        {5, 2}, std::vector{17, 17, 18, 18, 19, 19, 20, 20, 21, 21}));
    const HostTensor there = one.device.download(attention->infer(x));
    CHECK(relative_difference(there, here) <= 1e-13);
    CHECK(!(there == here));
}

TEST_CASE("A parameter can be made without memory, and filled later", "[nn][sim]") {
    OneDevice one;
    ParameterInit init = one.init();
    const auto whole = make_gpt(init, small_gpt());
    const std::int64_t before = one.monitor.held_bytes;
    init.allocate = false;
    const auto later = make_gpt(init, small_gpt());
    CHECK(one.monitor.held_bytes == before);
    for (Parameter* parameter : later->parameters()) {
        CHECK(!parameter->value);
        parameter->value = one.device.empty(parameter->shape(), parameter->dtype());
        parameter->fill_initial();
    }
    CHECK(shown(one, *later, &Parameter::value) == shown(one, *whole, &Parameter::value));
}

TEST_CASE("A model for inference has no gradients", "[nn][sim]") {
    OneDevice one;
    const std::int64_t before = one.monitor.held_bytes;
    const auto whole = make_gpt(one.init(), small_gpt());
    const std::int64_t both = one.monitor.held_bytes - before;
    const auto gpt = make_gpt(one.init().for_inference(), small_gpt());
    CHECK(2 * (one.monitor.held_bytes - before - both) == both);
    const Tensor ids = one.device.zeros({2, 1}, DType::i32);
    CHECK(one.device.download(gpt->infer(ids)) == one.device.download(whole->infer(ids)));
    Saved saved;
    const Tensor y = gpt->forward(ids, saved);
    CHECK_THAT(refusal([&] { gpt->backward(y, saved); }),
               says("which is absent") && says("a model that only infers has no "
                                               "gradients"));
}

TEST_CASE("A missing tensor is named, with the line that asked for it", "[nn][errors]") {
    OneDevice one;
    ParameterInit init = one.init();
    init.allocate = false;
    const auto gpt = make_gpt(init, small_gpt());
    const Tensor ids = one.device.zeros({2, 1}, DType::i32);
    Saved saved;
    const int line = __LINE__ + 1;
    const auto call = [&] { gpt->forward(ids, saved); };
    try {
        call();
        FAIL("nothing was refused");
    } catch (const UsageError& error) {
        CHECK(std::string(error.what())
                  .find("forward needs the value of transformer.wte.weight, which is "
                        "absent") != std::string::npos);
        CHECK(std::string(error.what()).find("kit_test.cpp:" + std::to_string(line)) !=
              std::string::npos);
    }

    Linear linear(one.init("layer"), 3, 2);
    linear.weight().gradient = {};
    Saved of_linear;
    linear.forward(one.device.zeros({1, 3}, DType::f64), of_linear);
    CHECK(refused([&] {
              linear.backward(one.device.zeros({1, 2}, DType::f64), of_linear);
          }).find("backward needs the gradient of layer.weight, which is absent") !=
          std::string::npos);
}

TEST_CASE("A use names its purpose, and a hook can be removed", "[nn][sim]") {
    OneDevice one;
    Linear linear(one.init("layer"), 3, 2, /*bias=*/false);
    std::vector<Use> uses;
    const auto id =
        linear.weight().on_use([&](Parameter&, Use use) { uses.push_back(use); });
    const Tensor x = one.device.zeros({1, 3}, DType::f64);
    const Tensor dy = one.device.zeros({1, 2}, DType::f64);
    Saved saved;
    linear.forward(x, saved);
    linear.backward_input(dy, saved);
    linear.backward_weight(saved);
    linear.forward(x, saved);
    linear.backward(dy, saved);
    CHECK(uses == std::vector<Use>{Use::forward, Use::backward_input,
                                   Use::backward_weight, Use::forward, Use::backward});
    linear.weight().remove_hook(id);
    linear.infer(x);
    CHECK(uses.size() == 5);
}

TEST_CASE("A value that is not read is not announced", "[nn][sim]") {
    OneDevice one;
    const auto uses_of = [&](Module& module, const Tensor& x, const Tensor& dy,
                             bool halves) {
        std::map<std::string, std::vector<Use>> uses;
        for (Parameter* parameter : module.parameters())
            parameter->on_use(
                [&](Parameter& used, Use use) { uses[used.name()].push_back(use); });
        Saved saved;
        module.forward(x, saved);
        if (halves) {
            module.backward_input(dy, saved);
            module.backward_weight(saved);
        } else {
            module.backward(dy, saved);
        }
        return uses;
    };
    const Tensor x = one.device.zeros({1, 3}, DType::f64);
    const std::vector<Use> unread{Use::forward, Use::backward_weight};
    const std::vector<Use> read{Use::forward, Use::backward};
    const std::vector<Use> read_apart{Use::forward, Use::backward_input,
                                      Use::backward_weight};
    for (const bool halves : {false, true}) {
        Linear linear(one.init("linear"), 3, 3);
        auto uses = uses_of(linear, x, x, halves);
        CHECK(uses["linear.weight"] == (halves ? read_apart : read));
        CHECK(uses["linear.bias"] == unread);
        Linear first(one.init("first"), 3, 3);
        first.set_input_gradient(false);
        CHECK(uses_of(first, x, x, halves)["first.weight"] == unread);
        LayerNorm norm(one.init("norm"), 3);
        uses = uses_of(norm, x, x, halves);
        CHECK(uses["norm.weight"] == (halves ? read_apart : read));
        CHECK(uses["norm.bias"] == unread);
        Embedding table(one.init("table"), 5, 3);
        const Tensor ids = one.device.zeros({1}, DType::i32);
        CHECK(uses_of(table, ids, x, halves)["table.weight"] == unread);
    }
}

namespace {

/// Passes y on. Adds the mean of y^2 / 2 to the loss.
class SmallValues : public Module {
  public:
    explicit SmallValues(Device& device) : device_(device) {}

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override {
        const Tensor term = device_.zeros({1}, x.dtype());
        device_.sum_of_squares(term, x);
        device_.scale(term,
                      saved.loss_weight() / (2 * static_cast<double>(x.elements())));
        saved.add_loss(term);
        saved.keep("x", x);
        saved.keep_value("factor",
                         saved.loss_weight() / static_cast<double>(x.elements()));
        return x;
    }
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override {
        Tensor dx = device_.empty(dy.shape(), dy.dtype());
        device_.copy(dx, dy);
        device_.add(dx, saved.at("x"), saved.value<double>("factor"));
        return dx;
    }

    Device& device_;
};

}  // namespace

TEST_CASE("A layer can add a term to the loss, weighted as its micro-batch",
          "[nn][sim]") {
    OneDevice one;
    const auto train = [&](const std::vector<std::int64_t>& rows) {
        Sequential model;
        model.add<Linear>(one.init("layer"), 3, 2);
        model.add<SmallValues>(one.device);
        const HostTensor x = normal_values({4, 3}, "x"), y = normal_values({4, 2}, "y");
        std::vector<MicroBatch> batches;
        std::int64_t from = 0;
        for (const std::int64_t count : rows) {
            batches.push_back({one.device.upload(x.rows(from, count)),
                               one.device.upload(y.rows(from, count)),
                               static_cast<double>(count) / 4});
            from += count;
        }
        const Tensor loss =
            accumulate_gradients(one.device, model, mean_squared_error, batches);
        auto result = shown(one, model, &Parameter::gradient);
        result["loss"] = one.device.download(loss);
        return result;
    };
    const auto whole = train({4}), parts = train({1, 3});
    for (const auto& [name, tensor] : whole)
        CHECK(relative_difference(parts.at(name), tensor) <= 1e-14);
    // The term counts: the loss is smaller without it.
    OneDevice other;
    Linear plain(other.init("layer"), 3, 2);
    const MicroBatch all{other.device.upload(normal_values({4, 3}, "x")),
                         other.device.upload(normal_values({4, 2}, "y"))};
    const Tensor loss =
        accumulate_gradients(other.device, plain, mean_squared_error, {&all, 1});
    CHECK(other.device.download(loss).at(0) < whole.at("loss").at(0));
}

TEST_CASE("Saved keeps values of any type, and names missing ones", "[nn][errors]") {
    Saved saved;
    saved.keep_value("counts", std::vector<int>{1, 2});
    CHECK(saved.value<std::vector<int>>("counts") == std::vector<int>{1, 2});
    CHECK(refused([&] {
              saved.value<double>("counts");
          }).find("asks for \"counts\" with another type than forward kept") !=
          std::string::npos);
    CHECK(refused([&] { saved.at("x"); }).find("backward needs \"x\"") !=
          std::string::npos);
    CHECK(refused([&] { saved.keep_value("counts", 1); }).find("already has") !=
          std::string::npos);
}

TEST_CASE("Groups of parameters have options of their own", "[nn][sim]") {
    OneDevice one;
    const auto step = [&](const std::function<std::unique_ptr<AdamW>(Module&)>& make) {
        auto linear = std::make_unique<Linear>(one.init("layer"), 3, 2);
        one.device.fill(linear->bias()->value, 1);
        const auto optimizer = make(*linear);
        for (Parameter* parameter : linear->parameters())
            one.device.fill(parameter->gradient, 0.5);
        optimizer->step();
        return shown(one, *linear, &Parameter::value);
    };
    const AdamWOptions decays{.learning_rate = 0.1, .weight_decay = 0.5};
    AdamWOptions none = decays;
    none.weight_decay = 0;
    const auto by_groups = step([&](Module& module) {
        return std::make_unique<AdamW>(decay_matrices_only(module.parameters(), decays));
    });
    const auto all = step([&](Module& module) {
        return std::make_unique<AdamW>(module.parameters(), decays);
    });
    const auto nothing = step([&](Module& module) {
        return std::make_unique<AdamW>(module.parameters(), none);
    });
    CHECK(by_groups.at("layer.weight") == all.at("layer.weight"));
    CHECK(by_groups.at("layer.bias") == nothing.at("layer.bias"));
    CHECK(!(by_groups.at("layer.bias") == all.at("layer.bias")));
}

TEST_CASE("Views of a flat buffer have names of their own", "[nn]") {
    OneDevice one;
    const Tensor flat = one.device.zeros(Shape::flat(10), DType::f64);
    flat.slice(0, 4).set_label("a");
    flat.slice(4, 6).set_label("b");
    CHECK(flat.slice(4, 6).label() == "b");
    CHECK(flat.slice(4, 6).reshaped({2, 3}).label() == "b");
    CHECK(flat.slice(5, 2).label() == "b");
    CHECK(flat.slice(3, 2).label().empty());
    CHECK(flat.label().empty());
    CHECK(flat.storage()->names(0, 80) == "a, b");
    CHECK(flat.storage()->names(0, 32) == "a");
}

namespace {

/// Returns a model's own values under the published names and layouts.
std::map<std::string, HostTensor> published_gpt2(OneDevice& one, Module& gpt) {
    std::map<std::string, HostTensor> tensors;
    for (const auto& [name, value] : shown(one, gpt, &Parameter::value)) {
        std::string theirs = name.substr(std::string("transformer.").size());
        if (name.find(".c_") == std::string::npos || name.ends_with("bias")) {
            tensors[theirs] = value;
            continue;
        }
        const std::int64_t rows = value.shape()[0], columns = value.shape()[1];
        HostTensor turned({columns, rows}, DType::f64);
        for (std::int64_t i = 0; i < rows * columns; ++i)
            turned.set(i % columns * rows + i / columns, value.at(i));
        tensors[theirs] = turned;
    }
    return tensors;
}

}  // namespace

TEST_CASE("GPT-2's published names and layouts can be loaded", "[nn][sim]") {
    OneDevice one;
    GptSizes sizes = small_gpt();
    sizes.tied = true;
    sizes.block.gelu = GeluForm::tanh;
    const auto gpt = make_gpt(one.init(), sizes);
    auto tensors = published_gpt2(one, *gpt);
    CHECK(tensors.at("h.0.attn.c_attn.weight").shape() == Shape{8, 24});
    tensors["h.0.attn.bias"] = HostTensor({1, 1, 6, 6}, DType::f64);  // a mask

    ParameterInit other = one.init();
    other.seed = 99;
    const auto loaded = make_gpt(other, sizes);
    load_published(*loaded, tensors, Published::gpt2);
    CHECK(shown(one, *loaded, &Parameter::value) == shown(one, *gpt, &Parameter::value));

    tensors.erase("h.1.ln_2.bias");
    const auto refusal = [&] {
        return refused([&] { load_published(*loaded, tensors, Published::gpt2); });
    };
    CHECK(refusal().find("transformer.h.1.ln_2.bias is made of h.1.ln_2.bias, which is "
                         "not among the tensors") != std::string::npos);
    tensors["h.1.ln_2.bias"] = HostTensor({7}, DType::f64);
    CHECK(refusal().find("transformer.h.1.ln_2.bias (8) is made of h.1.ln_2.bias (7), "
                         "which does not fit") != std::string::npos);
}

namespace {

/// Returns a model's own values as Llama's tensors. Our stacked parts are separate
/// tensors in Llama.
std::map<std::string, HostTensor> published_llama(OneDevice& one, Module& gpt) {
    struct Piece {
        std::string ours;
        std::string theirs;
        std::int64_t from;
        std::int64_t rows;
    };
    const std::vector<Piece> pieces = {{"ln_1", "input_layernorm", 0, 8},
                                       {"ln_2", "post_attention_layernorm", 0, 8},
                                       {"attn.c_attn", "self_attn.q_proj", 0, 8},
                                       {"attn.c_attn", "self_attn.k_proj", 8, 4},
                                       {"attn.c_attn", "self_attn.v_proj", 12, 4},
                                       {"attn.c_proj", "self_attn.o_proj", 0, 8},
                                       {"mlp.gate_up_proj", "mlp.gate_proj", 0, 12},
                                       {"mlp.gate_up_proj", "mlp.up_proj", 12, 12},
                                       {"mlp.down_proj", "mlp.down_proj", 0, 8}};
    const auto values = shown(one, gpt, &Parameter::value);
    std::map<std::string, HostTensor> tensors = {
        {"model.embed_tokens.weight", values.at("transformer.wte.weight")},
        {"model.norm.weight", values.at("transformer.ln_f.weight")},
        {"lm_head.weight", values.at("lm_head.weight")}};
    for (const char* layer : {"0", "1"})
        for (const Piece& piece : pieces)
            tensors[fmt::format("model.layers.{}.{}.weight", layer, piece.theirs)] =
                values.at(fmt::format("transformer.h.{}.{}.weight", layer, piece.ours))
                    .rows(piece.from, piece.rows);
    return tensors;
}

}  // namespace

TEST_CASE("Llama's published names and layouts can be loaded", "[nn][sim]") {
    OneDevice one;
    const GptSizes sizes = small_gpt(/*llama=*/true);
    const auto gpt = make_gpt(one.init(), sizes);
    const auto tensors = published_llama(one, *gpt);
    CHECK(tensors.size() == 3 + 2 * 9);
    ParameterInit other = one.init();
    other.seed = 99;
    const auto loaded = make_gpt(other, sizes);
    load_published(*loaded, tensors, Published::llama);
    CHECK(shown(one, *loaded, &Parameter::value) == shown(one, *gpt, &Parameter::value));
}

TEST_CASE("Published sizes have the published numbers of parameters", "[nn]") {
    const auto count = [](const GptSizes& sizes) {
        OneDevice one(/*numbers=*/false);
        std::int64_t elements = 0;
        ParameterInit init = one.init("", DType::f32);
        init.allocate = false;
        const auto gpt = make_gpt(init, sizes);
        for (const Parameter* parameter : gpt->parameters())
            elements += parameter->shape().elements();
        return elements;
    };
    GptSizes gpt2{50257, 1024, 12, {768, 12}, /*tied=*/true};
    CHECK(count(gpt2) == 124'439'808);
    GptSizes llama{32000, 4096, 32, {4096, 32, 11008}};
    llama.block.norm = NormKind::rms_norm;
    llama.block.mlp = MlpKind::swiglu;
    llama.block.rotary_base = 10000;
    llama.block.bias = false;
    CHECK(count(llama) == 6'738'415'616);
    GptSizes llama3{128256, 8192, 32, {4096, 32, 14336}};
    llama3.block = llama.block;
    llama3.block.inner = 14336;
    llama3.block.kv_heads = 8;
    llama3.block.rotary_base = 500000;
    CHECK(count(llama3) == 8'030'261'248);
}

}  // namespace lockstep::nn_test
