#include "src/nn/losses.hpp"

#include "tests/nn/finite_difference.hpp"

namespace lockstep::nn_test {

using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

double value_of(OneDevice& one, const LossResult& result) {
    REQUIRE(result.loss.shape() == Shape{1});
    return one.device.download(result.loss).at(0);
}

/// Requires that the loss's gradient agrees with finite differences.
void require_true_gradient(OneDevice& one, const Loss& loss, const HostTensor& prediction,
                           const HostTensor& target) {
    constexpr double kWeight = 0.3;
    const Tensor there = one.device.upload(target);
    const auto at = [&](const HostTensor& changed) {
        return value_of(one,
                        loss(one.device, one.device.upload(changed), there, kWeight));
    };
    const LossResult result =
        loss(one.device, one.device.upload(prediction), there, kWeight);
    CHECK(relative_difference(one.device.download(result.gradient),
                              central_differences(prediction, at)) <= 1e-6);
}

/// Requires that parts of a batch add up to the whole, if each is weighted by its rows.
void require_shares_add_up(OneDevice& one, const Loss& loss, const HostTensor& prediction,
                           const HostTensor& target) {
    const auto of_rows = [&](std::int64_t begin, std::int64_t count, double weight) {
        return loss(one.device, one.device.upload(prediction.rows(begin, count)),
                    one.device.upload(target.rows(begin, count)), weight);
    };
    const LossResult whole = of_rows(0, 7, 1);
    const LossResult first = of_rows(0, 2, 2.0 / 7), second = of_rows(2, 5, 5.0 / 7);
    CHECK_THAT(value_of(one, first) + value_of(one, second),
               WithinRel(value_of(one, whole), 1e-14));
    const HostTensor gradient = one.device.download(whole.gradient);
    CHECK(relative_difference(one.device.download(first.gradient), gradient.rows(0, 2)) <=
          1e-14);
    CHECK(relative_difference(one.device.download(second.gradient),
                              gradient.rows(2, 5)) <= 1e-14);
}

}  // namespace

TEST_CASE("The mean squared error is the mean over all elements", "[nn][sim]") {
    OneDevice one;
    const Tensor prediction = one.device.upload(f64({2, 2}, {1, 2, 3, 4}));
    const Tensor target = one.device.upload(f64({2, 2}, {1, 0, 0, 8}));
    // The squares 0, 4, 9, 16 have the mean 29 / 4. The derivatives are 2 (p - t) / 4.
    const LossResult plain = mean_squared_error(one.device, prediction, target);
    CHECK(value_of(one, plain) == 7.25);
    CHECK(one.device.download(plain.gradient) == f64({2, 2}, {0, 1, 1.5, -2}));
    const LossResult weighted = mean_squared_error(one.device, prediction, target, 0.25);
    CHECK(value_of(one, weighted) == 7.25 / 4);
    CHECK(one.device.download(weighted.gradient) == f64({2, 2}, {0, 0.25, 0.375, -0.5}));
}

TEST_CASE("The cross entropy of equal logits is the log of the classes", "[nn][sim]") {
    OneDevice one;
    const Tensor logits = one.device.zeros({3, 4}, DType::f64);
    const Tensor targets = one.device.upload(i32({3}, {0, 3, 1}));
    const LossResult result = cross_entropy_loss(one.device, logits, targets);
    CHECK_THAT(value_of(one, result), WithinAbs(std::log(4.0), 1e-15));
    // (softmax - one hot) / rows is 1/12, and 1/12 - 1/3 at the target.
    const HostTensor gradient = one.device.download(result.gradient);
    for (int i = 0; i < 12; ++i)
        CHECK_THAT(gradient.at(i),
                   WithinAbs(i == 0 || i == 7 || i == 9 ? -0.25 : 1.0 / 12, 1e-15));
}

TEST_CASE("The cross entropy of two classes is softplus, also where exp overflows",
          "[nn][sim]") {
    OneDevice one;
    const Tensor logits = one.device.upload(f64({2, 2}, {2, -1, 1000, 0}));
    const Tensor targets = one.device.upload(i32({2}, {1, 0}));
    const LossResult result = cross_entropy_loss(one.device, logits, targets, 3);
    CHECK_THAT(value_of(one, result),
               WithinRel(3 * std::log1p(std::exp(3.0)) / 2, 1e-14));
}

TEST_CASE("Losses' gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    require_true_gradient(one, mean_squared_error, normal_values({4, 3}, "p"),
                          normal_values({4, 3}, "t"));
    require_true_gradient(one, cross_entropy_loss, normal_values({4, 3}, "p"),
                          i32({4}, {2, 0, 0, 1}));
}

TEST_CASE("Losses of unequal shares add up to the loss of the batch", "[nn][sim]") {
    OneDevice one;
    require_shares_add_up(one, mean_squared_error, normal_values({7, 3}, "p"),
                          normal_values({7, 3}, "t"));
    require_shares_add_up(one, cross_entropy_loss, normal_values({7, 3}, "p"),
                          i32({7}, {2, 0, 0, 1, 2, 1, 1}));
}

TEST_CASE("A loss may be a user's own function", "[nn][sim]") {
    OneDevice one;
    const Loss doubled = [](Device& device, const Tensor& prediction,
                            const Tensor& target, double weight) {
        return mean_squared_error(device, prediction, target, 2 * weight);
    };
    const Loss& own = doubled;
    const Tensor prediction = one.device.upload(f64({1}, {3}));
    const Tensor target = one.device.upload(f64({1}, {1}));
    CHECK(value_of(one, own(one.device, prediction, target)) == 8);
}

TEST_CASE("A loss refuses an empty batch and what does not fit, and names the line",
          "[nn][sim][errors]") {
    OneDevice one;
    const Tensor none = one.device.zeros({0, 3}, DType::f64);
    const Tensor no_ids = one.device.zeros({0}, DType::i32);
    const Tensor some = one.device.zeros({2, 3}, DType::f64);
    const Loss loss = mean_squared_error;

    const int line = __LINE__ + 1;
    const std::string sentence = refusal([&] { loss(one.device, none, none); });
    CHECK_THAT(sentence, says("mean_squared_error of a batch of shape (0, 3)"));
    CHECK_THAT(sentence, says("losses_test.cpp:" + std::to_string(line)));
    CHECK_THAT(refusal([&] { cross_entropy_loss(one.device, none, no_ids); }),
               says("cross_entropy_loss of a batch of shape (0, 3)"));
    CHECK_THROWS_AS(loss(one.device, some, none), UsageError);
    CHECK_THROWS_AS(loss(one.device, {}, none), UsageError);
    CHECK_THROWS_AS(cross_entropy_loss(one.device, some, no_ids), UsageError);
}

TEST_CASE("Targets in another order than the logits' rows are refused", "[nn][errors]") {
    OneDevice one;
    const Tensor logits = one.device.zeros({3, 2, 5}, DType::f64);
    const auto loss_of = [&](Shape shape) {
        return refusal([&] {
            cross_entropy_loss(one.device, logits, one.device.zeros(shape, DType::i32));
        });
    };
    CHECK(loss_of({3, 2}) == "nothing was refused");
    CHECK(loss_of({6}) == "nothing was refused");
    CHECK_THAT(loss_of({2, 3}),
               says("targets have shape (2, 3) for logits of shape (3, 2, 5)"));
}

}  // namespace lockstep::nn_test
