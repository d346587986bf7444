#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/cost/cluster_spec.hpp"

namespace lockstep {
class PinnedPages;
}

namespace lockstep::sim {

enum class ExecutorKind : std::uint8_t { fibers, threads };

/// Which mistakes a run looks for: only those that cost almost nothing to find, or all.
/// Only `full` looks for races between communication and compute (F16 to F18), launch
/// orders that may deadlock (F12), and mistakes that only the values of several ranks
/// show (F21 to F29). Under `full`, memory that was never written is NaN.
enum class CheckLevel : std::uint8_t { cheap, full };

/// Returns `full` if the environment has LOCKSTEP_CHECK=full, else `cheap`. So another
/// level needs no rebuild of the program. Throws UsageError for any other value.
CheckLevel check_level_asked();

/// --check and LOCKSTEP_CHECK accept "cheap", "full", or "full,-F21,-F23" for full
/// checks without these classes (F21 to F29). Throws UsageError that begins with `who`.
struct Checks {
    CheckLevel level = CheckLevel::cheap;
    std::set<std::string> without;
};
Checks checks_asked();  ///< from the environment
Checks checks_of(const std::string& who, const std::string& text);

/// Makes the device of a rank, if it should not be a CpuDevice.
using DeviceFactory =
    std::function<std::unique_ptr<Device>(int index, DeviceMonitor& monitor)>;

struct ClusterOptions {
    int ranks = 1;
    ClusterSpec spec;
    /// If false, only shapes are computed: no storage and no arithmetic, but the same
    /// time, bytes and memory.
    bool numbers = true;
    ExecutorKind executor = ExecutorKind::fibers;
    /// Threads for long operations; 0 means one per core. Results do not depend on it.
    int workers = 0;
    /// Permutes the order in which ready ranks are run. Results do not depend on it.
    std::optional<std::uint64_t> schedule_seed;
    bool trace = false;
    /// If none, check_level_asked() is called when a program is run. So a wrong value in
    /// the environment is reported by that run.
    std::optional<CheckLevel> check;
    std::set<std::string> unchecked{};  ///< classes that full checks do not report
    DeviceFactory device_factory;       ///< if none, CpuDevice
    /// Limits of memory in bytes for some ranks' devices, instead of the spec's.
    std::map<int, std::int64_t> memory_of_rank{};
    /// Optional: the program of one device with the same data. Under CheckLevel::full
    /// this program runs first, on one virtual device. Then each tensor that ranks keep
    /// is compared with the program's tensor of that name. A shard, kept with its Part,
    /// is compared with that part of the whole, without padding. i32 must be equal; other
    /// types may differ by the rounding of sums. It is a mistake if one side lacks a
    /// name, if shapes or dtypes differ, or if an element is kept by no rank. A series
    /// must be on both sides. Its values are not compared, since each rank may have a
    /// share of them.
    Program reference;
    /// For replays of hanging runs: the ranks that hung. Their replayed program returns,
    /// but no diagnosis may say that these ranks have ended. Empty means none.
    std::vector<bool> stands_still;

    static constexpr int kMaxRanks = 16384;
};

/// Makes virtual devices in this process. Throws UsageError for impossible options.
std::unique_ptr<Cluster> make_cluster(ClusterOptions options);

/// Makes N devices of a preset, with one call.
std::unique_ptr<Cluster> make_cluster(int ranks,
                                      const std::string& cluster = "classroom");

/// Makes a GPU's host, which computes like virtual devices. Usable as a HostFactory.
std::unique_ptr<Device> make_host(int index, DeviceMonitor& monitor, PinnedPages& pages);

}  // namespace lockstep::sim
