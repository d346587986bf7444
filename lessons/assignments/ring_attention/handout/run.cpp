// Shows your ring attention on four virtual devices, as a timeline of both passes.

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/core/units.hpp"
#include "src/course/show_run.hpp"

using namespace lockstep;

constexpr std::int64_t kTokens = 256, kHeads = 4, kWidth = 16;  // tokens of a rank

/// Prints the sizes of the tensors in a rank's memory.
void print_sizes() {
    constexpr std::int64_t kTensor = kTokens * kHeads * kWidth * sizeof(float);
    constexpr std::int64_t kLogSumExp = kTokens * kHeads * sizeof(float);
    constexpr std::int64_t kBlock = 2 * kTensor;
    const auto print = [](const char* what, std::int64_t in, std::int64_t out,
                          std::int64_t blocks, const char* remark) {
        fmt::print("{}: {} go in, {} come out; with {} blocks of {}{} that is {}\n", what,
                   bytes_text(in), bytes_text(out), blocks, bytes_text(kBlock), remark,
                   bytes_text(in + out + blocks * kBlock));
    };
    print("forward", 3 * kTensor, kTensor + kLogSumExp, 2, "");
    print("backward", 5 * kTensor + kLogSumExp, 3 * kTensor, 2 + 3,
          ", 3 of them gradients,");
}

int main() {
    sim::ClusterOptions options;
    options.ranks = 4;
    options.spec = load_cluster("classroom");
    options.check = sim::CheckLevel::full;
    options.trace = true;
    const int status = show_run(
        *sim::make_cluster(options),
        [](Rank& rank) {
            const Sequence sequence{kTokens * rank.size(), kHeads, false};
            Device& device = rank.device();
            const auto random = [&](const std::string& name) {
                const Tensor values =
                    device.empty({kTokens, 1, kHeads * kWidth}, DType::f32);
                device.random_normal(
                    values, RandomStream(static_cast<std::uint64_t>(rank.index()), name),
                    0, 1);
                return values;
            };
            const Qkv own{random("queries"), random("keys"), random("values")};
            const Attended attended = adapters::forward(rank, own, sequence);
            adapters::backward(rank, own, attended, random("dy"), sequence);
        },
        "ring-attention");
    if (status == 0) print_sizes();
    return status;
}
