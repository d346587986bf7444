#include "src/nn/char_model.hpp"

#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "tests/nn/finite_difference.hpp"

namespace lockstep::nn_test {

using Catch::Matchers::WithinAbs;

namespace {

constexpr CharModelSizes kSizes{.vocabulary = 5, .context = 3, .width = 2, .hidden = 4};

}  // namespace

TEST_CASE("The character model has the names, shapes and order of a state_dict",
          "[nn][sim]") {
    OneDevice one;
    const auto model = make_char_model(one.init(), kSizes);
    std::vector<std::pair<std::string, std::string>> found;
    for (const Parameter* parameter : model->parameters())
        found.emplace_back(parameter->name(), parameter->value.shape().text());
    CHECK(found ==
          std::vector<std::pair<std::string, std::string>>{{"embedding.weight", "(5, 2)"},
                                                           {"hidden.weight", "(4, 6)"},
                                                           {"hidden.bias", "(4)"},
                                                           {"output.weight", "(5, 4)"},
                                                           {"output.bias", "(5)"}});
    const auto part = make_char_model(one.init("teacher"), kSizes);
    CHECK(part->parameters()[1]->name() == "teacher.hidden.weight");
}

TEST_CASE("The character model has the gradients of finite differences", "[nn][sim]") {
    OneDevice one;
    const auto model = make_char_model(one.init(), kSizes);
    require_true_gradients(one.device, *model, ids_below({4, 3}, 5, "ids"));
}

TEST_CASE("Initial values depend only on seed, name and index", "[nn][sim]") {
    OneDevice one;
    const auto model = make_char_model(one.init(), kSizes);
    const auto value = [&](std::size_t i) {
        return one.device.download(model->parameters()[i]->value);
    };

    const RandomStream table(7, "embedding.weight"), weight(7, "hidden.weight"),
        bias(7, "hidden.bias");
    for (std::uint64_t i = 0; i < 10; ++i)
        CHECK_THAT(value(0).at(static_cast<std::int64_t>(i)),
                   WithinAbs(table.normal(i), 1e-15));
    // Both layers have 6 inputs, so both are uniform in ±1/sqrt(6).
    const double bound = 1 / std::sqrt(6.0);
    for (std::uint64_t i = 0; i < 24; ++i)
        CHECK_THAT(value(1).at(static_cast<std::int64_t>(i)),
                   WithinAbs(bound * (2 * weight.uniform(i) - 1), 1e-15));
    for (std::uint64_t i = 0; i < 4; ++i)
        CHECK_THAT(value(2).at(static_cast<std::int64_t>(i)),
                   WithinAbs(bound * (2 * bias.uniform(i) - 1), 1e-15));
}

TEST_CASE("A shard of the rows draws its slice of the whole's values", "[nn][sim]") {
    OneDevice one;
    Linear whole(one.init("hidden"), 6, 8);
    const double bound = 1 / std::sqrt(6.0);
    const Tensor shard = one.device.empty({2, 6}, DType::f64);
    one.device.random_uniform(shard, RandomStream(7, "hidden.weight"), -bound, bound,
                              /*part=*/30);
    CHECK(one.device.download(shard) ==
          one.device.download(whole.weight().value).rows(5, 2));
}

TEST_CASE("Another seed or name gives other values; f32 values are rounded f64 values",
          "[nn][sim]") {
    OneDevice one;
    const auto weight = [&](std::uint64_t seed, const std::string& name, DType dtype) {
        Linear linear({one.device, dtype, seed, name}, 6, 8);
        return one.device.download(linear.weight().value);
    };
    const HostTensor first = weight(7, "a", DType::f64);
    CHECK(weight(7, "a", DType::f64) == first);
    CHECK_FALSE(weight(8, "a", DType::f64) == first);
    CHECK_FALSE(weight(7, "b", DType::f64) == first);
    CHECK(relative_difference(weight(7, "a", DType::f32), first) <= 1e-7);
}

TEST_CASE("The character model learns a text by heart", "[nn][sim]") {
    OneDevice one;
    const std::int64_t count = 12;
    const auto model =
        make_char_model(one.init("", DType::f32),
                        {.vocabulary = 5, .context = 3, .width = 4, .hidden = 16});
    // Different contexts: row r has the digits of r in base 5, low digit first.
    std::vector<std::int32_t> digits;
    for (std::int32_t i = 0; i < count; ++i)
        digits.insert(digits.end(), {i % 5, i / 5, 0});
    const Tensor x = one.device.upload(i32({count, 3}, digits));
    const Tensor targets = one.device.upload(ids_below({count}, 5, "targets"));
    AdamW adamw(model->parameters(), {.learning_rate = 0.05});

    double first = 0, last = 0;
    for (int step = 0; step < 100; ++step) {
        Saved saved;
        zero_gradients(*model);
        const LossResult result =
            cross_entropy_loss(one.device, model->forward(x, saved), targets);
        model->backward(result.gradient, saved);
        adamw.step();
        last = one.device.download(result.loss).at(0);
        if (step == 0) first = last;
    }
    CHECK(first > 1);
    CHECK(last < 0.02);
}

TEST_CASE("Operations are the same with shapes only as with numbers", "[nn][sim]") {
    const auto operations = [](bool numbers) {
        OneDevice one(numbers);
        const auto model = make_char_model(one.init(), kSizes);
        AdamW adamw(model->parameters());
        Saved saved;
        const Tensor x = one.device.upload(ids_below({4, 3}, 5, "ids"));
        const Tensor targets = one.device.upload(ids_below({4}, 5, "targets"));
        const LossResult result =
            cross_entropy_loss(one.device, model->forward(x, saved), targets);
        model->backward(result.gradient, saved);
        adamw.step();
        std::vector<std::pair<std::string, std::int64_t>> seen;
        for (const auto& operation : one.monitor.operations)
            seen.emplace_back(operation.name, operation.bytes);
        return seen;
    };
    CHECK(operations(false) == operations(true));
}

TEST_CASE("The character model refuses windows of another length", "[nn][sim][errors]") {
    OneDevice one;
    const auto model = make_char_model(one.init(), kSizes);
    Saved saved;
    CHECK_THAT(refusal([&] {
                   model->forward(one.device.zeros({2, 4}, DType::i32), saved);
               }),
               says("hidden.weight has shape (4, 6), so x must have 6 columns; got shape "
                    "(2, 8)"));
}

}  // namespace lockstep::nn_test
