#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "sim/device.hpp"
#include "tests/gpu/device_support.hpp"

// Rows of any length, at any address. Each row agrees with the simulator, and its bits
// depend only on its own numbers. At some lengths a kernel changes its method. With other
// lengths, rows begin where no vector can be loaded.

namespace lockstep::test {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Operations that give a row, or a number, for each row of `a`.
std::vector<NamedOperation> operations_by_row() {
    using B = Bench;
    using T = const Tensor;
    const auto targets = [](B& x, T& a) {
        Tensor all = x->empty({a.shape().matrix_rows()}, DType::i32);
        x->fill(all, 4);
        return all;
    };
    // Each row is a matrix with one query, which sees two thirds of the columns.
    const auto causal = [](B& x, T& a, TokenOrder order) {
        const std::int64_t columns = a.shape().columns();
        const TokenRows queries{order, 1, columns, columns * 2 / 3};
        const TokenRows keys{order, 1, columns, 0};
        return x->softmax(a.reshaped({a.shape().matrix_rows(), 1, columns}),
                          {true, queries, keys});
    };
    std::vector<NamedOperation> operations = operations_to_repeat();
    std::erase_if(operations, [](const NamedOperation& operation) {
        const std::set<std::string> kept{
            "softmax",
            "softmax_backward",
            "cross_entropy_of_parts",
            "cross_entropy_backward_of_parts",
            "layer_norm",
            "layer_norm_backward_input",
            "rms_norm",
            "rms_norm_backward_input",
        };
        return !kept.contains(operation.name);
    });
    const std::vector<NamedOperation> own{
        named("causal_softmax",
              [=](B& x, T& a, T&, T&) { return causal(x, a, TokenOrder::contiguous); }),
        named("causal_softmax_by_tokens",
              [=](B& x, T& a, T&, T&) { return causal(x, a, TokenOrder::striped); }),
        named("cross_entropy",
              [=](B& x, T& a, T&, T&) { return x->cross_entropy(a, targets(x, a)); }),
        named("cross_entropy_backward",
              [=](B& x, T& a, T&, T&) {
                  return x->cross_entropy_backward(a, targets(x, a), 0.3);
              }),
    };
    operations.insert(operations.end(), own.begin(), own.end());
    REQUIRE(operations.size() == 12);
    return operations;
}

/// Returns `count` copies of the row.
HostTensor repeated(const HostTensor& row, std::int64_t count) {
    HostTensor rows({count, row.elements()}, row.dtype());
    for (std::int64_t i = 0; i < rows.elements(); ++i)
        rows.set(i, row.at(i % row.elements()));
    return rows;
}

}  // namespace

TEST_CASE("Rows at the widths where a kernel changes its method equal the simulator's",
          "[gpu][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t per_pack = dtype == DType::f32 ? 4 : 2;
    // This is the limit of one sweep of a block of 256, 512 or 1,024 threads.
    const std::int64_t limit = GENERATE(2048, 4096, 8192) * per_pack;
    const std::int64_t columns = limit + GENERATE(-1, 0, 1);
    CAPTURE(columns);
    Bench bench;
    Bench simulator;
    simulator.device = std::make_unique<sim::CpuDevice>(0, simulator.monitor);
    const HostTensor a = random_values({2, columns}, dtype, "a", -3, 3);
    const HostTensor b = random_values({2, columns}, dtype, "b", -3, 3);
    const HostTensor row = random_values({columns}, dtype, "row");
    for (const NamedOperation& operation : operations_by_row()) {
        CAPTURE(operation.name);
        const auto result_of = [&](Bench& target, DType in) {
            return operation.run(target, target->upload(a.as(in)),
                                 target->upload(b.as(in)), target->upload(row.as(in)));
        };
        // The simulator's results in f64 are exact enough for f32.
        const HostTensor reference = result_of(simulator, DType::f64);
        double largest = 0;
        for (std::int64_t i = 0; i < reference.elements(); ++i)
            largest = std::max(largest, std::abs(reference.at(i)));
        Expected expected(reference.shape(), dtype);
        for (std::int64_t i = 0; i < reference.elements(); ++i)
            expected.add(reference.at(i), 4 * largest, 4);
        expected.check(result_of(bench, dtype));
    }
}

TEST_CASE("A row's bits are the same in every row of a matrix, at any address",
          "[gpu][device][sanitizer]") {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::bf16);
    const std::int64_t columns = GENERATE(5, 1023, 9001, 50257);
    constexpr std::int64_t kRows = 4;
    CAPTURE(columns);
    Bench bench;
    const HostTensor a = random_values({columns}, dtype, "a", -3, 3);
    const HostTensor b = random_values({columns}, dtype, "b", -3, 3);
    const HostTensor row = random_values({columns}, dtype, "row");
    const HostTensor all_a = repeated(a, kRows), all_b = repeated(b, kRows);
    for (const NamedOperation& operation : operations_by_row()) {
        const HostTensor alone =
            operation.run(bench, uploaded(bench, repeated(a, 1)),
                          uploaded(bench, repeated(b, 1)), uploaded(bench, row));
        for (const std::int64_t shift : {0, 1}) {
            const HostTensor rows =
                operation.run(bench, uploaded(bench, all_a, shift),
                              uploaded(bench, all_b), uploaded(bench, row));
            for (std::int64_t i = 0; i < kRows; ++i) {
                CAPTURE(operation.name, shift, i);
                REQUIRE(rows.rows(i, 1) == alone);
            }
        }
    }
}

TEST_CASE("A NaN makes only its own row NaN, and -infinity adds nothing",
          "[gpu][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t columns = GENERATE(7, 8191, 20001, 50257);
    CAPTURE(columns);
    Bench bench;
    HostTensor x = random_values({4, columns}, dtype, "x", -3, 3);
    const HostTensor of_last = x.rows(3, 1);
    // Row 0 has a NaN at its end, row 1 has two numbers, and row 2 has none.
    x.set(columns - 1, kNan);
    for (std::int64_t i = columns + 2; i < 3 * columns; ++i)
        x.set(i, -kInfinity);
    x.set(2 * columns, -kInfinity);
    x.set(2 * columns + 1, -kInfinity);
    const double first = x.at(columns), second = x.at(columns + 1);

    const HostTensor y = bench->download(bench->softmax(bench->upload(x)));
    for (const std::int64_t i :
         {std::int64_t{0}, columns - 1, 2 * columns, 3 * columns - 1})
        REQUIRE(std::isnan(y.at(i)));
    REQUIRE_THAT(y.at(columns),
                 Catch::Matchers::WithinAbs(1 / (1 + std::exp(second - first)), 1e-6));
    for (std::int64_t i = columns + 2; i < 2 * columns; ++i)
        REQUIRE(y.at(i) == 0);
    REQUIRE(y.rows(3, 1) == bench->download(bench->softmax(bench->upload(of_last))));

    const Tensor targets = bench->zeros({4}, DType::i32);
    const HostTensor losses =
        bench->download(bench->cross_entropy(bench->upload(x), targets));
    REQUIRE(std::isnan(losses.at(0)));
    REQUIRE_THAT(losses.at(1), Catch::Matchers::WithinAbs(
                                   std::log(1 + std::exp(second - first)), 1e-6));
    REQUIRE(std::isnan(losses.at(2)));
    REQUIRE(losses.rows(3, 1) ==
            bench->download(bench->cross_entropy(bench->upload(of_last),
                                                 bench->zeros({1}, DType::i32))));
}

}  // namespace lockstep::test
