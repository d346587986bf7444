#include "src/nn/module.hpp"

#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/norm.hpp"
#include "src/nn/sequential.hpp"
#include "tests/nn/finite_difference.hpp"

namespace lockstep::nn_test {

namespace {

std::unique_ptr<Sequential> make_chain(OneDevice& one) {
    auto chain = std::make_unique<Sequential>();
    chain->add<Linear>(one.init("first"), 4, 6);
    chain->add<LayerNorm>(one.init("norm"), 6);
    chain->add<Gelu>(one.device);
    chain->add<Linear>(one.init("second"), 6, 3);
    return chain;
}

}  // namespace

TEST_CASE("Two micro-batches accumulate to the gradient of their batch", "[nn][sim]") {
    OneDevice one;
    const auto chain = make_chain(one);
    const HostTensor x = normal_values({8, 4}, "x"), dy = normal_values({8, 3}, "dy");
    const Gradients batch = gradients(one.device, *chain, x, dy);

    zero_gradients(*chain);
    for (const int begin : {0, 5}) {
        const int count = begin == 0 ? 5 : 3;
        Saved saved;
        chain->forward(one.device.upload(x.rows(begin, count)), saved);
        chain->backward(one.device.upload(dy.rows(begin, count)), saved);
    }
    for (const Parameter* parameter : chain->parameters()) {
        INFO(parameter->name());
        CHECK(relative_difference(one.device.download(parameter->gradient),
                                  batch.parameters.at(parameter->name())) <= 1e-14);
    }
}

TEST_CASE("Micro-batches in flight do not disturb each other", "[nn][sim]") {
    OneDevice one;
    const auto chain = make_chain(one);
    const HostTensor x = normal_values({9, 4}, "x"), dy = normal_values({9, 3}, "dy");
    const auto part = [&](const HostTensor& whole, std::int64_t m) {
        return one.device.upload(whole.rows(3 * m, 3));
    };

    // One micro-batch after another, in the order 1, 0, 2.
    zero_gradients(*chain);
    std::vector<HostTensor> dx(3);
    for (const int m : {1, 0, 2}) {
        Saved saved;
        chain->forward(part(x, m), saved);
        dx[static_cast<std::size_t>(m)] =
            one.device.download(chain->backward(part(dy, m), saved));
    }
    std::vector<HostTensor> expected;
    for (const Parameter* parameter : chain->parameters())
        expected.push_back(one.device.download(parameter->gradient));

    // All micro-batches are in flight at once. Backward is in separate halves.
    zero_gradients(*chain);
    std::vector<Saved> saved(3);
    for (const int m : {0, 1, 2})
        chain->forward(part(x, m), saved[static_cast<std::size_t>(m)]);
    for (const int m : {2, 1, 0}) {
        const auto i = static_cast<std::size_t>(m);
        CHECK(one.device.download(chain->backward_input(part(dy, m), saved[i])) == dx[i]);
    }
    for (const int m : {1, 0, 2})
        chain->backward_weight(saved[static_cast<std::size_t>(m)]);
    for (std::size_t i = 0; i < expected.size(); ++i)
        CHECK(one.device.download(chain->parameters()[i]->gradient) == expected[i]);
}

TEST_CASE("A Saved that serves two micro-batches at once is refused",
          "[nn][sim][errors]") {
    OneDevice one;
    Linear linear(one.init("layer"), 2, 2);
    const Tensor x = one.device.zeros({1, 2}, DType::f64);
    Saved saved;
    linear.forward(x, saved);
    CHECK_THAT(refusal([&] { linear.forward(x, saved); }),
               says("already has \"x\" of another forward"));
    saved.clear();
    linear.forward(x, saved);
    linear.backward(x, saved);
    CHECK_THAT(refusal([&] { linear.backward(x, saved); }),
               says("backward needs \"x\", which this Saved does not hold"));
}

TEST_CASE("A Saved without a backward can be cleared, parts and all", "[nn][sim]") {
    OneDevice one;
    const auto chain = make_chain(one);
    const Tensor x = one.device.upload(normal_values({2, 4}, "x"));
    Saved saved;
    const HostTensor y = one.device.download(chain->forward(x, saved));
    saved.clear();
    CHECK(one.device.download(chain->forward(x, saved)) == y);
}

TEST_CASE("A layer that needs a gradient that the next layer cannot give is reported",
          "[nn][sim][errors]") {
    OneDevice one;
    Sequential chain;
    Linear& first = chain.add<Linear>(one.init("first"), 2, 2);
    chain.add<Linear>(one.init("second"), 2, 2).set_input_gradient(false);
    const Tensor x = one.device.zeros({1, 2}, DType::f64);
    Saved saved;
    chain.forward(x, saved);
    CHECK_THAT(refusal([&] { chain.backward(x, saved); }),
               says("backward was given no gradient"));
    CHECK_THAT(refusal([&] { first.backward_input({}, saved); }),
               says("backward was given no gradient"));
}

}  // namespace lockstep::nn_test
