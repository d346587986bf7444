// Measures attention on a GPU, for 8192 tokens and 16 heads in f32 and bf16: attention's
// products by cuBLAS, and the kernels that keep scores out of memory. Compares these
// kernels with a softmax between products by cuBLAS.

#include <benchmark/benchmark.h>

#include "tests/bench/gpu_timer.hpp"
#include "tests/device/plain_monitor.hpp"

namespace {

using namespace lockstep;
using bench::median;
using bench::Timer;

constexpr std::int64_t kTokens = 8192, kHeads = 16;

/// Queries, keys and values side by side, and their gradients.
struct Operands {
    Operands(Device& device, std::int64_t length, std::int64_t head_width, DType dtype)
        : width(head_width),
          all(device.empty({length, kTokens / length, 3 * kHeads * width}, dtype)),
          gradients(device.zeros(all.shape(), dtype)) {
        device.random_normal(all, {1, "all"}, 0, 1);
    }
    Heads part(const Tensor& packed, std::int64_t which) const {
        return {packed, kHeads, width, which * kHeads * width};
    }
    AttentionHeads heads(const Tensor& packed) const {
        return {part(packed, 0), part(packed, 1), part(packed, 2)};
    }
    std::int64_t width;
    Tensor all, gradients;
};

void products(benchmark::State& state,
              const std::function<void(Device&, const Operands&, const Tensor&)>& run) {
    test::PlainMonitor monitor;
    gpu::Device device(0, monitor);
    const Operands operands(device, 1024, 64, DType::f32);
    const Tensor weights = device.head_products(operands.part(operands.all, 0),
                                                operands.part(operands.all, 1));
    Timer timer(device);
    const auto work = [&] { run(device, operands, weights); };
    timer.seconds_of(work);
    const auto flops = static_cast<double>(monitor.operations.back().flops);
    std::vector<double> seconds;
    for ([[maybe_unused]] const auto _ : state) {
        seconds.push_back(timer.seconds_of(work));
        state.SetIterationTime(seconds.back());
    }
    state.counters["tflops"] = 1e-12 * flops / median(seconds);
}
BENCHMARK_CAPTURE(products, head_products,
                  [](Device& device, const Operands& o, const Tensor&) {
                      device.head_products(o.part(o.all, 0), o.part(o.all, 1), 0.125);
                  })
    ->UseManualTime()
    ->Iterations(10)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(products, head_sums,
                  [](Device& device, const Operands& o, const Tensor& weights) {
                      device.head_sums(weights, o.part(o.all, 2));
                  })
    ->UseManualTime()
    ->Iterations(10)
    ->Unit(benchmark::kMillisecond);

/// Attention by both methods: forward, and the backward, which reads forward's results.
struct BothWays {
    BothWays(Device& gpu, const Operands& operands, const AttentionOptions& attention)
        : device(gpu), o(operands), options(attention) {}

    void attend() {
        const AttentionHeads heads = o.heads(o.all);
        const OnlineAttention state = device.begin_attention(heads.queries);
        device.attend(state, heads, options);
        log_sum_exp = device.finish_attention(state);
        y = state.y;
        if (y.dtype() == o.all.dtype()) return;
        y = device.empty(state.y.shape(), o.all.dtype());
        device.cast(y, state.y);
    }
    void multiply() {
        weights = device.softmax(
            device.head_products(o.part(o.all, 0), o.part(o.all, 1), options.factor),
            {options.causal});
        y = device.head_sums(weights, o.part(o.all, 2));
    }
    void attend_backward(const Tensor& dy) const {
        const Heads of_y{y, kHeads, o.width, 0}, of_dy{dy, kHeads, o.width, 0};
        device.attend_backward(o.heads(o.gradients), o.heads(o.all),
                               {dy, log_sum_exp, device.head_row_products(of_dy, of_y)},
                               options);
    }
    void multiply_backward(const Tensor& dy) const {
        const Heads of_dy{dy, kHeads, o.width, 0};
        const AttentionHeads heads = o.heads(o.all), gradients = o.heads(o.gradients);
        const Tensor d_scores =
            device.softmax_backward(weights, device.head_products(of_dy, heads.values));
        const HeadSumOptions transposed{true, options.factor};
        device.add_head_sums(gradients.queries, d_scores, heads.keys,
                             {false, options.factor});
        device.add_head_sums(gradients.keys, d_scores, heads.queries, transposed);
        device.add_head_sums(gradients.values, weights, of_dy, {true, 1});
    }

    Device& device;
    const Operands& o;
    AttentionOptions options;
    Tensor y, log_sum_exp, weights;
};

/// Returns the flops per second of a large matrix product by cuBLAS.
double flops_of_product(gpu::Device& device, DType dtype) {
    constexpr std::int64_t kExtent = 4096;
    const Tensor a = device.empty({kExtent, kExtent}, dtype);
    device.random_normal(a, {1, "a"}, 0, 1);
    const Tensor c = device.empty(a.shape(), dtype);
    Timer timer(device);
    const auto work = [&] { device.matmul_into(c, a, a); };
    timer.seconds_of(work);
    return 2.0 * kExtent * kExtent * kExtent / timer.seconds_of(work);
}

/// The arguments are tokens per sequence, width of a head, 1 for causal, 1 for bf16.
void attention(benchmark::State& state, bool backward) {
    const std::int64_t length = state.range(0), width = state.range(1);
    const bool causal = state.range(2) != 0;
    const DType dtype = state.range(3) != 0 ? DType::bf16 : DType::f32;
    test::PlainMonitor monitor;
    gpu::Device device(0, monitor);
    const Operands operands(device, length, width, dtype);
    BothWays ways(device, operands, {0.125, causal});
    const Tensor dy = device.empty({length, kTokens / length, kHeads * width}, dtype);
    device.random_normal(dy, {1, "dy"}, 0, 1);
    ways.attend();
    ways.multiply();
    const auto ours = [&] { backward ? ways.attend_backward(dy) : ways.attend(); };
    const auto theirs = [&] { backward ? ways.multiply_backward(dy) : ways.multiply(); };
    Timer timer(device);
    timer.seconds_of(ours);
    timer.seconds_of(theirs);
    std::vector<double> our_seconds, their_seconds;
    for ([[maybe_unused]] const auto _ : state) {
        their_seconds.push_back(timer.seconds_of(theirs));
        our_seconds.push_back(timer.seconds_of(ours));
        state.SetIterationTime(our_seconds.back());
    }
    const std::int64_t pairs = causal ? length * (length + 1) / 2 : length * length;
    const std::int64_t sequences = kTokens / length;
    const auto flops =
        static_cast<double>((backward ? 10 : 4) * pairs * width * kHeads * sequences);
    state.counters["time_over_products"] = median(our_seconds) / median(their_seconds);
    const double rate = flops / median(our_seconds);
    state.counters["tflops"] = 1e-12 * rate;
    state.counters["rate_over_matmul"] = rate / flops_of_product(device, dtype);
}

void shapes(benchmark::internal::Benchmark* family) {
    family->ArgNames({"tokens", "width", "causal", "bf16"});
    for (const std::int64_t bf16 : {0, 1}) {
        for (const std::int64_t tokens : {512, 1024, 4096})
            family->Args({tokens, 64, 1, bf16});
        family->Args({4096, 64, 0, bf16});
        family->Args({4096, 128, 1, bf16});
    }
    family->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(attention, forward, false)->Apply(shapes);
BENCHMARK_CAPTURE(attention, backward, true)->Apply(shapes);

}  // namespace
