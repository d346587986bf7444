#pragma once

#include "tests/device/support.hpp"

namespace lockstep::test {

/// Batch norm and its gradients by their definitions, column by column.
struct BatchReference {
    std::int64_t rows, columns;
    std::vector<double> mean, squares, rstd;

    BatchReference(const HostTensor& x, double epsilon)
        : rows(x.shape().matrix_rows()), columns(x.shape().columns()) {
        const auto n = static_cast<double>(rows);
        for (std::int64_t j = 0; j < columns; ++j) {
            double sum = 0, distances = 0;
            for (std::int64_t i = 0; i < rows; ++i)
                sum += x.at(i * columns + j);
            for (std::int64_t i = 0; i < rows; ++i)
                distances += std::pow(x.at(i * columns + j) - sum / n, 2);
            mean.push_back(sum / n);
            squares.push_back(distances);
            rstd.push_back(1 / std::sqrt(distances / n + epsilon));
        }
    }
    double normalized(const HostTensor& x, std::int64_t at) const {
        const auto j = static_cast<std::size_t>(at % columns);
        return (x.at(at) - mean[j]) * rstd[j];
    }
};

inline const std::vector<Shape> kBatches = {
    Shape{2, 1},     Shape{3, 7},    Shape{33, 16}, Shape{257, 5},
    Shape{2, 3, 40}, Shape{1000, 4}, Shape{9, 515}};

TEST_CASE("Batch norm's statistics equal their definitions", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(from_range(kBatches));
    CAPTURE(shape.text());
    Bench bench;
    const double epsilon = 1e-3, momentum = 0.25;
    const std::int64_t rows = shape.matrix_rows(), columns = shape.columns();
    const HostTensor x = random_values(shape, dtype, "x", -2, 3);
    const HostTensor before = random_values({columns}, dtype, "before", 0, 2);
    const BatchReference reference(x, epsilon);
    const auto n = static_cast<double>(rows);

    Expected sums({columns + 1}, dtype), squares({columns}, dtype),
        mean({columns}, dtype), rstd({columns}, dtype), running_mean({columns}, dtype),
        running_variance({columns}, dtype);
    for (std::int64_t j = 0; j < columns; ++j) {
        const auto k = static_cast<std::size_t>(j);
        const double distances = reference.squares[k];
        sums.add(n * reference.mean[k], 3 * std::sqrt(n), n);
        squares.add(distances, distances + 9 * std::sqrt(n), n);
        mean.add(reference.mean[k], 3, n);
        rstd.add(reference.rstd[k], 9 * std::pow(reference.rstd[k], 3) + 1, n);
        const auto gone_on = [&](double now) {
            return before.at(j) + momentum * (now - before.at(j));
        };
        running_mean.add(gone_on(reference.mean[k]), 3, n);
        running_variance.add(gone_on(distances / (n - 1)), 25, n);
    }
    sums.add(n);

    const Tensor on_device = bench->upload(x);
    const Tensor made = bench->batch_sums(on_device);
    sums.check(bench->download(made));
    REQUIRE(bench->download(made).at(columns) == n);
    const Tensor distances = bench->batch_squares(on_device, made);
    squares.check(bench->download(distances));
    const RunningMoments running{bench->upload(before), bench->upload(before), momentum};
    const Normalized moments = bench->batch_moments(made, distances, running, epsilon);
    REQUIRE_FALSE(moments.y);
    mean.check(bench->download(moments.mean));
    rstd.check(bench->download(moments.rstd));
    running_mean.check(bench->download(running.mean));
    running_variance.check(bench->download(running.variance));
    // The moments do not depend on running statistics.
    const Normalized alone = bench->batch_moments(made, distances, {}, epsilon);
    REQUIRE(bench->download(alone.mean) == bench->download(moments.mean));
    REQUIRE(bench->download(alone.rstd) == bench->download(moments.rstd));
}

TEST_CASE("Batch norm of no rows does not change the running statistics", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const HostTensor before = random_values({5}, dtype, "before", 0, 2);
    const Tensor nothing = bench->empty({0, 5}, dtype);
    const Tensor sums = bench->batch_sums(nothing);
    const Tensor squares = bench->batch_squares(nothing, sums);
    const RunningMoments running{bench->upload(before), bench->upload(before), 0.25};
    const Normalized moments = bench->batch_moments(sums, squares, running, 1e-2);
    REQUIRE(bench->download(running.mean) == before);
    REQUIRE(bench->download(running.variance) == before);
    const HostTensor mean = bench->download(moments.mean);
    const HostTensor rstd = bench->download(moments.rstd);
    for (int j = 0; j < 5; ++j) {
        REQUIRE(mean.at(j) == 0);
        REQUIRE(std::abs(rstd.at(j) - 10) < 1e-5);
    }
}

TEST_CASE("Batch norm and its gradients equal their definitions", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(from_range(kBatches));
    CAPTURE(shape.text());
    Bench bench;
    const double epsilon = 0.1;
    const std::int64_t rows = shape.matrix_rows(), columns = shape.columns();
    const HostTensor x = random_values(shape, dtype, "x", -2, 3);
    const HostTensor dy = random_values(shape, dtype, "dy");
    const HostTensor weight = random_values({columns}, dtype, "weight");
    const HostTensor bias = random_values({columns}, dtype, "bias");
    const BatchReference reference(x, epsilon);
    const auto n = static_cast<double>(rows);

    // The number of rows in the whole batch. Other devices have the other rows.
    const double all = n + 3;
    Expected y(shape, dtype), dx(shape, dtype), sums({2, columns}, dtype);
    std::vector<Sum> along_ones(static_cast<std::size_t>(columns));
    std::vector<Sum> along_x = along_ones;
    for (std::int64_t at = 0; at < shape.elements(); ++at) {
        const auto j = static_cast<std::size_t>(at % columns);
        const double r = reference.rstd[j], normalized = reference.normalized(x, at);
        y.add(normalized * weight.at(at % columns) + bias.at(at % columns),
              3 * (1 + 3 * r + 9 * r * r), n);
        along_ones[j].add(dy.at(at));
        along_x[j].add(dy.at(at) * normalized);
    }
    for (std::int64_t at = 0; at < shape.elements(); ++at) {
        const auto j = static_cast<std::size_t>(at % columns);
        const double r = reference.rstd[j];
        dx.add(r * weight.at(at % columns) *
                   (dy.at(at) - along_ones[j].value / all -
                    reference.normalized(x, at) * along_x[j].value / all),
               5 * r * (1 + 9 * r * r), n);
    }
    for (const Sum& sum : along_ones)
        sum.expect(sums);
    for (std::size_t j = 0; j < along_x.size(); ++j)
        sums.add(along_x[j].value,
                 9 * (1 + std::pow(reference.rstd[j], 3)) * std::sqrt(n), n);

    const Tensor on_device = bench->upload(x), gradient = bench->upload(dy);
    const Tensor gain = bench->upload(weight);
    const Tensor batch = bench->batch_sums(on_device);
    const Normalized moments =
        bench->batch_moments(batch, bench->batch_squares(on_device, batch), {}, epsilon);
    y.check(bench->download(
        bench->batch_norm(on_device, moments, gain, bench->upload(bias))));
    const Tensor made = bench->batch_norm_backward_sums(gradient, on_device, moments);
    sums.check(bench->download(made));
    const Tensor count = bench->empty({1}, dtype);
    bench->fill(count, all);
    dx.check(bench->download(bench->batch_norm_backward_input(gradient, on_device, gain,
                                                              moments, made, count)));
}

TEST_CASE("Batch norm of a large offset keeps its digits", kTags) {
    // E[x^2] - E[x]^2 would lose all digits: (1000 + d)^2 needs 12 digits and f32 has 7.
    // Sums of squares of the batch's parts would lose the same digits.
    Bench bench;
    HostTensor x({64, 1}, DType::f32);
    for (std::int64_t i = 0; i < 64; ++i)
        x.set(i, 1000 + (i % 2 == 0 ? 0.125 : -0.125));
    const Tensor whole = bench->upload(x);
    const Tensor sums = bench->batch_sums(whole.rows(0, 5));
    bench->add(sums, bench->batch_sums(whole.rows(5, 59)));
    const Tensor squares = bench->batch_squares(whole.rows(0, 5), sums);
    bench->add(squares, bench->batch_squares(whole.rows(5, 59), sums));
    const Normalized moments = bench->batch_moments(sums, squares, {}, 0);
    const Tensor one = bench->empty({1}, DType::f32);
    bench->fill(one, 1);
    const HostTensor y = bench->download(
        bench->batch_norm(whole, moments, one, bench->zeros({1}, DType::f32)));
    for (std::int64_t i = 0; i < 64; ++i)
        REQUIRE_THAT(y.at(i), Catch::Matchers::WithinAbs(i % 2 == 0 ? 1 : -1, 1e-3));
}

TEST_CASE("Sums of no rows are zero; sums of no columns have only the count of rows",
          kTags) {
    Bench bench;
    const Tensor none = bench->empty({0, 3}, DType::f64);
    const HostTensor zeros({4}, DType::f64);
    const Tensor sums = bench->batch_sums(none);
    REQUIRE(bench->download(sums) == zeros);
    REQUIRE(bench->download(bench->batch_squares(none, sums)) == zeros.rows(0, 3));
    const Tensor three = bench->zeros({3}, DType::f64);
    const Normalized moments{{}, three, three};
    REQUIRE(bench->download(bench->batch_norm_backward_sums(none, none, moments)) ==
            HostTensor({2, 3}, DType::f64));
    REQUIRE(bench->download(bench->batch_sums(bench->empty({2, 0}, DType::f64))).at(0) ==
            2);
    // One row has no variance.
    const Tensor row = bench->zeros({1, 3}, DType::f64);
    const Tensor of_row = bench->batch_sums(row);
    const RunningMoments running{bench->zeros({3}, DType::f64),
                                 bench->zeros({3}, DType::f64), 1};
    bench->batch_moments(of_row, bench->batch_squares(row, of_row), running);
    REQUIRE(bench->download(running.variance).at(2) == 0);
}

}  // namespace lockstep::test
