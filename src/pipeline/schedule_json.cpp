#include "src/pipeline/schedule_json.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "src/text/json.hpp"

namespace lockstep {

namespace {

/// "[a, b]" of `text_of(item)`.
template <typename Range, typename TextOf>
std::string list_json(const Range& range, TextOf&& text_of, const char* between = ", ") {
    std::string text = "[";
    for (const auto& item : range) {
        if (text.size() > 1) text += between;
        text += text_of(item);
    }
    return text + "]";
}

/// The members of an object, one on each line.
class Members {
  public:
    void add(const std::string& key, const std::string& value) {
        text_ += (text_.empty() ? "" : ",\n ") + json_quoted(key) + ": " + value;
    }
    std::string text() const { return "{" + text_ + "}\n"; }

  private:
    std::string text_;
};

constexpr const char* kALineEach = ",\n  ";

void add_sizes(Members& members, const Schedule& schedule) {
    members.add("name", json_quoted(schedule.name));
    members.add("stages", std::to_string(schedule.stages));
    members.add("micro_batches", std::to_string(schedule.micro_batches));
    members.add("chunks", std::to_string(schedule.chunks));
}

/// If `unrolled`, all copies of a repeated middle are written, so each instruction has a
/// place.
void add_work(Members& members, const Schedule& schedule, bool unrolled) {
    const auto number = [](int part) { return std::to_string(part); };
    const auto parts = [&](const auto& held) { return list_json(held, number); };
    std::vector<std::vector<std::string>> texts;
    texts.reserve(schedule.work.size());
    for (int stage = 0; stage < schedule.stages; ++stage)
        texts.push_back(unrolled ? texts_of(schedule.of_stage(stage))
                                 : texts_of(schedule, stage));
    const auto work = [](const std::vector<std::string>& list) {
        return list_json(list, [](const std::string& text) { return '"' + text + '"'; });
    };
    members.add("parts", list_json(schedule.parts, parts));
    if (schedule.queues == MessageQueues::by_direction)
        members.add("queues", "\"by direction\"");
    members.add("schedule", list_json(texts, work, kALineEach));
}

/// Writes a timing as JSON, with times in the unit of the output.
class TimingWriter {
  public:
    TimingWriter(const Schedule& schedule, const Timing& timing,
                 const TimingJsonOptions& options)
        : schedule_(schedule), timing_(timing), options_(options) {}

    std::string text() {
        add_sizes(members_, schedule_);
        add_durations();
        add_times();
        add_memory();
        add_bubble();
        add_stages();
        if (options_.period != nullptr) add_period(*options_.period);
        if (options_.known != nullptr) add_known(*options_.known);
        add_critical_path();
        members_.add("communication", json_quoted(communication_text(schedule_)));
        members_.add("time_origin", json_quoted(time_origin_text()));
        add_work(members_, schedule_, /*unrolled=*/true);
        if (options_.spans) add_spans();
        return members_.text();
    }

  private:
    void add_spans() {
        const auto text = [&](TimeSpan span) {
            return "[" + time(span.start) + ", " + time(span.end) + "]";
        };
        const auto list = [&](const std::vector<TimeSpan>& spans) {
            return list_json(spans, text);
        };
        members_.add("spans", list_json(timing_.spans, list, kALineEach));
    }

    std::string time(Picoseconds ticks) const {
        return json_number(static_cast<double>(ticks) / options_.ticks);
    }

    /// Writes each stage's durations: the sums over its chunks, and its messages.
    void add_durations() {
        const auto sums_of = [&](Picoseconds Durations::*kind, bool one) {
            std::vector<Picoseconds> sums(static_cast<std::size_t>(schedule_.stages), 0);
            for (int stage = 0; stage < schedule_.stages; ++stage)
                for (int chunk = 0; chunk < (one ? 1 : schedule_.chunks); ++chunk)
                    sums[stage] += durations(stage, chunk).*kind;
            return list_json(sums, [&](Picoseconds sum) { return time(sum); });
        };
        std::string object =
            "{\"forward\": " + sums_of(&Durations::forward, false) +
            ",\n  \"backward_input\": " + sums_of(&Durations::backward_input, false) +
            ",\n  \"backward_weight\": " + sums_of(&Durations::backward_weight, false);
        if (!options_.times.by_part)
            object += ",\n  \"comm\": " + sums_of(&Durations::message, true);
        members_.add("durations", object + "}");
    }

    const Durations& durations(int stage, int chunk) const {
        const std::vector<Durations>& each = options_.times.each;
        if (each.size() == 1) return each.front();
        return each[options_.times.by_part ? schedule_.part(stage, chunk) : stage];
    }

    /// Writes the times of parts as a file has them, if none has more than nine decimals.
    void add_times() {
        const std::vector<Durations>& each = options_.times.each;
        if (each.size() > 1 && !options_.times.by_part) return;
        std::string object;
        bool exact = true;
        const auto add = [&](const char* name, Picoseconds Durations::*kind,
                             Picoseconds unsaid) {
            const auto is_first = [&](const Durations& own) {
                return own.*kind == each.front().*kind;
            };
            const bool one = std::all_of(each.begin(), each.end(), is_first);
            if (one && each.front().*kind == unsaid) return;
            for (const Durations& own : each)
                exact = exact && has_nine_decimals(own.*kind);
            object += (object.empty() ? "" : ", ") + json_quoted(name) + ": ";
            object += one ? time(each.front().*kind)
                          : list_json(each, [&](const Durations& own) {
                                return time(own.*kind);
                            });
        };
        constexpr Picoseconds kAlwaysSaid = -2;
        add("forward", &Durations::forward, kAlwaysSaid);
        add("backward_input", &Durations::backward_input, kAlwaysSaid);
        add("backward_weight", &Durations::backward_weight, kAlwaysSaid);
        add("message", &Durations::message, kAlwaysSaid);
        add("recompute", &Durations::recompute, 0);
        add("reduce", &Durations::reduce, 0);
        add("update", &Durations::update, 0);
        add("overlapped", &Durations::overlapped, -1);
        std::string links;
        for (const auto& [stages, link] : options_.times.links) {
            exact = exact && has_nine_decimals(link);
            links += (links.empty() ? "\"" : ", \"") + std::to_string(stages.first) +
                     "-" + std::to_string(stages.second) + "\": " + time(link);
        }
        if (!links.empty()) object += ", \"links\": {" + links + "}";
        if (exact) members_.add("times", "{" + object + "}");
    }

    bool has_nine_decimals(Picoseconds ticks) const {
        const double billionths = static_cast<double>(ticks) / options_.ticks * 1e9;
        constexpr double kRounding = 1e-6;
        return std::abs(billionths - std::round(billionths)) <=
               kRounding * std::max(1.0, billionths);
    }

    void add_memory() {
        const std::vector<KeptMemory>& each = options_.memory.each;
        const auto amounts = [&](double KeptMemory::*kind) {
            if (each.size() == 1) return json_number(each.front().*kind);
            return list_json(
                each, [&](const KeptMemory& kept) { return json_number(kept.*kind); });
        };
        members_.add("memory",
                     "{\"activations\": " + amounts(&KeptMemory::activations) +
                         ", \"for_weights\": " + amounts(&KeptMemory::for_weights) +
                         ", \"recomputed\": " + amounts(&KeptMemory::recomputed) +
                         ", \"weights\": " + amounts(&KeptMemory::weights) + "}");
    }

    void add_bubble() {
        members_.add("makespan", time(timing_.makespan));
        members_.add("longest_stage", time(timing_.longest));
        members_.add("ideal", time(timing_.ideal));
        members_.add("bubble_time", time(timing_.bubble()));
        members_.add("bubble_over_total", json_number(timing_.bubble_over_total()));
        members_.add("bubble_over_ideal", json_number(timing_.bubble_over_ideal()));
        members_.add("utilisation", json_number(timing_.utilisation()));
    }

    void add_stages() {
        const std::vector<Holdings> peaks = peak_holdings(schedule_, options_.memory);
        const auto count = [&](const char* key, int Holdings::*what) {
            members_.add(key, list_json(peaks, [&](const Holdings& peak) {
                             return std::to_string(peak.*what);
                         }));
        };
        count("in_flight", &Holdings::in_flight);
        count("between_halves", &Holdings::between);
        count("weight_versions", &Holdings::weight_versions);
        members_.add("peak_memory", list_json(peaks, [](const Holdings& peak) {
                         return json_number(peak.memory);
                     }));
        const auto times = [&](const char* key, auto&& ticks_of) {
            members_.add(key, list_json(timing_.stages, [&](const StageTiming& stage) {
                             return time(ticks_of(stage));
                         }));
        };
        times("idle", [](const StageTiming& stage) { return stage.idle(); });
        times("start", [](const StageTiming& stage) { return stage.span.start; });
        times("end", [](const StageTiming& stage) { return stage.span.end; });
    }

    void add_period(const PeriodTiming& period) {
        const std::vector<Holdings> peaks = peak_holdings(period, options_.memory);
        const auto of_peaks = [&](auto&& text_of) { return list_json(peaks, text_of); };
        const auto number = [](int value) { return std::to_string(value); };
        std::string object;
        const auto add = [&](const char* name, const std::string& value) {
            object += (object.empty() ? "" : ", ") + json_quoted(name) + ": " + value;
        };
        add("micro_batches", std::to_string(period.micro_batches));
        add("length", time(period.length));
        add("ideal", time(period.ideal()));
        add("bubble_time", time(period.bubble()));
        add("bubble_over_total", json_number(period.bubble_over_total()));
        add("idle", list_json(period.busy, [&](Picoseconds busy) {
                return time(period.length - busy);
            }));
        add("in_flight",
            of_peaks([&](const Holdings& peak) { return number(peak.in_flight); }));
        add("weight_versions",
            of_peaks([&](const Holdings& peak) { return number(peak.weight_versions); }));
        add("staleness", list_json(staleness(period), [&](const std::vector<int>& stage) {
                return list_json(stage, [](int late) {
                    return late < 0 ? "null" : std::to_string(late);
                });
            }));
        add("peak_memory",
            of_peaks([](const Holdings& peak) { return json_number(peak.memory); }));
        members_.add("period", "{" + object + "}");
    }

    void add_known(const std::vector<KnownOrder>& known) {
        members_.add("known", list_json(known, [&](const KnownOrder& each) {
                         return fmt::format(
                             "{{\"name\": {}, \"bubble_time\": {}, \"peak_memory\": {}}}",
                             json_quoted(each.name), time(each.bubble),
                             json_number(each.memory));
                     }));
    }

    void add_critical_path() {
        const auto step = [&](Place place) {
            const TimeSpan span = timing_.span(place);
            return "{\"stage\": " + std::to_string(place.stage) +
                   ", \"instruction\": \"" + text_of(schedule_.at(place)) +
                   "\", \"start\": " + time(span.start) + ", \"end\": " + time(span.end) +
                   "}";
        };
        members_.add("critical_path", list_json(timing_.critical_path, step, kALineEach));
    }

    const Schedule& schedule_;
    const Timing& timing_;
    const TimingJsonOptions& options_;
    Members members_;
};

}  // namespace

std::string schedule_json(const Schedule& schedule) {
    Members members;
    add_sizes(members, schedule);
    add_work(members, schedule, /*unrolled=*/false);
    return members.text();
}

std::string timing_json(const Schedule& schedule, const Timing& timing,
                        const TimingJsonOptions& options) {
    return TimingWriter(schedule, timing, options).text();
}

std::string communication_text(const Schedule& schedule) {
    return schedule.has_messages()
               ? "A message begins when both stages have reached it and have finished "
                 "their earlier messages, one at a time. It takes comm. Only the "
                 "computation that needs it waits for it."
               : "Data from another stage arrives comm after it was made. Messages never "
                 "wait for one another, and only the computation that needs one waits "
                 "for it.";
}

std::string time_origin_text() {
    return "Time 0 is when the first stage may begin. The bubble is that of the stage "
           "that takes longest. Each stage is measured from its own first instruction to "
           "its own end.";
}

}  // namespace lockstep
