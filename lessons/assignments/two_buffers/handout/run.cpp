// Shows your schedule as a picture and as lists, the versions that each stage keeps, the
// memory of three schemes, and your choices for devices with less and less memory.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

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
    int m = 12;
    int k = 4;
    int forward = 1;   ///< t_f
    int backward = 2;  ///< t_b
};

constexpr StageBytes kBytes{1'000, 100, 2'000, 3'000};

std::string text_of(const Choice& choice) {
    const char* const names[] = {"flush", "stash", "two buffers"};
    return fmt::format("{}, k = {}", names[static_cast<int>(choice.scheme)],
                       choice.per_update);
}

/// Runs one part of the program. Returns false if the part is not written, or fails.
bool show(const std::string& name, const std::function<void()>& part) {
    try {
        part();
        return true;
    } catch (const NotWritten& missing) {
        fmt::print("{}: not written yet: {}\n\n", name, missing.what());
    } catch (const std::exception& error) {
        fmt::print("{}: {}\n\n", name, error.what());
    }
    return false;
}

void show_schedule(const Sizes& sizes) {
    const std::string file = "two_buffers.svg";
    std::remove(file.c_str());  // removes an old picture
    const Schedule schedule = adapters::two_buffers(sizes.p, sizes.m, sizes.k);
    const Timing timing = time_schedule(schedule, {{sizes.forward, sizes.backward, 0}});
    SchedulePicture picture;
    picture.title = fmt::format("two_buffers: p = {}, m = {}, k = {}, t_f = {}, t_b = {}",
                                sizes.p, sizes.m, sizes.k, sizes.forward, sizes.backward);
    const Chart chart = schedule_chart(schedule, timing, picture);
    fmt::print("{}\nall done after {}; the handout's table allows {}\n",
               chart_text(chart, {100, false, file}), timing.makespan,
               (sizes.m + sizes.p - 1) * (sizes.forward + sizes.backward));
    write_text_file(file, chart_svg(chart));
    fmt::print("the whole picture is in {}\n\n", file);
    for (int stage = 0; stage < sizes.p; ++stage) {
        fmt::print("stage {}:", stage);
        for (const std::string& text : texts_of(schedule.of_stage(stage)))
            fmt::print(" {}", text);
        fmt::print("\n");
    }
    fmt::print("\n");
}

void show_versions(const Sizes& sizes) {
    const Schedule schedule = adapters::two_buffers(sizes.p, sizes.m, sizes.k);
    for (int stage = 0; stage < sizes.p; ++stage) {
        const auto& list = schedule.of_stage(stage);
        const auto text = [&](int position) {
            return fmt::format("{} ({})", position, text_of(list.at(position)));
        };
        fmt::print("stage {} keeps\n", stage);
        int version = 0;
        for (const Kept& kept : adapters::kept_versions(list))
            fmt::print("  version {}, from {} to {}\n", version++,
                       kept.made < 0 ? "the beginning" : text(kept.made),
                       kept.dropped < 0 ? "the end" : text(kept.dropped));
    }
    fmt::print("\n");
}

void show_bytes(const Sizes& sizes) {
    fmt::print(
        "bytes at most, if a version has {}, a micro-batch {}, gradients {}, the "
        "optimizer {}\n",
        kBytes.weights, kBytes.activations, kBytes.gradients, kBytes.optimizer);
    for (const Choice& choice : {Choice{Scheme::flush, sizes.k},
                                 {Scheme::stash, 1},
                                 {Scheme::two_buffers, sizes.k}}) {
        std::string line = text_of(choice);
        for (int stage = 0; stage < sizes.p; ++stage)
            line +=
                fmt::format("  {}", adapters::most_bytes(choice, sizes.p, stage, kBytes));
        fmt::print("{}\n", line);
    }
    fmt::print("\n");
}

void show_choices(const Sizes& sizes) {
    for (std::int64_t memory = 10'000; memory >= 6'000; memory -= 500) {
        Setting setting{sizes.p,       memory,         sizes.k, sizes.p,
                        sizes.forward, sizes.backward, 1,       {}};
        setting.bytes.assign(static_cast<std::size_t>(sizes.p), kBytes);
        const std::optional<Choice> choice = adapters::fastest(setting);
        fmt::print("with {} bytes: {}\n", memory,
                   choice ? text_of(*choice) : "nothing fits");
    }
}

int main(int count, char** words) {
    Sizes sizes;
    int* const numbers[] = {&sizes.p, &sizes.m, &sizes.k, &sizes.forward,
                            &sizes.backward};
    for (int i = 1; i < count; ++i) {
        const int number = std::atoi(words[i]);
        if (i > 5 || number < 1) {
            fmt::print(stderr,
                       "run [STAGES [MICRO_BATCHES [PER_UPDATE [T_F [T_B]]]]]: whole "
                       "numbers, 1 or more\n");
            return 2;
        }
        *numbers[i - 1] = number;
    }
    if (sizes.k < sizes.p - 1 || sizes.m % sizes.k != 0) {
        fmt::print(stderr,
                   "run: PER_UPDATE is {}; {} or more is expected, and a divisor of {}\n",
                   sizes.k, sizes.p - 1, sizes.m);
        return 2;
    }
    const bool shown[] = {show("two_buffers", [&] { show_schedule(sizes); }),
                          show("kept_versions", [&] { show_versions(sizes); }),
                          show("most_bytes", [&] { show_bytes(sizes); }),
                          show("fastest", [&] { show_choices(sizes); })};
    return std::ranges::all_of(shown, [](bool one) { return one; }) ? 0 : 1;
}
