#include "src/course/show_run.hpp"

#include <cstdio>

#include <fmt/format.h>

#include "src/chart/svg.hpp"
#include "src/chart/text.hpp"
#include "src/core/units.hpp"
#include "src/course/not_written.hpp"
#include "src/report/chrome_trace.hpp"
#include "src/report/files.hpp"
#include "src/report/timeline.hpp"
#include "src/report/write_diagnosis.hpp"

namespace lockstep {

int show_run(Cluster& cluster, const Program& program, const std::string& name) {
    try {
        const RunReport report = cluster.run(program);
        const Chart chart = timeline_chart(report, name);
        fmt::print("{}\n", chart_text(chart, {.width = 100, .drawn_by = {}}));
        for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
            const RankReport& left = report.ranks[rank];
            fmt::print("rank {}: {} messages, {} sent, peak memory {}\n", rank,
                       left.messages_sent(), bytes_text(left.bytes_sent()),
                       bytes_text(left.memory.peak));
        }
        fmt::print("all done after {}\n", time_text(report.makespan()));
        write_text_file(name + ".json", chrome_trace({{name, report}}));
        write_text_file(name + ".svg", chart_svg(chart));
        fmt::print("{0}.svg is the picture; {0}.json opens in Perfetto.\n", name);
        return 0;
    } catch (const NotWritten& missing) {
        fmt::print(stderr, "not written yet: {}\n", missing.what());
    } catch (const FaultError& mistake) {
        fmt::print(stderr, "{}\n", mistake.diagnosis().text());
        write_diagnosis(name, mistake);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
    }
    return 1;
}

}  // namespace lockstep
