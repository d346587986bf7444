// Measures operations on elements and rows, on one thread: the GB/s that they read and
// write, in caches and in memory, compared with a copy of the same size.

#include <benchmark/benchmark.h>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/device.hpp"
#include "tests/device/plain_monitor.hpp"

namespace {

using namespace lockstep;

constexpr std::int64_t kColumns = 1024;

/// Tensors of one shape and type that operations read and write.
struct Operands {
    Tensor x, y, z, row, of_rows;
};

using Operation = std::function<void(Device&, const Operands&)>;

Tensor numbers(Device& device, Shape shape, DType dtype) {
    HostTensor values(shape, dtype);
    for (std::int64_t i = 0; i < values.elements(); ++i)
        values.set(i, static_cast<double>(i % 1999) / 333 - 3);
    return device.upload(values);
}

std::vector<std::pair<std::string, Operation>> all_operations() {
    return {
        {"copy", [](Device& device, const Operands& t) { device.copy(t.y, t.x); }},
        {"add", [](Device& device, const Operands& t) { device.add(t.y, t.x, 1e-30); }},
        {"add_bias",
         [](Device& device, const Operands& t) { device.add_bias(t.y, t.row); }},
        {"sum_of_rows",
         [](Device& device, const Operands& t) { device.accumulate_rows(t.row, t.x); }},
        {"sum_of_squares",
         [](Device& device, const Operands& t) {
             device.sum_of_squares(t.of_rows.slice(0, 1), t.x);
         }},
        {"tanh", [](Device& device, const Operands& t) { device.tanh(t.x); }},
        {"sigmoid", [](Device& device, const Operands& t) { device.sigmoid(t.x); }},
        {"gelu", [](Device& device, const Operands& t) { device.gelu(t.x); }},
        {"gelu_backward",
         [](Device& device, const Operands& t) { device.gelu_backward(t.x, t.z); }},
        {"gelu_by_tanh",
         [](Device& device, const Operands& t) { device.gelu(t.x, GeluForm::tanh); }},
        {"softmax", [](Device& device, const Operands& t) { device.softmax(t.x); }},
        {"softmax_backward",
         [](Device& device, const Operands& t) { device.softmax_backward(t.x, t.z); }},
        {"rms_norm",
         [](Device& device, const Operands& t) { device.rms_norm(t.x, t.row); }},
        {"layer_norm",
         [](Device& device, const Operands& t) { device.layer_norm(t.x, t.row, t.row); }},
        {"swiglu", [](Device& device, const Operands& t) { device.swiglu(t.x); }},
    };
}

/// Measures operation number `index` on rows of kColumns numbers.
template <DType kDType>
void elementwise(benchmark::State& state) {
    const auto [name, operation] =
        all_operations()[static_cast<std::size_t>(state.range(0))];
    state.SetLabel(name);
    const std::int64_t rows = state.range(1);
    test::PlainMonitor monitor;
    sim::CpuDevice device(0, monitor);
    const auto fresh = [&](Shape shape) { return numbers(device, shape, kDType); };
    const Operands operands{fresh({rows, kColumns}), fresh({rows, kColumns}),
                            fresh({rows, kColumns}), fresh({kColumns}), fresh({rows})};
    std::int64_t bytes = 0;
    for ([[maybe_unused]] const auto _ : state) {
        monitor.operations.clear();
        operation(device, operands);
        for (const auto& done : monitor.operations)
            bytes += done.bytes;
    }
    state.SetBytesProcessed(bytes);
}

void in_caches_and_in_memory(benchmark::internal::Benchmark* family) {
    const auto last = static_cast<std::int64_t>(all_operations().size()) - 1;
    family->ArgNames({"operation", "rows"})
        ->ArgsProduct({benchmark::CreateDenseRange(0, last, 1), {8, 4096}});
}
BENCHMARK(elementwise<DType::f32>)->Apply(in_caches_and_in_memory);
BENCHMARK(elementwise<DType::f64>)->Apply(in_caches_and_in_memory);

}  // namespace

BENCHMARK_MAIN();
