#include "src/report/timeline.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "src/comm/operation.hpp"
#include "src/report/causes.hpp"
#include "src/report/timeline_rows.hpp"

namespace lockstep {

namespace {

/// A run that would take less than a 20th of the picture's width gets its own scale of
/// time.
constexpr Picoseconds kLeastShare = 20;
/// More arrows would hide the boxes.
constexpr std::size_t kMostArrows = 1000;

struct NamedLook {
    std::string_view name;
    Look look;
};

const std::array<NamedLook, 5> kPhases{{
    {"forward", {Meaning::forward, 'F', '-', "forward"}},
    {"backward", {Meaning::backward, 'B', '=', "backward"}},
    {"backward-input", {Meaning::backward_input, 'I', '=', "backward, inputs"}},
    {"backward-weight", {Meaning::backward_weight, 'W', '%', "backward, weights"}},
    {"update", {Meaning::update, 'U', '^', "update"}},
}};

const auto kVerbLooks = std::to_array<NamedLook>({
    {name_of(Verb::all_reduce), {Meaning::communication, 'r', '~', "all-reduce"}},
    {name_of(Verb::all_gather), {Meaning::communication, 'g', '~', "all-gather"}},
    {name_of(Verb::reduce_scatter), {Meaning::communication, 's', '~', "reduce-scatter"}},
    {name_of(Verb::broadcast), {Meaning::communication, 'b', '~', "broadcast"}},
    {name_of(Verb::reduce), {Meaning::communication, 'd', '~', "reduce"}},
    {name_of(Verb::gather), {Meaning::communication, 'h', '~', "gather"}},
    {name_of(Verb::scatter), {Meaning::communication, 't', '~', "scatter"}},
    {name_of(Verb::all_to_all), {Meaning::communication, 'x', '~', "all-to-all"}},
    {name_of(Verb::barrier), {Meaning::communication, '|', '~', "barrier"}},
    {name_of(Verb::split), {Meaning::communication, 'p', '~', "split"}},
    {name_of(Verb::send), {Meaning::communication, '>', '>', "send"}},
    {name_of(Verb::recv), {Meaning::communication, '<', '<', "receive"}},
    {name_of(Verb::copy), {Meaning::communication, '@', '~', "copy"}},
});
static_assert(std::tuple_size_v<decltype(kVerbLooks)> == kVerbs, "each verb has a look");

const Look kExchange{Meaning::communication, '*', '*', "send and receive"};
const Look kOtherPhase{Meaning::other_phase, 'P', '-', "another phase"};
const Look kOperation{Meaning::operation, 'o', 'o', "operation"};
const Look kCommunication{Meaning::communication, 'c', '~', "communication"};
const Look kCopy{Meaning::copy, ':', ':', "copy between host and device"};

static_assert(kMemoryCategories <= Level::kMostLayers);
/// The meanings of memory, in the order of the categories.
constexpr std::array<Meaning, kMemoryCategories> kMemory{
    Meaning::parameters,    Meaning::gradients, Meaning::optimizer, Meaning::activations,
    Meaning::communication, Meaning::workspace, Meaning::cache};

template <std::size_t N>
const Look& find(const std::array<NamedLook, N>& looks, std::string_view name,
                 const Look& otherwise) {
    const auto* found = std::ranges::find(looks, name, &NamedLook::name);
    return found == looks.end() ? otherwise : found->look;
}

/// Returns "forward 3" without its number, "all_reduce(sum, ...)" without its operands.
std::string leading_word(const std::string& name) {
    return name.substr(0, name.find_first_of(" ("));
}

const Look& look_of(const TraceEvent& event) {
    if (event.kind == "phase")
        return find(kPhases, leading_word(event.name), kOtherPhase);
    if (event.kind == "communication") {
        if (event.name == "send + recv" || event.name == "recv + send") return kExchange;
        const bool several = event.name.find(" + ") != std::string::npos;
        return several ? kCommunication
                       : find(kVerbLooks, leading_word(event.name), kCommunication);
    }
    return event.kind == "copy" ? kCopy : kOperation;
}

/// Returns the name of a box, from its event's place in the trace.
std::string id_of(std::size_t event) {
    return "e" + std::to_string(event);
}

/// Returns the words of a box. Its longest label that fits is shown; for a phase, labels
/// are "forward 3", "F3" and "3".
BoxWords words_of(const TraceEvent& event, std::size_t place, const Causes& causes) {
    BoxWords words;
    words.labels = {event.name, leading_word(event.name)};
    if (event.kind == "copy") words.labels.pop_back();  // "to" says too little
    if (event.kind == "phase" && event.micro_batch >= 0) {
        const std::string number = std::to_string(event.micro_batch);
        words.labels = {leading_word(event.name) + " " + number,
                        look_of(event).letter + number, number};
    }
    words.tooltip = fmt::format("{}\n{} to {} ({})", event.name, time_text(event.start),
                                time_text(event.end), time_text(event.end - event.start));
    if (event.micro_batch >= 0)
        words.tooltip += fmt::format("\nmicro-batch {}", event.micro_batch);
    if (event.bytes > 0) words.tooltip += "\n" + bytes_text(event.bytes);
    if (event.at.line > 0) words.tooltip += "\n" + event.at.text();
    const Cause cause = causes.cause_of(event);
    if (!cause.words.empty()) words.tooltip += "\n" + cause.words;
    words.id = id_of(place);
    for (const std::size_t each : cause.events)
        words.waits_for += (words.waits_for.empty() ? "" : " ") + id_of(each);
    return words;
}

/// Returns the fraction of the time until `end` in which the row is busy. Gaps between
/// the operations of a phase do not count as busy.
double busy_part(const TimelineRow& row, Picoseconds end) {
    Picoseconds busy = 0;
    Picoseconds outer = 0;
    Picoseconds inner = 0;
    for (const RowSpan& span : row.spans) {
        const Picoseconds length = span.event->end - span.event->start;
        if (span.depth == 1) inner += length;
        if (span.depth != 0) continue;
        busy += inner > 0 ? inner : outer;
        outer = length;
        inner = 0;
    }
    busy += inner > 0 ? inner : outer;
    return static_cast<double>(busy) / static_cast<double>(std::max<Picoseconds>(end, 1));
}

/// Returns whether the row has a span longer than 0, or a span that never ended.
bool is_worth_drawing(const TimelineRow& row) {
    return std::ranges::any_of(row.spans, [](const RowSpan& span) {
        const TraceEvent& event = *span.event;
        return event.end > event.start || event.name.ends_with("(never ended)");
    });
}

/// Makes the panel of one run.
class PanelMaker {
  public:
    PanelMaker(Chart& chart, const TitledRun& run, Picoseconds scale)
        : chart_(chart), report_(run.report) {
        panel_.title = run.title;
        panel_.end = timeline_end(report_);
        panel_.axis = Axis::of_seconds(scale);
        panel_.words_of = [&trace = report_.trace,
                           causes = std::make_shared<Causes>(report_)](const RowGroup&,
                                                                       const Box& box) {
            return lockstep::words_of(trace[box.source], box.source, *causes);
        };
        panel_.amount_text = [](double bytes) {
            return bytes_text(static_cast<std::int64_t>(bytes));
        };
        for (int c = 0; c < kMemoryCategories; ++c) {
            const auto category = static_cast<MemoryCategory>(c);
            panel_.layers.push_back(chart.look({kMemory[c], 0, 0, name_of(category)}));
        }
    }

    /// Returns the panel with only memory.
    Panel memory_panel() {
        std::map<int, RowGroup> groups;
        add_memory(groups);
        fold(groups);
        panel_.note = size_text();
        return std::move(panel_);
    }

    Panel panel() {
        std::map<int, RowGroup> groups;
        add_rows(groups);
        add_memory(groups);
        fold(groups);
        panel_.note = size_text();
        if (report_.flows.size() <= kMostArrows)
            add_arrows();
        else
            panel_.note +=
                fmt::format("; {} messages without arrows",
                            count_text(static_cast<std::int64_t>(report_.flows.size())));
        return std::move(panel_);
    }

  private:
    void add_rows(std::map<int, RowGroup>& groups) {
        for (const TimelineRow& each : timeline_rows(report_)) {
            if (!is_worth_drawing(each)) continue;
            const bool computes = each.queue == "compute";
            Row row;
            row.label = each.label();
            row.size = computes ? RowSize::large : RowSize::medium;
            row.shows_idle = computes;
            row.busy = busy_part(each, panel_.end);
            for (const RowSpan& span : each.spans) {
                const TraceEvent& event = *span.event;
                row.boxes.push_back(
                    {event.start, event.end, chart_.look(look_of(event)),
                     event.micro_batch, span.depth,
                     static_cast<std::size_t>(&event - report_.trace.data())});
            }
            groups[each.rank].rows.push_back(std::move(row));
        }
    }

    void add_memory(std::map<int, RowGroup>& groups) {
        for (const TraceMemory& now : report_.memory_trace) {
            RowGroup& group = groups[now.rank];
            if (group.strips.empty()) group.strips.push_back({"memory", {}, 0, 0});
            Strip& strip = group.strips.front();
            Level level{now.time, {}};
            std::ranges::copy(now.bytes, level.amounts.begin());
            strip.levels.push_back(level);
            if (level.total() <= strip.peak) continue;
            strip.peak = level.total();
            strip.peak_at = now.time;
        }
    }

    /// Puts devices that do the same into one group.
    void fold(std::map<int, RowGroup>& groups) {
        for (auto& [rank, group] : groups) {
            const auto known = std::ranges::find_if(
                panel_.groups, [&group = group, this](const RowGroup& other) {
                    return is_same(group, other);
                });
            group_of_[rank] = static_cast<std::size_t>(known - panel_.groups.begin());
            if (known == panel_.groups.end()) panel_.groups.push_back(std::move(group));
            panel_.groups[group_of_[rank]].members.push_back(rank);
        }
    }

    bool is_same(const RowGroup& a, const RowGroup& b) const {
        const auto same_box = [&](const Box& x, const Box& y) {
            const TraceEvent& left = report_.trace[x.source];
            const TraceEvent& right = report_.trace[y.source];
            return x.start == y.start && x.end == y.end && x.look == y.look &&
                   x.number == y.number && x.depth == y.depth &&
                   left.name == right.name && left.bytes == right.bytes &&
                   left.at == right.at;
        };
        const auto same_row = [&](const Row& x, const Row& y) {
            return x.label == y.label && std::ranges::equal(x.boxes, y.boxes, same_box);
        };
        const auto same_level = [](const Level& x, const Level& y) {
            return x.time == y.time && x.amounts == y.amounts;
        };
        const auto same_strip = [&](const Strip& x, const Strip& y) {
            return std::ranges::equal(x.levels, y.levels, same_level);
        };
        return std::ranges::equal(a.rows, b.rows, same_row) &&
               std::ranges::equal(a.strips, b.strips, same_strip);
    }

    std::string size_text() const {
        std::size_t devices = report_.ranks.size();
        if (!group_of_.empty())
            devices = std::max(devices,
                               static_cast<std::size_t>(group_of_.rbegin()->first + 1));
        return fmt::format("{} {}, {}", devices, devices == 1 ? "device" : "devices",
                           time_text(panel_.end));
    }

    /// Returns the row of the queue, or the device's first row if the queue has none.
    RowPlace place_of(int rank, const std::string& queue) const {
        const auto group = group_of_.find(rank);
        if (group == group_of_.end()) return {panel_.groups.size(), 0};
        const std::vector<Row>& rows = panel_.groups[group->second].rows;
        const auto row = std::ranges::find(rows, queue, &Row::label);
        return {group->second,
                row == rows.end() ? 0 : static_cast<std::size_t>(row - rows.begin())};
    }

    /// Messages between devices of one group are not drawn: they would have no length.
    void add_arrows() {
        for (const TraceFlow& flow : report_.flows) {
            const RowPlace from = place_of(flow.source_rank, flow.queue);
            const RowPlace to = place_of(flow.destination_rank, flow.queue);
            if (from == to) continue;
            panel_.arrows.push_back(
                {from, to, flow.start, flow.end,
                 fmt::format("{} from device {} to device {}, {} to {}",
                             bytes_text(flow.bytes), flow.source_rank,
                             flow.destination_rank, time_text(flow.start),
                             time_text(flow.end))});
        }
    }

    Chart& chart_;
    const RunReport& report_;
    Panel panel_;
    std::map<int, std::size_t> group_of_;
};

/// Adds the looks of the boxes to the legend, except looks that are in it already.
void add_looks(Chart& chart, const std::vector<Row>& rows, std::set<int>& known) {
    for (const Row& row : rows)
        for (const Box& box : row.boxes)
            if (box.depth == 0 && known.insert(box.look).second)
                chart.legend.push_back({"", {box.look}, chart.looks[box.look].words});
}

/// Adds the layers that a strip shows.
void add_layers(const Strip& strip, const std::vector<int>& numbers,
                std::set<int>& layers) {
    for (const Level& level : strip.levels)
        for (std::size_t i = 0; i < numbers.size(); ++i)
            if (level.amounts[i] > 0) layers.insert(numbers[i]);
}

/// Fills the legend: first the looks of boxes, in order of appearance, then memory.
void add_legend(Chart& chart) {
    std::set<int> known;
    std::set<int> layers;
    for (const Panel& panel : chart.panels)
        for (const RowGroup& group : panel.groups) {
            add_looks(chart, group.rows, known);
            for (const Strip& strip : group.strips)
                add_layers(strip, panel.layers, layers);
        }
    std::string heading = "memory";
    for (const int layer : layers) {
        chart.legend.push_back({heading, {layer}, chart.looks[layer].words});
        heading.clear();
    }
}

}  // namespace

Chart timeline_chart(const RunReport& report, const std::string& title) {
    Chart chart;
    chart.panels.push_back(
        PanelMaker(chart, {title, report}, timeline_end(report)).panel());
    add_legend(chart);
    return chart;
}

Chart memory_chart(const RunReport& report, const std::string& title) {
    Chart chart;
    chart.panels.push_back(
        PanelMaker(chart, {title, report}, timeline_end(report)).memory_panel());
    add_legend(chart);
    return chart;
}

Chart timeline_chart(const std::vector<TitledRun>& runs) {
    Picoseconds end = 0;
    for (const TitledRun& run : runs)
        if (!run.report.trace.empty()) end = std::max(end, timeline_end(run.report));
    Chart chart;
    for (const TitledRun& run : runs) {
        if (run.report.trace.empty()) continue;
        const Picoseconds own = timeline_end(run.report);
        chart.panels.push_back(
            PanelMaker(chart, run, own < end / kLeastShare ? own : end).panel());
    }
    add_legend(chart);
    return chart;
}

}  // namespace lockstep
