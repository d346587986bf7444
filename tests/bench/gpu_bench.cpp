// Measures how well the device uses its GPU. Compares each operation on 64 M elements
// with the best that the GPU can do, given a copy's bandwidth and the rate of
// instructions, and the matrix product with plain cuBLAS. Measurements take turns in
// rounds, timed by events. Results are medians of rounds. Exits with 77 without a GPU.

#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "gpu/survey.hpp"
#include "tests/bench/gpu_timer.hpp"
#include "tests/device/plain_monitor.hpp"

namespace {

using namespace lockstep;
using bench::median;
using bench::Timer;

constexpr std::int64_t kElements = std::int64_t{64} << 20;
constexpr std::int64_t kColumns = 1024;
constexpr std::int64_t kRows = kElements / kColumns;
constexpr std::int64_t kVocabulary = 50257;
constexpr std::int64_t kHeads = 16;

/// The operands of operations: matrices of kElements, a row of columns, indices.
struct Operands {
    explicit Operands(Device& device)
        : a(device.empty({kRows, kColumns}, DType::f32)),
          b(device.empty({kRows, kColumns}, DType::f32)),
          c(device.zeros({kRows, kColumns}, DType::f32)),
          d(device.zeros({kRows, kColumns}, DType::f32)),
          e(device.zeros({kRows, kColumns}, DType::f32)),
          row(device.zeros({kColumns}, DType::f32)),
          other_row(device.zeros({kColumns}, DType::f32)),
          one(device.zeros({1}, DType::f32)),
          targets(device.zeros({kRows}, DType::i32)),
          table(device.zeros({kVocabulary, kColumns}, DType::f32)),
          head_numbers(device.zeros({1, kHeads, kRows}, DType::f32)),
          head_sums(device.empty({1, kHeads, kRows}, DType::f32)) {
        device.fill(head_sums, 1);
        device.random_normal(a, {1, "a"}, 0, 1);
        device.random_normal(b, {1, "b"}, 0, 1);
        device.random_normal(row, {1, "row"}, 0, 1);
        HostTensor numbers({kRows}, DType::i32);
        const RandomStream stream(1, "ids");
        for (std::int64_t i = 0; i < kRows; ++i)
            numbers.set(i, kVocabulary * stream.uniform(static_cast<std::uint64_t>(i)));
        ids = device.upload(numbers);
        norm = device.layer_norm(a, row, row);
        maximum = device.row_maximum(a);
        parts = device.cross_entropy_parts(a, targets, maximum);
    }
    /// A matrix as heads of a batch of one sequence.
    static Heads heads(const Tensor& matrix) {
        return {matrix.reshaped({kRows, 1, kColumns}), kHeads, kColumns / kHeads, 0};
    }
    /// A matrix's numbers as logits. The length of rows is no multiple of a pack.
    static Tensor of_vocabulary(const Tensor& matrix) {
        constexpr std::int64_t kLogitRows = kElements / kVocabulary;
        return matrix.flat()
            .slice(0, kLogitRows * kVocabulary)
            .reshaped({kLogitRows, kVocabulary});
    }
    Tensor a, b, c, d, e, row, other_row, one, targets, table, ids, maximum, parts;
    Tensor head_numbers, head_sums;
    Normalized norm;
};

using Operation = std::function<void(Device&, const Operands&)>;

/// The goal of an operation: `share` of the best. The best time is the longer of two
/// times: to move the operation's bytes `passes` times, and to run its instructions.
struct Goal {
    double share = 0.85;
    double passes = 1;
    double instructions = 0;  ///< per element, in the machine code for capability 9.0
};

/// Returns how many instructions all lanes of the GPU together run in a second.
double instruction_rate() {
    int gpu = 0, processors = 0, kilohertz = 0, major = 0, minor = 0;
    GPU_CHECK(cudaGetDevice(&gpu));
    GPU_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu));
    GPU_CHECK(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, gpu));
    GPU_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
    GPU_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu));
    const int lanes = major == 8 && minor == 0 ? 64 : 128;
    return 1e3 * kilohertz * processors * lanes;
}

void share_of_best(benchmark::State& state, const Operation& operation, Goal goal) {
    test::PlainMonitor monitor;
    gpu::Device device(0, monitor);
    const Operands operands(device);
    Timer timer(device);
    const auto copy = [&] { device.transfer(operands.c, operands.b); };
    const auto work = [&] { operation(device, operands); };
    timer.seconds_of(work);
    const auto bytes = static_cast<double>(monitor.operations.back().bytes);
    const auto copied_bytes = static_cast<double>(2 * operands.b.bytes());

    std::vector<double> seconds, bandwidths;
    for ([[maybe_unused]] const auto _ : state) {
        bandwidths.push_back(copied_bytes / timer.seconds_of(copy));
        seconds.push_back(timer.seconds_of(work));
        state.SetIterationTime(seconds.back());
    }
    const double moving = goal.passes * bytes / median(bandwidths);
    const double computing = goal.instructions * kElements / instruction_rate();
    state.counters["GB/s"] = bytes / median(seconds) * 1e-9;
    state.counters["of_best"] = std::max(moving, computing) / median(seconds);
    state.counters["goal"] = goal.share;
}

struct NamedOperation {
    const char* name;
    Operation run;
    Goal goal = {};
};

// Goals lower than the default, each with what makes its kernel slower.
constexpr Goal kManyRegisters{0.75};    ///< at most two blocks a multiprocessor
constexpr Goal kTwoStages{0.75};        ///< each block's sum, then the sum of these sums
constexpr Goal kDivides{0.7};           ///< finds its position by 64-bit divisions
constexpr Goal kChecksTargets{0.75};    ///< looks up a target for each row
constexpr Goal kBlockAlone{0.75};       ///< one block a multiprocessor; all threads wait
constexpr Goal kRowsTwice{0.85, 1.5};   ///< reads rows twice, writes them once
constexpr Goal kLogitsTwice{0.7, 1.5};  ///< like kRowsTwice; also shifts loads and stores
/// Adds to rows of the table in the order of ids. The kRows ids are first
/// sorted, in 16 rounds of merging. Rows are at random places.
constexpr Goal kScatters{0.4};
constexpr Goal kPhilox{0.6, 1, 95};
/// Box and Muller's formula in f64, which has half the rate of f32.
constexpr Goal kPhiloxNormal{0.6, 1, 420};

std::vector<NamedOperation> element_by_element() {
    using D = Device;
    using O = const Operands;
    return {
        {"fill", [](D& d, O& o) { d.fill(o.c, 1); }},
        {"copy", [](D& d, O& o) { d.copy(o.c, o.a); }},
        {"copy_columns", [](D& d, O& o) { d.copy_columns(o.c, 0, o.a, 4, 1020); }},
        {"add", [](D& d, O& o) { d.add(o.c, o.a, 0.5); }},
        {"scale", [](D& d, O& o) { d.scale(o.d, 1.0); }},
        {"multiply", [](D& d, O& o) { d.multiply(o.d, o.b); }},
        {"combine", [](D& d, O& o) { d.combine(o.c, o.b, Reduction::maximum); }},
        {"add_bias", [](D& d, O& o) { d.add_bias(o.c, o.row); }},
        {"tanh", [](D& d, O& o) { d.tanh(o.a); }},
        {"tanh_backward", [](D& d, O& o) { d.tanh_backward(o.a, o.b); }},
        {"gelu", [](D& d, O& o) { d.gelu(o.a); }},
        {"gelu_backward", [](D& d, O& o) { d.gelu_backward(o.a, o.b); }},
        {"swiglu", [](D& d, O& o) { d.swiglu(o.a); }},
        {"swiglu_backward",
         [](D& d, O& o) {
             d.swiglu_backward(o.a.reshaped({kRows / 2, 2 * kColumns}),
                               o.b.rows(0, kRows / 2));
         }},
        {"squared_error_backward",
         [](D& d, O& o) { d.squared_error_backward(o.a, o.b, 0.5); }},
        {"sgd", [](D& d, O& o) { d.sgd(o.c, o.a, {}, {}); }},
        {"sgd_momentum",
         [](D& d, O& o) {
             d.sgd(o.c, o.a, o.d, {1e-3, 0.9, 0});
         }},
        {"adamw", [](D& d, O& o) { d.adamw(o.c, o.a, o.d, o.e, 10, {}); }},
        {"embedding", [](D& d, O& o) { d.embedding(o.table, o.ids); }, kChecksTargets},
        {"embedding_of_a_shard",
         [](D& d, O& o) {
             d.embedding(o.table.rows(0, kVocabulary / 2), o.ids,
                         {kVocabulary / 4, kVocabulary});
         },
         kChecksTargets},
        {"random_uniform",
         [](D& d, O& o) {
             d.random_uniform(o.c, {1, 2}, 0, 1);
         },
         kPhilox},
        {"random_normal",
         [](D& d, O& o) {
             d.random_normal(o.c, {1, 2}, 0, 1);
         },
         kPhiloxNormal},
    };
}

std::vector<NamedOperation> reductions() {
    using D = Device;
    using O = const Operands;
    return {
        {"sum", [](D& d, O& o) { d.sum(o.one, o.a); }},
        {"squared_error", [](D& d, O& o) { d.squared_error(o.a, o.b); }},
        {"accumulate_rows", [](D& d, O& o) { d.accumulate_rows(o.other_row, o.a); },
         kTwoStages},
        {"layer_norm", [](D& d, O& o) { d.layer_norm(o.a, o.row, o.row); }},
        {"layer_norm_backward_input",
         [](D& d, O& o) { d.layer_norm_backward_input(o.b, o.a, o.row, o.norm); },
         kManyRegisters},
        {"layer_norm_backward_weight",
         [](D& d, O& o) {
             d.layer_norm_backward_weight(o.other_row, o.row, o.b, o.a, o.norm);
         },
         kTwoStages},
        {"rms_norm", [](D& d, O& o) { d.rms_norm(o.a, o.row); }},
        {"rms_norm_backward_input",
         [](D& d, O& o) { d.rms_norm_backward_input(o.b, o.a, o.row, o.norm.rstd); },
         kManyRegisters},
        {"rms_norm_backward_weight",
         [](D& d, O& o) {
             d.rms_norm_backward_weight(o.other_row, o.b, o.a, o.norm.rstd);
         },
         kTwoStages},
    };
}

std::vector<NamedOperation> softmaxes_and_losses() {
    using D = Device;
    using O = const Operands;
    return {
        {"softmax", [](D& d, O& o) { d.softmax(o.a); }},
        {"causal_softmax",
         [](D& d, O& o) {
             d.softmax(o.a.reshaped({kRows / kColumns, kColumns, kColumns}), {true});
         }},
        {"softmax_of_32768",
         [](D& d, O& o) {
             d.softmax(o.a.reshaped({2048, 32768}));
         },
         kBlockAlone},
        {"softmax_read_twice",
         [](D& d, O& o) {
             d.softmax(o.a.reshaped({1024, 65536}));
         },
         kRowsTwice},
        {"softmax_backward", [](D& d, O& o) { d.softmax_backward(o.a, o.b); }},
        {"head_row_products",
         [](D& d, O& o) { d.head_row_products(o.heads(o.a), o.heads(o.b)); }, kDivides},
        {"finish_attention",
         [](D& d, O& o) {
             d.finish_attention({o.heads(o.e).tensor, o.head_numbers, o.head_sums});
         },
         kDivides},
        {"cross_entropy", [](D& d, O& o) { d.cross_entropy(o.a, o.targets); },
         kChecksTargets},
        {"cross_entropy_backward",
         [](D& d, O& o) { d.cross_entropy_backward(o.a, o.targets, 1); }, kChecksTargets},
        {"cross_entropy_of_50257",
         [](D& d, O& o) {
             const Tensor logits = o.of_vocabulary(o.a);
             d.cross_entropy(logits, o.targets.rows(0, logits.shape().matrix_rows()));
         },
         kChecksTargets},
        {"cross_entropy_backward_of_50257",
         [](D& d, O& o) {
             const Tensor logits = o.of_vocabulary(o.a);
             d.cross_entropy_backward(logits,
                                      o.targets.rows(0, logits.shape().matrix_rows()), 1);
         },
         kLogitsTwice},
        {"row_maximum", [](D& d, O& o) { d.row_maximum(o.a); }},
        {"cross_entropy_parts",
         [](D& d, O& o) { d.cross_entropy_parts(o.a, o.targets, o.maximum); },
         kChecksTargets},
        {"cross_entropy_backward_of_parts",
         [](D& d, O& o) {
             d.cross_entropy_backward_of_parts(o.a, o.targets, o.maximum, o.parts, 1);
         },
         kChecksTargets},
        {"embedding_backward",
         [](D& d, O& o) { d.embedding_backward(o.table, o.ids, o.a); }, kScatters},
    };
}

/// Computes the product by cuBLAS, with a handle as cuBLAS creates it.
class PlainCublas {
  public:
    explicit PlainCublas(const gpu::Stream& stream) {
        GPU_CHECK(cublasCreate(&handle_));
        GPU_CHECK(cublasSetStream(handle_, stream.get()));
    }
    ~PlainCublas() { cublasDestroy(handle_); }
    PlainCublas(const PlainCublas&) = delete;
    PlainCublas& operator=(const PlainCublas&) = delete;

    void multiply(std::int64_t n, const float* a, const float* b, float* c) const {
        const float one = 1;
        const float zero = 0;
        GPU_CHECK(cublasSgemm_64(handle_, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, b, n,
                                 a, n, &zero, c, n));
    }

  private:
    cublasHandle_t handle_ = nullptr;
};

void matmul(benchmark::State& state) {
    const std::int64_t n = state.range(0);
    test::PlainMonitor monitor;
    gpu::Device device(0, monitor);
    const PlainCublas plain(device.stream());
    const Tensor a = device.empty({n, n}, DType::f32);
    const Tensor b = device.empty({n, n}, DType::f32);
    const Tensor c = device.empty({n, n}, DType::f32);
    device.random_normal(a, {1, "a"}, 0, 1);
    device.random_normal(b, {1, "b"}, 0, 1);
    Timer timer(device);
    const auto ours = [&] { device.matmul_into(c, a, b); };
    const auto theirs = [&] {
        plain.multiply(n, a.data<float>(), b.data<float>(), c.data<float>());
    };
    timer.seconds_of(ours);
    timer.seconds_of(theirs);
    std::vector<double> our_seconds, their_seconds;
    for ([[maybe_unused]] const auto _ : state) {
        their_seconds.push_back(timer.seconds_of(theirs));
        our_seconds.push_back(timer.seconds_of(ours));
        state.SetIterationTime(our_seconds.back());
    }
    const double flops = 2.0 * static_cast<double>(n * n * n);
    state.counters["time_over_cublas"] = median(our_seconds) / median(their_seconds);
    state.counters["tflops"] = 1e-12 * flops / median(our_seconds);
}
BENCHMARK(matmul)->Arg(4096)->UseManualTime()->Iterations(10)->Unit(
    benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
    constexpr int kSkipped = 77;
    const std::string problem = gpu::survey().problem;
    if (!problem.empty()) {
        std::fprintf(stderr, "skipped: %s\n", problem.c_str());
        return kSkipped;
    }
    for (const auto& operations :
         {element_by_element(), reductions(), softmaxes_and_losses()})
        for (const NamedOperation& operation : operations)
            benchmark::RegisterBenchmark(operation.name, share_of_best, operation.run,
                                         operation.goal)
                ->UseManualTime()
                ->Iterations(10)
                ->Unit(benchmark::kMicrosecond);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
