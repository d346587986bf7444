#include "src/nn/dropout.hpp"

#include "tests/nn/finite_difference.hpp"

namespace lockstep::nn_test {

namespace {

const RandomStream kNoise(11, "dropout");

}  // namespace

TEST_CASE("Dropout's gradient equals finite differences", "[nn][sim]") {
    OneDevice one;
    Dropout dropout(one.device, 0.4, kNoise);
    dropout.set_part({17, 9});
    require_true_gradients(one.device, dropout, normal_values({2, 3, 8}, "x"));
}

TEST_CASE("Dropout keeps the expectation, and infer() keeps everything", "[nn][sim]") {
    OneDevice one;
    Dropout dropout(one.device, 0.25, kNoise);
    HostTensor ones({100, 40}, DType::f64);
    for (std::int64_t i = 0; i < ones.elements(); ++i)
        ones.set(i, 1);
    Saved saved;
    const HostTensor y =
        one.device.download(dropout.forward(one.device.upload(ones), saved));
    double sum = 0;
    std::int64_t dropped = 0;
    for (std::int64_t i = 0; i < y.elements(); ++i) {
        sum += y.at(i);
        dropped += y.at(i) == 0 ? 1 : 0;
    }
    // With 4000 trials, the number of dropped elements has a deviation of 27.
    CHECK(std::abs(static_cast<double>(dropped) - 1000) < 4 * 27);
    CHECK(std::abs(sum * 0.75 - static_cast<double>(4000 - dropped)) < 1e-9);
    CHECK(one.device.download(dropout.infer(one.device.upload(ones))) == ones);
}

TEST_CASE("Backward drops what its own forward dropped, even after other forwards",
          "[nn][sim]") {
    OneDevice one;
    Dropout dropout(one.device, 0.5, kNoise);
    const HostTensor x = normal_values({6, 5}, "x");
    const Tensor on_device = one.device.upload(x);
    Saved first, second;
    dropout.set_part(0);
    const HostTensor y = one.device.download(dropout.forward(on_device, first));
    dropout.set_part(30);
    const HostTensor next = one.device.download(dropout.forward(on_device, second));
    CHECK_FALSE(y == next);
    CHECK(one.device.download(dropout.backward(on_device, first)) == y);
    CHECK(one.device.download(dropout.backward(on_device, second)) == next);
}

TEST_CASE("Dropout of parts of a batch equals dropout of the batch", "[nn][sim]") {
    OneDevice one;
    Dropout dropout(one.device, 0.5, kNoise);
    const HostTensor x = normal_values({7, 4}, "x");
    const HostTensor whole = one.device.download(dropout.infer(one.device.upload(x)));
    CHECK(whole == x);
    Saved saved;
    const HostTensor y =
        one.device.download(dropout.forward(one.device.upload(x), saved));
    dropout.set_part(12);
    Saved of_part;
    CHECK(one.device.download(
              dropout.forward(one.device.upload(x.rows(3, 2)), of_part)) == y.rows(3, 2));
}

TEST_CASE("Dropout refuses a number that is no probability", "[nn][sim][errors]") {
    OneDevice one;
    for (const double wrong : {1.0, -0.1, std::nan("")})
        CHECK_THAT(refusal([&] { Dropout(one.device, wrong, kNoise); }),
                   says("it must be in [0, 1)"));
}

}  // namespace lockstep::nn_test
