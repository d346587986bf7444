#include "src/nn/batch_norm.hpp"

#include "tests/nn/finite_difference.hpp"

namespace lockstep::nn_test {

namespace {

/// The results of PyTorch's BatchNorm1d for a batch (rows, width), and its running
/// statistics after one step from zeros and ones.
struct Batch {
    HostTensor y, running_mean, running_variance;

    Batch(const HostTensor& x, const HostTensor& weight, const HostTensor& bias,
          double momentum)
        : y(x.shape(), DType::f64),
          running_mean(weight.shape(), DType::f64),
          running_variance(weight.shape(), DType::f64) {
        const std::int64_t rows = x.shape().matrix_rows(), width = x.shape().columns();
        const auto n = static_cast<double>(rows);
        for (std::int64_t j = 0; j < width; ++j) {
            double sum = 0, squares = 0;
            for (std::int64_t i = 0; i < rows; ++i)
                sum += x.at(i * width + j);
            for (std::int64_t i = 0; i < rows; ++i)
                squares += std::pow(x.at(i * width + j) - sum / n, 2);
            for (std::int64_t i = 0; i < rows; ++i)
                y.set(i * width + j, (x.at(i * width + j) - sum / n) /
                                             std::sqrt(squares / n + 1e-5) *
                                             weight.at(j) +
                                         bias.at(j));
            running_mean.set(j, momentum * sum / n);
            running_variance.set(j, 1 - momentum + momentum * squares / (n - 1));
        }
    }
};

}  // namespace

TEST_CASE("BatchNorm's gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    BatchNorm norm(one.init("norm"), 6);
    one.device.upload_into(norm.weight().value, normal_values({6}, "weight"));
    require_true_gradients(one.device, norm, normal_values({2, 3, 6}, "x"));
}

TEST_CASE("BatchNorm equals PyTorch's BatchNorm1d", "[nn][sim]") {
    OneDevice one;
    const double momentum = GENERATE(0.1, 0.4);
    BatchNorm norm(one.init("norm"), 5, {.momentum = momentum});
    const HostTensor weight = normal_values({5}, "weight");
    const HostTensor bias = normal_values({5}, "bias");
    one.device.upload_into(norm.weight().value, weight);
    one.device.upload_into(norm.bias().value, bias);
    const HostTensor x = normal_values({7, 5}, "x");
    const Batch expected(x, weight, bias, momentum);
    Saved saved;
    const Tensor y = norm.forward(one.device.upload(x), saved);
    CHECK(relative_difference(one.device.download(y), expected.y) <= 1e-14);
    const HostTensor mean = one.device.download(norm.running_mean());
    const HostTensor variance = one.device.download(norm.running_variance());
    CHECK(relative_difference(mean, expected.running_mean) <= 1e-14);
    CHECK(relative_difference(variance, expected.running_variance) <= 1e-14);

    // infer() uses the running statistics. It does not depend on the rest of the batch,
    // and does not change the statistics.
    const HostTensor other = normal_values({1, 5}, "other");
    HostTensor inferred({1, 5}, DType::f64);
    for (std::int64_t j = 0; j < 5; ++j)
        inferred.set(j, (other.at(j) - mean.at(j)) / std::sqrt(variance.at(j) + 1e-5) *
                                weight.at(j) +
                            bias.at(j));
    const HostTensor got = one.device.download(norm.infer(one.device.upload(other)));
    CHECK(relative_difference(got, inferred) <= 1e-14);
    CHECK(one.device.download(norm.running_mean()) == mean);
    CHECK(one.device.download(norm.running_variance()) == variance);
}

TEST_CASE("BatchNorm in bf16 is f32's, rounded, and its running statistics are f32",
          "[nn][sim]") {
    OneDevice one;
    BatchNorm narrow(one.init("norm", DType::bf16), 6);
    BatchNorm wide(one.init("norm", DType::f32), 6);
    const HostTensor x = normal_values({9, 6}, "x", DType::bf16);
    const HostTensor dy = normal_values({9, 6}, "dy", DType::bf16);
    const Gradients half = gradients(one.device, narrow, x, dy);
    const Gradients whole =
        gradients(one.device, wide, x.as(DType::f32), dy.as(DType::f32));
    CHECK(half.input == whole.input.as(DType::bf16));
    for (const auto& [name, gradient] : whole.parameters)
        CHECK(half.parameters.at(name) == gradient.as(DType::bf16));
    CHECK(narrow.running_mean().dtype() == DType::f32);
    CHECK(one.device.download(narrow.running_mean()) ==
          one.device.download(wide.running_mean()));
    CHECK(one.device.download(narrow.running_variance()) ==
          one.device.download(wide.running_variance()));
}

TEST_CASE("BatchNorm's running statistics are no parameters, and have names",
          "[nn][sim]") {
    OneDevice one;
    BatchNorm norm(one.init("norm"), 3);
    REQUIRE(norm.parameters().size() == 2);
    CHECK(norm.parameters()[0]->name() == "norm.weight");
    CHECK(norm.running_mean().label() == "norm.running_mean");
    CHECK(norm.running_variance().label() == "norm.running_var");
}

TEST_CASE("BatchNorm refuses a batch without a variance, and no width",
          "[nn][sim][errors]") {
    OneDevice one;
    BatchNorm norm(one.init("norm"), 3);
    const std::string alone = refusal([&] {
        Saved saved;
        norm.forward(one.device.upload(normal_values({1, 3}, "x")), saved);
    });
    CHECK_THAT(alone, says("norm.weight: a batch of shape (1, 3) has no variance"));
    CHECK_THAT(alone, says("batch_norm_test.cpp"));
    CHECK_THAT(refusal([&] { BatchNorm(one.init("norm"), 0); }),
               says("must be positive"));
}

TEST_CASE("A first BatchNorm computes no gradient of its input", "[nn][sim]") {
    OneDevice one;
    BatchNorm norm(one.init("norm"), 3);
    norm.set_input_gradient(false);
    const HostTensor x = normal_values({4, 3}, "x"), dy = normal_values({4, 3}, "dy");
    const Gradients first = gradients(one.device, norm, x, dy);
    CHECK(first.input.elements() == 0);
    CHECK(one.count("batch_norm_backward_input") == 0);
    BatchNorm inner(one.init("norm"), 3);
    CHECK(gradients(one.device, inner, x, dy).parameters == first.parameters);
}

}  // namespace lockstep::nn_test
