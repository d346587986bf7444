#include "src/cost/cluster_spec.hpp"

namespace lockstep {

namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr double kUs = 1e-6;

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

// Latencies inside a node, in us by protocol, and parts of a link's rate are what NCCL
// 2.28's tuner assumes (src/graph/tuning.cc). Those between nodes are fitted: 16 H100s on
// two nodes with NDR InfiniBand take about twice as long as the tuner assumes (a table of
// all_reduce_perf in dstack's page on Nebius, 2025).
std::vector<CollectiveAlgorithm> nccl_algorithms(double ll_share) {
    using Kind = CollectiveAlgorithm::Kind;
    return {
        {"ring LL", Kind::ring, 6.6 * kUs, 0.6 * kUs, 5.7 * kUs, ll_share, 0.03},
        {"ring LL128", Kind::ring, 14 * kUs, 1.9 * kUs, 12 * kUs, 0.92, 0.59},
        {"ring Simple", Kind::ring, 8.4 * kUs, 3.4 * kUs, 20 * kUs, 1, 1},
        {"tree LL", Kind::tree, 6.8 * kUs, 0.6 * kUs, 10.5 * kUs, ll_share, 0.03},
        {"tree LL128", Kind::tree, 14 * kUs, 1.25 * kUs, 26 * kUs, 0.92, 0.59},
        {"tree Simple", Kind::tree, 8.4 * kUs, 4 * kUs, 20 * kUs, 0.92, 0.88},
        {"pairs", Kind::pairs, 12 * kUs, 0.8 * kUs, 4 * kUs, 0.9, 0.85},
    };
}

/// The part of its peak that a product reaches on an A100, by its least extent, and the
/// part of the memory's rate: fitted to the times of a layer of 22 B parameters on 8
/// devices (Korthikanti et al. 2022, 2205.05198, table 4; five rows, four constants, 3 %
/// rms). Nothing as good is published for later devices, so they have the same.
void set_efficiency(ClusterSpec& spec) {
    spec.product_efficiency = {{{96, 0.3}, {768, 0.58}, {3072, 0.66}}};
    spec.memory_efficiency = 0.95;
}

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
        "InfiniBand a node. Messages: NCCL 2.28 src/graph/tuning.cc, and between nodes "
        "as h100. Products: Korthikanti et al. 2022, table 4";
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
    spec.algorithms = nccl_algorithms(0.37);
    set_efficiency(spec);
    return spec;
}

ClusterSpec h100() {
    ClusterSpec spec;
    spec.name = "h100";
    spec.source =
        "DGX H100: NVIDIA H100 SXM data sheet (2023), dense, no sparsity. 8 x NDR "
        "InfiniBand a node. Messages: NCCL 2.28 src/graph/tuning.cc, without NVLink "
        "SHARP, and between nodes all_reduce_perf of two nodes (dstack's page on Nebius, "
        "2025). Products: as a100";
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
    spec.algorithms = nccl_algorithms(0.38);
    set_efficiency(spec);
    return spec;
}

ClusterSpec h200() {
    ClusterSpec spec = h100();
    spec.name = "h200";
    spec.source =
        "DGX H200: NVIDIA H200 SXM data sheet (2024): the H100's arithmetic with 141 GB "
        "at 4.8 TB/s. Messages and products: as h100";
    spec.memory_bytes_per_second = 4.8e12;
    spec.memory_bytes = 141'000'000'000;
    return spec;
}

ClusterSpec h100_nvls() {
    using Kind = CollectiveAlgorithm::Kind;
    ClusterSpec spec = h100();
    spec.name = "h100-nvls";
    spec.source =
        "h100, with all-reduces that the switches add up (NVLink SHARP), which is NCCL's "
        "default: all_reduce_perf of one p5.48xlarge (aws-samples) and of two H100 nodes";
    spec.algorithms.push_back(
        {"NVLS", Kind::in_switch, 50 * kUs, 2.5 * kUs, 82 * kUs, 0.735, 0.63});
    return spec;
}

ClusterSpec b200() {
    using Kind = CollectiveAlgorithm::Kind;
    ClusterSpec spec = h100();
    spec.name = "b200";
    spec.source =
        "DGX B200: NVIDIA DGX B200 data sheet (2024), dense, no sparsity. 8 x NDR "
        "InfiniBand a node. NCCL 2.28 src/graph/tuning.cc, and all_reduce_perf of two "
        "nodes (dstack's blog on Lambda's Kubernetes, 2025). Products: as a100";
    spec.flops_f32 = 75e12;
    spec.flops_f64 = 37e12;
    spec.flops_bf16 = 2250e12;
    spec.memory_bytes_per_second = 8e12;
    spec.memory_bytes = 180'000'000'000;
    spec.inside = {kNvlinkAlpha, 18 * 40.1e9};
    spec.algorithms.push_back(
        {"NVLS", Kind::in_switch, 20 * kUs, 2.5 * kUs, 52 * kUs, 0.66, 0.725});
    spec.algorithms.push_back(
        {"NVLS", Kind::in_switch, 50 * kUs, 2.5 * kUs, 82 * kUs, 0.66, 0.97});
    return spec;
}

ClusterSpec gb200_nvl72() {
    using Kind = CollectiveAlgorithm::Kind;
    ClusterSpec spec = b200();
    spec.name = "gb200-nvl72";
    spec.source =
        "GB200 NVL72: NVIDIA GB200 NVL72 data sheet (2024), dense, no sparsity; the 72 "
        "devices of a rack are a node. NCCL 2.28 src/graph/tuning.cc, and "
        "all_reduce_perf of one rack (coreweave/nccl-tests issue 43). Products: as a100";
    spec.flops_f32 = 80e12;
    spec.flops_f64 = 40e12;
    spec.flops_bf16 = 2500e12;
    spec.memory_bytes = 186'000'000'000;
    spec.devices_per_node = 72;
    spec.algorithms = nccl_algorithms(0.38);
    spec.algorithms.push_back(
        {"NVLS", Kind::in_switch, 470 * kUs, 2.5 * kUs, 175 * kUs, 0.588, 0.97});
    return spec;
}

ClusterSpec mi300x() {
    using Kind = CollectiveAlgorithm::Kind;
    ClusterSpec spec = h100();
    spec.name = "mi300x";
    spec.source =
        "8 x MI300X: AMD MI300X data sheet (2023), dense, no sparsity; 7 x Infinity "
        "Fabric of 64 GB/s a device. 8 x 400 Gbit/s a node. Messages: all_reduce_perf of "
        "one node (hisohara/ai-scripts), and between nodes as h100. Products: as a100";
    spec.flops_f32 = 163.4e12;
    spec.flops_f64 = 81.7e12;
    spec.flops_bf16 = 1307.4e12;
    spec.memory_bytes_per_second = 5.3e12;
    spec.memory_bytes = 192'000'000'000;
    spec.inside = {kNvlinkAlpha, 7 * 64e9};
    spec.algorithms = {
        {"ring LL", Kind::ring, 5 * kUs, 0.6 * kUs, 6 * kUs, 0.156, 0.03},
        {"ring LL128", Kind::ring, 11 * kUs, 0.65 * kUs, 13 * kUs, 0.508, 0.59},
        {"ring Simple", Kind::ring, 22 * kUs, 3.4 * kUs, 20 * kUs, 0.711, 1},
        {"tree LL", Kind::tree, 5 * kUs, 0.6 * kUs, 12 * kUs, 0.156, 0.03},
        {"tree LL128", Kind::tree, 11 * kUs, 0.65 * kUs, 22 * kUs, 0.508, 0.59},
        {"tree Simple", Kind::tree, 22 * kUs, 3.4 * kUs, 20 * kUs, 0.711, 0.88},
        {"pairs", Kind::pairs, 20 * kUs, 1.2 * kUs, 1.5 * kUs, 0.7, 0.97},
    };
    return spec;
}

}  // namespace

const std::vector<ClusterSpec>& cluster_presets() {
    static const std::vector<ClusterSpec> presets{
        unit(), classroom(), v100(), a100(),        h100(),
        h200(), h100_nvls(), b200(), gb200_nvl72(), mi300x()};
    return presets;
}

}  // namespace lockstep
