#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/cost/cluster_spec.hpp"

namespace lockstep {
class PinnedPages;
}

namespace lockstep::sim {

enum class ExecutorKind : std::uint8_t { fibers, threads };

/// Which mistakes are looked for: those that cost next to nothing, or all. What is looked
/// for only under `full`: races between communication and compute (F16 to F18), launch
/// orders that may deadlock (F12), and what the values of several ranks say together (F21
/// to F29). Under `full`, memory that was never written is NaN.
enum class CheckLevel : std::uint8_t { cheap, full };

/// Returns `full` if the environment says LOCKSTEP_CHECK=full, so that a program need not
/// be built again; else `cheap`. Throws UsageError if it says something else.
CheckLevel check_level_asked();

/// Makes the device of a rank; for numbers from elsewhere than CpuDevice.
using DeviceFactory =
    std::function<std::unique_ptr<Device>(int index, DeviceMonitor& monitor)>;

struct ClusterOptions {
    int ranks = 1;
    ClusterSpec spec;
    /// False computes shapes only: no storage and no arithmetic; the same time, bytes and
    /// memory.
    bool numbers = true;
    ExecutorKind executor = ExecutorKind::fibers;
    /// Threads that long operations run on; 0 is one a core. No result depends on it.
    int workers = 0;
    /// Permutes the order in which ranks that can run are run. No result depends on it.
    std::optional<std::uint64_t> schedule_seed;
    bool trace = false;
    /// None is check_level_asked() when a program is run: an environment that is wrong is
    /// then refused where other mistakes of a run are, not where options are made.
    std::optional<CheckLevel> check;
    DeviceFactory device_factory;  ///< none is CpuDevice
    /// The program of one device with the same data, if there is one. Under
    /// CheckLevel::full it is run first, on one virtual device, and what ranks keep is
    /// compared with what it kept under the same names: a shard, which is kept with its
    /// Part, with that part of the whole, but for padding; i32 exactly, and the rest but
    /// for the rounding of sums. What only one side keeps is a mistake, as are another
    /// shape or dtype, and elements that no rank keeps. A series must be on both sides,
    /// but its values are not compared, since each rank may have its share of them.
    Program reference;
    /// Ranks of which a diagnosis says, once their program returns, not that they have
    /// ended but that they stand still; for repeating runs that hang. Empty is none.
    std::vector<bool> stands_still;

    static constexpr int kMaxRanks = 16384;
};

/// Virtual devices in this process. Throws UsageError for a number of ranks that cannot
/// be.
std::unique_ptr<Cluster> make_cluster(ClusterOptions options);

/// Makes N devices of a preset, with one call.
std::unique_ptr<Cluster> make_cluster(int ranks,
                                      const std::string& cluster = "classroom");

/// A HostFactory: the host of a GPU computes as virtual devices do.
std::unique_ptr<Device> make_host(int index, DeviceMonitor& monitor, PinnedPages& pages);

}  // namespace lockstep::sim
