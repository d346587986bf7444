#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/dtype.hpp"
#include "src/core/units.hpp"

namespace lockstep {

/// A kind of link: a message of b bytes takes alpha + b / beta.
struct LinkSpec {
    double alpha_seconds = 0;
    double bytes_per_second = 0;  ///< 0: bytes take no time
};

/// A device's share of its node's processors and their memory. bf16 is computed in f32.
struct HostSpec {
    double flops_f32 = 0;
    double flops_f64 = 0;
    double memory_bytes_per_second = 0;
    std::int64_t memory_bytes = 0;  ///< capacity; 0: unlimited
};

/// The abilities of a device and its links. Times are in seconds, rates per second, sizes
/// in bytes; a rate of 0 stands for "takes no time".
struct ClusterSpec {
    std::string name;
    std::string source;  ///< where the figures are from

    double flops_f32 = 0;
    double flops_f64 = 0;
    double flops_bf16 = 0;
    double memory_bytes_per_second = 0;
    std::int64_t memory_bytes = 0;  ///< capacity of a device; 0: unlimited
    double launch_seconds = 0;      ///< added to each device operation
    LinkSpec host_copy;             ///< between host and device, in either direction
    /// A node's links to its host memory, which its devices share; 0 means one for each
    /// device. Only started copies (Device::start_copy) wait for each other on a link.
    /// upload() and download() always have the full rate of the link.
    int host_links = 0;
    HostSpec host;

    int devices_per_node = 8;
    LinkSpec inside;        ///< between devices of a node, each with its own ports
    LinkSpec between;       ///< between nodes
    int network_ports = 0;  ///< a node's ports to other nodes; 0: one per device

    /// Durations of the phases of a training step, for a cluster whose operations are
    /// free (`unit`).
    struct PhaseTimes {
        double forward = 0;
        double backward_input = 0;
        double backward_weight = 0;
    };
    std::optional<PhaseTimes> phases;

    /// A device that is slower than the others. Everything that it computes takes
    /// `compute` times as long, and every message to or from another device takes `links`
    /// times as long. Copies to and from its host, and its host's operations, take their
    /// usual time.
    struct Straggler {
        int rank = 0;
        double compute = 1;
        double links = 1;
    };
    std::vector<Straggler> stragglers;  ///< ranks that a run does not have are ignored

    double compute_factor(int rank) const;
    double link_factor(int rank) const;
    double flops(DType dtype) const;
    int node_of(int rank) const { return rank / devices_per_node; }
    bool same_node(int a, int b) const { return node_of(a) == node_of(b); }
    const LinkSpec& link(int a, int b) const {
        return same_node(a, b) ? inside : between;
    }
};

/// Returns the product of time and factor, rounded to the nearest picosecond.
Picoseconds slowed(Picoseconds time, double factor);

/// Time of one message over a link.
Picoseconds message_time(const LinkSpec& link, std::int64_t bytes);

/// Time of a device operation: launch + the longer of arithmetic and memory traffic.
Picoseconds operation_time(const ClusterSpec& spec, std::int64_t flops,
                           std::int64_t bytes, DType dtype);

/// Time of an operation of the host: the longer of arithmetic and memory traffic.
Picoseconds operation_time(const HostSpec& spec, std::int64_t flops, std::int64_t bytes,
                           DType dtype);

/// Time that the host takes to copy unpinned memory into or out of a pinned buffer: each
/// byte is read and written.
Picoseconds staging_time(const HostSpec& spec, std::int64_t bytes);

/// "unit", "classroom", "v100", "a100", "h100", "h200".
std::vector<std::string> cluster_preset_names();

/// Returns the preset of that name, or reads a JSON file of at most 1 MiB. The file's
/// keys are this struct's members. "base" may name a preset, whose values replace missing
/// keys. Throws UsageError with the file, the key, and what was expected.
ClusterSpec load_cluster(const std::string& name_or_path);

/// All presets, each with the source of its figures.
const std::vector<ClusterSpec>& cluster_presets();

}  // namespace lockstep
