#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/host_tensor.hpp"
#include "src/core/part.hpp"
#include "src/core/source_line.hpp"
#include "src/core/tensor.hpp"
#include "src/core/units.hpp"

namespace lockstep {

/// The traffic of a rank: one verb in one group over one class of link.
struct Traffic {
    std::string group;  ///< the communicator's name
    std::string verb;
    bool between_nodes = false;
    std::int64_t calls = 0;
    std::int64_t messages_sent = 0;
    std::int64_t bytes_sent = 0;
    std::int64_t messages_received = 0;
    std::int64_t bytes_received = 0;
};

/// Bytes of memory by category: at present, and when the total was largest.
struct MemoryReport {
    std::array<std::int64_t, kMemoryCategories> current{};
    std::array<std::int64_t, kMemoryCategories> at_peak{};
    std::int64_t peak = 0;
    /// The largest value of each category, at any time.
    std::array<std::int64_t, kMemoryCategories> category_peak{};

    std::int64_t peak_of(MemoryCategory category) const {
        return category_peak[static_cast<std::size_t>(category)];
    }
};

/// How long a rank's queues were busy, and how long its compute queue waited.
struct TimeReport {
    Picoseconds compute = 0;
    Picoseconds communication = 0;  ///< sum over communicators
    Picoseconds copy = 0;           ///< between host and device
    Picoseconds waiting = 0;        ///< compute queue waits for communication or host
    Picoseconds begin = 0;          ///< when the rank's first phase began
    Picoseconds end = 0;            ///< when the rank's last operation ended
};

/// The work and the memory of a rank's host.
struct HostReport {
    Picoseconds compute = 0;  ///< operations on its tensors; staging of unpinned memory
    std::int64_t flops = 0;
    MemoryReport memory;
    std::int64_t bytes_to_host = 0;  ///< copied to the host with start_copy
    std::int64_t bytes_to_device = 0;
};

/// A program's word that something which looks like a mistake is meant.
struct Intended {
    std::string fault;  ///< the class, "F21"
    std::string why;
    std::string name;  ///< of the tensor that this concerns; empty: of any
    SourceLine at;
};

/// Returns whether a program can say that it means what looks like this class: F21 to
/// F29, which only values show.
bool can_be_intended(const std::string& fault);

/// The report of one rank.
struct RankReport {
    TimeReport time;
    MemoryReport memory;
    HostReport host;
    std::vector<Traffic> traffic;
    std::int64_t flops = 0;
    std::map<std::string, HostTensor> kept;
    std::map<std::string, SourceLine> kept_at;  ///< the lines that called Rank::keep
    /// Which part of a whole each shard is. A tensor that is not listed is whole.
    std::map<std::string, Part> kept_parts;
    std::map<std::string, std::vector<double>> series;
    std::map<std::string, SourceLine> series_at;  ///< where each series began
    std::vector<Intended> intended;

    std::int64_t bytes_sent() const;
    std::int64_t bytes_sent_by(std::string_view verb) const;
    std::int64_t messages_sent() const;
    /// Returns which part of a whole is kept under the name.
    Part part_of(const std::string& name) const;
};

/// A span of time on a queue of a device. In a "wait", the compute queue is idle until a
/// communication ends or the host catches up. Only virtual devices record waits. They
/// record all waits that take time, so TimeReport::waiting is the sum of the waits.
struct TraceEvent {
    int rank = 0;
    /// "compute", a communicator's name, "copy", "copy to host", "copy to device",
    /// "host".
    std::string queue;
    std::string name;  ///< "matmul", "all_reduce", "forward 3"
    std::string kind;  ///< "operation", "phase", "communication", "copy", "wait"
    Picoseconds start = 0;
    Picoseconds end = 0;
    int micro_batch = -1;
    std::int64_t bytes = 0;
    SourceLine at;
    /// For a wait: the communicator of the communication that it waits for, or "host".
    /// The wait ends with the communication, has its bytes, and is named "wait for NAME".
    std::string communicator = {};
    /// For a communication: when this rank reached it; -1 on GPUs, where it is unknown.
    /// The communication begins when all ranks have reached it and the queue is free.
    Picoseconds issued = -1;

    bool is_phase() const { return kind == "phase"; }
};

/// A message: an arrow between two spans.
struct TraceFlow {
    int source_rank = 0;
    int destination_rank = 0;
    std::string queue;
    Picoseconds start = 0;
    Picoseconds end = 0;
    std::int64_t bytes = 0;
};

/// Memory in use on a rank from `time` on, by category.
struct TraceMemory {
    int rank = 0;
    Picoseconds time = 0;
    std::array<std::int64_t, kMemoryCategories> bytes{};
};

/// The least time that a run's work takes on its devices (Williams, Waterman & Patterson
/// 2009, Roofline): if nothing waited, and products, memory and links all reached the
/// rates of the data sheet. Each is the time of the rank or the node that has the most of
/// it. Only virtual devices know these rates.
struct Roof {
    Picoseconds products = 0;  ///< floating point operations
    Picoseconds memory = 0;    ///< bytes that operations read and write
    Picoseconds links = 0;     ///< bytes that ranks send to each other

    Picoseconds highest() const { return std::max({products, memory, links}); }
};

/// The result of a run: figures of every rank, and the trace if one was asked for.
struct RunReport {
    std::vector<RankReport> ranks;
    Roof roof;
    std::vector<TraceEvent> trace;
    std::vector<TraceFlow> flows;
    std::vector<TraceMemory> memory_trace;

    /// Returns when the last rank ended.
    Picoseconds makespan() const;
    /// Returns the time from the first phase of any rank to the end: the makespan without
    /// the making of initial values.
    Picoseconds time_in_phases() const;
    std::int64_t bytes_sent() const;
    std::int64_t messages_sent() const;
    /// Returns the largest number of bytes that any rank held at one time.
    std::int64_t most_held() const;
    /// Returns the tensor that ranks kept under the name, put together from their shards.
    /// Throws UsageError if no rank kept it, if the ranks' wholes differ in shape or
    /// dtype, if two ranks kept different bits of one element, or if no rank kept an
    /// element.
    HostTensor whole(const std::string& name) const;
};

/// report_bytes returns a run's report, with tensors and trace, as bytes for another
/// process. read_report returns the report from these bytes. It throws UsageError if the
/// bytes are not a report.
std::string report_bytes(const RunReport& report);
RunReport read_report(const std::string& bytes);

}  // namespace lockstep
