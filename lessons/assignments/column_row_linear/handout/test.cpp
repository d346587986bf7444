// These tests are public. The grader tests more: other numbers of ranks, other sizes, and
// what your program costs.

#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/comm/chunks.hpp"
#include "src/course/public_test.hpp"

using namespace lockstep;

/// Returns values that all differ.
HostTensor values(const Shape& shape, double seed) {
    HostTensor a(shape, DType::f64);
    for (std::int64_t i = 0; i < a.elements(); ++i)
        a.set(i, std::sin(seed + 1.3 * static_cast<double>(i)));
    return a;
}

HostTensor transposed(const HostTensor& a) {
    const std::int64_t rows = a.shape()[0], columns = a.shape()[1];
    HostTensor b({columns, rows}, DType::f64);
    for (std::int64_t i = 0; i < a.elements(); ++i)
        b.set(i % columns * rows + i / columns, a.at(i));
    return b;
}

/// Returns a (m, k) times b (k, n).
HostTensor product(const HostTensor& a, const HostTensor& b) {
    const std::int64_t k = a.shape()[1], n = b.shape()[1];
    HostTensor c({a.shape()[0], n}, DType::f64);
    for (std::int64_t i = 0; i < c.elements(); ++i)
        for (std::int64_t term = 0; term < k; ++term)
            c.set(i, c.at(i) + a.at(i / n * k + term) * b.at(term * n + i % n));
    return c;
}

HostTensor rows(const HostTensor& a, const Chunk& part) {
    return a.rows(part.begin, part.count);
}

HostTensor columns(const HostTensor& a, const Chunk& part) {
    return transposed(rows(transposed(a), part));
}

/// A layer that is not sharded, and its results on one device.
struct Layer {
    HostTensor x, weight, bias, dy;

    Layer(std::int64_t n, std::int64_t in, std::int64_t out)
        : x(values({n, in}, 1)),
          weight(values({out, in}, 2)),
          bias(values({out}, 3)),
          dy(values({n, out}, 4)) {}

    std::int64_t in() const { return weight.shape()[1]; }
    std::int64_t out() const { return weight.shape()[0]; }
    HostTensor y() const {
        HostTensor y = product(x, transposed(weight));
        for (std::int64_t i = 0; i < y.elements(); ++i)
            y.set(i, y.at(i) + bias.at(i % out()));
        return y;
    }
    HostTensor dx() const { return product(dy, weight); }
    HostTensor d_weight() const { return product(transposed(dy), x); }
    HostTensor d_bias() const {
        HostTensor sum({out()}, DType::f64);
        for (std::int64_t i = 0; i < dy.elements(); ++i)
            sum.set(i % out(), sum.at(i % out()) + dy.at(i));
        return sum;
    }
};

void keep(Rank& rank, const adapters::Tensors& tensors) {
    for (const auto& [name, tensor] : tensors)
        if (tensor) rank.keep(name, tensor);
}

/// Expects each rank to have kept, under this name, expected(the rank's chunk).
void expect_kept(const RunReport& report, const std::string& name, std::int64_t count,
                 const std::function<HostTensor(const Chunk&)>& expected) {
    const int ranks = static_cast<int>(report.ranks.size());
    for (int rank = 0; rank < ranks; ++rank) {
        const auto& kept = report.ranks[rank].kept;
        expect(kept.contains(name), fmt::format("rank {} has no {}", rank, name));
        expect_close(kept.at(name), expected(chunk(count, ranks, rank)),
                     fmt::format("{} on rank {}", name, rank));
    }
}

RunReport column_forward(int ranks, const Layer& layer) {
    return sim::make_cluster(ranks)->run([&](Rank& rank) {
        const Chunk own = chunk(layer.out(), ranks, rank.index());
        Device& device = rank.device();
        rank.keep("y", adapters::column_forward(rank, device.upload(layer.x),
                                                device.upload(rows(layer.weight, own)),
                                                device.upload(rows(layer.bias, own))));
    });
}

RunReport column_backward(int ranks, const Layer& layer, bool wants_dx) {
    return sim::make_cluster(ranks)->run([&](Rank& rank) {
        const Chunk own = chunk(layer.out(), ranks, rank.index());
        Device& device = rank.device();
        keep(rank,
             adapters::column_backward(rank, device.upload(layer.x),
                                       device.upload(rows(layer.weight, own)),
                                       device.upload(columns(layer.dy, own)), wants_dx));
    });
}

RunReport row_forward(int ranks, const Layer& layer) {
    return sim::make_cluster(ranks)->run([&](Rank& rank) {
        const Chunk own = chunk(layer.in(), ranks, rank.index());
        Device& device = rank.device();
        rank.keep("y", adapters::row_forward(rank, device.upload(columns(layer.x, own)),
                                             device.upload(columns(layer.weight, own)),
                                             device.upload(layer.bias)));
    });
}

RunReport row_backward(int ranks, const Layer& layer) {
    return sim::make_cluster(ranks)->run([&](Rank& rank) {
        const Chunk own = chunk(layer.in(), ranks, rank.index());
        Device& device = rank.device();
        keep(rank, adapters::row_backward(rank, device.upload(columns(layer.x, own)),
                                          device.upload(columns(layer.weight, own)),
                                          device.upload(layer.dy)));
    });
}

/// Runs forward and backward. Also keeps the rank's inputs as they are afterwards.
RunReport mlp(int ranks, const Layer& first, const Layer& second, bool wants_dx) {
    return sim::make_cluster(ranks)->run([&](Rank& rank) {
        const Chunk own = chunk(first.out(), ranks, rank.index());
        Device& device = rank.device();
        const adapters::Tensors parts{
            {"weight1", device.upload(rows(first.weight, own))},
            {"bias1", device.upload(rows(first.bias, own))},
            {"weight2", device.upload(columns(second.weight, own))},
            {"bias2", device.upload(second.bias)}};
        const Tensor x = device.upload(first.x), dy = device.upload(second.dy);
        const adapters::Tensors forward = adapters::mlp_forward(rank, x, parts);
        rank.keep("y", forward.at("y"));
        keep(rank, adapters::mlp_backward(rank, x, parts, forward, dy, wants_dx));
        keep(rank, parts);
        keep(rank, {{"x", x}, {"dy", dy}});
    });
}

void test_column_forward(int ranks, std::int64_t in, std::int64_t out) {
    const Layer layer(5, in, out);
    const RunReport report = column_forward(ranks, layer);
    expect_kept(report, "y", out,
                [&](const Chunk& own) { return columns(layer.y(), own); });
    expect_equal(report.bytes_sent(), 0, "bytes that all ranks send");
}

void test_column_backward(int ranks, std::int64_t in, std::int64_t out) {
    const Layer layer(5, in, out);
    const RunReport report = column_backward(ranks, layer, true);
    expect_kept(report, "dx", out, [&](const Chunk&) { return layer.dx(); });
    expect_kept(report, "d_weight", out,
                [&](const Chunk& own) { return rows(layer.d_weight(), own); });
    expect_kept(report, "d_bias", out,
                [&](const Chunk& own) { return rows(layer.d_bias(), own); });
}

void test_row_forward(int ranks, std::int64_t in, std::int64_t out) {
    const Layer layer(5, in, out);
    expect_kept(row_forward(ranks, layer), "y", in,
                [&](const Chunk&) { return layer.y(); });
}

void test_row_backward(int ranks, std::int64_t in, std::int64_t out) {
    const Layer layer(5, in, out);
    const RunReport report = row_backward(ranks, layer);
    expect_kept(report, "dx", in,
                [&](const Chunk& own) { return columns(layer.dx(), own); });
    expect_kept(report, "d_weight", in,
                [&](const Chunk& own) { return columns(layer.d_weight(), own); });
    expect_kept(report, "d_bias", in, [&](const Chunk&) { return layer.d_bias(); });
}

/// Returns GELU at u; the next function returns its derivative.
double gelu(double u) {
    return u * std::erfc(-u / std::sqrt(2.0)) / 2;
}
double gelu_slope(double u) {
    const double density = std::exp(-u * u / 2) / std::sqrt(2 * std::acos(-1.0));
    return std::erfc(-u / std::sqrt(2.0)) / 2 + u * density;
}

void test_mlp(int ranks, std::int64_t hidden, std::int64_t inner, bool wants_dx = true) {
    Layer first(5, hidden, inner), second(5, inner, hidden);
    const RunReport report = mlp(ranks, first, second, wants_dx);
    const HostTensor between = first.y();
    first.dy = second.dx();
    for (std::int64_t i = 0; i < between.elements(); ++i) {
        second.x.set(i, gelu(between.at(i)));
        first.dy.set(i, first.dy.at(i) * gelu_slope(between.at(i)));
    }
    expect_kept(report, "y", inner, [&](const Chunk&) { return second.y(); });
    if (wants_dx)
        expect_kept(report, "dx", inner, [&](const Chunk&) { return first.dx(); });
    else
        for (const RankReport& rank : report.ranks)
            expect(!rank.kept.contains("dx"), "a dx that nobody wants");
    expect_kept(report, "d_weight1", inner,
                [&](const Chunk& own) { return rows(first.d_weight(), own); });
    expect_kept(report, "d_bias1", inner,
                [&](const Chunk& own) { return rows(first.d_bias(), own); });
    expect_kept(report, "d_weight2", inner,
                [&](const Chunk& own) { return columns(second.d_weight(), own); });
    expect_kept(report, "d_bias2", inner, [&](const Chunk&) { return second.d_bias(); });
}

void test_mlp_given(int ranks, std::int64_t hidden, std::int64_t inner) {
    const Layer first(5, hidden, inner), second(5, inner, hidden);
    const RunReport report = mlp(ranks, first, second, true);
    expect_kept(report, "x", inner, [&](const Chunk&) { return first.x; });
    expect_kept(report, "weight1", inner,
                [&](const Chunk& own) { return rows(first.weight, own); });
    expect_kept(report, "bias1", inner,
                [&](const Chunk& own) { return rows(first.bias, own); });
    expect_kept(report, "weight2", inner,
                [&](const Chunk& own) { return columns(second.weight, own); });
    expect_kept(report, "bias2", inner, [&](const Chunk&) { return second.bias; });
    expect_kept(report, "dy", inner, [&](const Chunk&) { return second.dy; });
}

/// Two all-reduces of (N, hidden). In each, every rank sends 2(t-1)/t of the bytes.
void test_mlp_bytes(int ranks, std::int64_t hidden, std::int64_t inner) {
    const Layer first(5, hidden, inner), second(5, inner, hidden);
    expect_equal(mlp(ranks, first, second, true).bytes_sent(),
                 4 * (ranks - 1) * first.x.bytes(), "bytes that all ranks send");
}

int main() {
    PublicTest test;
    test.check("a3.1 column_forward, 2 ranks, 4 to 6 columns",
               [] { test_column_forward(2, 4, 6); });
    test.check("a3.1 column_backward, 2 ranks, 4 to 6 columns",
               [] { test_column_backward(2, 4, 6); });
    test.check("a3.1 column_backward, 3 ranks, 6 to 4 columns",
               [] { test_column_backward(3, 6, 4); });
    test.check("a3.1 column_backward, 5 ranks, 4 to 3 columns: some have none",
               [] { test_column_backward(5, 4, 3); });
    test.check("a3.1 column_backward sends nothing for a dx that nobody wants", [] {
        expect_equal(column_backward(2, Layer(5, 4, 6), false).bytes_sent(), 0,
                     "bytes that all ranks send");
    });
    test.check("a3.2 row_forward, 2 ranks, 4 to 6 columns",
               [] { test_row_forward(2, 4, 6); });
    test.check("a3.2 row_forward, 3 ranks, 4 to 6 columns",
               [] { test_row_forward(3, 4, 6); });
    test.check("a3.2 row_backward, 3 ranks, 4 to 6 columns",
               [] { test_row_backward(3, 4, 6); });
    test.check("a3.3 MLP, 2 ranks, 4 to 8 columns and back", [] { test_mlp(2, 4, 8); });
    test.check("a3.3 MLP, 3 ranks, 4 to 7 columns and back", [] { test_mlp(3, 4, 7); });
    test.check("a3.3 MLP, 3 ranks, dx unwanted", [] { test_mlp(3, 4, 7, false); });
    test.check("a3.3 MLP leaves what it is given as it is",
               [] { test_mlp_given(3, 4, 7); });
    test.check("a3.3 MLP sends two all-reduces", [] { test_mlp_bytes(3, 4, 7); });
    return test.finish();
}
