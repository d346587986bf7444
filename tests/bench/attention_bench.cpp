// Compares simulated attention with plain Eigen, which computes and keeps all scores of a
// head, causal or not. Also compares Ring Attention with the same attention on one
// device. All methods take turns in one process; the fastest turns count.

#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <limits>
#include <vector>

#include "sim/cluster.hpp"
#include "sim/device.hpp"
#include "sim/eigen.hpp"
#include "src/nn/flash_attention.hpp"
#include "src/parallel/ring_attention.hpp"
#include "tests/device/plain_monitor.hpp"

namespace {

using namespace lockstep;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Rows = Eigen::Map<Matrix, 0, Eigen::OuterStride<>>;

constexpr std::int64_t kHeads = 4, kWidth = 64;
constexpr double kFactor = 0.125;

double seconds_of(const auto& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
        .count();
}

/// The shortest time of several turns.
struct Fastest {
    void take(double turn) { seconds = std::min(seconds, turn); }
    double seconds = std::numeric_limits<double>::infinity();
};

/// Returns queries, keys or values from a tensor (tokens, 1, 3 kHeads kWidth).
Heads part(const Tensor& packed, std::int64_t which) {
    return {packed, kHeads, kWidth, which * kHeads * kWidth};
}

AttentionHeads heads_of(const Tensor& packed) {
    return {part(packed, 0), part(packed, 1), part(packed, 2)};
}

Tensor random(Device& device, std::int64_t tokens, std::int64_t columns) {
    Tensor tensor = device.empty({tokens, 1, columns}, DType::f32);
    device.random_normal(tensor, {1, "numbers"}, 0, 1);
    return tensor;
}

/// The operands of both methods: they compute y from x, and dx from dy.
struct Operands {
    Operands(Device& device, std::int64_t tokens)
        : x(random(device, tokens, 3 * kHeads * kWidth)),
          dx(device.zeros(x.shape(), DType::f32)),
          dy(random(device, tokens, kHeads * kWidth)) {}
    Tensor x, dx, dy;
};

/// Attention by the definition, head by head.
class PlainEigen {
  public:
    explicit PlainEigen(const Operands& operands)
        : o_(operands),
          y_(o_.dy.shape()[0], kHeads * kWidth),
          d_scores_(y_.rows(), y_.rows()),
          weights_(kHeads, Matrix(y_.rows(), y_.rows())) {}

    void forward() {
        for (std::int64_t head = 0; head < kHeads; ++head) {
            Matrix& p = weights_[static_cast<std::size_t>(head)];
            p.noalias() = rows(o_.x, 0, head) * rows(o_.x, 1, head).transpose();
            for (Eigen::Index i = 0; i < p.rows(); ++i) {
                auto row = p.row(i).array();
                row = (kFactorOf * (row - row.maxCoeff())).exp();
                row /= row.sum();
            }
            y_.middleCols(head * kWidth, kWidth).noalias() = p * rows(o_.x, 2, head);
        }
    }

    void backward() {
        for (std::int64_t head = 0; head < kHeads; ++head) {
            const Matrix& p = weights_[static_cast<std::size_t>(head)];
            const Rows dy = rows(o_.dy, 0, head);
            d_scores_.noalias() = dy * rows(o_.x, 2, head).transpose();
            for (Eigen::Index i = 0; i < p.rows(); ++i) {
                auto row = d_scores_.row(i).array();
                const auto weights = p.row(i).array();
                row = kFactorOf * weights * (row - (weights * row).sum());
            }
            rows(o_.dx, 0, head).noalias() += d_scores_ * rows(o_.x, 1, head);
            rows(o_.dx, 1, head).noalias() += d_scores_.transpose() * rows(o_.x, 0, head);
            rows(o_.dx, 2, head).noalias() += p.transpose() * dy;
        }
    }

    const Matrix& y() const { return y_; }

  private:
    static constexpr auto kFactorOf = static_cast<float>(kFactor);

    static Rows rows(const Tensor& packed, std::int64_t which, std::int64_t head) {
        const Heads heads = part(packed, which);
        return {packed.data<float>() + heads.offset(0, head), heads.rows(), kWidth,
                Eigen::OuterStride<>(heads.pitch())};
    }

    const Operands& o_;
    Matrix y_, d_scores_;
    std::vector<Matrix> weights_;
};

/// Attention by a device's operations.
struct Simulated {
    void attend() {
        const AttentionHeads heads = heads_of(o.x);
        const OnlineAttention state = device.begin_attention(heads.queries);
        device.attend(state, heads, options);
        log_sum_exp = device.finish_attention(state);
        y = state.y;
    }
    void attend_backward() const {
        const Heads of_y{y, kHeads, kWidth, 0}, of_dy{o.dy, kHeads, kWidth, 0};
        device.attend_backward(heads_of(o.dx), heads_of(o.x),
                               {o.dy, log_sum_exp, device.head_row_products(of_dy, of_y)},
                               options);
    }
    void multiply() {
        const AttentionHeads heads = heads_of(o.x);
        const Tensor weights = device.softmax(
            device.head_products(heads.queries, heads.keys, kFactor), {options.causal});
        y = device.head_sums(weights, heads.values);
    }

    Device& device;
    const Operands& o;
    AttentionOptions options;
    Tensor y{}, log_sum_exp{};
};

/// Returns the largest difference between two results of the forward pass.
float difference(const Tensor& y, const Matrix& expected) {
    const Eigen::Map<const Matrix> own(y.data<float>(), expected.rows(), expected.cols());
    return (own - expected).cwiseAbs().maxCoeff();
}

enum class Pass { forward, backward, products };

/// The arguments are the number of tokens, and 1 for causal.
void attention(benchmark::State& state, Pass pass) {
    test::PlainMonitor monitor;
    sim::CpuDevice device(0, monitor);
    const Operands operands(device, state.range(0));
    Simulated simulated{device, operands, {kFactor, state.range(1) != 0}};
    PlainEigen plain(operands);
    const auto forward = [&] {
        pass == Pass::products ? simulated.multiply() : simulated.attend();
    };
    forward();
    plain.forward();
    if (!simulated.options.causal && difference(simulated.y, plain.y()) > 1e-5F)
        return state.SkipWithError("simulated attention differs from Eigen's");

    const bool back = pass == Pass::backward;
    Fastest ours, theirs;
    for ([[maybe_unused]] const auto _ : state) {
        theirs.take(seconds_of([&] { back ? plain.backward() : plain.forward(); }));
        ours.take(seconds_of([&] { back ? simulated.attend_backward() : forward(); }));
    }
    state.counters["time_over_eigen"] = ours.seconds / theirs.seconds;
    state.counters["attentions"] = 1 / ours.seconds;
}

void shapes(benchmark::internal::Benchmark* family) {
    family->ArgNames({"tokens", "causal"})->Unit(benchmark::kMillisecond);
    family->ArgsProduct({{128, 512, 2048}, {0, 1}});
}
BENCHMARK_CAPTURE(attention, forward, Pass::forward)->Apply(shapes);
BENCHMARK_CAPTURE(attention, backward, Pass::backward)->Apply(shapes);
BENCHMARK_CAPTURE(attention, products, Pass::products)->Apply(shapes);

/// Returns the seconds that both passes took in the fastest turn, until ranks were ready.
double seconds_of_passes(Device& device, Module& module, std::int64_t tokens,
                         const auto& all_ready) {
    constexpr int kTurns = 3;
    const Operands operands(device, tokens);
    const auto both = [&] {
        Saved saved;
        module.forward(operands.x, saved);
        module.backward(operands.dy, saved);
        all_ready();
    };
    both();
    Fastest fastest;
    for (int turn = 0; turn < kTurns; ++turn)
        fastest.take(seconds_of(both));
    return fastest.seconds;
}

double ring_seconds(std::int64_t tokens, const AttentionSizes& sizes) {
    sim::ClusterOptions options;
    options.ranks = 4;
    options.spec = load_cluster("classroom");
    options.workers = 1;
    double seconds = 0;
    sim::make_cluster(options)->run([&](Rank& rank) {
        RingAttention ring(rank.device(), rank.world(), sizes, TokenOrder::zigzag);
        const double own = seconds_of_passes(rank.device(), ring, tokens / rank.size(),
                                             [&] { rank.world().barrier().wait(); });
        seconds = std::max(seconds, own);
    });
    return seconds;
}

/// The arguments are the number of tokens, and 1 for causal.
void ring_attention(benchmark::State& state) {
    const std::int64_t tokens = state.range(0);
    const AttentionSizes sizes{kHeads, state.range(1) != 0};
    test::PlainMonitor monitor;
    sim::CpuDevice device(0, monitor);
    FlashAttention flash(device, sizes);
    Fastest ring, alone;
    for ([[maybe_unused]] const auto _ : state) {
        alone.take(seconds_of_passes(device, flash, tokens, [] {}));
        ring.take(ring_seconds(tokens, sizes));
    }
    state.counters["time_over_one_device"] = ring.seconds / alone.seconds;
}
BENCHMARK(ring_attention)->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();
