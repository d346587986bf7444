// Shows your schedules as pictures, together with what the handout's table allows.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include <fmt/format.h>

#include "adapters.hpp"
#include "src/chart/svg.hpp"
#include "src/chart/text.hpp"
#include "src/course/not_written.hpp"
#include "src/pipeline/picture.hpp"
#include "src/report/files.hpp"

using namespace lockstep;

struct Sizes {
    int p = 4;
    int m = 8;
    int limit = 2;
    int forward = 1;   ///< t_f
    int backward = 2;  ///< t_b
};

/// The quantity that the table limits on a stage, and the table's limit.
struct Held {
    std::function<int(const Holdings& peak)> amount;
    std::function<int(int stage)> most;
};

std::string beside_most(const Schedule& schedule, const Held& held) {
    const auto peaks = peak_holdings(schedule);
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const int most = held.most(stage);
        const int peak = held.amount(peaks[stage]);
        if (peak > most)
            return fmt::format("stage {} holds {}; the table allows {}", stage, peak,
                               most);
    }
    return "no stage holds more than the table allows";
}

/// Draws the schedule that `make` returns, timed with these durations. Prints the text of
/// `measured`, and whether a stage holds more than `held` allows.
bool show(const std::string& name, const std::string& sizes,
          const std::function<Schedule()>& make, const Held& held,
          const Durations& durations,
          const std::function<std::string(const Timing&)>& measured) {
    const std::string file = name + ".svg";
    std::remove(file.c_str());  // removes an old picture
    try {
        const Schedule schedule = make();
        const Timing timing = time_schedule(schedule, {durations});
        SchedulePicture picture;
        picture.title = fmt::format("{}: {}", name, sizes);
        const Chart chart = schedule_chart(schedule, timing, picture);
        fmt::print("{}\n{}\n{}\n", chart_text(chart, {100, false, file}),
                   measured(timing), beside_most(schedule, held));
        write_text_file(file, chart_svg(chart));
        fmt::print("the whole picture is in {}\n\n", file);
        return true;
    } catch (const NotWritten& missing) {
        fmt::print("{}: not written yet: {}\n\n", name, missing.what());
    } catch (const std::exception& error) {
        fmt::print("{}: {}: {}\n\n", name, sizes, error.what());
    }
    return false;
}

int in_flight(const Holdings& peak) {
    return peak.in_flight;
}

/// Returns a function that writes a schedule's time, and beside it the time of `turns`
/// forwards and whole backwards.
std::function<std::string(const Timing&)> beside_turns(const Sizes& sizes, int turns) {
    return [=](const Timing& timing) {
        return fmt::format("all done after {}; the table allows {}", timing.makespan,
                           turns * (sizes.forward + sizes.backward));
    };
}

bool show_plain(const Sizes& sizes) {
    return show(
        "one_forward_one_backward",
        fmt::format("p = {}, m = {}, t_f = {}, t_b = {}", sizes.p, sizes.m, sizes.forward,
                    sizes.backward),
        [&] { return adapters::one_forward_one_backward(sizes.p, sizes.m); },
        {in_flight, [&](int stage) { return std::min(sizes.p - stage, sizes.m); }},
        {sizes.forward, sizes.backward, 0}, beside_turns(sizes, sizes.m + sizes.p - 1));
}

bool show_limited(const Sizes& sizes) {
    const int most = std::min(sizes.limit, sizes.p);
    const int waits = (sizes.m + most - 1) / most - 1;
    return show(
        "with_memory_limit",
        fmt::format("p = {}, m = {}, limit {}, t_f = {}, t_b = {}", sizes.p, sizes.m,
                    sizes.limit, sizes.forward, sizes.backward),
        [&] { return adapters::with_memory_limit(sizes.p, sizes.m, sizes.limit); },
        {in_flight, [&](int) { return sizes.limit; }}, {sizes.forward, sizes.backward, 0},
        beside_turns(sizes, sizes.m + sizes.p - 1 + waits * (sizes.p - most)));
}

bool show_split(const Sizes& sizes, int limit) {
    return show(
        "split_backward",
        fmt::format("p = {}, m = {}, limit {}, t_f = t_i = t_w = 1", sizes.p, sizes.m,
                    limit),
        [&] { return adapters::split_backward(sizes.p, sizes.m, limit); },
        {[](const Holdings& peak) { return static_cast<int>(peak.memory); },
         [&](int) { return limit; }},
        {1, 1, 1},
        [&](const Timing& timing) {
            return fmt::format("the bubble is {}; the table allows {}", timing.bubble(),
                               std::max(0, 2 * sizes.p - 1 - std::min(limit, sizes.m)));
        });
}

int main(int count, char** words) {
    Sizes sizes;
    int* const numbers[] = {&sizes.p, &sizes.m, &sizes.limit, &sizes.forward,
                            &sizes.backward};
    for (int i = 1; i < count; ++i) {
        const int number = std::atoi(words[i]);
        if (i > 5 || number < 1) {
            fmt::print(stderr,
                       "run [STAGES [MICRO_BATCHES [LIMIT [T_F [T_B]]]]]: whole numbers, "
                       "1 or more\n");
            return 2;
        }
        *numbers[i - 1] = number;
    }
    // split_backward needs a limit of at least p.
    const int held = std::max(count > 3 ? sizes.limit : sizes.p + 1, sizes.p);
    const bool drawn[] = {show_plain(sizes), show_limited(sizes),
                          show_split(sizes, held)};
    return drawn[0] && drawn[1] && drawn[2] ? 0 : 1;
}
