#include "src/nn/activation.hpp"
#include "src/nn/char_model.hpp"
#include "src/nn/embedding.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/norm.hpp"
#include "src/nn/sequential.hpp"
#include "tests/nn/finite_difference.hpp"

namespace lockstep::nn_test {

using Catch::Matchers::WithinAbs;

TEST_CASE("Linear's gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    Linear with_bias(one.init("layer"), 4, 3);
    require_true_gradients(one.device, with_bias, normal_values({5, 4}, "x"));
    Linear without_bias(one.init("layer"), 4, 3, /*bias=*/false);
    require_true_gradients(one.device, without_bias, normal_values({5, 4}, "x"));
}

TEST_CASE("Linear takes all dimensions but the last as rows", "[nn][sim]") {
    OneDevice one;
    Linear linear(one.init("layer"), 4, 3);
    require_true_gradients(one.device, linear, normal_values({2, 5, 4}, "x"));

    const HostTensor x = normal_values({2, 5, 4}, "x");
    Saved saved, saved_flat;
    const Tensor y = linear.forward(one.device.upload(x), saved);
    CHECK(y.shape() == Shape{2, 5, 3});
    const Tensor flat =
        linear.forward(one.device.upload(x).reshaped({10, 4}), saved_flat);
    CHECK(one.device.download(y.flat()) == one.device.download(flat.flat()));
    CHECK(linear.backward(y, saved).shape() == Shape{2, 5, 4});
}

TEST_CASE("Linear has PyTorch's layout: y = x W^T + b, W (out, in)", "[nn][sim]") {
    OneDevice one;
    Linear linear(one.init(), 2, 3);
    REQUIRE(linear.weight().shape() == Shape{3, 2});
    one.device.upload_into(linear.weight().value, f64({3, 2}, {1, 2, 3, 4, 5, 6}));
    one.device.upload_into(linear.bias()->value, f64({3}, {10, 20, 30}));

    Saved saved;
    const Tensor y = linear.forward(one.device.upload(f64({1, 2}, {1, -1})), saved);
    CHECK(one.device.download(y) == f64({1, 3}, {9, 19, 29}));
    const Tensor dx = linear.backward(one.device.upload(f64({1, 3}, {1, 0, 2})), saved);
    CHECK(one.device.download(dx) == f64({1, 2}, {11, 14}));
    CHECK(one.device.download(linear.weight().gradient) ==
          f64({3, 2}, {1, -1, 0, 0, 2, -2}));
    CHECK(one.device.download(linear.bias()->gradient) == f64({3}, {1, 0, 2}));
}

TEST_CASE("Embedding's gradient equals finite differences, with repeated ids too",
          "[nn][sim]") {
    OneDevice one;
    Embedding embedding(one.init("table"), 5, 3);
    require_true_gradients(one.device, embedding, i32({2, 3}, {4, 0, 4, 2, 4, 1}));
}

TEST_CASE("Embedding gives rows of its table, and no gradient of the ids", "[nn][sim]") {
    OneDevice one;
    Embedding embedding(one.init(), 3, 2);
    REQUIRE(embedding.weight().shape() == Shape{3, 2});
    one.device.upload_into(embedding.weight().value, f64({3, 2}, {1, 2, 3, 4, 5, 6}));

    Saved saved;
    const Tensor y = embedding.forward(one.device.upload(i32({1, 2}, {2, 0})), saved);
    CHECK(one.device.download(y) == f64({1, 2, 2}, {5, 6, 1, 2}));
    CHECK_FALSE(embedding.backward(y, saved));
}

TEST_CASE("LayerNorm's gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    LayerNorm norm(one.init("norm"), 6);
    one.device.upload_into(norm.weight().value, normal_values({6}, "weight"));
    one.device.upload_into(norm.bias().value, normal_values({6}, "bias"));
    require_true_gradients(one.device, norm, normal_values({4, 6}, "x"));
    require_true_gradients(one.device, norm, normal_values({2, 3, 6}, "x"));
}

TEST_CASE("LayerNorm starts as plain normalization", "[nn][sim]") {
    OneDevice one;
    LayerNorm norm(one.init("norm"), 4, /*epsilon=*/0.75);
    Saved saved;
    const Tensor x = one.device.upload(f64({1, 4}, {1, 2, 3, 4}));
    const HostTensor y = one.device.download(norm.forward(x, saved));
    // Mean 2.5, variance 1.25; sqrt(1.25 + 0.75) = sqrt(2).
    for (int i = 0; i < 4; ++i)
        CHECK_THAT(y.at(i), WithinAbs((i - 1.5) / std::sqrt(2.0), 1e-14));
    CHECK(norm.parameters()[0]->name() == "norm.weight");
    CHECK(norm.parameters()[1]->name() == "norm.bias");
}

TEST_CASE("Activations' gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    Tanh tanh(one.device);
    require_true_gradients(one.device, tanh, normal_values({3, 5}, "x"));
    Gelu gelu(one.device);
    require_true_gradients(one.device, gelu, normal_values({3, 5}, "x"));
    Gelu by_tanh(one.device, GeluForm::tanh);
    require_true_gradients(one.device, by_tanh, normal_values({3, 5}, "x"));
    CHECK(tanh.parameters().empty());
}

TEST_CASE("GELU is exact unless tanh is requested", "[nn][sim]") {
    OneDevice one;
    Gelu gelu(one.device);
    Saved saved;
    const Tensor x = one.device.upload(f64({3}, {0, 1, -2}));
    Gelu by_tanh(one.device, GeluForm::tanh);
    Saved other;
    const HostTensor z = one.device.download(by_tanh.forward(x, other));
    CHECK(z.at(0) == 0);
    CHECK_THAT(z.at(1), WithinAbs(0.841191990608276, 1e-14));
    CHECK_THAT(z.at(2), WithinAbs(-0.045402305912, 1e-12));
    const HostTensor y = one.device.download(gelu.forward(x, saved));
    CHECK(y.at(0) == 0);
    CHECK_THAT(y.at(1), WithinAbs(0.841344746068543, 1e-14));   // Phi(1)
    CHECK_THAT(y.at(2), WithinAbs(-0.045500263896358, 1e-14));  // -2 Phi(-2)
}

TEST_CASE("Flatten keeps the first dimension, and copies nothing", "[nn][sim]") {
    OneDevice one;
    Flatten flatten;
    require_true_gradients(one.device, flatten, normal_values({2, 3, 4}, "x"));

    Saved saved;
    const Tensor x = one.device.upload(normal_values({2, 3, 4}, "x"));
    const Tensor y = flatten.forward(x, saved);
    CHECK(y.shape() == Shape{2, 12});
    CHECK(y.storage() == x.storage());
    CHECK(flatten.backward(y, saved).shape() == Shape{2, 3, 4});
}

TEST_CASE("A chain of every layer has the gradients of finite differences", "[nn][sim]") {
    OneDevice one;
    Sequential chain;
    chain.add<Linear>(one.init("first"), 4, 6);
    chain.add<LayerNorm>(one.init("norm"), 6);
    chain.add<Gelu>(one.device);
    chain.add<Linear>(one.init("second"), 6, 4, /*bias=*/false);
    chain.add<Tanh>(one.device);
    chain.add<Flatten>();
    chain.add<Linear>(one.init("third"), 8, 3);
    require_true_gradients(one.device, chain, normal_values({3, 2, 4}, "x"));
}

TEST_CASE("A first layer computes no input gradient when none is wanted", "[nn][sim]") {
    OneDevice one;
    const HostTensor x = normal_values({5, 4}, "x"), dy = normal_values({5, 2}, "dy");
    Sequential chain;
    chain.add<Sequential>().add<Linear>(one.init("first"), 4, 3);
    chain.add<Tanh>(one.device);
    chain.add<Linear>(one.init("second"), 3, 2);

    for (const Backward backward : {Backward::whole, Backward::halves}) {
        chain.set_input_gradient(true);
        const Gradients full = gradients(one.device, chain, x, dy, backward);
        chain.set_input_gradient(false);
        one.monitor.operations.clear();
        const Gradients less = gradients(one.device, chain, x, dy, backward);
        CHECK(one.count("matmul") == 2 + 3);
        CHECK(full.input.shape() == Shape{5, 4});
        CHECK(less.input.elements() == 0);
        CHECK(less.parameters == full.parameters);
    }

    // The setting is chosen before the layer is added.
    Sequential late;
    late.set_input_gradient(false);
    late.add<Linear>(one.init("late"), 4, 2);
    CHECK(gradients(one.device, late, x, dy).input.elements() == 0);

    LayerNorm norm(one.init("norm"), 4);
    Tanh tanh(one.device);
    Gelu gelu(one.device);
    for (Module* module : std::vector<Module*>{&norm, &tanh, &gelu}) {
        module->set_input_gradient(false);
        Saved saved;
        const Tensor y = module->forward(one.device.upload(x), saved);
        CHECK_FALSE(module->backward(y, saved));
    }
}

TEST_CASE("A layer refuses what does not fit, in a sentence", "[nn][sim][errors]") {
    OneDevice one;
    Linear linear(one.init("hidden"), 10, 5);
    Saved saved;
    CHECK_THAT(refusal([&] {
                   linear.forward(one.device.zeros({25, 11}, DType::f64), saved);
               }),
               says("hidden.weight has shape (5, 10), so x must have 10 columns; got "
                    "shape (25, 11)"));
    linear.forward(one.device.zeros({25, 10}, DType::f64), saved);
    CHECK_THAT(refusal([&] {
                   linear.backward(one.device.zeros({25, 10}, DType::f64), saved);
               }),
               says("dy must have 5 columns; got shape (25, 10)"));
    CHECK_THAT(refusal([&] { Linear(one.init("hidden"), 0, 5); }),
               says("hidden.weight: a linear layer from 0 to 5 columns"));
    CHECK_THAT(refusal([&] { Embedding(one.init("table"), 3, 0); }),
               says("table.weight: an embedding of 3 rows and 0 columns"));
    CHECK_THAT(refusal([&] {
                   Saved other;
                   Flatten().forward(one.device.zeros({}, DType::f64), other);
               }),
               says("Flatten got a scalar"));
    CHECK_THAT(refusal([] { Sequential().add(nullptr); }), says("null"));
}

TEST_CASE("Ids must be i32", "[nn][sim][errors]") {
    OneDevice one;
    Embedding embedding(one.init("table"), 3, 2);
    Saved saved;
    CHECK_THROWS_AS(embedding.forward(one.device.zeros({4}, DType::f64), saved),
                    UsageError);
}

}  // namespace lockstep::nn_test
