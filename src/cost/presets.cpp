#include "src/cost/cluster_spec.hpp"

namespace lockstep {

namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// The latency of a message over NVLink or the network is what NCCL's tuner assumes for
// one ring step of its Simple protocol (NCCL 2.28, src/graph/tuning.cc): 3.4 us and 14
// us. NCCL assumes 20.0 GB/s for an NVLink up to Ampere and 20.6 GB/s on Hopper
// (src/graph/topo.h). A V100, A100 and H100 have 6, 12 and 18 links.
constexpr double kNvlinkAlpha = 3.4e-6;
constexpr double kNetworkAlpha = 14e-6;

/// Our own round figures for two times that data sheets do not give: a kernel's launch,
/// and a host copy's latency.
constexpr double kLaunch = 3e-6;
constexpr double kHostAlpha = 10e-6;

/// A node's processors, from their data sheets and the DGX's.
struct Processors {
    int cores;
    double hertz;
    int flops_f32_a_cycle;
    double memory_bytes_per_second;
    std::int64_t memory_bytes;
};

/// Returns the share of one of a node's eight devices.
HostSpec host_of(const Processors& node) {
    constexpr int kDevices = 8;
    const double flops = node.cores * node.hertz * node.flops_f32_a_cycle / kDevices;
    return {flops, flops / 2, node.memory_bytes_per_second / kDevices,
            node.memory_bytes / kDevices};
}

ClusterSpec unit() {
    ClusterSpec spec;
    spec.name = "unit";
    spec.source =
        "made for hand-checked pictures: forward 1 s, backward 2 s, all else free";
    spec.phases = ClusterSpec::PhaseTimes{1, 1, 1};
    return spec;
}

ClusterSpec classroom() {
    ClusterSpec spec;
    spec.name = "classroom";
    spec.source = "made for pencil arithmetic: round figures";
    spec.flops_f32 = 1e12;
    spec.flops_f64 = 0.5e12;
    spec.flops_bf16 = 2e12;
    spec.memory_bytes_per_second = 100e9;
    spec.memory_bytes = 16 * kGiB;
    spec.launch_seconds = 1e-6;
    spec.host_copy = {1e-6, 10e9};
    spec.host = {100e9, 50e9, 20e9, 64 * kGiB};
    spec.inside = {1e-6, 10e9};
    spec.between = {10e-6, 1e9};
    return spec;
}

ClusterSpec v100() {
    ClusterSpec spec;
    spec.name = "v100";
    spec.source =
        "DGX-1 with V100 SXM2 32 GB: NVIDIA V100 data sheet (2020); 16 bit is FP16. 4 x "
        "EDR InfiniBand a node. Message times: NCCL 2.28 src/graph/tuning.cc";
    spec.flops_f32 = 15.7e12;
    spec.flops_f64 = 7.8e12;
    spec.flops_bf16 = 125e12;
    spec.memory_bytes_per_second = 900e9;
    spec.memory_bytes = 32 * kGiB;
    spec.launch_seconds = kLaunch;
    spec.host_copy = {kHostAlpha, 12e9};
    // 2 x Xeon E5-2698 v4: 20 cores at 2.2 GHz, 32 operations a cycle (AVX2), 4 channels
    // of DDR4-2133; 512 GB.
    spec.host = host_of({2 * 20, 2.2e9, 32, 2 * 4 * 2133e6 * 8, 512'000'000'000});
    spec.inside = {kNvlinkAlpha, 6 * 20.0e9};
    spec.between = {kNetworkAlpha, 12.5e9};
    spec.network_ports = 4;
    return spec;
}

ClusterSpec a100() {
    ClusterSpec spec;
    spec.name = "a100";
    spec.source =
        "DGX A100 80 GB: NVIDIA A100 data sheet (2021), dense, no sparsity. 8 x HDR "
        "InfiniBand a node. Message times: NCCL 2.28 src/graph/tuning.cc";
    spec.flops_f32 = 19.5e12;
    spec.flops_f64 = 9.7e12;
    spec.flops_bf16 = 312e12;
    spec.memory_bytes_per_second = 2039e9;
    spec.memory_bytes = 80 * kGiB;
    spec.launch_seconds = kLaunch;
    spec.host_copy = {kHostAlpha, 25e9};
    // 2 x EPYC 7742: 64 cores at 2.25 GHz, 32 operations a cycle (AVX2), 8 channels of
    // DDR4-3200; 2 TB.
    spec.host = host_of({2 * 64, 2.25e9, 32, 2 * 8 * 3200e6 * 8, 2'000'000'000'000});
    spec.inside = {kNvlinkAlpha, 12 * 20.0e9};
    spec.between = {kNetworkAlpha, 25e9};
    return spec;
}

ClusterSpec h100() {
    ClusterSpec spec;
    spec.name = "h100";
    spec.source =
        "DGX H100: NVIDIA H100 SXM data sheet (2023), dense, no sparsity. 8 x NDR "
        "InfiniBand a node. Message times: NCCL 2.28 src/graph/tuning.cc";
    spec.flops_f32 = 67e12;
    spec.flops_f64 = 34e12;
    spec.flops_bf16 = 989.4e12;
    spec.memory_bytes_per_second = 3.35e12;
    spec.memory_bytes = 80 * kGiB;
    spec.launch_seconds = kLaunch;
    spec.host_copy = {kHostAlpha, 50e9};
    // 2 x Xeon 8480C: 56 cores at 2.0 GHz, 64 operations a cycle (AVX-512), 8 channels of
    // DDR5-4800; 2 TB.
    spec.host = host_of({2 * 56, 2.0e9, 64, 2 * 8 * 4800e6 * 8, 2'000'000'000'000});
    spec.inside = {kNvlinkAlpha, 18 * 20.6e9};
    spec.between = {kNetworkAlpha, 50e9};
    return spec;
}

ClusterSpec h200() {
    ClusterSpec spec = h100();
    spec.name = "h200";
    spec.source =
        "DGX H200: NVIDIA H200 SXM data sheet (2024): the H100's arithmetic with 141 GB "
        "at 4.8 TB/s. Message times: NCCL 2.28 src/graph/tuning.cc";
    spec.memory_bytes_per_second = 4.8e12;
    spec.memory_bytes = 141'000'000'000;
    return spec;
}

}  // namespace

const std::vector<ClusterSpec>& cluster_presets() {
    static const std::vector<ClusterSpec> presets{unit(), classroom(), v100(),
                                                  a100(), h100(),      h200()};
    return presets;
}

}  // namespace lockstep
