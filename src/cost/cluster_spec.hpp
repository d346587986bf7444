#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/dtype.hpp"
#include "src/core/units.hpp"

namespace lockstep {

/// The part of a rate that is reached, by a size. It is interpolated between the points,
/// on a logarithmic axis of sizes, and constant on either side of them. Without points it
/// is 1.
struct Curve {
    struct Point {
        double size;  ///< larger than that of the point before
        double part;  ///< above 0
    };
    std::vector<Point> points;

    double at(double size) const;
};

/// A kind of link: a message of b bytes takes alpha + b / (beta efficiency(b)).
struct LinkSpec {
    double alpha_seconds = 0;
    double bytes_per_second = 0;  ///< 0: bytes take no time
    Curve efficiency{};           ///< the part of the rate, by a message's bytes
};

/// An algorithm of collectives with a protocol, as NCCL has several. It takes
/// `base_seconds`, and for each step one of the two latencies. Its bytes pass at a part
/// of the links' rates. A collective takes the fastest algorithm that has its verb.
struct CollectiveAlgorithm {
    enum class Kind : std::uint8_t {
        ring,       ///< all verbs that are rings or chains
        tree,       ///< all_reduce, over several nodes
        in_switch,  ///< all_reduce whose sums a node's switches make (NVLink SHARP)
        pairs       ///< all_to_all, gather, scatter: messages between pairs
    };
    static constexpr const char* kKinds[] = {"ring", "tree", "in_switch", "pairs"};
    std::string name;
    Kind kind = Kind::ring;
    double base_seconds = 0;
    double inside_seconds = 0;      ///< a step between devices of a node
    double between_seconds = 0;     ///< a step between nodes
    double inside_efficiency = 1;   ///< the part of its rate
    double between_efficiency = 1;  ///< the part of its rate
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
    Curve product_efficiency{};     ///< the part of flops, by a product's least extent
    double memory_efficiency = 1;   ///< the part of the memory's rate
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
    /// Nodes on one switch, or on one set of switches if each port has its own (rails).
    /// The lines that leave it have 1 / oversubscription of the rate of its nodes' ports.
    /// Rings and trees have few of their messages there; an all_to_all has many.
    int nodes_per_switch = 0;  ///< 0: all nodes
    double oversubscription = 1;
    /// If there are none, a collective takes a ring, or over several nodes a tree, whose
    /// steps have the latency of their links.
    std::vector<CollectiveAlgorithm> algorithms{};

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

    /// For a cluster whose figures were fitted to measurements (`lockstep calibrate`):
    /// how far its times were from measurements that were left out of the fit.
    struct FitError {
        double mean = 0;   ///< of |time / measured - 1|
        double worst = 0;  ///< the largest of them
        int rows = 0;      ///< measurements
        int constants = 0;
    };
    std::optional<FitError> error;

    double compute_factor(int rank) const;
    double link_factor(int rank) const;
    double flops(DType dtype) const;
    int node_of(int rank) const { return rank / devices_per_node; }
    bool same_node(int a, int b) const { return node_of(a) == node_of(b); }
    const LinkSpec& link(int a, int b) const {
        return same_node(a, b) ? inside : between;
    }
};

/// Returns what a page says beside times of this cluster: "Times of mine come from
/// …"; empty for a cluster without a stated error.
std::string accuracy_text(const ClusterSpec& spec);

/// Returns the product of time and factor, rounded to the nearest picosecond.
Picoseconds slowed(Picoseconds time, double factor);

/// Time of bytes or floating point operations at a rate, none at rate 0.
Picoseconds time_at_rate(std::int64_t amount, double per_second);

/// Time of one message over a link.
Picoseconds message_time(const LinkSpec& link, std::int64_t bytes);

/// Time of a device operation: launch + the longer of arithmetic and memory traffic.
/// `extent` is a product's least extent, and 0 for any other operation.
Picoseconds operation_time(const ClusterSpec& spec, std::int64_t flops,
                           std::int64_t bytes, DType dtype, std::int64_t extent = 0);

/// Time of an operation of the host: the longer of arithmetic and memory traffic.
Picoseconds operation_time(const HostSpec& spec, std::int64_t flops, std::int64_t bytes,
                           DType dtype);

/// Time that the host takes to copy unpinned memory into or out of a pinned buffer: each
/// byte is read and written.
Picoseconds staging_time(const HostSpec& spec, std::int64_t bytes);

std::vector<std::string> cluster_preset_names();

/// Returns the preset of that name, or reads a JSON file of at most 1 MiB. The file's
/// keys are this struct's members. "base" may name a preset, whose values replace missing
/// keys. A preset's name with "-data-sheet" behind it is the preset without efficiencies
/// and algorithms: products, memory and links reach their data sheet's rates. Throws
/// UsageError with the file, the key, and what was expected.
ClusterSpec load_cluster(const std::string& name_or_path);

/// All presets, each with the source of its figures.
const std::vector<ClusterSpec>& cluster_presets();

}  // namespace lockstep
