#include "src/report/hta_trace.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "src/report/timeline_rows.hpp"
#include "src/text/json.hpp"

namespace lockstep {

namespace {

constexpr Picoseconds kMicrosecond = 1'000'000;

// Thread numbers of the host; streams have other numbers. There is one thread for the
// steps, and for each queue one for its phases and one for its launches.
constexpr int kStepThread = 1'000;
constexpr int kPhaseThread = 2'000;
constexpr int kLaunchThread = 3'000;

/// Returns the largest power of ten of picoseconds that is at most a microsecond and at
/// most the shortest operation.
Picoseconds unit_of(const RunReport& run) {
    Picoseconds unit = kMicrosecond;
    for (const TraceEvent& event : run.trace)
        while (!event.is_phase() && event.kind != "wait" && event.end > event.start &&
               event.end - event.start < unit)
            unit /= 10;
    return unit;
}

/// Returns NCCL's name for the kernel; a group of several verbs is treated as a group of
/// sends and receives.
std::string nccl_kernel(const std::string& name) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kKernels{
        {{"all_reduce", "AllReduce_Sum_f32_RING_LL"},
         {"all_gather", "AllGather_RING_LL"},
         {"reduce_scatter", "ReduceScatter_Sum_f32_RING_LL"},
         {"broadcast", "Broadcast_RING_LL"},
         {"reduce", "Reduce_Sum_f32_RING_LL"},
         {"barrier", "AllReduce_Sum_f32_RING_LL"}}};
    std::string_view kernel = "SendRecv";
    for (const auto& [verb, called] : kKernels)
        if (name == verb) kernel = called;
    return fmt::format("ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)", kernel);
}

/// Returns the starts of a rank's steps, and the end of the last step.
std::vector<Picoseconds> step_bounds(const RunReport& run, int rank) {
    std::vector<const TraceEvent*> phases;
    for (const TraceEvent& event : run.trace)
        if (event.rank == rank && event.is_phase()) phases.push_back(&event);
    std::ranges::stable_sort(phases, {}, &TraceEvent::start);
    std::vector<Picoseconds> bounds{0};
    bool updated = false;
    for (const TraceEvent* phase : phases) {
        const bool update = phase->name.starts_with("update");
        if (updated && !update) bounds.push_back(phase->start);
        updated = update;
    }
    bounds.push_back(std::max(timeline_end(run), bounds.back()));
    return bounds;
}

class RankWriter {
  public:
    RankWriter(const RunReport& run, int rank)
        : run_(run), rank_(rank), unit_(unit_of(run)) {}

    std::string write() {
        out_ = fmt::format(
            R"({{"schemaVersion": 1, "distributedInfo": {{"rank": {}, "world_size": {}, )"
            R"("backend": "nccl"}}, "lockstepUnitPicoseconds": {}, "traceEvents": [)",
            rank_, run_.ranks.size(), unit_);
        steps();
        int stream = 0;
        for (const TimelineRow& row : timeline_rows(run_)) {
            if (row.rank != rank_) continue;
            ++stream;
            name_thread(kLaunchThread + stream, "launches into " + row.label());
            name_thread(stream, row.label());
            for (const RowSpan& span : row.spans)
                span.event->is_phase() ? phase(*span.event, stream)
                                       : kernel(*span.event, stream);
        }
        return out_ + "\n]}\n";
    }

  private:
    template <typename... Parts>
    void event(fmt::format_string<Parts...> format, Parts&&... parts) {
        out_ += out_.ends_with('[') ? "\n" : ",\n";
        fmt::format_to(std::back_inserter(out_), format, std::forward<Parts>(parts)...);
    }

    void slice(const std::string& name, const char* category, int thread,
               std::int64_t start, std::int64_t end, const std::string& arguments) {
        event(
            R"({{"ph": "X", "name": {}, "cat": "{}", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{{}}}}})",
            json_quoted(name), category, rank_, thread, start, end - start, arguments);
    }

    void name_thread(int thread, const std::string& name) {
        event(
            R"({{"ph": "M", "name": "thread_name", "pid": {}, "tid": {}, "args": {{"name": {}}}}})",
            rank_, thread, json_quoted(name));
    }

    /// Returns the time in units, rounded: spans that were disjoint or nested stay so.
    std::int64_t units(Picoseconds time) const { return (time + unit_ / 2) / unit_; }

    void steps() {
        name_thread(kStepThread, "steps");
        const std::vector<Picoseconds> bounds = step_bounds(run_, rank_);
        for (std::size_t k = 0; k < bounds.size(); ++k) {
            const std::int64_t start = units(bounds[k]);
            const bool last = k + 1 == bounds.size();
            slice(fmt::format("ProfilerStep#{}", k), "user_annotation", kStepThread,
                  start, last ? start + 1 : units(bounds[k + 1]), "");
        }
    }

    void phase(const TraceEvent& span, int stream) {
        slice(span.name, "user_annotation", kPhaseThread + stream, units(span.start),
              units(span.end), "");
    }

    /// Writes the kernel and its launch: HTA keeps only kernels whose launch it finds.
    void kernel(const TraceEvent& span, int stream) {
        if (span.end == span.start) return;
        const std::int64_t start = units(span.start);
        const std::string link = fmt::format(R"("correlation": {})", ++correlation_);
        slice("cudaLaunchKernel", "cuda_runtime", kLaunchThread + stream, start,
              start + 1, link);
        const std::string arguments =
            fmt::format(R"("device": {}, "stream": {}, {}, "bytes": {})", rank_, stream,
                        link, span.bytes);
        if (span.kind == "copy")
            slice("Memcpy " + span.name, "gpu_memcpy", stream, start, units(span.end),
                  arguments);
        else
            slice(span.kind == "communication" ? nccl_kernel(span.name) : span.name,
                  "kernel", stream, start, units(span.end), arguments);
    }

    const RunReport& run_;
    int rank_;
    Picoseconds unit_;
    std::string out_;
    std::int64_t correlation_ = 0;
};

}  // namespace

std::string hta_trace(const RunReport& run, int rank) {
    return RankWriter(run, rank).write();
}

}  // namespace lockstep
