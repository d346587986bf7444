#include "src/nn/optimizer.hpp"

#include <functional>

#include "src/nn/linear.hpp"
#include "tests/nn/fixture.hpp"

namespace lockstep::nn_test {

using Catch::Matchers::WithinRel;

namespace {

constexpr int kSteps = 10;

/// The gradient of element i in step t.
double gradient_of(int t, std::int64_t i) {
    return std::sin(1.0 + t) * static_cast<double>(i + 1) + 0.1 * static_cast<double>(i);
}

/// Runs `kSteps` steps on the parameter. After each step t (from 1), requires that every
/// element is update(i, t, p, g).
void require_updates(
    OneDevice& one, Parameter& parameter, Optimizer& optimizer,
    const std::function<double(std::int64_t, int, double, double)>& update) {
    HostTensor expected = one.device.download(parameter.value);
    HostTensor gradient(expected.shape(), DType::f64);
    for (int t = 1; t <= kSteps; ++t) {
        for (std::int64_t i = 0; i < gradient.elements(); ++i) {
            gradient.set(i, gradient_of(t, i));
            expected.set(i, update(i, t, expected.at(i), gradient.at(i)));
        }
        one.device.upload_into(parameter.gradient, gradient);
        optimizer.step();
        INFO("step " << t);
        CHECK(relative_difference(one.device.download(parameter.value), expected) <=
              1e-13);
        CHECK(one.device.download(parameter.gradient) == gradient);
    }
}

struct OneParameter : OneDevice {
    Parameter parameter{init("p"), "weight", {2, 3}};
    OneParameter() {
        device.upload_into(parameter.value, normal_values({2, 3}, "start"));
    }
};

}  // namespace

TEST_CASE("SGD subtracts the learning rate times the gradient", "[nn][sim]") {
    OneParameter one;
    Sgd sgd({&one.parameter}, {.learning_rate = 0.1});
    require_updates(one, one.parameter, sgd,
                    [](std::int64_t, int, double p, double g) { return p - 0.1 * g; });
    CHECK(sgd.state().empty());
}

TEST_CASE("SGD with momentum and weight decay follows its update rule", "[nn][sim]") {
    OneParameter one;
    Sgd sgd({&one.parameter},
            {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.05});
    std::vector<double> v(6, 0.0);
    require_updates(one, one.parameter, sgd,
                    [&](std::int64_t i, int, double p, double g) {
                        double& velocity = v[static_cast<std::size_t>(i)];
                        velocity = 0.9 * velocity + (g + 0.05 * p);
                        return p - 0.1 * velocity;
                    });
    REQUIRE(sgd.state().size() == 1);
    CHECK(sgd.state()[0].name == "momentum_buffer/p.weight");
    CHECK(relative_difference(one.device.download(sgd.state()[0].tensor),
                              f64({2, 3}, v)) <= 1e-13);
}

TEST_CASE("Momentum sums a geometric series of a constant gradient", "[nn][sim]") {
    OneParameter one;
    one.device.fill(one.parameter.value, 0);
    one.device.fill(one.parameter.gradient, 1);
    Sgd sgd({&one.parameter}, {.learning_rate = 0.5, .momentum = 0.5});
    for (int t = 0; t < 3; ++t)
        sgd.step();
    // Velocities 1, 3/2 and 7/4 add up to 17/4.
    CHECK(one.device.download(one.parameter.value).at(5) == -0.5 * 17 / 4);
}

TEST_CASE("AdamW follows algorithm 2 of Loshchilov and Hutter", "[nn][sim]") {
    OneParameter one;
    const AdamWOptions options{.learning_rate = 0.02,
                               .beta1 = 0.8,
                               .beta2 = 0.95,
                               .epsilon = 1e-3,
                               .weight_decay = 0.1};
    AdamW adamw({&one.parameter}, options);
    std::vector<double> m(6, 0.0), v(6, 0.0);
    require_updates(
        one, one.parameter, adamw, [&](std::int64_t i, int t, double p, double g) {
            double& first = m[static_cast<std::size_t>(i)];
            double& second = v[static_cast<std::size_t>(i)];
            first = 0.8 * first + 0.2 * g;
            second = 0.95 * second + 0.05 * g * g;
            const double unbiased_first = first / (1 - std::pow(0.8, t));
            const double unbiased_second = second / (1 - std::pow(0.95, t));
            return p - 0.02 * (unbiased_first / (std::sqrt(unbiased_second) + 1e-3)) -
                   0.02 * 0.1 * p;
        });
    CHECK(adamw.steps() == std::vector<std::int64_t>(adamw.parameters().size(), kSteps));
    REQUIRE(adamw.state().size() == 2);
    CHECK(adamw.state()[0].name == "exp_avg/p.weight");
    CHECK(adamw.state()[1].name == "exp_avg_sq/p.weight");
    CHECK(relative_difference(one.device.download(adamw.state()[0].tensor),
                              f64({2, 3}, m)) <= 1e-13);
    CHECK(relative_difference(one.device.download(adamw.state()[1].tensor),
                              f64({2, 3}, v)) <= 1e-13);
}

TEST_CASE("AdamW's first step is the learning rate, for any size of the gradient",
          "[nn][sim]") {
    OneParameter one;
    one.device.fill(one.parameter.value, 0);
    one.device.upload_into(one.parameter.gradient, f64({2, 3}, {1, -1, 9, -9, 50, 1e4}));
    AdamW adamw({&one.parameter}, {.learning_rate = 0.01, .epsilon = 0});
    adamw.step();
    const HostTensor value = one.device.download(one.parameter.value);
    for (int i = 0; i < 6; ++i)
        CHECK_THAT(value.at(i), WithinRel(i == 1 || i == 3 ? 0.01 : -0.01, 1e-14));
}

TEST_CASE("The learning rate may change between steps", "[nn][sim]") {
    OneParameter one;
    one.device.fill(one.parameter.value, 0);
    one.device.fill(one.parameter.gradient, 1);
    Sgd sgd({&one.parameter}, {.learning_rate = 1});
    sgd.step();
    sgd.groups.front().options.learning_rate = 0.25;
    sgd.step();
    CHECK(one.device.download(one.parameter.value).at(0) == -1.25);
}

TEST_CASE("An optimizer updates every parameter, with a state for each", "[nn][sim]") {
    OneDevice one;
    Linear linear(one.init("layer"), 3, 2);
    AdamW adamw(linear.parameters());
    CHECK(adamw.parameters() == linear.parameters());
    std::vector<std::string> names;
    for (const Optimizer::State& state : adamw.state())
        names.push_back(state.name);
    CHECK(names == std::vector<std::string>{"exp_avg/layer.weight", "exp_avg/layer.bias",
                                            "exp_avg_sq/layer.weight",
                                            "exp_avg_sq/layer.bias"});
    std::vector<HostTensor> before;
    for (Parameter* parameter : linear.parameters()) {
        one.device.fill(parameter->gradient, 1);
        before.push_back(one.device.download(parameter->value));
    }
    adamw.step();
    for (std::size_t i = 0; i < 2; ++i)
        CHECK_FALSE(one.device.download(linear.parameters()[i]->value) == before[i]);
}

TEST_CASE("An optimizer refuses a parameter that is absent or given twice",
          "[nn][sim][errors]") {
    OneParameter one;
    CHECK_THAT(refusal([&] {
                   Sgd({&one.parameter, &one.parameter});
               }),
               says("an optimizer was given p.weight twice"));
    CHECK_THAT(refusal([] { Sgd({nullptr}); }), says("a null parameter"));
    one.parameter.value = {};
    CHECK_THAT(refusal([&] { AdamW({&one.parameter}); }),
               says("an optimizer was given p.weight, which has no value here"));
}

}  // namespace lockstep::nn_test
