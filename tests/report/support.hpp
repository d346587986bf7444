#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <signal.h>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <sys/resource.h>
#include <system_error>

#include "src/core/require.hpp"
#include "src/run/run_report.hpp"
#include "tests/temporary_folder.hpp"

namespace lockstep::test {

inline std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Removes the old file first, because some file systems flush a file that is truncated
/// and then written.
inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << bytes;
}

inline std::size_t entries_in(const std::filesystem::path& folder) {
    const std::filesystem::directory_iterator begin(folder);
    return static_cast<std::size_t>(
        std::distance(begin, std::filesystem::directory_iterator()));
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// While this object exists, no file grows beyond `bytes`. Writes fail as on a full disk.
class FullDisk {
  public:
    explicit FullDisk(rlim_t bytes) {
        getrlimit(RLIMIT_FSIZE, &before_);
        rlimit limit = before_;
        limit.rlim_cur = bytes;
        setrlimit(RLIMIT_FSIZE, &limit);
        handler_ = signal(SIGXFSZ, SIG_IGN);
    }
    ~FullDisk() {
        setrlimit(RLIMIT_FSIZE, &before_);
        signal(SIGXFSZ, handler_);
    }
    FullDisk(const FullDisk&) = delete;
    FullDisk& operator=(const FullDisk&) = delete;

  private:
    rlimit before_{};
    void (*handler_)(int) = nullptr;
};

/// Returns the error message of the action; empty if it succeeds.
template <typename Action>
std::string refusal(Action&& action) {
    try {
        action();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

/// The first device's compute queue waits until its first all-reduce ends.
inline TraceEvent first_wait() {
    return {0,  "compute", "wait for all_reduce", "wait", 6'000'000, 9'000'000,
            -1, 64,        {"src/step.cpp", 9},   "world"};
}

/// Two steps of data parallelism on two devices, with times in whole nanoseconds.
inline RunReport small_run() {
    constexpr Picoseconds kNano = 1'000;
    RunReport report;
    report.ranks.resize(2);
    for (int rank = 0; rank < 2; ++rank) {
        for (int step = 0; step < 2; ++step) {
            const Picoseconds t = Picoseconds{step} * 10'000 * kNano;
            const auto add = [&](const char* queue, const std::string& name,
                                 const char* kind, Picoseconds begin, Picoseconds end,
                                 int micro_batch) {
                report.trace.push_back({rank,
                                        queue,
                                        name,
                                        kind,
                                        t + begin * kNano,
                                        t + end * kNano,
                                        micro_batch,
                                        64,
                                        {"src/step.cpp", 7}});
            };
            add("compute", "forward", "phase", 0, 2000, step);
            add("compute", "matmul", "operation", 0, 1500, -1);
            add("compute", "gelu", "operation", 1500, 2000, -1);
            add("compute", "backward", "phase", 2000, 6000, step);
            add("compute", "matmul", "operation", 2000, 5500, -1);
            add("world", "all_reduce", "communication", 6000, 9000, -1);
            add("compute", "sgd", "operation", 9000, 10000, -1);
            report.flows.push_back(
                {rank, 1 - rank, "world", t + 6000 * kNano, t + 9000 * kNano, 64});
            report.memory_trace.push_back({rank, t, {100, 0, 0, 50, 0, 0}});
            report.memory_trace.push_back(
                {rank, t + 6000 * kNano, {100, 100, 0, 0, 10, 0}});
        }
        RankReport& figures = report.ranks[static_cast<std::size_t>(rank)];
        figures.time = {14'000 * kNano, 6'000 * kNano, 0, 6'000 * kNano, 0,
                        20'000 * kNano};
        figures.traffic = {{"world", "all_reduce", false, 2, 4, 128, 4, 128}};
        figures.memory.peak = 210;
        figures.flops = 12345;
        figures.series["loss"] = {0.5, 0.25};
    }
    return report;
}

}  // namespace lockstep::test
