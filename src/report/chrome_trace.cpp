#include "src/report/chrome_trace.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "src/report/timeline_rows.hpp"
#include "src/text/json.hpp"

namespace lockstep {

namespace {

constexpr Picoseconds kNanosecond = 1'000;

std::int64_t nanoseconds(Picoseconds time) {
    return (time + kNanosecond / 2) / kNanosecond;
}

std::string microseconds_text(std::int64_t ns) {
    return decimal_text(ns, 1'000);
}

/// Writes the events of one run; process and thread numbers are counted over all runs.
class RunWriter {
  public:
    RunWriter(std::string& out, const std::string& run, const RunReport& report,
              int first_process)
        : out_(out), run_(run), report_(report), first_process_(first_process) {
        for (const TraceEvent& event : report.trace)
            ranks_ = std::max(ranks_, event.rank + 1);
        for (const TraceMemory& level : report.memory_trace)
            ranks_ = std::max(ranks_, level.rank + 1);
        ranks_ = std::max(ranks_, static_cast<int>(report.ranks.size()));
    }

    int processes() const { return ranks_; }

    /// Thread numbers are taken from `next_thread`, flow numbers from `next_flow`.
    void write(int& next_thread, std::int64_t& next_flow) {
        const std::vector<TimelineRow> rows = timeline_rows(report_, /*with_waits=*/true);
        for (int rank = 0; rank < ranks_; ++rank)
            process(rank);
        for (const TimelineRow& row : rows) {
            threads_[{row.rank, row.queue}].push_back({next_thread, &row});
            thread(row, next_thread);
            for (const RowSpan& span : row.spans)
                slice(*span.event, next_thread);
            ++next_thread;
        }
        for (const TraceFlow& flow : report_.flows)
            arrow(flow, next_flow++);
        for (const TraceMemory& level : report_.memory_trace)
            counter(level);
    }

  private:
    struct Thread {
        int number;
        const TimelineRow* row;
    };

    template <typename... Parts>
    void event(fmt::format_string<Parts...> format, Parts&&... parts) {
        out_ += out_.ends_with('[') ? "\n" : ",\n";
        fmt::format_to(std::back_inserter(out_), format, std::forward<Parts>(parts)...);
    }

    int process_of(int rank) const { return first_process_ + rank; }

    void process(int rank) {
        const auto digits = std::to_string(std::max(ranks_ - 1, 0)).size();
        const std::string name =
            fmt::format("{}{}device {:0{}}", run_, run_.empty() ? "" : " ", rank, digits);
        event(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})",
              process_of(rank), json_quoted(name));
        event(
            R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})",
            process_of(rank));
    }

    void thread(const TimelineRow& row, int number) {
        event(
            R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})",
            process_of(row.rank), number, json_quoted(row.label()));
        event(
            R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
            process_of(row.rank), number, number);
    }

    static std::string arguments(const TraceEvent& span) {
        std::string text;
        const auto add = [&](const char* key, const std::string& value) {
            text += fmt::format("{}\"{}\":{}", text.empty() ? "" : ",", key, value);
        };
        if (span.micro_batch >= 0) add("micro_batch", std::to_string(span.micro_batch));
        if (!span.communicator.empty())
            add("communicator", json_quoted(span.communicator));
        if (span.bytes > 0) add("bytes", std::to_string(span.bytes));
        if (span.at.line > 0) add("at", json_quoted(span.at.text()));
        if (span.start % kNanosecond != 0 || span.end % kNanosecond != 0) {
            add("start_ps", std::to_string(span.start));
            add("end_ps", std::to_string(span.end));
        }
        return text;
    }

    void slice(const TraceEvent& span, int thread) {
        const std::int64_t start = nanoseconds(span.start);
        event(
            R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
            json_quoted(span.name), json_quoted(span.kind), process_of(span.rank), thread,
            microseconds_text(start), microseconds_text(nanoseconds(span.end) - start),
            arguments(span));
    }

    /// A point on a queue at which an arrow begins or ends. Viewers attach the arrow to
    /// the slice around this point, so the point must be before the slice's end.
    struct Anchor {
        int thread = -1;
        std::int64_t ns = 0;
    };

    /// Returns the span in which a message is sent, or in which it arrives; null if the
    /// row has none. The span may begin when the message leaves, or end when it arrives.
    static const TraceEvent* span_at(const TimelineRow& row, Picoseconds time,
                                     bool arrives) {
        const auto start = [](const RowSpan& span) { return span.event->start; };
        auto after = arrives ? std::ranges::lower_bound(row.spans, time, {}, start)
                             : std::ranges::upper_bound(row.spans, time, {}, start);
        while (after != row.spans.begin()) {
            --after;
            if (after->event->end >= time) return after->event;
            if (after->depth == 0) break;
        }
        return arrives ? span_at(row, time, false) : nullptr;
    }

    Anchor anchor(int rank, const std::string& queue, Picoseconds time,
                  bool arrives) const {
        const auto found = threads_.find({rank, queue});
        if (found == threads_.end()) return {};
        for (const Thread& thread : found->second) {
            const TraceEvent* span = span_at(*thread.row, time, arrives);
            if (span == nullptr) continue;
            const std::int64_t start = nanoseconds(span->start);
            const std::int64_t last = std::max(start, nanoseconds(span->end) - 1);
            return {thread.number, std::clamp(nanoseconds(time), start, last)};
        }
        return {found->second.front().number, nanoseconds(time)};
    }

    void arrow(const TraceFlow& flow, std::int64_t number) {
        const Anchor from = anchor(flow.source_rank, flow.queue, flow.start, false);
        const Anchor to = anchor(flow.destination_rank, flow.queue, flow.end, true);
        if (from.thread < 0 || to.thread < 0) return;
        event(
            R"({{"ph":"s","name":"message","cat":"message","id":{},"pid":{},"tid":{},"ts":{},"args":{{"bytes":{}}}}})",
            number, process_of(flow.source_rank), from.thread, microseconds_text(from.ns),
            flow.bytes);
        event(
            R"({{"ph":"f","bp":"e","name":"message","cat":"message","id":{},"pid":{},"tid":{},"ts":{}}})",
            number, process_of(flow.destination_rank), to.thread,
            microseconds_text(std::max(from.ns, to.ns)));
    }

    void counter(const TraceMemory& level) {
        std::string bytes;
        for (int c = 0; c < kMemoryCategories; ++c)
            bytes += fmt::format("{}\"{}\":{}", c == 0 ? "" : ",",
                                 name_of(static_cast<MemoryCategory>(c)), level.bytes[c]);
        event(R"({{"ph":"C","name":"memory bytes","pid":{},"ts":{},"args":{{{}}}}})",
              process_of(level.rank), microseconds_text(nanoseconds(level.time)), bytes);
    }

    std::string& out_;
    const std::string& run_;
    const RunReport& report_;
    int first_process_;
    int ranks_ = 0;
    std::map<std::pair<int, std::string>, std::vector<Thread>> threads_;
};

}  // namespace

std::string decimal_text(std::int64_t value, std::int64_t unit) {
    std::string text = std::to_string(value / unit);
    std::int64_t rest = value % unit;
    if (rest == 0) return text;
    text += '.';
    while (rest != 0) {
        unit /= 10;
        text += static_cast<char>('0' + rest / unit);
        rest %= unit;
    }
    return text;
}

std::string chrome_trace(const std::vector<std::pair<std::string, RunReport>>& runs) {
    std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    // Numbers begin with 1: some viewers take process 0 for the idle process.
    int process = 1;
    int thread = 1;
    std::int64_t flow = 1;
    for (const auto& [name, report] : runs) {
        if (report.trace.empty()) continue;
        RunWriter writer(out, name, report, process);
        writer.write(thread, flow);
        process += writer.processes();
    }
    return out + "\n]}\n";
}

}  // namespace lockstep
